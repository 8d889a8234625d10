use std::fs;
use std::time::{Duration, Instant};

use impresario_seams::Tool;
use impresario_tools::Bash;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::desk::Desk;

const SOON: Duration = Duration::from_secs(20);

/// Waits until the file holds a number, and gives it.
async fn number(desk: &Desk, file: &str) -> Pid {
    let look = async {
        loop {
            let text = fs::read_to_string(desk.dir.join(file)).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n').and_then(|text| text.parse().ok()) {
                return Pid::from_raw(number);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, look).await.expect("the command writes its number")
}

/// Whether the process runs. One that has ended and waits to be reaped does not.
fn runs(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let is_zombie = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    kill(process, None) != Err(Errno::ESRCH) && !is_zombie
}

async fn until_gone(process: Pid) {
    let look = async {
        while runs(process) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, look).await.expect("the process goes");
}

#[tokio::test]
async fn output_comes_in_the_order_of_writing() {
    let desk = Desk::new();
    let text = desk.text(&Bash, json!({"command": "echo a; echo b >&2; echo c; pwd"})).await;
    assert_eq!(text, format!("a\nb\nc\n{}\n", desk.dir.display()));
    assert_eq!(desk.text(&Bash, json!({"command": "true"})).await, "(no output)");
}

#[tokio::test]
async fn exit_codes_and_signals_are_results() {
    let desk = Desk::new();
    assert_eq!(desk.text(&Bash, json!({"command": "printf x; exit 3"})).await, "x\nexit code: 3");
    assert_eq!(desk.text(&Bash, json!({"command": "kill -9 $$"})).await, "(no output)\nkilled by signal 9 (SIGKILL)");
}

#[tokio::test]
async fn nothing_waits_for_a_person() {
    let desk = Desk::new();
    let text = desk.text(&Bash, json!({"command": "read x; cat; cat </dev/tty; echo end"})).await;
    assert!(text.ends_with("end\n"), "{text}");
}

#[tokio::test]
async fn only_the_end_of_a_long_output_is_kept() {
    let desk = Desk::new();
    let text = desk.text(&Bash, json!({"command": "seq 1 200000; echo last"})).await;
    let all = desk.real("seq 1 200000; echo last").len();
    assert!(text.starts_with(&format!("[cut: the first {} of {all} bytes", all - 64_000)), "{}", &text[..80]);
    assert!(text.ends_with("\n200000\nlast\n") && text.len() < 64_200);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_said() {
    let desk = Desk::new();
    let text = desk.text(&Bash, json!({"command": "printf 'a\\xff\\0b'"})).await;
    assert!(text.contains("not UTF-8") && text.ends_with("a\u{fffd}\u{fffd}b"), "{text}");
}

#[tokio::test]
async fn cancelling_ends_the_whole_tree() {
    let desk = Desk::new();
    let command = "bash -c 'sleep 300 & echo $! >grandchild; wait' & sleep 300 & echo $! >child; echo $$ >leader; wait";
    let call = tokio::spawn(Bash.run(json!({"command": command}), desk.context()));
    let tree = [number(&desk, "grandchild").await, number(&desk, "child").await, number(&desk, "leader").await];
    assert!(tree.iter().all(|process| runs(*process)));
    desk.cancel.cancel();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.info.unwrap().code, "ABORTED");
    assert!(tree.iter().all(|process| !runs(*process)));
}

#[tokio::test]
async fn what_ignores_term_is_killed() {
    let desk = Desk::new();
    let command = "trap '' TERM; echo $$ >leader; while true; do sleep 0.05; done";
    let call = tokio::spawn(Bash.run(json!({"command": command}), desk.context()));
    let leader = number(&desk, "leader").await;
    desk.cancel.cancel();
    assert!(call.await.unwrap().is_err());
    assert!(!runs(leader));
}

#[tokio::test]
async fn a_time_out_ends_the_tree_and_tells_the_output_so_far() {
    let desk = Desk::new();
    let command = "echo before; sleep 300 & echo $! >child; sleep 300";
    let error = desk.run(&Bash, json!({"command": command, "timeout_ms": 500})).await.unwrap_err();
    assert!(error.message.contains("500 ms") && error.message.ends_with("before\n"), "{}", error.message);
    assert_eq!(error.info.unwrap().code, "TIMEOUT");
    assert!(!runs(number(&desk, "child").await));
}

#[tokio::test]
async fn endless_output_does_not_hold_up_the_time_out() {
    let desk = Desk::new();
    let error = desk.run(&Bash, json!({"command": "yes", "timeout_ms": 300})).await.unwrap_err();
    assert_eq!(error.info.unwrap().code, "TIMEOUT");
    assert!(error.message.len() < 65_000);
}

#[tokio::test]
async fn processes_left_in_the_background_do_not_hang_the_call() {
    let desk = Desk::new();
    for background in ["sleep 300 &", "(sleep 300 </dev/null >/dev/null 2>&1) &", "sleep 300 2>&1 &"] {
        let started = Instant::now();
        let text = desk.text(&Bash, json!({"command": format!("{background} echo $! >child; echo done")})).await;
        assert!(text.starts_with("done\n[") && text.contains("left in the background were stopped"), "{text}");
        assert!(started.elapsed() < SOON);
        assert!(!runs(number(&desk, "child").await));
    }
}

#[tokio::test]
async fn a_process_that_left_the_session_is_not_waited_for() {
    let desk = Desk::new();
    let text = desk.text(&Bash, json!({"command": "setsid sleep 300 & echo $! >child; echo hi"})).await;
    assert!(text.starts_with("hi\n[") && text.contains("session of its own"), "{text}");
    let child = number(&desk, "child").await;
    kill(child, Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn dropping_the_call_kills_the_group() {
    let desk = Desk::new();
    let command = "trap '' TERM; sleep 300 & echo $! >child; wait";
    let call = tokio::spawn(Bash.run(json!({"command": command}), desk.context()));
    let child = number(&desk, "child").await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    until_gone(child).await;
}

#[tokio::test]
async fn commands_that_are_none_are_named() {
    let desk = Desk::new();
    assert!(desk.error(&Bash, json!({"command": "  "})).await.contains("`command`"));
    assert!(desk.error(&Bash, json!({"command": "a\0"})).await.contains("`command`"));
    assert!(desk.error(&Bash, json!({"command": "a", "timeout_ms": 0})).await.contains("`timeout_ms`"));
}
