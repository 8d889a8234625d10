//! Points of a turn at which hooks have a say, as scripts of inputs for one agent. Numbers are those of the testable
//! behaviours of the reference.

mod kit;

use std::sync::Arc;

use impresario_kernel::event::{Lane, QueueRule, RequestHeader};
use impresario_kernel::{Block, Entry, Input, Judgement, Message, Point, Recovery, Said, Want};

use kit::{Script, answer, call, failed, text};

fn said<T>(what: T) -> Said<T> {
    Said { hook: "hook".into(), what }
}

fn note(text: &str) -> Said<Arc<Message>> {
    said(Arc::new(Message::user(format!("note-{text}"), text)))
}

fn reject() -> Judgement {
    Judgement::PreStep(Entry::Reject(said("not here".into())))
}

fn enter(messages: &[&str]) -> Judgement {
    let messages = messages.iter().map(|text| Arc::new(Message::user(format!("entered-{text}"), *text))).collect();
    Judgement::PreStep(Entry::Enter { messages, hooks: vec!["hook".into()] })
}

fn broken(point: Point) -> Judgement {
    Judgement::Failed { point, hook: "hook".into(), why: "it panicked".into() }
}

#[test]
fn b065_a_prompt_that_is_turned_down_never_reaches_the_model() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.judge(reject());
    assert_eq!(
        script.log()[2..],
        [
            "turn/start 1",
            "agent/inbox/spliced",
            "hook/asked pre-step",
            "hook/judged pre-step Rejected",
            "turn/end blocked",
            "agent/outcome refused",
        ]
    );
    assert!(script.agent.messages().is_empty() && script.agent.is_at_rest());
}

#[test]
fn b066_behind_a_prompt_that_was_turned_down_the_queue_goes_on() {
    let mut script = Script::asking(&[Point::PreStep], "first");
    script.followup("second");
    script.judge(reject());
    script.slot();
    script.judge(Judgement::PreStep(Entry::Pass));
    script.model(answer("yes"));
    assert_eq!(script.only("user/message"), ["user/message second"]);
    assert_eq!(script.only("turn/end"), ["turn/end blocked", "turn/end completed"]);
}

#[test]
fn b067_a_first_step_without_messages_completes_the_turn_without_asking_the_model() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.judge(enter(&[]));
    assert_eq!(script.only("step/"), Vec::<String>::new());
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn a_later_step_without_messages_begins_only_if_the_model_is_owed_one() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.judge(Judgement::PreStep(Entry::Pass));
    script.model(vec![call(0, "a", "read")]);
    script.settle("a");
    script.judge(enter(&[]));
    script.deliver(Lane::NextStep, true, "and this");
    script.model(answer("done"));
    script.judge(enter(&[]));
    assert_eq!(script.only("step/start"), ["step/start 1.1", "step/start 1.2"]);
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn b068_a_prompt_can_be_rewritten_before_it_is_shown() {
    let mut script = Script::asking(&[Point::PreStep], "a secret");
    script.judge(enter(&["context", "a [redacted]"]));
    assert_eq!(script.only("user/message"), ["user/message context", "user/message a [redacted]"]);
}

#[test]
fn b069_a_failing_hook_before_a_step_ends_the_turn_and_no_more() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.judge(broken(Point::PreStep));
    assert_eq!(script.only("turn/end"), ["turn/end error HOOK_FAILED"]);
    script.followup("again");
    script.slot();
    script.judge(Judgement::PreStep(Entry::Pass));
    script.model(answer("yes"));
    assert_eq!(script.only("turn/end"), ["turn/end error HOOK_FAILED", "turn/end completed"]);
}

#[test]
fn b070_a_later_step_can_be_turned_down_behind_a_closed_one() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.judge(Judgement::PreStep(Entry::Pass));
    script.model(vec![call(0, "a", "read")]);
    script.settle("a");
    script.judge(reject());
    assert_eq!(script.only("step/"), ["step/start 1.1", "step/end"]);
    assert_eq!(script.only("turn/end"), ["turn/end blocked"]);
}

#[test]
fn b071_steering_when_the_model_is_done_makes_two_steps_of_one_turn() {
    let mut script = Script::asking(&[Point::TurnStopping], "hello");
    script.model(answer("done"));
    script.judge(Judgement::TurnStopping(vec![note("look again")]));
    script.model(answer("really done"));
    script.judge(Judgement::TurnStopping(vec![]));
    assert_eq!(script.only("step/start"), ["step/start 1.1", "step/start 1.2"]);
    assert_eq!(script.only("turn/"), ["turn/start 1", "turn/end completed"]);
    assert_eq!(script.only("user/message"), ["user/message hello", "user/message look again"]);
}

#[test]
fn hooks_that_never_let_a_turn_end_are_not_asked_for_ever() {
    let mut script = Script::asking(&[Point::TurnStopping], "hello");
    for n in 0..2 {
        script.model(answer("done"));
        script.judge(Judgement::TurnStopping(vec![note(&format!("again {n}"))]));
    }
    script.model(answer("done"));
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn b072_a_failing_hook_at_the_end_of_a_turn_fails_the_turn_and_the_agent_goes_on() {
    let mut script = Script::asking(&[Point::TurnStopping], "hello");
    script.model(answer("done"));
    script.judge(broken(Point::TurnStopping));
    assert_eq!(script.only("turn/end"), ["turn/end error HOOK_FAILED"]);
    assert!(script.agent.is_at_rest());
}

#[test]
fn steering_that_arrives_while_hooks_look_at_the_end_goes_on_too() {
    let mut script = Script::asking(&[Point::TurnStopping], "hello");
    script.model(answer("done"));
    script.deliver(Lane::NextStep, true, "one more thing");
    script.judge(Judgement::TurnStopping(vec![]));
    assert_eq!(script.only("step/start"), ["step/start 1.1", "step/start 1.2"]);
}

#[test]
fn a_request_can_be_changed_and_the_log_says_how() {
    let mut script = Script::asking(&[Point::Request], "hello");
    let other = RequestHeader::new("p", "other").config;
    script.judge(Judgement::Request(Some(said(other))));
    assert_eq!(script.agent.header().expect("it is logged").config.model, "other");
    assert_eq!(&*script.agent.header().expect("it is logged").system.clone().expect("kept"), "be brief");
    script.model(answer("yes"));
    script.followup("more");
    script.slot();
    script.judge(Judgement::Request(None));
    assert_eq!(script.agent.header().expect("it is logged").config.model, "m");
    assert_eq!(script.only("request/header").len(), 2);
}

#[test]
fn a_failing_hook_before_a_request_ends_the_turn_without_a_request() {
    let mut script = Script::asking(&[Point::Request], "hello");
    script.judge(broken(Point::Request));
    assert_eq!(script.only("turn/end"), ["turn/end error HOOK_FAILED"]);
    assert_eq!(script.only("request/header"), Vec::<String>::new());
}

#[test]
fn b080_a_hook_may_ask_for_a_retry_that_no_policy_would_make() {
    let mut script = Script::asking(&[Point::Request, Point::RequestError], "hello");
    script.judge(Judgement::Request(None));
    script.model(failed("BAD_REQUEST"));
    script.judge(Judgement::RequestError(Recovery::Retry { hook: "hook".into(), delay_ms: Some(7) }));
    script.retry();
    assert_eq!((script.asked().point, script.asked().attempt), (Point::Request, 1));
    let other = RequestHeader::new("p", "fallback").config;
    script.judge(Judgement::Request(Some(said(other))));
    script.model(answer("yes"));
    assert_eq!(script.only("assistant/message"), ["assistant/message yes"]);
    assert_eq!(script.only("step/start").len(), 1);
}

#[test]
fn retries_that_a_hook_asks_for_are_as_bounded_as_any() {
    let mut script = Script::asking(&[Point::RequestError], "hello");
    let retry = || Judgement::RequestError(Recovery::Retry { hook: "hook".into(), delay_ms: None });
    for _ in 0..5 {
        script.model(failed("BAD_REQUEST"));
        script.judge(retry());
        script.retry();
    }
    script.model(failed("BAD_REQUEST"));
    script.judge(retry());
    assert_eq!(script.only("turn/end"), ["turn/end error BAD_REQUEST"]);
}

#[test]
fn a_hook_may_forbid_a_retry_and_one_that_fails_leaves_the_failure_as_it_is() {
    for judgement in [Judgement::RequestError(Recovery::GiveUp { hook: "hook".into() }), broken(Point::RequestError)] {
        let mut script = Script::asking(&[Point::RequestError], "hello");
        script.model(failed("SERVER"));
        script.judge(judgement);
        assert_eq!(script.only("turn/end"), ["turn/end error SERVER"]);
    }
}

#[test]
fn b081_a_cancel_while_hooks_look_at_a_failure_ends_the_turn_without_a_retry() {
    let mut script = Script::asking(&[Point::RequestError], "hello");
    script.chunks(text("some words"));
    script.model(failed("SERVER"));
    let asked = script.asked();
    script.cancel(QueueRule::Park);
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.only("assistant/message"), Vec::<String>::new());
    let judgement = Judgement::RequestError(Recovery::Policy);
    script.refused(Input::Judged { asked, judgement, dice: 0 });
}

#[test]
fn a_cancel_while_hooks_look_at_a_prompt_does_not_show_it_to_the_model() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.cancel(QueueRule::Run);
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert!(script.agent.messages().is_empty() && script.agent.is_at_rest());
}

#[test]
fn what_hooks_were_looking_at_when_the_process_died_waits_again() {
    let mut script = Script::asking(&[Point::PreStep], "hello");
    script.deliver(Lane::NextStep, false, "context");
    script.crash();
    assert_eq!(script.only("turn/end"), ["turn/end interrupted"]);
    assert_eq!(script.agent.inbox().len(), 2);
    assert!(script.agent.is_at_rest() && script.agent.parked().is_some());
    script.followup("wake up");
    script.slot();
    script.judge(Judgement::PreStep(Entry::Pass));
    assert_eq!(script.only("user/message"), ["user/message context", "user/message hello"]);
}

#[test]
fn a_session_start_is_told_once_in_each_life_and_its_context_comes_first() {
    let mut script = Script::asking(&[Point::SessionStart], "hello");
    script.judge(Judgement::SessionStart(vec![note("the rules")]));
    script.model(answer("yes"));
    script.followup("more");
    script.slot();
    assert!(matches!(script.wants()[..], [Want::Sample(_)]));
    assert_eq!(script.only("user/message"), ["user/message the rules", "user/message hello", "user/message more"]);
    script.crash();
    script.followup("after the crash");
    script.slot();
    script.judge(broken(Point::SessionStart));
    assert!(matches!(script.wants()[..], [Want::Sample(_)]), "what only adds something stops nothing");
}

#[test]
fn b124_what_hooks_add_to_results_joins_the_next_step_in_the_models_order() {
    let mut script = Script::told("hello");
    script.model(vec![call(0, "a", "read"), call(1, "b", "read")]);
    script.settle_with("b", |report| report.contexts = vec![note("about b").what]);
    script.settle_with("a", |report| report.contexts = vec![note("about a").what]);
    assert_eq!(script.only("tool/result"), ["tool/result a", "tool/result b"]);
    assert_eq!(script.only("user/message"), ["user/message hello", "user/message about a", "user/message about b"]);
}

#[test]
fn what_hooks_added_before_a_cancel_waits_and_wakes_nobody() {
    let mut script = Script::told("hello");
    script.model(vec![call(0, "a", "write")]);
    script.cancel(QueueRule::Run);
    script.settle_with("a", |report| report.contexts = vec![note("about a").what]);
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.agent.inbox().len(), 1);
    assert!(script.agent.is_at_rest());
}

#[test]
fn a_call_that_concludes_speaks_for_its_own_step_only() {
    let mut script = Script::told("hello");
    script.model(vec![call(0, "a", "write")]);
    script.deliver(Lane::NextStep, true, "and this");
    script.conclude("a");
    script.model(vec![call(0, "b", "write")]);
    script.settle_with("b", |report| report.content = vec![Block::text("look at me")]);
    script.model(answer("seen"));
    assert_eq!(script.only("step/start").len(), 3);
}

#[test]
fn b082_what_a_hook_breaks_is_not_a_failure_of_the_model() {
    let mut script = Script::asking(&[Point::PreStep, Point::RequestError], "hello");
    script.judge(broken(Point::PreStep));
    assert_eq!(script.only("hook/asked"), ["hook/asked pre-step"]);
    assert_eq!(script.only("turn/end"), ["turn/end error HOOK_FAILED"]);
}
