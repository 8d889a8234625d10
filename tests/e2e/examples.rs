//! The examples do what they say.

use std::process::Command;

#[test]
fn delegate_brings_every_outcome_back() {
    let output = Command::new(env!("CARGO_BIN_EXE_delegate")).output().expect("the example starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[..4].iter().all(|line| line.ends_with(": completed")), "{text}");
    assert_eq!(lines[4..], ["fanout done results=3", "3 calls were answered"]);
}
