//! Scripts, through the binary: in its process and served by another one.

use std::fs;

use serde_json::Value;

use crate::kit::{Mock, Place};
use crate::replay::last;

const SCRIPT: &str = r#"
seed = 3

[defaults]
latency = "1..5ms + 20000 tok/s"
usage = { input = 90, cached = 10, output = 20, reasoning = 5 }

[[rule]]
path = "root"
step = 1
text = "I ask three at once."
calls = [
    { name = "subagent", arguments = { prompt = "Look", label = "limited" } },
    { name = "subagent", arguments = { prompt = "Look", label = "reset" } },
    { name = "subagent", arguments = { prompt = "Look", label = "malformed" } },
]

[[rule]]
path = "root"
text = "They said: {{result 0}} {{result 1}} {{result 2}}"

[[rule]]
path = "root/limited"
text = "I was asked {{prompt}}, again and again"
fail = { kind = "rate_limit", retry_after_ms = 5, times = 2 }

[[rule]]
path = "root/reset"
text = "I broke off once and then I said all that there was to say"
fail = { kind = "reset", after = 2, times = 1 }

[[rule]]
path = "root/malformed"
text = "I said something that nobody understood"
fail = { kind = "malformed", times = 1 }
"#;

#[test]
fn a_script_is_the_same_in_the_process_and_served_by_another() {
    let place = Place::new();
    let script = place.dir().join("script.toml");
    fs::write(&script, SCRIPT).expect("a file");
    place.ok(&["run", "-m", "scripted:script.toml", "Go"]);
    let here = without_messages(last(&place));
    let shown = here.to_string();
    for part in
        ["asked Look, again", "I broke off once", "nobody understood", "RATE_LIMIT", "STREAM_CLOSED", "MALFORMED"]
    {
        assert!(shown.contains(part), "{part}: {here:#}");
    }
    let mock = Mock::scripted(&place, &script);
    place.ok(&["run", "-m", "openai:any", "--base-url", &mock.base_url(), "Go"]);
    assert_eq!(without_messages(last(&place)), here);
    let tree = place.ok(&["sessions", "tree", "--json"]).events();
    let spent = tree.iter().find(|agent| agent["path"] == "root/limited").expect("it is in the tree");
    assert!(spent.to_string().contains("20"), "{spent}");
    place.verify();
}

/// What failed without the words for it, which name addresses and statuses over HTTP.
fn without_messages(transcripts: impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(transcripts).expect("it is JSON");
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("code") {
                fields.remove("message");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn what_is_wrong_with_a_script_is_said_by_line_and_key() {
    let place = Place::new();
    fs::write(place.dir().join("script.toml"), "[defaults]\nlatency = \"2 fortnights\"\n").expect("a file");
    for args in [["run", "-m", "scripted:script.toml", "x"], ["mock-model", "--port", "0", "--script=script.toml"]] {
        let said = place.run(&args);
        assert_eq!(said.code, Some(2), "{said:#?}");
        for part in ["script.toml: ", "line 2", "latency = ", "there is no unit `fortnights`; there are us, ms, s, m"] {
            assert!(said.err.contains(part), "{part}: {said:#?}");
        }
    }
}
