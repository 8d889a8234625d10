//! Answers that must fit a schema, through the binary.

use serde_json::Value;

use crate::kit::{Mock, Place};

const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}"#;

#[test]
fn a_run_with_an_output_schema_prints_json_that_fits() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let base_url = mock.base_url();
    std::fs::write(place.dir().join("schema.json"), SCHEMA).expect("a schema");
    let run = |prompt: &str| {
        let model = ["--output-schema", "schema.json", "--base-url", &base_url, "-m", "openai:any"];
        place.run(&[&["run", prompt], &model[..]].concat())
    };
    let said = run(r#"[[TOOL final_output {"result": {"n": 5}}]]"#);
    assert_eq!((said.code, &*said.out), (Some(0), "{\"n\":5}\n"), "{}", said.err);
    let said = run(r#"[[TOOL final_output {"result": {"n": 2}}]]"#);
    assert_eq!((said.code, &*said.out), (Some(1), ""));
    assert!(said.err.contains("NO_OUTPUT"), "{}", said.err);
    let shown = place.ok(&["sessions", "show", "@last", "--tools", "full"]).out;
    assert!(shown.contains("`result` does not fit: /n: 2 is less than the minimum of 3"), "{shown}");
    std::fs::write(place.dir().join("schema.json"), "[1]").expect("no schema");
    let said = run("hi");
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("output schema schema.json: "), "{}", said.err);
    place.verify();
}

#[test]
fn a_model_asks_its_child_for_an_output_and_a_batch_its_tasks() {
    let place = Place::new();
    let script = r#"
[[rule]]
path = "root/*"
contains = "count"
calls = [{ name = "final_output", arguments = { result = { n = 7 } } }]

[[rule]]
path = "root"
contains = "delegate"
step = 1
calls = [{ name = "subagent", arguments = { prompt = "count", output_schema = { type = "object", required = ["n"] } } }]

[[rule]]
contains = "delegate"
text = "{{result 0}}"

[[rule]]
contains = "task"
calls = [{ name = "final_output", arguments = { result = { n = 9 } } }]
"#;
    std::fs::write(place.dir().join("script.toml"), script).expect("a script");
    let said = place.ok(&["run", "delegate", "-m", "scripted:script.toml"]).out;
    assert!(said.contains("[root/a1 completed · agent ") && said.contains("\n{\"n\":7}"), "{said}");
    let tasks = format!("{{\"id\": \"a\", \"prompt\": \"task\", \"output_schema\": {SCHEMA}}}\n");
    std::fs::write(place.dir().join("tasks.jsonl"), tasks).expect("tasks");
    place.ok(&["batch", "tasks.jsonl", "-o", "results.jsonl", "-m", "scripted:script.toml"]);
    let results = std::fs::read_to_string(place.dir().join("results.jsonl")).expect("results");
    let result: Value = serde_json::from_str(results.trim()).expect("one line");
    assert_eq!((&result["output"]["n"], &result["outcome"]), (&9.into(), &"completed".into()));
    place.verify();
}
