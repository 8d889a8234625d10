//! Small worlds, all of them: three calls of every kind, and every order of their ends, a cancel, a crash and a steer.

mod kit;

use impresario_kernel::event::{Lane, QueueRule};
use impresario_kernel::turn::{CallState, Phase};

use kit::{Script, answer, call};

const KINDS: [&str; 3] = ["read", "write", "child"];
const CALLS: [&str; 3] = ["a", "b", "c"];

/// What happens to an agent that runs calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Happens {
    /// This call ends, if it runs.
    Ends(usize),
    Cancel(QueueRule),
    Crash,
    Steer,
}

/// Every order of `things`.
fn orders(things: &[Happens]) -> Vec<Vec<Happens>> {
    if things.is_empty() {
        return vec![vec![]];
    }
    let mut all = vec![];
    for at in 0..things.len() {
        let mut rest = things.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|order| [vec![first], order].concat()));
    }
    all
}

fn is_running(script: &Script, id: &str) -> bool {
    let Some(open) = script.agent.turn().open() else { return false };
    let Phase::Calling(calling) = &open.phase else { return false };
    calling.calls.iter().any(|call| call.id.as_str() == id && matches!(call.state, CallState::Started { .. }))
}

fn happen(script: &mut Script, what: Happens) {
    match what {
        Happens::Ends(at) if is_running(script, CALLS[at]) => script.settle(CALLS[at]),
        Happens::Ends(_) => {}
        Happens::Cancel(queue) => script.cancel(queue),
        Happens::Crash => drop(script.crash()),
        Happens::Steer => script.deliver(Lane::NextStep, true, "steer"),
    }
}

/// Lets everything that is wanted end.
fn come_to_rest(script: &mut Script) {
    for _ in 0..20 {
        if script.agent.is_at_rest() {
            return;
        }
        if script.agent.turn().is_idle() {
            script.slot();
        } else if script.agent.turn().open().is_some_and(|open| matches!(open.phase, Phase::Sampling(_))) {
            script.model(answer("done"));
        } else {
            CALLS.iter().filter(|id| is_running(script, id)).copied().collect::<Vec<_>>().iter().for_each(|id| {
                if is_running(script, id) {
                    script.settle(id);
                }
            });
        }
    }
    panic!("it does not come to rest: {:#?}", script.log());
}

/// Each call has one result, each turn one outcome, and what was said is before the model once or waits.
fn check(script: &Script, case: &str) {
    for id in CALLS {
        let results = script
            .log()
            .iter()
            .filter(|line| line.split(' ').nth(1) == Some(id) && line.starts_with("tool/result"))
            .count();
        assert_eq!(results, 1, "{case}: results of {id} in {:#?}", script.log());
    }
    assert_eq!(script.only("turn/start").len(), script.only("turn/end").len(), "{case}");
    assert_eq!(script.only("turn/end").len(), script.only("agent/outcome").len(), "{case}");
    let waiting = script.agent.inbox().len();
    let shown = script.only("user/message steer").len();
    assert_eq!(shown + waiting, 1, "{case}: the steer is shown {shown} times and waits {waiting} times");
}

fn every_order(queue: QueueRule) -> usize {
    let things =
        [Happens::Ends(0), Happens::Ends(1), Happens::Ends(2), Happens::Cancel(queue), Happens::Crash, Happens::Steer];
    let orders = orders(&things);
    let mut worlds = 0;
    for kinds in (0..27).map(|n: usize| [KINDS[n / 9], KINDS[n / 3 % 3], KINDS[n % 3]]) {
        for order in &orders {
            let mut script = Script::told("go");
            script.model((0..3).map(|at| call(at as u32, CALLS[at], kinds[at])).collect());
            order.iter().for_each(|&what| happen(&mut script, what));
            come_to_rest(&mut script);
            check(&script, &format!("{kinds:?} {order:?}"));
            worlds += 1;
        }
    }
    worlds
}

#[test]
fn every_order_of_three_calls_a_parking_cancel_a_crash_and_a_steer_ends_well() {
    assert_eq!(every_order(QueueRule::Park), 27 * 720);
}

#[test]
fn every_order_of_three_calls_a_cancel_that_goes_on_a_crash_and_a_steer_ends_well() {
    assert_eq!(every_order(QueueRule::Run), 27 * 720);
}
