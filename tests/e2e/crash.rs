//! `kill -9` in the middle of the work.

use crate::kit::{Mock, Place};

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
