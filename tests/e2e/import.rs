//! Logs that come and go: stored by one program, read by another.

use crate::kit::Place;

fn run<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["run"], rest, &["-m", "scripted:builtin"]].concat()
}

#[test]
fn sessions_that_are_written_out_can_be_stored_again_and_gone_on_with() {
    let (place, other) = (Place::new(), Place::new());
    place.ok(&run(&["[[FANOUT n=2 tool=subagent]]"]));
    let all = place.ok(&["sessions", "ls", "--all", "--json"]).out;
    let ids: Vec<String> = all
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"))
        .map(|line| line["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    for id in &ids {
        let folder = other.dir().join("logs/--work--").join(id);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let log = place.ok(&["sessions", "export", id, "--format", "dsh"]).out;
        std::fs::write(folder.join("session.jsonl"), log).expect("the log is written");
    }
    let said = other.ok(&["sessions", "import", "logs"]).err;
    assert!(said.contains("3 sessions stored, 0 were there already, 0 not stored"), "{said}");
    let said = other.ok(&["sessions", "import", "logs"]).err;
    assert!(said.contains("0 sessions stored, 3 were there already, 0 not stored"), "{said}");
    for id in &ids {
        let export = |place: &Place| place.ok(&["sessions", "export", id]).out;
        assert_eq!(export(&place), export(&other));
    }
    assert!(other.verify().contains("3 sessions"));
    // The newest come first; `@last` is another folder's.
    let root = ids.last().expect("there are three");
    assert_eq!(other.ok(&["tree", root]).out.matches(" completed ").count(), 3);
    assert_eq!(other.ok(&run(&["--resume", root, "[[SAY on]]"])).out, "on\n");
    other.verify();
}

#[test]
fn what_cannot_be_stored_is_said_by_name_and_keeps_nothing_else_out() {
    let place = Place::new();
    let header =
        |id: &str| format!(r#"{{"type":"session","version":0,"id":"{id}","createdAt":5,"delegationDepth":0}}"#);
    let write = |id: &str, lines: &[&str]| {
        let folder = place.dir().join("logs").join(id);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let text = header(id) + "\n" + &lines.join("\n") + "\n";
        std::fs::write(folder.join("session.jsonl"), text).expect("the log is written");
    };
    let turn = [
        r#"{"type":"turn/start","seq":0,"time":6,"data":{"turn":1}}"#,
        r#"{"type":"turn/end","seq":1,"time":7,"data":{"turn":1,"reason":{"kind":"completed"}}}"#,
    ];
    write("good", &turn);
    write("odd", &[turn[0], r#"{"type":"moon/landed","seq":1,"time":7,"data":{}}"#]);
    write("gap", &[turn[0], r#"{"type":"turn/end","seq":5,"time":7,"data":{"turn":1,"reason":{"kind":"completed"}}}"#]);
    let said = place.run(&["sessions", "import", "logs"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("moon/landed"), "{said:?}");
    assert!(said.err.contains("1 session stored, 0 were there already, 2 not stored"), "{said:?}");
    // What can be read of it is shown all the same, and nothing is stored.
    let looked = place.run(&["sessions", "import", "--read-only", "logs/odd", "logs/good"]);
    assert_eq!(looked.code, Some(3), "{looked:?}");
    assert!(looked.out.contains("session odd") && looked.out.contains("session good"), "{looked:?}");
    assert!(looked.err.contains("moon/landed"), "{looked:?}");
    let looked = place.run(&["--json", "sessions", "import", "--read-only", "logs/odd"]).out;
    let looked: serde_json::Value = serde_json::from_str(&looked).expect("a line of JSON");
    assert_eq!((&looked["id"], &looked["events"]), (&"odd".into(), &1.into()), "{looked}");
    assert_eq!(place.ok(&["sessions", "ls", "--all", "--json"]).out.lines().count(), 1);
    let nothing = place.run(&["sessions", "import", "nowhere"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");

    // Another content under a known id replaces nothing.
    write(
        "good",
        &[
            turn[0],
            r#"{"type":"turn/end","seq":1,"time":8,"data":{"turn":1,"reason":{"kind":"max-tokens"}}}"#,
            r#"{"type":"turn/start","seq":2,"time":9,"data":{"turn":2}}"#,
        ],
    );
    let before = place.ok(&["sessions", "export", "good"]).out;
    assert_eq!(place.run(&["sessions", "import", "logs/good/session.jsonl"]).code, Some(1));
    assert_eq!(place.ok(&["sessions", "export", "good"]).out, before);
}

#[test]
fn a_session_is_written_out_for_people_whatever_is_in_it() {
    let place = Place::new();
    place.ok(&run(&["[[SAY <b>bold</b> & ``` more]]"]));
    let html = place.ok(&["sessions", "export", "@last", "--format", "html"]).out;
    assert!(html.starts_with("<!doctype html>") && html.contains("&lt;b&gt;bold&lt;/b&gt; &amp; ``` more"), "{html}");
    assert!(!html.contains("<b>"), "{html}");
    let text = place.ok(&["sessions", "export", "@last", "--format", "markdown"]).out;
    assert!(text.contains("## assistant\n\n<b>bold</b> & ``` more\n"), "{text}");
}
