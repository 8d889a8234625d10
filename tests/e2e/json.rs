//! The `--json` stream: one envelope, one order, one end.

use std::collections::BTreeSet;

use crate::kit::{Place, Said};

fn is_well_formed(said: &Said) {
    for (n, event) in said.events().iter().enumerate() {
        assert_eq!((event["v"].as_u64(), event["n"].as_u64()), (Some(1), Some(n as u64)), "{event}");
        let time = event["time"].as_str().unwrap_or_default();
        assert!(time.len() == 24 && time.ends_with('Z'), "{event}");
        for key in ["type", "root", "agent", "path", "parent"] {
            assert!(event.get(key).is_some(), "{key} in {event}");
        }
    }
}

#[test]
fn a_fan_out_is_told_from_its_start_to_its_end() {
    let place = Place::new();
    let prompt = "[[FANOUT n=5 tool=subagent fail=2]]";
    let said = place.ok(&["run", prompt, "-m", "scripted:builtin", "--json"]);
    is_well_formed(&said);
    let events = said.events();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(events[0]["type"], "run.started");
    assert_eq!((of("agent.started").len(), of("agent.ended").len()), (6, 6));
    assert_eq!((of("tool.started").len(), of("tool.ended").len()), (5, 5));
    assert!(of("text.delta").is_empty(), "deltas only when asked for");
    let paths: BTreeSet<&str> = of("agent.ended").iter().filter_map(|event| event["path"].as_str()).collect();
    assert!(paths.contains("root/leaf-5") && paths.contains("root"), "{paths:?}");
    let failed = of("agent.ended").into_iter().find(|event| event["path"] == "root/leaf-2").expect("it ended");
    assert_eq!(failed["outcome"], "failed");
    assert_eq!(failed["error"]["code"], "BAD_REQUEST");
    let end = said.end();
    assert_eq!(end["text"], "fanout done results=4 failed=1");
    assert_eq!((&end["children"]["completed"], &end["children"]["failed"]), (&4.into(), &1.into()));
    assert_eq!(end["total_usage"]["model_calls"], 7);
}

#[test]
fn deltas_are_the_text_in_pieces() {
    let place = Place::new();
    let words = "one two three four five six seven eight nine ten";
    let said = place.ok(&["run", &format!("[[SAY {words}]]"), "-m", "scripted:builtin", "--json", "--deltas"]);
    let deltas: Vec<String> = said
        .events()
        .iter()
        .filter(|event| event["type"] == "text.delta")
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(deltas.concat(), words);
}

#[test]
fn every_stream_ends_with_run_ended_and_its_code() {
    let place = Place::new();
    for (args, code) in [
        (&["run", "x", "--json"][..], 2),
        (&["run", "--no-such-flag", "--json"], 2),
        (&["--json", "frobnicate"], 2),
        (&["run", "--resume", "nope", "x", "-m", "scripted:builtin", "--json"], 2),
        (&["run", "[[LEAF 1 error]]", "-m", "scripted:builtin", "--json"], 1),
        (&["run", "[[SAY x latency=60000]]", "-m", "scripted:builtin", "--json", "--timeout", "1s"], 124),
    ] {
        let said = place.run(args);
        assert_eq!(said.code, Some(code), "{args:?}: {said:#?}");
        is_well_formed(&said);
        said.end();
    }
}

#[test]
fn a_signal_ends_the_stream_too() {
    let place = Place::new();
    let mut running = place.start(&["run", "[[SAY x latency=60000]]", "-m", "scripted:builtin", "--json"]);
    let mut out = running.stdout();
    let mut first = String::new();
    while !first.contains("turn.started") {
        first.clear();
        assert!(std::io::BufRead::read_line(&mut out, &mut first).expect("a line") > 0);
    }
    running.signal(nix::sys::signal::Signal::SIGTERM);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).expect("text");
    assert_eq!(running.finish().code, Some(143));
    let last = rest.lines().last().unwrap_or_default();
    assert!(last.contains("\"type\":\"run.ended\"") && last.contains("\"exit_code\":143"), "{rest}");
}

#[test]
fn an_exported_log_is_its_header_and_then_one_event_a_line() {
    let place = Place::new();
    place.ok(&["run", "[[FANOUT n=2 tool=subagent context=fork]]", "-m", "scripted:builtin"]);
    for id in ["@last", "@last:leaf-2"] {
        let lines = place.ok(&["sessions", "export", id, "--format", "jsonl"]).events();
        assert_eq!((&lines[0]["type"], &lines[0]["version"]), (&"session".into(), &0.into()));
        for (n, event) in lines[1..].iter().enumerate() {
            assert_eq!(event["seq"].as_u64(), Some(n as u64), "{event}");
        }
    }
}
