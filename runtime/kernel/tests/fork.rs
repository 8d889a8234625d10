//! A fork shares its parent's conversation and begins with an honest end of its parent's calls.

use std::sync::Arc;

use impresario_kernel::event::{Authority, Context};
use impresario_kernel::invariant::check_log;
use impresario_kernel::{
    Access, Agent, AgentPath, Birth, Block, CallReport, Chunk, Event, Fact, FinishReason, Input, Lane, Message, Millis,
    Overlap, RequestHeader, SessionHeader, Spec, Want, wire,
};

fn spec() -> Arc<Spec> {
    let overlap = Arc::new([("subagent".to_owned(), Overlap::Delegation)].into_iter().collect());
    Arc::new(Spec { overlap, ..Spec::new(RequestHeader::new("p", "m")) })
}

fn birth(path: AgentPath, parent: Option<&str>) -> Birth {
    Birth {
        root: "r".into(),
        parent: parent.map(Into::into),
        depth: u32::from(parent.is_some()),
        path,
        context: Context::Fork,
        authority: Authority { dir: "/".into(), access: Access::Read, tools: vec![], may_spawn: None },
        workspace: None,
        output_schema: None,
        route: None,
    }
}

fn tell(agent: &mut Agent, input: Input) {
    agent.tell(input, Millis(5)).unwrap();
}

fn wants(agent: &Agent) -> Vec<Want> {
    agent.wants().into_iter().collect()
}

/// A parent that has asked for two subagents and has the answer of the second.
fn parent() -> Agent {
    let mut agent = Agent::new(spec());
    tell(&mut agent, Input::Born { birth: birth(AgentPath::root(), None), descriptor: None, last_turns: None });
    let message = Arc::new(Message::user("m1", "delegate"));
    tell(&mut agent, Input::Deliver { lane: Lane::NextTurn, wakes: true, message });
    tell(&mut agent, Input::SlotGranted);
    let [Want::Sample(run)] = wants(&agent)[..] else { panic!("a model is asked first") };
    let call = |index, id: &str| Chunk::ToolCallDelta {
        index,
        id: id.into(),
        name: Some("subagent".into()),
        arguments_delta: "{}".into(),
    };
    let finish = Chunk::Finish { reason: FinishReason::ToolCalls, replay_state: None };
    let chunks = vec![Chunk::TextDelta { index: 0, text: "I delegate.".into() }, call(1, "a"), call(2, "b"), finish];
    let chunks = chunks.into_iter().map(|chunk| (Millis(5), chunk)).collect();
    tell(&mut agent, Input::ChunksArrived { run, chunks });
    tell(&mut agent, Input::ModelSettled { run, result: Ok(()), dice: 0 });
    let [Want::Run(_), Want::Run(second)] = wants(&agent)[..] else { panic!("both calls run at once") };
    let report = CallReport { content: vec![Block::text("done")], ..CallReport::default() };
    tell(&mut agent, Input::CallSettled { call: second, report });
    agent
}

#[test]
fn a_fork_shares_the_prefix_and_closes_the_parents_calls_in_its_own_log() {
    let parent = parent();
    let (mut child, until) = parent.fork(spec()).unwrap();
    tell(
        &mut child,
        Input::Born { birth: birth(AgentPath::root().child("a1"), Some("r")), descriptor: None, last_turns: None },
    );

    let shared: Vec<&Arc<Event>> = child.log().iter().filter(|event| event.seq < until).collect();
    let parents: Vec<&Arc<Event>> = parent.log().iter().filter(|event| event.seq < until).collect();
    assert!(shared.iter().zip(&parents).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs)), "shared, not copied");
    let own: Vec<&str> = child.log().iter().filter(|event| event.seq >= until).map(|event| event.fact.kind()).collect();
    let closers = ["tool/call", "tool/result", "tool/call", "tool/result", "step/end", "turn/end"];
    assert_eq!(own, [&closers[..], &["session/end-seed", "agent/born"]].concat());
    let asked = parent.messages().len();
    assert_eq!(child.messages()[..asked], parent.messages()[..asked], "the request starts with the same messages");
    for (event, call) in child.log().iter().filter(|event| event.seq >= until).zip(["a", "a", "b", "b"]) {
        if let Fact::ToolResult(result) = &event.fact {
            assert_eq!(result.error.as_ref().unwrap().code, "BELONGS_TO_PARENT");
            assert_eq!(result.message.source.rest["callId"], call);
        }
    }
    assert_eq!(Agent::fold(spec(), child.log().iter()).unwrap(), child);

    let message = Arc::new(Message::user("task", "check it"));
    tell(&mut child, Input::Deliver { lane: Lane::NextTurn, wakes: true, message });
    tell(&mut child, Input::SlotGranted);
    assert_eq!(child.last_turn(), 2);
    let events: Vec<Arc<Event>> = child.log().iter().cloned().collect();
    assert_eq!(check_log(&SessionHeader::new("c".into(), Millis(0)), &events), []);
}

#[test]
fn a_forks_log_reads_back_as_it_was_written() {
    let (mut child, _) = parent().fork(spec()).unwrap();
    tell(
        &mut child,
        Input::Born { birth: birth(AgentPath::root().child("a1"), Some("r")), descriptor: None, last_turns: None },
    );
    for event in child.log().iter() {
        let row = wire::encode_row(event).unwrap();
        assert_eq!(&wire::decode(&row, event.seq, event.time).unwrap(), &**event, "{row}");
    }
}

#[test]
fn an_agent_that_runs_no_calls_cannot_be_forked_live() {
    assert!(Agent::new(spec()).fork(spec()).is_none());
}

#[test]
fn b063_a_fork_has_an_inbox_of_its_own() {
    let mut parent = parent();
    let message = Arc::new(Message::user("m2", "for the parent"));
    tell(&mut parent, Input::Deliver { lane: Lane::NextTurn, wakes: true, message });
    let (mut child, _) = parent.fork(spec()).unwrap();
    tell(
        &mut child,
        Input::Born { birth: birth(AgentPath::root().child("a1"), Some("r")), descriptor: None, last_turns: None },
    );
    assert_eq!(parent.inbox().len(), 1);
    assert_eq!(child.inbox().len(), 0);
    assert_eq!(Agent::fold(spec(), child.log().iter()).unwrap().inbox().len(), 0);
    assert!(!child.has_accepted(&"m2".into()), "the same id is news to the child");
}
