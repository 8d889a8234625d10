//! What a run recorded is run again, with the same transcripts and without the model.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::kit::{Mock, Place};

/// What each agent of a tree said and asked for, by path: texts, thoughts, calls with their ids, and what came back.
fn transcripts(place: &Place, root: &str) -> BTreeMap<String, Vec<Value>> {
    let listed = place.ok(&["sessions", "ls", "--all", "--json", "--limit", "0"]).events();
    let of_tree = listed.iter().filter(|session| session["root"] == root);
    let transcript = |session: &Value| {
        let id = session["id"].as_str().expect("a session has an id");
        let log = place.ok(&["sessions", "export", id]).out;
        let events = log.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
        let said = events.filter_map(|event| match event["type"].as_str() {
            Some("assistant/message" | "tool/result") => Some(event["data"]["message"]["content"].clone()),
            Some("llm/retry") => Some(event["data"]["failure"].clone()),
            _ => None,
        });
        (session["path"].as_str().expect("an agent has a path").to_owned(), said.collect())
    };
    of_tree.map(transcript).collect()
}

/// The transcripts of what was just run, with the ids of agents by their paths.
pub(crate) fn last(place: &Place) -> BTreeMap<String, Vec<Value>> {
    let newest = place.ok(&["sessions", "ls", "--json", "--limit", "1"]).events().remove(0);
    let root = newest["id"].as_str().expect("a session has an id").to_owned();
    let listed = place.ok(&["sessions", "ls", "--all", "--json", "--limit", "0"]).events();
    let mut text = json!(transcripts(place, &root)).to_string();
    for session in listed {
        if let (Some(id), Some(path)) = (session["id"].as_str(), session["path"].as_str()) {
            text = text.replace(id, path);
        }
    }
    serde_json::from_str(&text).expect("it was JSON")
}

const SCRIPT: &str = r#"
[[rule]]
path = "root"
step = 1
reasoning = "They are independent."
text = "I ask three at once."
calls = [
    { name = "subagent", arguments = { description = "look", prompt = "Look at a.txt", label = "look" } },
    { name = "subagent", arguments = { description = "look", prompt = "Look at a.txt", label = "look" } },
    { name = "subagent", arguments = { description = "wait", prompt = "Say when" } },
]

[[rule]]
path = "root"
step = 2
calls = [{ name = "list_agents" }]

[[rule]]
path = "root"
step = 3
text = "They said: {{result 0}} {{result 1}} {{result 3}}"

[[rule]]
path = "root/look"
step = 1
attempt = 0
latency_ms = 30
fail = { code = "RATE_LIMIT", status = 429, retry_after_ms = 20 }

[[rule]]
path = "root/look*"
step = 1
latency_ms = 5
calls = [{ name = "read_file", arguments = { path = "a.txt" } }]

[[rule]]
path = "root/look*"
reasoning = "So that is in it."
text = "{{result 0}} is in it"

[[rule]]
text = "when"
"#;

#[test]
fn a_recorded_fan_out_is_the_same_again_in_whatever_order_its_agents_ask() {
    let place = Place::new();
    fs::write(place.dir().join("a.txt"), "ants\n").expect("a file");
    fs::write(place.dir().join("script.toml"), SCRIPT).expect("a file");
    let run = |model: &str, more: &[&str]| {
        let args = ["run", "-m", model, "Go on, look."];
        place.ok(&[&args[..], more].concat());
        last(&place)
    };
    let recorded = run("scripted:script.toml", &["--record", "kept"]);
    assert_eq!(recorded.keys().collect::<Vec<_>>(), ["root", "root/a1", "root/look", "root/look-2"]);
    assert!(json!(recorded["root/look"]).to_string().contains("RATE_LIMIT"), "{recorded:#?}");
    assert!(json!(recorded["root"]).to_string().contains("is in it"), "{recorded:#?}");
    let whole = fs::read_to_string(place.dir().join("kept/recording.jsonl")).expect("it was recorded");
    // All agents have the same frame, which is there once.
    assert_eq!(whole.matches("You are an agent of Impresario").count(), 1);
    let root = place.ok(&["sessions", "ls", "--json", "--limit", "1"]).events()[0]["id"].clone();
    let stored = format!("replay:session/{}", root.as_str().expect("an id"));
    for jobs in ["1", "2", "3", "64"] {
        assert_eq!(run("replay:kept", &["-j", jobs]), recorded, "-j {jobs}");
        assert_eq!(run(&stored, &["-j", jobs]), recorded, "-j {jobs}");
    }
    let mock = Mock::scripted(&place, Path::new("replay:kept"));
    // The client says in its own words what the server has refused.
    let served = json!(run("openai:any", &["--base-url", &mock.base_url(), "-j", "3"]));
    assert_eq!(served.to_string().replace("the provider answered 429: ", ""), json!(recorded).to_string());
    place.verify();
    assert_eq!(fs::read_to_string(place.dir().join("kept/recording.jsonl")).expect("it is there"), whole);
}

#[test]
fn a_changed_prompt_is_a_miss_that_says_where() {
    let place = Place::new();
    place.ok(&["run", "-m", "scripted:builtin", "--record", "kept", "[[FANOUT n=2 tool=subagent]]"]);
    let said = place.run(&["run", "--json", "-m", "replay:kept", "[[FANOUT n=3 tool=subagent]]"]);
    let end = said.end();
    assert_eq!(
        (said.code, &end["error"]["code"], &end["error"]["retryable"]),
        (Some(1), &json!("REPLAY_MISS"), &json!(false))
    );
    let message = end["error"]["message"].as_str().expect("a failure has a message");
    let place = "replay of root, turn 1, step 1, attempt 0: the request is not the recorded one";
    assert!(message.contains(place), "{message}");
    let differs = "recorded in user \"[[FANOUT n=2 tool=subagent]]\", asked in user \"[[FANOUT n=3 tool=subagent]]\"";
    assert!(message.ends_with(differs), "{message}");
}

#[test]
fn what_is_no_recording_is_a_usage_error_and_stays_as_it_is() {
    let place = Place::new();
    fs::create_dir(place.dir().join("other")).expect("a folder");
    fs::write(place.dir().join("other/recording.jsonl"), "mine").expect("a file");
    for (args, wrong) in [
        (["-m", "replay:nowhere", "x"].as_slice(), "replay:nowhere: "),
        (&["-m", "replay:.", "x"], "there is neither a recording.jsonl in it nor a session.jsonl of dsh"),
        (&["-m", "replay:other", "x"], "does not begin as a recording does, but with \"mine\""),
        (&["-m", "replay:session/@last", "x"], "no session of the folder"),
        (&["-m", "scripted:builtin", "--record", "other", "x"], "does not begin as a recording does"),
    ] {
        let said = place.run(&[&["run"], args].concat());
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(said.err.contains(wrong), "{wrong}: {said:#?}");
    }
    assert_eq!(fs::read_to_string(place.dir().join("other/recording.jsonl")).expect("it is there"), "mine");
}
