//! Fan-out through the real adapter, against the mock server.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Mock, Place};

#[test]
fn sixty_four_children_come_back_through_http_many_at_once() {
    let place = Place::new();
    let mock = Mock::start_plain(&place);
    let prompt = "[[FANOUT n=64 tool=subagent]]";
    let said = place.ok(&["run", "-j", "64", prompt, "--base-url", &mock.base_url(), "--model", "openai:any"]);
    assert_eq!(said.out, "fanout done results=64\n");
    let tree = place.tree();
    assert_eq!(tree.len(), 65);
    assert!(tree.iter().all(|line| line.contains("completed")), "{tree:#?}");
    assert!(place.verify().contains("0 violations in 65 sessions"));
    let stats = mock.stats();
    assert!(stats["peak_concurrency"].as_u64().is_some_and(|peak| peak > 16), "{stats}");
    assert_eq!((stats["requests"].as_u64(), stats["open_streams"].as_u64()), (Some(66), Some(0)), "{stats}");
}

#[test]
fn a_chain_goes_as_deep_as_it_may() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let args = ["run", "[[CHAIN d=4]]", "--base-url", &mock.base_url(), "-m", "openai:any", "--max-depth", "4"];
    assert_eq!(place.ok(&args).out, "chain 4 -> chain 3 -> chain 2 -> chain 1 -> chain end\n");
    assert_eq!(place.tree().len(), 5);
}

#[test]
fn one_failing_child_leaves_the_rest_working_and_the_code_at_zero() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=8 tool=subagent fail=3]]";
    let said = place.ok(&["run", prompt, "--base-url", &mock.base_url(), "-m", "openai:any"]);
    assert_eq!(said.out, "fanout done results=7 failed=1\n");
    let tree = place.tree();
    assert_eq!(tree.iter().filter(|line| line.contains("failed")).count(), 1, "{tree:#?}");
    assert_eq!(tree.iter().filter(|line| line.contains("completed")).count(), 8, "{tree:#?}");
    place.verify();
}

#[test]
fn an_interrupt_in_mid_fan_out_closes_every_stream_and_gives_every_child_an_outcome() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=12 tool=subagent leaf=\"latency=60000\"]]";
    let running = place.start(&["run", "-j", "8", prompt, "--base-url", &mock.base_url(), "-m", "openai:any"]);
    mock.wait("eight children ask at once", |stats| stats["open_streams"] == 8);
    running.signal(Signal::SIGINT);
    let said = running.finish();
    assert_eq!(said.code, Some(130), "{said:#?}");
    assert_eq!(said.out, "");
    assert!(said.err.contains("13 of 13 agents at rest"), "{}", said.err);
    mock.wait("no stream stays open", |stats| stats["open_streams"] == 0 && stats["aborted_streams"] == 8);
    let tree = place.tree();
    assert_eq!(tree.len(), 13);
    assert!(tree.iter().all(|line| line.contains("cancelled")), "{tree:#?}");
    place.verify();
}

#[test]
fn two_thousand_children_take_eight_turns_at_once_and_all_come_back() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=2000 tool=subagent latency=15]]";
    let base_url = mock.base_url();
    let model = ["--base-url", &base_url, "-m", "openai:any", "-j", "8"];
    let said = place.ok(&[&["run", prompt, "--max-agents", "2000"], &model[..]].concat());
    assert_eq!(said.out, "fanout done results=2000\n");
    let stats = mock.stats();
    assert_eq!((stats["peak_concurrency"].as_u64(), stats["open_streams"].as_u64()), (Some(8), Some(0)), "{stats}");
    assert_eq!(stats["completed_streams"].as_u64(), Some(2_002), "{stats}");
    assert!(place.verify().contains("0 violations in 2001 sessions"));
}

#[test]
fn a_chain_of_fifty_needs_one_slot() {
    let place = Place::new();
    for jobs in ["8", "1"] {
        let args = ["run", "[[CHAIN d=50 latency=5]]", "--max-depth", "50", "-j", jobs, "-m", "scripted:builtin"];
        let said = place.ok(&args).out;
        assert!(said.starts_with("chain 50 -> chain 49 -> ") && said.ends_with("-> chain end\n"), "{said}");
        assert_eq!(place.tree().len(), 51);
    }
    place.verify();
}

#[test]
fn three_live_forks_ask_with_the_bytes_of_their_parents_request() {
    let place = Place::new();
    let record = place.dir().join("requests.jsonl");
    let mock = Mock::recording(&place, &record);
    let prompt = "[[FANOUT n=3 tool=subagent context=fork]]";
    place.ok(&["run", prompt, "--base-url", &mock.base_url(), "-m", "openai:any"]);
    let recorded = std::fs::read_to_string(record).expect("what was asked");
    let requests: Vec<&str> = recorded.lines().collect();
    assert_eq!(requests.len(), 5);
    let parsed = |body: &str| serde_json::from_str::<Value>(body).expect("JSON");
    // The last is the parent's again: it begins with its first one and what was answered, which asks for the three.
    let parent = parsed(requests[4]);
    let is_answer = |message: &&Value| message["role"] == "assistant";
    let answer = parent["messages"].as_array().and_then(|messages| messages.iter().find(is_answer)).expect("an answer");
    assert_eq!(answer["tool_calls"].as_array().map(Vec::len), Some(3));
    for fork in &requests[1..4] {
        assert!(fork.contains("belongs to the agent that this conversation was forked from"), "{fork}");
        let same = requests[4].bytes().zip(fork.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
        assert!(
            fork[..same].contains(&answer.to_string()),
            "up to the end of that answer, byte for byte: {}",
            &fork[..same]
        );
        let fork = parsed(fork);
        assert_eq!(fork["tools"], parent["tools"]);
        assert!(fork["tools"].as_array().is_some_and(|tools| tools.len() > 5));
        assert_eq!(fork["messages"][0]["role"], "system");
    }
}

/// A root that starts so many children in the background and then waits for them as `wait` says.
fn script(place: &Place, children: &str, wait: &str) -> std::path::PathBuf {
    let script = format!(
        r#"
[[rule]]
contains = "begin"
step = 1
calls = [{children}]

[[rule]]
contains = "begin"
step = 2
calls = [{{ name = "wait_agents", arguments = {wait} }}]

[[rule]]
contains = "begin"
text = "{{{{result 0}}}}"

[[rule]]
contains = "be slow"
text = "never"
latency_ms = 3600000

[[rule]]
text = "done"
"#
    );
    let path = place.dir().join("script.toml");
    std::fs::write(&path, script).expect("a script");
    path
}

#[test]
fn a_race_of_ten_closes_nine_streams_at_the_server() {
    let place = Place::new();
    let child = |n: u32| {
        let prompt = if n == 6 { "be quick" } else { "be slow" };
        format!(r#"{{ name = "subagent", arguments = {{ prompt = "{prompt}", label = "c{n}", background = true }} }},"#)
    };
    let children: String = (0..10).map(child).collect();
    let mock = Mock::scripted(&place, &script(&place, &children, r#"{ until = "first_success", stop_rest = true }"#));
    place.ok(&["run", "begin", "--base-url", &mock.base_url(), "-m", "openai:any"]);
    let tree = place.tree();
    assert_eq!(tree.iter().filter(|line| line.contains("cancelled")).count(), 9, "{tree:#?}");
    assert!(tree.iter().any(|line| line.contains("c6") && line.contains("completed")), "{tree:#?}");
    mock.wait("nobody streams any more", |stats| stats["open_streams"] == 0);
    let stats = mock.stats();
    // Those that had not asked yet when the race was over never did.
    let aborted = stats["aborted_streams"].as_u64().expect("a number");
    assert!((1..=9).contains(&aborted), "{stats}");
    assert_eq!(stats["requests"], stats["completed_streams"].as_u64().expect("a number") + aborted, "{stats}");
    place.verify();
}

#[test]
fn two_hundred_in_the_background_that_end_while_their_parent_waits_are_told_of_once_each() {
    let place = Place::new();
    let child = r#"{ name = "subagent", arguments = { prompt = "go", background = true } },"#;
    let mock = Mock::scripted(&place, &script(&place, &child.repeat(200), "{}"));
    let args = ["run", "begin", "--base-url", &mock.base_url(), "-m", "openai:any", "-j", "64"];
    place.ok(&args);
    let log = place.ok(&["sessions", "export", "@last"]).out;
    let tree: Vec<String> =
        place.tree().iter().skip(1).map(|line| line.split(' ').next_back().unwrap_or_default().into()).collect();
    assert_eq!(tree.len(), 200);
    // Shown to the model as a message or in the answer of the wait, and never in both.
    let shown: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let is_shown = |event: &&Value| matches!(event["type"].as_str(), Some("user/message" | "tool/result"));
    let shown: String = shown.iter().filter(is_shown).map(Value::to_string).collect();
    for child in &tree {
        let as_message = shown.matches(&format!("completed · agent {child}]")).count();
        let in_answer = shown.matches(&format!(r#"{{\"agent\":\"{child}\",\"outcome\":\"completed\""#)).count();
        assert_eq!(as_message + in_answer, 1, "{child}");
    }
    place.verify();
}
