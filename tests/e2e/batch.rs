//! `batch`: many tasks, and the same command again.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Mock, Place, wait_for};

const SCRIPTED: [&str; 2] = ["-m", "scripted:builtin"];

fn write_tasks(place: &Place, lines: impl IntoIterator<Item = String>) {
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    std::fs::write(place.dir().join("tasks.jsonl"), text).expect("the tasks are written");
}

fn say(id: &str, prompt: &str) -> String {
    serde_json::json!({"id": id, "prompt": prompt}).to_string()
}

/// The whole lines of the file of results.
fn results(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.dir().join("r.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

fn batch<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["batch", "tasks.jsonl", "-o", "r.jsonl"], rest].concat()
}

fn with<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    batch(&[&SCRIPTED, rest].concat())
}

#[test]
fn two_hundred_tasks_that_are_killed_half_way_are_each_done_once() {
    let place = Place::new();
    let mock = Mock::start(&place);
    write_tasks(&place, (0..200).map(|n| say(&format!("t{n}"), &format!("[[SAY answer {n} latency=20]]"))));
    let base_url = mock.base_url();
    let args = batch(&["-j", "16", "-m", "openai:any", "--base-url", &base_url]);
    let mut running = place.start(&args);
    running.wait_for(" completed ", 100);
    running.murder();
    mock.wait("a dead process holds no stream", |stats| stats["open_streams"] == 0);
    let (asked, done) = (mock.stats()["requests"].as_u64().expect("a number"), results(&place).len() as u64);
    assert!((100..200).contains(&done), "{done}");

    place.ok(&args);
    let results = results(&place);
    let ids: BTreeSet<&str> = results.iter().filter_map(|line| line["task"].as_str()).collect();
    assert_eq!((results.len(), ids.len()), (200, 200));
    for line in &results {
        let n = line["task"].as_str().expect("an id").trim_start_matches('t');
        assert!(line["text"].as_str().expect("a text").contains(&format!("answer {n}")), "{line}");
        assert_eq!((&line["type"], &line["outcome"]), (&"agent.ended".into(), &"completed".into()), "{line}");
    }
    let again = mock.stats()["requests"].as_u64().expect("a number") - asked;
    assert!(again <= 200 - done, "{again} requests for {} tasks", 200 - done);
    assert!(mock.stats()["peak_concurrency"].as_u64().expect("a number") <= 16);

    // Once more: there is nothing to do, and nobody is asked.
    let said = place.ok(&args);
    assert!(said.err.contains("200 had a result"), "{said:#?}");
    assert_eq!(mock.stats()["requests"].as_u64(), Some(asked + again));
    assert!(place.verify().contains("200 sessions"), "unfinished tasks went on in the sessions that they had");
}

#[test]
fn a_wrong_key_stops_the_batch_at_once_and_costs_no_task_its_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    // Ends with the test program; it holds nothing.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                counted.fetch_add(1, Ordering::SeqCst);
                let body = r#"{"error":{"message":"no such key","code":"invalid_api_key"}}"#;
                let head = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close";
                // The client may have gone.
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    let place = Place::new();
    write_tasks(&place, (0..200).map(|n| say(&format!("t{n}"), &format!("[[SAY {n}]]"))));
    let said = place.run(&batch(&["-j", "16", "-m", "openai:any", "--base-url", &base_url]));
    assert_eq!(said.code, Some(5), "{said:#?}");
    assert_eq!(said.err.matches("no such key").count(), 1, "it is said once: {}", said.err);
    assert!((1..=16).contains(&requests.load(Ordering::SeqCst)), "{requests:?}");
    assert_eq!(results(&place).len(), 0);
    // With one that works everything is done.
    place.ok(&with(&[]));
    assert_eq!(results(&place).len(), 200);
}

#[test]
fn what_failed_is_run_again_and_what_changed_is_asked_about() {
    let place = Place::new();
    let fails = "[[TOOL nothing {}]]";
    write_tasks(&place, [say("a", "[[SAY one]]"), say("b", "[[LEAF 1 error]]"), say("c", fails)]);
    let said = place.run(&with(&[]));
    assert_eq!(said.code, Some(1), "{said:#?}");
    let outcome = |id: &str| {
        let line = results(&place).into_iter().rfind(|line| line["task"] == id);
        line.map(|line| line["outcome"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(outcome("a").as_deref(), Some("completed"));
    assert_eq!(outcome("b").as_deref(), Some("failed"));
    let before = results(&place).len();

    // The second is another task now.
    write_tasks(&place, [say("a", "[[SAY one]]"), say("b", "[[SAY two]]"), say("c", fails)]);
    let said = place.run(&with(&[]));
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.err.contains("\"b\"") && said.err.contains("--changed"), "{said:#?}");
    assert_eq!(results(&place).len(), before);
    place.ok(&with(&["--changed", "skip"]));
    assert_eq!(results(&place).len(), before);
    place.ok(&with(&["--changed", "rerun"]));
    assert_eq!(outcome("b").as_deref(), Some("completed"));
    assert_eq!(results(&place).len(), before + 1);
    place.ok(&with(&["--restart", "--limit", "1"]));
    assert_eq!(results(&place).len(), before + 2);
}

#[test]
fn a_batch_that_is_interrupted_goes_on_in_the_sessions_that_it_had() {
    let place = Place::new();
    // Each waits for a file that is there the second time.
    let waits = r#"[[TOOL bash {"command": "touch began.$$; until [ -e go ]; do sleep 0.02; done; echo gone on"}]]"#;
    write_tasks(&place, (0..4).map(|n| say(&format!("t{n}"), waits)));
    let args = with(&["--access", "full"]);
    let running = place.start(&args);
    wait_for("all four wait", || {
        let files = std::fs::read_dir(place.dir()).expect("the folder").flatten();
        (files.filter(|file| file.file_name().to_string_lossy().starts_with("began.")).count() == 4).then_some(())
    });
    running.signal(Signal::SIGINT);
    let said = running.finish();
    assert_eq!(said.code, Some(130), "{said:#?}");
    assert_eq!(results(&place).len(), 0);
    std::fs::write(place.dir().join("go"), "").expect("a file");
    place.ok(&args);
    assert_eq!(results(&place).len(), 4);
    assert!(place.verify().contains("4 sessions"));
}

#[test]
fn time_limits_and_failures_are_bounds() {
    let place = Place::new();
    write_tasks(&place, [say("slow", "[[SAY done latency=60000]]"), say("fast", "[[SAY done]]")]);
    let said = place.run(&with(&["--timeout-per-task", "200ms"]));
    assert_eq!(said.code, Some(1), "{said:#?}");
    let outcomes: BTreeSet<String> = results(&place).iter().map(|line| line["outcome"].to_string()).collect();
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), ["\"cancelled\"", "\"completed\""]);

    let place = Place::new();
    write_tasks(&place, (0..50).map(|n| say(&format!("t{n}"), "[[LEAF 1 error]]")));
    let said = place.run(&with(&["-j", "2", "--max-failures", "3"]));
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!((3..=4).contains(&results(&place).len()), "{said:#?}");
}

#[test]
fn a_dry_run_runs_nothing_and_two_batches_do_not_write_one_file() {
    let place = Place::new();
    write_tasks(&place, (0..3).map(|n| format!("{{\"path\": \"src/{n}.rs\"}}")));
    let said = place.ok(&with(&["--template", "[[SAY {{path}} latency=60000]]", "--dry-run", "--limit", "2"]));
    assert!(said.out.contains("src/1.rs") && !said.out.contains("src/2.rs"), "{said:#?}");
    assert!(said.err.contains("2 of 3 tasks would run"), "{said:#?}");
    write_tasks(&place, ["builtin", "demo"].map(|name| format!(r#"{{"prompt": "x", "model": "scripted:{name}"}}"#)));
    let said = place.run(&with(&["--dry-run"]));
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.err.contains("scripted:demo") && said.err.contains("two ways"), "{said:#?}");
    write_tasks(&place, (0..3).map(|n| format!("{{\"path\": \"src/{n}.rs\"}}")));
    let running = place.start(&with(&["--template", "[[SAY {{path}} latency=60000]]"]));
    // It takes the file before the store; looking for the file itself could take it first.
    wait_for("the first one holds the file", || place.home().join("store.sqlite").exists().then_some(()));
    let second = place.run(&with(&["--template", "{{path}}", "--dry-run"]));
    assert_eq!(second.code, Some(2), "{second:#?}");
    assert!(second.err.contains("another batch"), "{second:#?}");
    running.murder();
}

#[test]
fn a_task_can_begin_with_the_conversation_of_a_session() {
    let place = Place::new();
    place.ok(&["run", "-m", "scripted:builtin", "[[SAY the colour is blue]]"]);
    let fork = serde_json::json!({"id": "f", "prompt": "[[SAY yes]]", "context": "fork:@last"}).to_string();
    write_tasks(&place, [fork, say("plain", "[[SAY no]]")]);
    place.ok(&with(&[]));
    let log = |task: &str| {
        let results = results(&place);
        let line = results.iter().find(|line| line["task"] == task).expect("it has a result");
        place.ok(&["sessions", "export", line["session"].as_str().expect("an id")]).out
    };
    assert!(log("f").contains("the colour is blue") && log("f").contains("[[SAY yes]]"));
    assert!(!log("plain").contains("the colour is blue"));

    let nobody = serde_json::json!({"prompt": "[[SAY yes]]", "context": "fork:feed0000"}).to_string();
    write_tasks(&place, [nobody]);
    let output = place.run(&with(&[]));
    assert_eq!(output.code, Some(2), "{output:?}");
}
