//! The verbs on the agents of a home, beside the process that runs them and without one.

use crate::kit::{Mock, Place, wait_for};

const MODEL: [&str; 2] = ["-m", "scripted:builtin"];

#[test]
fn an_agent_of_a_stored_tree_is_given_another_task() {
    let place = Place::new();
    place.ok(&[&["run", "[[FANOUT n=2 tool=subagent]]"], &MODEL[..]].concat());
    let said = place.ok(&[&["send", "@last:leaf-1", "[[SAY hello]]"], &MODEL[..]].concat());
    assert_eq!(said.out, "hello\n");
    assert!(said.err.contains("opened here until it is at rest"), "{}", said.err);
    assert_eq!(place.ok(&[&["steer", "@last:leaf-2", "[[SAY hurry]]"], &MODEL[..]].concat()).out, "hurry\n");
    assert_eq!(place.ok(&["wait", "@last:leaf-1"]).out, "hello\n");
    let shown = place.ok(&["sessions", "show", "@last"]).out;
    // Their first answers were results of calls.
    assert_eq!(shown.matches(" completed · agent ").count(), 4, "told of each answer once: {shown}");
    let logs = place.ok(&["logs", "@last:leaf-1"]).out;
    let kinds = |kind: &str| logs.lines().filter(|line| line.contains(kind)).count();
    assert_eq!((kinds(" turn/start "), kinds(" agent/born ")), (2, 1), "{logs}");
    assert_eq!(place.run(&["send", "nobody", "x"]).code, Some(2));
    assert_eq!(place.run(&["spawn", "x"]).code, Some(2));
    assert_eq!(place.ok(&[&["spawn", "--foreground", "[[SAY here]]"], &MODEL[..]].concat()).out, "here\n");
    place.verify();
}

#[test]
fn beside_a_process_that_runs_agents_one_may_wait_and_look_but_not_interfere() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let base_url = mock.base_url();
    let prompt = "[[FANOUT n=1 tool=subagent leaf=\"latency=60000\"]]";
    let running = place.start(&["run", prompt, "--base-url", &base_url, "-m", "openai:any"]);
    mock.wait("the child asks", |stats| stats["open_streams"] == 1);
    wait_for("its start is written", || place.run(&["logs", "@last:leaf-1"]).out.contains("step/start").then_some(()));
    let said = place.run(&["wait", "@last:leaf-1", "--timeout", "100ms"]);
    assert_eq!(said.code, Some(124), "{said:#?}");
    assert!(said.err.contains("is running still"), "{}", said.err);
    let said = place.run(&["stop", "@last"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains(&format!("in the process {}", running.id())), "{}", said.err);
    let waiting = place.start(&["wait", "@last:leaf-1", "--json"]);
    let following = place.start(&["logs", "@last:leaf-1", "--follow", "--json"]);
    running.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(running.finish().code, Some(130));
    let waited = waiting.finish();
    assert_eq!(waited.code, Some(1), "{waited:#?}");
    assert!(waited.out.contains("\"state\":\"cancelled\"") && waited.out.contains("\"text\":null"), "{}", waited.out);
    let followed = following.finish();
    assert_eq!(followed.code, Some(0));
    assert!(followed.out.contains("\"kind\":\"agent/outcome\""), "{}", followed.out);
    let said = place.ok(&["stop", "@last"]);
    assert!(said.err.contains("no process runs agents of this home"), "{}", said.err);
}
