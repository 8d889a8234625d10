//! The completion guard, as somebody who runs a task meets it.

use std::fs;

use crate::kit::Place;

/// Writes a list with an open item, says that it is done, and answers the guard once with `at_last`.
fn script(at_last: &str) -> String {
    format!(
        r#"
[[rule]]
step = 1
calls = [{{ name = "todo_write", arguments = {{ todos = [
    {{ content = "look", status = "completed" }},
    {{ content = "write it down", status = "in_progress" }},
] }} }}]

[[rule]]
step = 2
text = "done"

[[rule]]
step = 3
{at_last}

[[rule]]
text = "now it is done"
"#
    )
}

fn run(at_last: &str) -> (Place, String) {
    let place = Place::new();
    fs::write(place.dir().join("script.toml"), script(at_last)).expect("a file");
    let out = place.ok(&["run", "-m", "scripted:script.toml", "do it"]).out;
    (place, out)
}

#[test]
fn a_turn_that_leaves_its_list_open_is_told_so_once() {
    let (place, out) = run("text = \"it stays open, for want of paper\"");
    assert_eq!(out.trim(), "it stays open, for want of paper");
    let log = place.ok(&["sessions", "export", "@last"]).out;
    let notices: Vec<&str> = log.lines().filter(|line| line.contains("todo-completion-guard")).collect();
    let said: Vec<&&str> = notices.iter().filter(|line| line.contains("\"user/message\"")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("- [in_progress] write it down") && !said[0].contains("] look"), "{}", said[0]);
    assert!(said[0].contains("1 of 2 todo items are open"), "{}", said[0]);
    place.verify();
}

#[test]
fn a_list_that_is_finished_when_told_is_no_matter_any_more() {
    let (_, out) = run(
        r#"calls = [{ name = "todo_write", arguments = { todos = [{ content = "write it down", status = "completed" }] } }]"#,
    );
    assert_eq!(out.trim(), "now it is done");
}
