//! Subagents in git worktrees of their own.

use std::process::Command;

use crate::kit::Place;

const SCRIPT: &str = r#"
[[rule]]
path = "root"
step = 1
calls = [
    { name = "subagent", arguments = { prompt = "write", label = "writer", isolation = "worktree" } },
    { name = "subagent", arguments = { prompt = "look", label = "looker", isolation = "worktree" } },
    { name = "subagent", arguments = { prompt = "look", label = "here" } },
]

[[rule]]
path = "root"
text = "{{result 0}} {{result 1}} {{result 2}}"

[[rule]]
contains = "write"
step = 1
calls = [{ name = "write_file", arguments = { path = "new.txt", content = "from a worktree" } }]

[[rule]]
contains = "look"
step = 1
calls = [{ name = "list_dir", arguments = { path = "." } }]

[[rule]]
text = "{{result 0}}"
"#;

fn git(place: &Place, args: &[&str]) {
    let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let said = Command::new("git").arg("-C").arg(place.dir()).args(who).args(args).output().expect("git is there");
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn children_with_worktrees_do_not_disturb_each_other_and_what_they_change_stays() {
    let place = Place::new();
    git(&place, &["init", "--quiet"]);
    std::fs::write(place.dir().join("old.txt"), "old").expect("a file");
    git(&place, &["add", "."]);
    git(&place, &["commit", "--quiet", "-m", "first"]);
    std::fs::write(place.dir().join("script.toml"), SCRIPT).expect("a script");
    let run = ["run", "go", "-m", "scripted:script.toml", "--access", "write"];
    let said = place.ok(&run).out;
    assert!(said.contains("[changed in its worktree ") && said.contains("?? new.txt]"), "{said}");
    assert!(said.contains("[nothing was changed in its worktree "), "{said}");
    assert!(!place.dir().join("new.txt").exists(), "the folder of the others is as it was");
    let worktrees: Vec<_> = std::fs::read_dir(place.home().join("worktrees")).expect("a folder").flatten().collect();
    assert_eq!(worktrees.len(), 1, "the one in which nothing was changed is gone: {worktrees:?}");
    let tree = worktrees[0].path().join("tree");
    assert_eq!(std::fs::read_to_string(tree.join("new.txt")).expect("it stays"), "from a worktree");
    assert!(tree.join("old.txt").exists());
    // Written to once more, the one whose worktree is gone has it again.
    let again = ["send", "@last:looker", "look again", "-m", "scripted:script.toml"];
    let said = place.ok(&again).out;
    assert!(said.contains("old.txt"), "{said}");
    place.verify();
}

#[test]
fn where_there_is_no_repository_the_call_says_so_and_nothing_is_left() {
    let place = Place::new();
    std::fs::write(place.dir().join("script.toml"), SCRIPT).expect("a script");
    let said = place.ok(&["run", "go", "-m", "scripted:script.toml", "--access", "write"]).out;
    assert_eq!(said.matches("a worktree takes a git repository").count(), 2, "{said}");
    assert!(said.contains("[root/here completed"), "{said}");
    assert_eq!(place.tree().len(), 2);
    assert!(!place.home().join("worktrees").exists());
    let kept = place.ok(&["run", "go", "-m", "scripted:script.toml", "--access", "write", "--ephemeral"]).out;
    assert!(kept.contains("this runtime has no worktrees"), "{kept}");
}
