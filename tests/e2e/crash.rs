//! `kill -9` in the middle of the work.

use crate::kit::{Mock, Place, wait_for};

#[test]
fn after_kill_9_in_mid_fan_out_every_child_is_there_with_an_honest_end() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=12 tool=subagent leaf=\"latency=60000\"]]";
    let base_url = mock.base_url();
    let mut running = place.start(&["run", "-j", "8", prompt, "--base-url", &base_url, "-m", "openai:any"]);
    running.wait_for(": started", 1);
    mock.wait("eight children ask at once", |stats| stats["open_streams"] == 8);
    running.murder();
    mock.wait("a dead process holds no stream", |stats| stats["open_streams"] == 0);

    let tree = place.tree();
    assert_eq!(tree.len(), 13, "{tree:#?}");
    let ends = |mark: &str| tree.iter().filter(|line| line.contains(mark)).count();
    assert_eq!(ends("crashed"), 9, "{tree:#?}");
    assert_eq!(ends("not started"), 4, "{tree:#?}");
    place.verify();

    let resume = ["run", "--continue", "[[SAY back again]]", "--base-url", &base_url, "-m", "openai:any"];
    assert_eq!(place.ok(&resume).out, "back again\n");
    let tree = place.tree();
    assert!(tree[0].contains("completed"), "{tree:#?}");
    assert!(tree.iter().all(|line| !line.contains("not closed")), "{tree:#?}");
    assert!(place.verify().contains("13 sessions"));
    // What the children had to say is in their parent's log, although they could not say much.
    let shown = place.ok(&["sessions", "show", "@last"]).out;
    assert_eq!(shown.matches(" crashed · agent ").count(), 8, "{shown}");
}

#[test]
fn after_kill_9_fifty_children_in_the_background_are_there_and_each_is_told_of_once() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=50 tool=subagent background=true leaf=\"latency=60000\"]]";
    let base_url = mock.base_url();
    let model = ["--base-url", &base_url, "-m", "openai:any", "-j", "64"];
    let running = place.start(&[&["run", prompt], &model[..]].concat());
    mock.wait("all ask at once", |stats| stats["open_streams"] == 50);
    running.murder();
    mock.wait("a dead process holds no stream", |stats| stats["open_streams"] == 0);
    assert_eq!(place.tree().len(), 51);
    for said in ["one", "two"] {
        let again = format!("[[SAY {said}]]");
        place.ok(&[&["run", "--continue", &again], &model[..]].concat());
        let shown = place.ok(&["sessions", "show", "@last"]).out;
        assert_eq!(shown.matches(" crashed · agent ").count(), 50, "{shown}");
    }
    place.verify();
}

#[test]
fn a_crash_in_a_loop_never_leaves_a_log_that_breaks_a_rule() {
    let place = Place::new();
    for round in 0..6 {
        let mut running = place.start(&["run", "[[FANOUT n=40 tool=subagent latency=3]]", "-m", "scripted:builtin"]);
        // Later and later in its life.
        running.wait_for(": started", 1 + round);
        running.murder();
        place.verify();
        // Killed before its first commit it was never there.
        if place.ok(&["sessions", "ls", "--json"]).out.is_empty() {
            continue;
        }
        place.ok(&["run", "--continue", "[[SAY on]]", "-m", "scripted:builtin"]);
        place.verify();
    }
}

#[test]
fn a_command_does_not_outlive_a_runtime_that_is_killed() {
    let place = Place::new();
    let prompt = r#"[[TOOL bash {"command": "sleep 3600 & echo $! > inner; echo $$ > outer; wait"}]]"#;
    let running = place.start(&["run", prompt, "-m", "scripted:builtin", "--access", "full"]);
    let pid = |file: &str| std::fs::read_to_string(place.dir().join(file)).ok().filter(|pid| pid.ends_with('\n'));
    let pids = wait_for("the command runs", || Some([pid("inner")?, pid("outer")?]));
    running.murder();
    for pid in pids {
        let process = std::path::PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        // What has ended and waits for its parent to hear of it is gone as well.
        let is_gone = || std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
        wait_for("it ends", || is_gone().then_some(()));
    }
}

#[test]
fn a_log_that_is_missing_is_a_violation() {
    let place = Place::new();
    place.ok(&["run", "[[FANOUT n=3 tool=subagent]]", "-m", "scripted:builtin"]);
    place.verify();
    let sql = |statement: &str| {
        let store = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("a store");
        store.execute(statement, []).expect("the statement runs")
    };
    let last = "SELECT max(e.rowid) FROM events e JOIN sessions s ON s.key = e.session WHERE s.path = 'root'";
    assert_eq!(sql(&format!("DELETE FROM events WHERE rowid = ({last})")), 1);
    let said = place.run(&["sessions", "verify", "--all"]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.out.contains("its last events are missing"), "{}", said.out);
    sql("DELETE FROM events WHERE session = (SELECT key FROM sessions WHERE path = 'root/leaf-2')");
    assert_eq!(sql("DELETE FROM sessions WHERE path = 'root/leaf-2'"), 1);
    let said = place.run(&["sessions", "verify", "--all"]);
    assert!(said.out.contains("its own log is not there"), "{}", said.out);
}

#[test]
fn a_child_that_was_born_just_before_a_kill_is_counted_among_the_descendants() {
    let place = Place::new();
    place.ok(&["run", "[[FANOUT n=1 tool=subagent]]", "-m", "scripted:builtin"]);
    // A kill between two commits: the place and the child are there, that it may start is not.
    let store = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("a store");
    let tree = "(SELECT key FROM sessions WHERE id LIKE '%.tree')";
    let cut = format!(
        "DELETE FROM events WHERE session = {tree} AND seq > 0; UPDATE heads SET len = 1 WHERE session = {tree};"
    );
    store.execute_batch(&cut).expect("the statements run");
    drop(store);
    let ask = r#"[[TOOL list_agents {"scope": "subtree"}]]"#;
    let listed = place.ok(&["run", "--continue", ask, "-m", "scripted:builtin"]).out;
    assert_eq!(listed.matches(r#""path":"root/leaf-1""#).count(), 1, "{listed}");
    place.verify();
}

#[test]
fn after_kill_9_a_child_that_had_not_begun_has_an_end_and_its_parent_hears_of_it_once() {
    let place = Place::new();
    let mock = Mock::start(&place);
    let prompt = "[[FANOUT n=5 tool=subagent background=true leaf=\"latency=60000\"]]";
    let base_url = mock.base_url();
    let model = ["--base-url", &base_url, "-m", "openai:any"];
    let running = place.start(&[&["run", "-j", "2", prompt], &model[..]].concat());
    mock.wait("two children ask", |stats| stats["open_streams"] == 2);
    running.murder();
    mock.wait("a dead process holds no stream", |stats| stats["open_streams"] == 0);
    for said in ["one", "two"] {
        let again = format!("[[SAY {said}]]");
        place.ok(&[&["run", "--continue", &again], &model[..]].concat());
        let shown = place.ok(&["sessions", "show", "@last"]).out;
        assert_eq!(shown.matches(" cancelled · agent ").count(), 3, "{shown}");
        assert_eq!(shown.matches(" crashed · agent ").count(), 2, "{shown}");
    }
    place.verify();
}

#[test]
fn a_subagent_that_cannot_be_read_is_named_and_keeps_its_tree_from_nothing() {
    let place = Place::new();
    place.ok(&["run", "[[FANOUT n=3 tool=subagent]]", "-m", "scripted:builtin"]);
    let store = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("the store opens");
    let damage = "UPDATE events SET line = '{\"type\":\"torn' WHERE seq = 3 AND session IN (SELECT key FROM sessions WHERE \
                  path = 'root/leaf-2')";
    assert_eq!(store.execute(damage, []).expect("it is damaged"), 1);
    drop(store);
    let id = |line: &str| line.split_whitespace().last().expect("an id").to_owned();
    let damaged = id(place.tree().iter().find(|line| line.contains("leaf-2")).expect("it is listed"));

    let resumed = place.ok(&["run", "--continue", "[[SAY on]]", "-m", "scripted:builtin"]);
    assert_eq!(resumed.out, "on\n");
    assert!(resumed.err.contains(&damaged) && resumed.err.contains("cannot be read"), "{resumed:?}");
    let verified = place.run(&["sessions", "verify", "--all"]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    assert!(verified.out.lines().any(|line| line.contains(&damaged)), "{verified:?}");
    let all = place.ok(&["sessions", "ls", "--all", "--json"]).out;
    assert_eq!(all.lines().count(), 4, "{all}");

    // One whose row does not read is not listed, and named.
    let store = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("the store opens");
    let torn = "UPDATE heads SET head = 'torn' WHERE session = (SELECT key FROM sessions WHERE path = 'root/leaf-3')";
    store.execute(torn, []).expect("it is damaged");
    drop(store);
    let listed = place.ok(&["sessions", "ls", "--all", "--json"]);
    assert_eq!(listed.out.lines().count(), 3, "{listed:?}");
    assert!(listed.err.contains("a session is not listed"), "{listed:?}");
}
