//! The reference's testable behaviours of an agent, by number: `b052_…` is number 52 of its list.
//!
//! Each is told as a script: inputs go in, and the log says what came of it.

mod kit;

use std::sync::Arc;

use impresario_kernel::event::{Lane, QueueRule};
use impresario_kernel::{Cause, Chunk, Fact, FinishReason, Input, Message, Want};
use kit::{Script, answer, call, cut, failed, text};

#[test]
fn b046_a_started_call_without_an_answer_is_repaired_as_unknown() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "write"), call(2, "b", "write")]);
    let repaired = script.crash();
    assert_eq!(
        repaired[..5],
        [
            "tool/result a TOOL_OUTCOME_UNKNOWN",
            "tool/result b TOOL_NOT_STARTED",
            "step/end",
            "turn/end interrupted",
            "agent/outcome crashed"
        ]
    );
}

#[test]
fn b047_a_call_that_was_not_started_is_repaired_as_not_started() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "write"), call(2, "b", "write")]);
    assert!(script.crash().contains(&"tool/result b TOOL_NOT_STARTED".to_owned()));
}

#[test]
fn b028_b048_a_balanced_log_needs_no_repair_and_one_mark() {
    let mut script = Script::told("go");
    script.model(answer("done"));
    assert_eq!(script.crash(), ["session/end-seed"]);
    assert_eq!(script.crash(), Vec::<String>::new());
}

#[test]
fn b051_a_simple_reply_is_one_balanced_turn() {
    let mut script = Script::told("go");
    script.model(answer("done"));
    assert_eq!(
        script.log()[1..],
        [
            "agent/inbox/spliced",
            "turn/start 1",
            "agent/inbox/spliced",
            "step/start 1.1",
            "user/message go",
            "request/header",
            "request/context",
            "chunks",
            "chunk",
            "assistant/message done",
            "step/end",
            "turn/end completed",
            "agent/outcome completed"
        ]
    );
}

#[test]
fn b052_three_followups_are_three_turns_with_one_message_each() {
    let mut script = Script::new();
    for prompt in ["one", "two", "three"] {
        script.followup(prompt);
    }
    for _ in 0..3 {
        script.slot();
        script.model(answer("ok"));
    }
    assert_eq!(script.only("turn/start"), ["turn/start 1", "turn/start 2", "turn/start 3"]);
    assert_eq!(script.only("user/message"), ["user/message one", "user/message two", "user/message three"]);
    assert!(script.agent.is_at_rest());
}

#[test]
fn b053_steering_joins_the_next_step_of_the_running_turn() {
    let mut script = Script::told("go");
    script.deliver(Lane::NextStep, true, "mind this");
    script.model(answer("first"));
    script.model(answer("second"));
    assert_eq!(script.only("step/start"), ["step/start 1.1", "step/start 1.2"]);
    assert_eq!(script.only("user/message"), ["user/message go", "user/message mind this"]);
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn b054_steering_an_idle_agent_opens_a_turn() {
    let mut script = Script::new();
    script.deliver(Lane::NextStep, true, "go");
    assert_eq!(script.wants(), [Want::Slot]);
}

#[test]
fn b055_injecting_into_an_idle_agent_runs_nothing() {
    let mut script = Script::new();
    script.deliver(Lane::NextStep, false, "know this");
    assert_eq!(script.wants(), []);
    assert_eq!(script.agent.inbox().len(), 1);
}

#[test]
fn b056_what_was_injected_enters_the_first_step_before_the_prompt() {
    let mut script = Script::new();
    script.deliver(Lane::NextStep, false, "know this");
    script.followup("go");
    script.slot();
    assert_eq!(script.only("user/message"), ["user/message know this", "user/message go"]);
}

#[test]
fn b057_what_is_injected_while_tools_run_appears_behind_all_results() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read"), call(2, "b", "read")]);
    script.deliver(Lane::NextStep, false, "by the way");
    script.settle("b");
    script.settle("a");
    let log = script.log();
    let place = |mark: &str| log.iter().rposition(|line| line.starts_with(mark)).unwrap();
    assert!(place("user/message by the way") > place("tool/result b"));
}

#[test]
fn b058_the_same_message_again_changes_nothing() {
    let mut script = Script::new();
    script.followup("go");
    let before = script.log();
    script.deliver_as("m-go", Lane::NextStep, true, "go");
    assert_eq!(script.log(), before);
    script.slot();
    script.model(answer("done"));
    let before = script.log();
    script.followup("go");
    assert_eq!(script.log(), before, "also when it was taken up long ago");
}

#[test]
fn b059_a_message_that_waits_can_be_replaced_in_its_place_or_taken_away() {
    let mut script = Script::new();
    for prompt in ["one", "two", "three"] {
        script.followup(prompt);
    }
    let other = Arc::new(Message::user("other", "instead"));
    script.tell(Input::Amend { id: "m-two".into(), with: Some(other.clone()) });
    script.tell(Input::Amend { id: "m-one".into(), with: None });
    let waiting: Vec<String> = script.agent.inbox().lane(Lane::NextTurn).iter().map(|message| message.text()).collect();
    assert_eq!(waiting, ["instead", "three"]);
    let before = script.log();
    script.tell(Input::Amend { id: "m-one".into(), with: Some(other) });
    assert_eq!(script.log(), before, "what no longer waits is left as it is");
}

#[test]
fn what_is_amended_while_it_is_parked_stays_parked() {
    let mut script = Script::told("one");
    script.followup("two");
    script.cancel(QueueRule::Park);
    script.tell(Input::Amend { id: "m-two".into(), with: Some(Arc::new(Message::user("x", "instead"))) });
    assert_eq!(script.wants(), []);
}

#[test]
fn b060_discarding_clears_the_next_step_first_and_says_canceled() {
    let mut script = Script::new();
    script.deliver(Lane::NextStep, false, "a");
    script.followup("b");
    script.tell(Input::Cancel { cause: Cause::user("test"), queue: QueueRule::Discard });
    let splices: Vec<_> = script
        .agent
        .log()
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::InboxSpliced(splice) if splice.outcome.is_some() => Some(splice.target),
            _ => None,
        })
        .collect();
    assert_eq!(splices, [Lane::NextStep, Lane::NextTurn]);
}

#[test]
fn b061_a_claim_has_a_count_and_no_outcome() {
    let script = Script::told("go");
    let claim = script.agent.log().iter().find_map(|event| match &event.fact {
        Fact::InboxSpliced(splice) if splice.removed_count > 0 => Some((splice.removed_count, splice.outcome)),
        _ => None,
    });
    assert_eq!(claim, Some((1, None)));
}

#[test]
fn b062_what_waited_when_the_process_died_is_there_and_nothing_runs() {
    let mut script = Script::told("one");
    script.followup("two");
    script.crash();
    assert_eq!(script.agent.inbox().len(), 1);
    assert_eq!(script.wants(), []);
    assert!(script.agent.parked().is_some(), "and it says why");
    script.followup("three");
    script.slot();
    assert_eq!(script.only("user/message").last().unwrap(), "user/message two", "the oldest goes first");
}

#[test]
fn b073_a_call_that_concludes_ends_the_turn_without_another_request() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read")]);
    script.conclude("a");
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
    assert_eq!(script.only("step/start").len(), 1);
}

#[test]
fn b074_steering_that_arrives_during_a_concluding_step_gets_one_more_step() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read")]);
    script.deliver(Lane::NextStep, true, "wait");
    script.conclude("a");
    assert_eq!(script.only("step/start"), ["step/start 1.1", "step/start 1.2"]);
}

#[test]
fn b075_an_answer_that_hits_the_limit_keeps_its_text_and_runs_no_call() {
    let mut script = Script::told("go");
    script.model([text("so far"), vec![call(1, "a", "read")], cut()].concat());
    assert_eq!(script.only("assistant/message"), ["assistant/message so far"]);
    assert_eq!(script.only("tool/"), Vec::<String>::new());
    assert_eq!(script.only("turn/end"), ["turn/end max-tokens"]);
    assert_eq!(script.only("agent/outcome"), ["agent/outcome partial"]);
}

#[test]
fn b076_the_output_limit_sticks_to_its_turn_and_to_no_other() {
    let mut script = Script::told("one");
    script.deliver(Lane::NextStep, true, "go on");
    script.model([text("so far"), cut()].concat());
    script.model(answer("whole"));
    script.followup("two");
    script.slot();
    script.model(answer("fine"));
    assert_eq!(script.only("turn/end"), ["turn/end max-tokens", "turn/end completed"]);
}

#[test]
fn b077_an_empty_answer_is_logged_and_not_shown_to_the_model() {
    let mut script = Script::told("go");
    script.model(vec![]);
    assert_eq!(script.only("assistant/message"), ["assistant/message "]);
    assert_eq!(script.agent.messages().len(), 1);
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn b078_a_failure_that_no_retry_mends_ends_step_and_turn_with_its_record() {
    let mut script = Script::told("go");
    script.model(failed("AUTH"));
    let log = script.log();
    assert_eq!(log[log.len() - 3..], ["step/end", "turn/end error AUTH", "agent/outcome failed"]);
}

#[test]
fn b080_a_retry_stays_in_the_step_and_the_answer_cites_its_own_chunks_only() {
    let mut script = Script::told("go");
    script.model([text("broken"), failed("SERVER")].concat());
    assert_eq!(script.only("llm/"), ["llm/retry 1"]);
    script.retry();
    script.model(answer("whole"));
    assert_eq!(script.only("step/start").len(), 1);
    assert_eq!(script.only("assistant/message"), ["assistant/message whole"]);
    let log = script.agent.log();
    let cited = log.iter().find(|event| matches!(event.fact, Fact::AssistantMessage(_))).unwrap();
    let started = log.iter().find(|event| matches!(event.fact, Fact::RetryStarted(_))).unwrap();
    assert!(cited.sources.as_ref().unwrap().iter().all(|seq| seq > started.seq));
}

#[test]
fn b081_a_cancel_while_a_retry_waits_ends_the_turn_without_it() {
    let mut script = Script::told("go");
    script.model(failed("SERVER"));
    script.cancel(QueueRule::Run);
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.only("llm/retry-started"), Vec::<String>::new());
    assert_eq!(script.wants(), []);
}

#[test]
fn b083_a_cancel_in_mid_stream_keeps_what_was_visible() {
    let mut script = Script::told("go");
    script.chunks(text("half a"));
    script.cancel(QueueRule::Run);
    assert_eq!(script.only("assistant/message"), ["assistant/message half a (interrupted)"]);
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
}

#[test]
fn b084_a_cancel_with_half_a_call_keeps_nothing() {
    let mut script = Script::told("go");
    script.chunks(vec![call(1, "a", "read")]);
    script.cancel(QueueRule::Run);
    assert_eq!(script.only("assistant/message"), Vec::<String>::new());
}

#[test]
fn b085_a_cancel_of_an_idle_agent_does_not_touch_the_next_prompt() {
    let mut script = Script::new();
    script.cancel(QueueRule::Park);
    script.followup("go");
    script.slot();
    script.model(answer("done"));
    assert_eq!(script.only("turn/end"), ["turn/end completed"]);
}

#[test]
fn b086_a_task_that_is_cancelled_before_it_began_has_a_turn_without_a_step() {
    let mut script = Script::new();
    script.followup("go");
    script.cancel(QueueRule::Park);
    assert_eq!(script.only("turn/"), ["turn/start 1", "turn/end aborted"]);
    assert_eq!(script.only("step/"), Vec::<String>::new());
    assert_eq!(script.only("agent/outcome"), ["agent/outcome cancelled"]);
}

#[test]
fn b088_what_a_cancel_parks_waits_and_runs_before_the_next_prompt() {
    let mut script = Script::told("one");
    script.followup("two");
    script.cancel(QueueRule::Park);
    assert_eq!(script.wants(), []);
    script.followup("three");
    script.slot();
    assert_eq!(script.only("user/message").last().unwrap(), "user/message two");
}

#[test]
fn b089_what_wakes_while_a_cancel_converges_is_not_lost() {
    let mut script = Script::told("one");
    script.model(vec![call(1, "a", "read")]);
    script.cancel(QueueRule::Park);
    assert_eq!(script.only("turn/end"), Vec::<String>::new(), "the call has not ended");
    script.followup("two");
    script.settle("a");
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.wants(), [Want::Slot]);
}

#[test]
fn what_must_not_wake_waits_behind_a_stop_and_the_next_waking_message_takes_it_along() {
    let mut script = Script::told("first");
    script.model(vec![call(0, "a", "write")]);
    script.cancel(QueueRule::Park);
    script.deliver(Lane::NextTurn, false, "second");
    script.settle("a");
    assert!(script.agent.is_at_rest() && script.agent.parked().is_some());
    script.followup("third");
    script.slot();
    script.model(answer("yes"));
    assert_eq!(script.only("user/message"), ["user/message first", "user/message second"]);
}

#[test]
fn b091_the_first_cause_of_two_cancels_stays() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read")]);
    script.tell(Input::Cancel { cause: Cause::user("first"), queue: QueueRule::Run });
    script.tell(Input::Cancel { cause: Cause::Parent, queue: QueueRule::Discard });
    script.settle("a");
    assert_eq!(script.agent.outcome().unwrap().why(), "cancelled by the user (first)");
}

#[test]
fn b097_an_unchanged_frame_is_logged_once_and_a_changed_one_says_so() {
    let mut script = Script::told("one");
    script.model(answer("ok"));
    script.followup("two");
    script.slot();
    assert_eq!(script.only("request/header").len(), 1);
    script.model(answer("ok"));
    script.reframe("another system text");
    script.followup("three");
    script.slot();
    assert_eq!(script.only("request/header").len(), 2);
}

#[test]
fn b099_a_request_is_a_function_of_the_log() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read")]);
    script.settle("a");
    let folded = script.folded();
    assert_eq!(folded.messages(), script.agent.messages());
    assert_eq!(folded.header(), script.agent.header());
}

#[test]
fn b101_what_the_runtime_says_about_itself_is_said_once_until_it_changes() {
    let mut script = Script::with_context("you are root");
    for prompt in ["one", "two"] {
        script.followup(prompt);
        script.slot();
        script.model(answer("ok"));
    }
    assert_eq!(script.only("user/message you are root").len(), 1);
}

#[test]
fn b113_turns_are_numbered_on_after_a_resume() {
    let mut script = Script::told("one");
    script.crash();
    script.followup("two");
    script.slot();
    assert_eq!(script.only("turn/start"), ["turn/start 1", "turn/start 2"]);
    let reasons: Vec<String> = script
        .agent
        .log()
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::RequestHeader(logged) => Some(format!("{:?}", logged.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["Initial", "Resume"]);
}

#[test]
fn b115_parallel_calls_start_before_any_has_ended() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read"), call(2, "b", "read")]);
    assert_eq!(script.only("tool/call"), ["tool/call a", "tool/call b"]);
}

#[test]
fn b116_an_exclusive_call_runs_alone_between_two_groups() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read"), call(2, "b", "write"), call(3, "c", "read")]);
    assert_eq!(script.only("tool/call"), ["tool/call a"]);
    script.settle("a");
    assert_eq!(script.only("tool/call"), ["tool/call a", "tool/call b"]);
    script.settle("b");
    assert_eq!(script.only("tool/call"), ["tool/call a", "tool/call b", "tool/call c"]);
}

#[test]
fn b117_results_are_in_the_models_order_whatever_ended_first() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read"), call(2, "b", "read")]);
    script.settle("b");
    assert_eq!(script.only("tool/result"), Vec::<String>::new());
    script.settle("a");
    assert_eq!(script.only("tool/result"), ["tool/result a", "tool/result b"]);
}

#[test]
fn b118_a_pool_of_two_is_refilled_when_a_call_ends() {
    let mut script = Script::told("go");
    script.model((1..=4).map(|n| call(n, &format!("c{n}"), "read")).collect());
    assert_eq!(script.only("tool/call").len(), 2);
    script.settle("c2");
    assert_eq!(script.only("tool/call").len(), 3);
}

#[test]
fn b122_after_a_cancel_every_call_has_a_result_and_the_rest_were_not_started() {
    let mut script = Script::told("go");
    script.model((1..=4).map(|n| call(n, &format!("c{n}"), "read")).collect());
    script.cancel(QueueRule::Run);
    let stops = script.wants().iter().filter(|want| matches!(want, Want::Stop(_))).count();
    assert_eq!(stops, 2, "what runs is asked to end");
    script.settle("c1");
    script.settle("c2");
    assert_eq!(
        script.only("tool/result"),
        [
            "tool/result c1",
            "tool/result c2",
            "tool/result c3 ABORTED_BEFORE_DISPATCH",
            "tool/result c4 ABORTED_BEFORE_DISPATCH"
        ]
    );
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
}

#[test]
fn a_ceiling_of_steps_ends_the_turn_with_a_typed_reason() {
    let mut script = Script::told("go");
    for step in 0..5 {
        script.model(vec![call(1, &format!("s{step}"), "read")]);
        script.settle(&format!("s{step}"));
    }
    assert_eq!(script.only("turn/end"), ["turn/end limit steps 5"]);
    assert_eq!(script.only("agent/outcome"), ["agent/outcome partial"]);
}

#[test]
fn an_answer_that_asks_for_too_many_calls_fails_and_none_of_them_starts() {
    let mut script = Script::told("go");
    let calls = |count: u32| (1..=count).map(|n| call(n, &format!("c{n}"), "read")).collect();
    script.model(calls(9));
    assert_eq!(script.only("tool/call"), [] as [&str; 0]);
    assert_eq!(script.only("turn/end"), ["turn/end error TOO_MANY_CALLS"]);
    script.followup("again");
    script.slot();
    script.model(calls(8));
    assert_eq!(script.only("tool/call").len(), 2, "as many as run at once");
}

#[test]
fn ids_that_a_provider_uses_twice_are_made_unique() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read"), call(2, "a", "read")]);
    let calls = script.only("tool/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
}

#[test]
fn a_late_report_changes_nothing() {
    let mut script = Script::told("go");
    let [Want::Sample(run)] = script.wants()[..] else { panic!("a model is asked") };
    script.model(answer("done"));
    let before = script.log();
    script.refused(Input::ModelSettled { run, result: Ok(()), dice: 0 });
    let finish = Chunk::Finish { reason: FinishReason::Stop, replay_state: None };
    script.refused(Input::ChunksArrived { run, chunks: vec![(impresario_kernel::Millis(0), finish)] });
    assert_eq!(script.log(), before);
}

#[test]
fn a_childs_outcome_that_came_as_a_result_does_not_come_again_as_a_message() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "child")]);
    script.settle_with("a", |report| report.id = Some("settled:c:1".into()));
    let before = script.log();
    script.deliver_as("settled:c:1", Lane::NextStep, true, "the same outcome");
    assert_eq!(script.log(), before);
}

#[test]
fn what_a_wait_brings_is_taken_out_of_the_inbox_and_does_not_come_again() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "child")]);
    script.deliver_as("settled:c:1", Lane::NextStep, true, "came first");
    let claims = ["settled:c:1", "settled:d:1"].map(|id| Arc::new(Message::user(id, "the outcome")));
    script.settle_with("a", move |report| report.claims = claims.to_vec());
    assert!(script.agent.inbox().is_empty());
    script.deliver_as("settled:d:1", Lane::NextStep, true, "came behind");
    assert!(script.agent.inbox().is_empty());
    assert_eq!(script.only("user/message"), ["user/message go"]);
}

#[test]
fn a_stop_behind_an_interrupt_parks_what_the_interrupt_would_have_run() {
    let mut script = Script::told("one");
    script.model(vec![call(1, "a", "read")]);
    script.followup("two");
    script.cancel(QueueRule::Run);
    script.cancel(QueueRule::Park);
    script.settle("a");
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.wants(), []);
}

#[test]
fn an_inbox_that_was_emptied_wakes_nobody() {
    let mut script = Script::new();
    script.followup("go");
    script.tell(Input::Amend { id: "m-go".into(), with: None });
    script.deliver(Lane::NextStep, false, "know this");
    assert_eq!(script.wants(), []);
}

#[test]
fn usage_that_no_computer_could_count_is_counted() {
    let mut script = Script::told("go");
    let usage = impresario_kernel::Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Default::default() };
    script.deliver(Lane::NextStep, true, "more");
    script.model([text("x"), vec![Chunk::Usage { usage }]].concat());
    script.model([text("y"), vec![Chunk::Usage { usage }]].concat());
    assert_eq!(script.agent.spent().input_tokens, u64::MAX);
}

#[test]
fn b041_the_last_of_two_frames_is_the_one_that_holds() {
    let mut script = Script::told("one");
    script.model(answer("done"));
    script.reframe("be long");
    script.followup("two");
    script.slot();
    assert_eq!(script.only("request/header").len(), 2);
    assert_eq!(script.agent.header().and_then(|header| header.system.as_deref()), Some("be long"));
    assert_eq!(script.folded().header(), script.agent.header());
}

#[test]
fn b042_the_second_todo_list_is_the_list_and_neither_is_a_message() {
    let list = |said: &[&str]| {
        let todos: Vec<_> = said.iter().map(|said| serde_json::json!({"content": said, "status": "pending"})).collect();
        serde_json::from_value(serde_json::json!({"todos": todos})).unwrap()
    };
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "write"), call(2, "b", "write")]);
    script.settle_with("a", |report| report.todos = Some(list(&["first", "other"])));
    script.settle_with("b", |report| report.todos = Some(list(&["second"])));
    let list: Vec<&str> = script.agent.todos().iter().map(|todo| todo.content.as_str()).collect();
    assert_eq!(list, ["second"]);
    assert_eq!(script.folded().todos(), script.agent.todos());
    let shown = script.agent.messages().iter().map(|message| message.text()).collect::<String>();
    assert!(!shown.contains("first") && !shown.contains("second"), "{shown}");
}

#[test]
fn b049_a_step_that_is_closed_gets_no_more_results() {
    let mut script = Script::told("go");
    script.model(vec![call(1, "a", "read")]);
    script.settle("a");
    // The process dies between the step and the one after it.
    let closed = script.agent.log().iter().position(|event| event.fact.kind() == "step/end").unwrap();
    let kept = script.agent.log().iter().take(closed + 1);
    let mut agent = impresario_kernel::Agent::fold(Arc::clone(script.agent.spec()), kept).unwrap();
    let added = agent.tell(Input::Recovered, impresario_kernel::Millis(1)).unwrap();
    let kinds: Vec<&str> = added.iter().map(|event| event.fact.kind()).collect();
    assert_eq!(kinds, ["turn/end", "agent/outcome", "session/end-seed"]);
}

#[test]
fn b064_a_splice_that_does_not_fit_its_inbox_is_named_by_its_place() {
    let mut script = Script::new();
    script.followup("go");
    let splice = script.agent.log().last().unwrap();
    let Fact::InboxSpliced(spliced) = &splice.fact else { panic!("the last fact is the acceptance") };
    let broken = impresario_kernel::event::InboxSpliced { start: 7, ..spliced.clone() };
    let broken = impresario_kernel::Event::new(splice.seq, splice.time, Fact::InboxSpliced(broken));
    let sound: Vec<_> = script.agent.log().iter().filter(|event| event.seq < splice.seq).cloned().collect();
    let error =
        impresario_kernel::Agent::fold(Arc::clone(script.agent.spec()), sound.iter().chain([&Arc::new(broken)]))
            .expect_err("there is no seventh message");
    assert!(error.to_string().contains(&splice.seq.0.to_string()), "{error}");
}

#[test]
fn b090_what_woke_during_a_cancel_and_was_taken_away_opens_nothing() {
    let mut script = Script::told("one");
    script.model(vec![call(1, "a", "read")]);
    script.cancel(QueueRule::Park);
    script.followup("two");
    script.tell(Input::Amend { id: "m-two".into(), with: None });
    script.settle("a");
    assert_eq!(script.only("turn/end"), ["turn/end aborted"]);
    assert_eq!(script.wants(), []);
    assert!(script.agent.is_at_rest());
}

#[test]
fn b123_a_cancel_before_any_call_was_started_gives_each_a_pair() {
    let mut script = Script::told("go");
    script.chunks(vec![call(1, "a", "write"), call(2, "b", "write")]);
    script.model(vec![]);
    script.cancel(QueueRule::Run);
    // The first was wanted; it had not begun, so the shell says that it was not.
    script.settle_with("a", |report| {
        *report = impresario_kernel::CallReport::failed("AbortError", "ABORTED_BEFORE_DISPATCH", "not started");
    });
    assert_eq!(script.only("tool/call"), ["tool/call a", "tool/call b"]);
    assert_eq!(
        script.only("tool/result"),
        ["tool/result a ABORTED_BEFORE_DISPATCH", "tool/result b ABORTED_BEFORE_DISPATCH"]
    );
}
