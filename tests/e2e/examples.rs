//! The examples do what they say.

use std::process::Command;

fn lines(program: &str) -> Vec<String> {
    let output = Command::new(program).output().expect("the example starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn delegate_brings_every_outcome_back() {
    let lines = lines(env!("CARGO_BIN_EXE_delegate"));
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert!(lines[..4].iter().all(|line| line.ends_with(": completed")), "{lines:#?}");
    assert_eq!(lines[4..], ["fanout done results=3", "3 calls were answered"]);
}

#[test]
fn one_agent_says_what_was_said() {
    let said = ["completed: hello", "User: Be brief.", "User: [[SAY hello]]", "Assistant: hello"];
    assert_eq!(lines(env!("CARGO_BIN_EXE_one_agent")), said);
}

#[test]
fn tools_and_hooks_divide_but_not_by_seven() {
    let said = [
        "12 / 3: 4",
        "12 / 0: Error: b must not be 0",
        "12 / 7: Error: nobody divides by seven here",
        "its prompt was not let in: passwords stay out of here",
    ];
    assert_eq!(lines(env!("CARGO_BIN_EXE_tools_and_hooks")), said);
}

#[test]
fn cancel_and_rest_names_every_agent() {
    let lines = lines(env!("CARGO_BIN_EXE_cancel_and_rest"));
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines[..4].iter().all(|line| line.ends_with(": cancelled")), "{lines:#?}");
    assert_eq!(lines[4], "at rest: true");
}

#[test]
fn race_has_one_winner_and_waits_for_nobody() {
    let lines = lines(env!("CARGO_BIN_EXE_race"));
    let cancelled = lines.iter().filter(|line| line.ends_with(": cancelled")).count();
    assert_eq!((lines.len(), cancelled), (7, 4), "{lines:#?}");
    assert_eq!(lines[3], "root/lane-3: completed");
    assert_eq!(lines[6], "nobody waited for a minute: true");
}

#[test]
fn fan_out_says_each_outcome_and_a_summary() {
    let lines = lines(env!("CARGO_BIN_EXE_fan_out"));
    assert_eq!(lines.len(), 11, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with(" unsafe blocks")).count(), 9, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("part 7: failed: BAD_REQUEST")), "{lines:#?}");
    assert!(lines[10].starts_with("10 agents: 9 completed, 1 failed; "), "{lines:#?}");
}

#[test]
fn fork_and_compare_tells_four_stories_that_begin_alike() {
    let said = [
        "Once upon a time there was a crab.",
        "Once upon a time it was raining.",
        "Once upon a time nothing happened.",
        "Once upon a time I was here first.",
    ];
    assert_eq!(lines(env!("CARGO_BIN_EXE_fork_and_compare")), said);
}

#[test]
fn background_answers_at_once_and_again_when_there_is_news() {
    let said = ["turn 1: Somebody digs; ask me something else.", "turn 2: News: I have found a bone."];
    assert_eq!(lines(env!("CARGO_BIN_EXE_background")), said);
}
