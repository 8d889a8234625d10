//! The store as a whole: taken over, copied, cleared out.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Mock, Place};

const SCRIPTED: [&str; 2] = ["-m", "scripted:builtin"];

fn run<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["run"], rest, &SCRIPTED].concat()
}

fn listed(place: &Place) -> Vec<Value> {
    let out = place.ok(&["sessions", "ls", "--all", "--json"]).out;
    out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_process_that_hangs_is_named_taken_over_from_and_writes_nothing_when_it_wakes() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let base_url = mock.base_url();
    let mut first = place.start(&["run", "[[SAY mine latency=3000]]", "--base-url", &base_url, "-m", "openai:any"]);
    first.wait_for(": started", 1);
    mock.wait("the first asks", |stats| stats["open_streams"] == 1);
    first.signal(Signal::SIGSTOP);

    let locked = place.run(&run(&["[[SAY second]]"]));
    assert_eq!(locked.code, Some(6), "{locked:?}");
    assert!(locked.err.contains(&format!("in use by process {} since ", first.id())), "{locked:?}");
    assert_eq!(place.ok(&run(&["--take-over", "[[SAY second]]"])).out, "second\n");
    let before = place.ok(&["sessions", "export", "@last"]).out;

    first.signal(Signal::SIGCONT);
    let fenced = first.finish();
    assert_eq!(fenced.code, Some(6), "{fenced:?}");
    assert!(fenced.err.contains("taken over by another process"), "{fenced:?}");
    assert_eq!(fenced.out, "");
    assert_eq!(place.ok(&["sessions", "export", "@last"]).out, before);
    place.verify();
    // Whoever comes next finds the first as it was left, and goes on with it.
    let first = listed(&place).last().expect("two are there")["id"].as_str().expect("an id").to_owned();
    assert_eq!(place.ok(&run(&["--resume", &first, "[[SAY on]]"])).out, "on\n");
    place.verify();
}

#[test]
fn a_tree_is_deleted_whole_and_what_was_forked_from_it_stays() {
    let place = Place::new();
    place.ok(&run(&["[[FANOUT n=3 tool=subagent]]"]));
    place.ok(&run(&["--continue", "--fork", "[[SAY fork]]"]));
    let all = listed(&place);
    assert_eq!(all.len(), 5);
    let child = all.iter().find(|it| it["id"] != it["root"]).expect("there is a child");
    let [root, child] = ["root", "id"].map(|key| child[key].as_str().expect("an id"));

    let asked = place.run(&["sessions", "rm", root]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(asked.err.contains("say -y"), "{asked:?}");
    let refused = place.run(&["sessions", "rm", "-y", child]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("goes with its root"), "{refused:?}");
    assert_eq!(listed(&place).len(), 5);

    place.ok(&["sessions", "rm", "-y", root]);
    let left = listed(&place);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(place.ok(&["sessions", "export", "@last"]).out.contains("fanout done results=3"));
    assert_eq!(place.run(&["sessions", "show", root]).code, Some(2));
    assert_eq!(place.ok(&run(&["--continue", "[[SAY on]]"])).out, "on\n");
    place.verify();
}

#[test]
fn a_copy_that_is_made_while_agents_run_is_a_store_and_room_is_given_back() {
    let place = Place::new();
    let mut running = place.start(&run(&["[[FANOUT n=60 tool=subagent latency=20]]", "-j", "2"]));
    running.wait_for(": started", 10);
    let copy = place.dir().join("copy/store.sqlite");
    std::fs::create_dir(copy.parent().expect("it has a folder")).expect("the folder is made");
    place.ok(&["backup", "copy/store.sqlite"]);
    let again = place.run(&["backup", "copy/store.sqlite"]);
    assert_eq!(again.code, Some(6), "{again:?}");
    assert!(again.err.contains("it is there already"), "{again:?}");
    assert_eq!(running.finish().code, Some(0));

    let home = copy.parent().expect("it has a folder").to_str().expect("it is UTF-8").to_owned();
    place.ok(&["sessions", "verify", "--all", "--home", &home]);
    assert_eq!(place.ok(&run(&["--home", &home, "--continue", "[[SAY in the copy]]"])).out, "in the copy\n");

    let size = || std::fs::metadata(place.home().join("store.sqlite")).expect("it is there").len();
    place.ok(&["gc"]);
    let before = size();
    place.ok(&["sessions", "rm", "-y", "@last"]);
    place.ok(&["gc"]);
    assert!(size() < before / 2, "{before} before and {} now", size());
    assert!(listed(&place).is_empty());
    assert_eq!(place.ok(&run(&["[[SAY anew]]"])).out, "anew\n");
}

#[test]
fn trees_in_which_nothing_has_happened_for_long_are_deleted_when_asked_for() {
    let place = Place::new();
    for prompt in ["[[SAY old]]", "[[FANOUT n=2 tool=subagent]]", "[[SAY new]]"] {
        place.ok(&run(&[prompt]));
    }
    // A year ago; of the second tree only one of its children was touched since.
    let connection = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("the store");
    let aged = "UPDATE heads SET updated_at = updated_at - 365 * 86400000 WHERE session IN \
                (SELECT key FROM sessions WHERE path <> 'root/leaf-2' AND key <> \
                 (SELECT max(key) FROM sessions WHERE path = 'root' AND is_tree = 0))";
    assert!(connection.execute(aged, []).expect("it is aged") >= 3);
    drop(connection);
    let asked = place.run(&["gc", "--older-than", "30d"]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(asked.err.contains("delete 1 root and all below?"), "{asked:?}");
    let roots = || place.ok(&["sessions", "ls"]).out.lines().count();
    let before = roots();
    let deleted = place.ok(&["gc", "--older-than", "30d", "-y"]).err;
    assert!(deleted.contains("deleted ") && deleted.contains("old") && deleted.contains(" now"), "{deleted}");
    assert_eq!(roots(), before - 1);
    assert!(place.ok(&["gc", "--older-than", "30d", "-y"]).err.contains(" now"));
    place.verify();
}
