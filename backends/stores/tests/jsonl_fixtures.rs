//! Damaged logs: each fixture is written in our records with the same damage, read, listed and appended to. What
//! comes out is what the fixture expects, or stands below with the reason.
#![cfg(feature = "jsonl")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use impresario_kernel::event::InboxWoken;
use impresario_kernel::{Event, Fact, Millis, Seq};
use impresario_seams::{Batch, Commit, Head, SessionFilter, Store, StoreError};
use impresario_stores::JsonlStore;
use impresario_stores::jsonl::{DiagnosticKind, Encoding, read_dsh};
use serde_json::{Value, json};

const BEHIND_A_GAP: &str =
    "events are missing: what is behind a gap would tell another story, so reading ends there and nothing is appended";
const IN_THE_MIDDLE: &str =
    "damage in the middle: everything is read and said, and nothing is appended until somebody has looked";
const FOR_THE_FOLD: &str =
    "what events mean together is for whoever folds them, and the invariants of the kernel say it";

/// What we do otherwise: the fixture, what comes of it, and why.
const OTHERWISE: &[(&str, &str, &str)] = &[
    (
        "005_torn_then_appended_glued",
        r#"load_read_only [0,1,2,3,4] [[6,"unparseable"],[null,"seq_gap"]] nothing"#,
        BEHIND_A_GAP,
    ),
    ("008_garbage_line_in_middle", r#"load_read_only [0,1,2,3,4] [[3,"unparseable"]] nothing"#, IN_THE_MIDDLE),
    ("013_invalid_utf8_line", r#"load_read_only [0,1] [[3,"invalid_utf8"],[null,"seq_gap"]] nothing"#, BEHIND_A_GAP),
    ("022_seq_gap", r#"load_read_only [0,1,2] [[null,"seq_gap"]] nothing"#, BEHIND_A_GAP),
    (
        "023_seq_out_of_order",
        r#"load_read_only [0,1,2,3,4] [[4,"out_of_order"]] nothing"#,
        "sorted for reading; other readers of the log could not, so nothing is appended",
    ),
    (
        "025_bad_timestamp",
        r#"load_read_only [0] [[2,"unparseable"],[null,"seq_gap"]] nothing"#,
        "no time is guessed: a record with a broken envelope is none, and what is behind it is behind a gap",
    ),
    ("029_version_is_string", r#"refuse [] [[1,"bad_version"]] nothing"#, "a version that is no number is no version"),
    ("035_deep_nesting", r#"load_read_only [0,1] [[3,"unparseable"],[null,"seq_gap"]] nothing"#, BEHIND_A_GAP),
    (
        "037_not_an_object",
        r#"load_read_only [0,1,2,3,4] [[3,"not_a_record"],[4,"not_a_record"],[5,"not_a_record"],[6,"not_a_record"]] nothing"#,
        IN_THE_MIDDLE,
    ),
    ("040_turn_end_twice", r#"load [0,1,2,3,4,5] [] nothing"#, FOR_THE_FOLD),
    ("041_result_before_call", r#"load [0,1,2,3] [] nothing"#, FOR_THE_FOLD),
];

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jsonl");
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    found.sort();
    found
}

/// A record of the neutral dialect as one of ours. Its header is event 0, ours is none.
fn record(neutral: &Value) -> String {
    let seq = neutral["seq"].as_u64().unwrap();
    let time = if neutral["ts"] == "yesterday" { json!("yesterday") } else { json!(1_000 + seq) };
    let at = seq.saturating_sub(1);
    let id = format!("m{seq}");
    let text = &neutral["text"];
    let row = |kind: &str, data: Value| json!({"type": kind, "seq": at, "time": time, "data": data}).to_string();
    let said = |kind: &str, data: Value| {
        json!({"type": kind, "seq": at, "time": time, "data": data, "surfaceOp": "append"}).to_string()
    };
    match neutral["type"].as_str().unwrap_or("assistant") {
        "session" => {
            let version = match &neutral["v"] {
                Value::Number(version) => json!(version.as_u64().unwrap() - 1),
                other => other.clone(),
            };
            json!({"type": "session", "version": version, "id": "s-fx", "createdAt": 1, "cwd": "/work/demo"})
                .to_string()
        }
        "user" => {
            let content = json!([{"type": "text", "text": text}]);
            said("user/message", json!({"id": id, "role": "user", "content": content, "source": {"kind": "user"}}))
        }
        "assistant" => {
            let mut content = vec![json!({"type": "text", "text": text})];
            for call in neutral["calls"].as_array().into_iter().flatten() {
                content.push(json!({"type": "tool-call", "id": call["id"], "name": call["name"], "arguments": "{}"}));
            }
            let source = json!({"kind": "model", "provider": "p", "model": "m"});
            let message = json!({"id": id, "role": "assistant", "content": content, "source": source});
            let mut row: Value =
                serde_json::from_str(&said("assistant/message", json!({"turn": 1, "step": 1, "message": message})))
                    .unwrap();
            row["sourceEventSeqs"] = json!([]);
            row.to_string()
        }
        "tool_result" => {
            let call = &neutral["id"];
            let block = json!({"type": "tool-result", "toolCallId": call, "isError": false,
                "content": [{"type": "text", "text": text}]});
            let source = json!({"kind": "tool", "callId": call});
            let message = json!({"id": id, "role": "user", "content": [block], "source": source});
            said("tool/result", json!({"turn": 1, "step": 1, "message": message}))
        }
        "turn_start" => row("turn/start", json!({"turn": neutral["turn"]})),
        "turn_end" => {
            let kind = if neutral["reason"] == "completed" { "completed" } else { "interrupted" };
            row("turn/end", json!({"turn": neutral["turn"], "reason": {"kind": kind}}))
        }
        other => {
            json!({"type": other, "seq": at, "time": time, "data": neutral["data"], "ignorable": true}).to_string()
        }
    }
}

/// The same damage in a line of ours.
fn line(neutral: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(neutral).into_owned();
    let begins = text.trim_start_matches(['\u{feff}', '\0', ' ']);
    if !begins.starts_with("{\"v\"") {
        return neutral.to_vec();
    }
    let before = neutral.len() - neutral.iter().position(|byte| *byte == b'{').map_or(0, |at| neutral.len() - at);
    let (before, neutral) = neutral.split_at(before);
    let ended = if neutral.ends_with(b"\r") { &b"\r"[..] } else { b"" };
    let body = neutral.strip_suffix(b"\r").unwrap_or(neutral);
    let made = if let Ok(value) = serde_json::from_slice::<Value>(body) {
        record(&value).into_bytes()
    } else if let Some(at) = body.windows(5).rposition(|window| window == b"{\"v\":").filter(|at| *at > 0) {
        [half(5), line(&body[at..])].concat()
    } else if let Some(nested) = body.windows(5).position(|window| window == b"\"x\":[") {
        let nested = &body[nested + 4..body.len() - 1];
        [br#"{"type":"x/nested","seq":1,"time":1,"ignorable":true,"data":"#, nested, b"}"].concat()
    } else if body.contains(&0xff) {
        let marked: Vec<u8> = body.iter().map(|byte| if *byte == 0xff { b'#' } else { *byte }).collect();
        let made = record(&serde_json::from_slice(&marked).unwrap()).into_bytes();
        made.into_iter().map(|byte| if byte == b'#' { 0xff } else { byte }).collect()
    } else if body.last().is_some_and(|byte| *byte >= 0x80) {
        let whole = record(&json!({"seq": 5, "type": "user", "text": "你"})).into_bytes();
        let cut = whole.iter().position(|byte| *byte >= 0x80).unwrap() + 2;
        whole[..cut].to_vec()
    } else {
        half(5)
    };
    [before, &made, ended].concat()
}

fn half(seq: u64) -> Vec<u8> {
    let whole = record(&json!({"seq": seq, "type": "user", "text": "half"})).into_bytes();
    whole[..whole.len() / 2].to_vec()
}

fn ours(neutral: &[u8]) -> Vec<u8> {
    neutral.split(|byte| *byte == b'\n').map(line).collect::<Vec<_>>().join(&b'\n')
}

fn kind(kind: DiagnosticKind) -> &'static str {
    match kind {
        DiagnosticKind::TornTail => "torn_tail",
        DiagnosticKind::NulBytes => "nul_bytes",
        DiagnosticKind::DuplicateRecord => "duplicate_record",
        DiagnosticKind::OutOfOrder => "out_of_order",
        DiagnosticKind::Unparseable => "unparseable",
        DiagnosticKind::NotARecord => "not_a_record",
        DiagnosticKind::InvalidUtf8 => "invalid_utf8",
        DiagnosticKind::BadFrame => "bad_frame",
        DiagnosticKind::SeqConflict => "seq_conflict",
        DiagnosticKind::SeqGap => "seq_gap",
        DiagnosticKind::UnknownType => "unknown_type",
    }
}

/// `load [0, 1] [[6,"torn_tail"]] nothing`.
fn said(action: &str, seqs: &Value, diagnostics: &Value, before_append: &str) -> String {
    format!("{action} {seqs} {diagnostics} {before_append}")
}

/// Everything that a fixture takes as right.
fn expected(expectation: &Value, cut: &dyn Fn(u64) -> u64) -> Vec<String> {
    let mut all = vec![expectation["expect"].clone()];
    for other in expectation["also_acceptable"].as_array().unwrap() {
        let mut merged = expectation["expect"].clone();
        for (key, value) in other.as_object().unwrap() {
            merged[key] = value.clone();
        }
        all.push(merged);
    }
    let say = |expect: &Value| {
        let before = expect["before_next_append"].as_str().unwrap();
        let before = match before.strip_prefix("truncate_to:") {
            Some(at) => format!("truncate_to:{}", cut(at.parse().unwrap())),
            None => before.to_owned(),
        };
        said(expect["action"].as_str().unwrap(), &expect["recovered_seqs"], &expect["diagnostics"], &before)
    };
    all.iter().map(say).collect()
}

/// What we make of a log.
async fn actual(bytes: &[u8]) -> String {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("--work-demo--/s-fx/session.jsonl");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    let read = read_dsh(&path);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    let listed = store.list(SessionFilter::default()).await.unwrap();
    assert_eq!(listed.len(), usize::from(read.is_ok()));
    let (_, events, diagnostics) = match read {
        Ok(read) => read,
        Err(error) => {
            assert_eq!(fs::read(&path).unwrap(), bytes, "what is refused is left as it is");
            let found = match error {
                StoreError::Newer { .. } => json!([[1, "newer_version"]]),
                StoreError::Foreign { found, .. } if found.contains("version is") => json!([[1, "bad_version"]]),
                StoreError::Foreign { .. } if bytes.is_empty() => json!([[null, "empty_log"]]),
                StoreError::Foreign { .. } => json!([[1, "torn_tail"]]),
                error => panic!("{error}"),
            };
            return said("refuse", &json!([]), &found, "nothing");
        }
    };
    assert_eq!(store.diagnose(&"s-fx".into()).unwrap().unwrap(), diagnostics, "both read alike");
    let mut seqs = vec![0];
    seqs.extend(events.iter().map(|event| event.seq.0 + 1));
    let next = events.last().map_or(Seq(0), |event| event.next_seq());
    let event = Event::new(next, Millis(9), Fact::InboxWoken(InboxWoken { message: "m".into() }));
    let batch = Batch { session: "s-fx".into(), create: None, events: vec![Arc::new(event)], head: Head::default() };
    let appended = store.commit(Commit { lease: None, batches: vec![batch], ..Commit::default() }).await;
    let after = fs::read(&path).unwrap();
    let (action, before_append) = match appended {
        Err(StoreError::Damaged { what, .. }) => {
            assert!(what.contains("session.jsonl: "), "{what}");
            assert_eq!(after, bytes, "what is refused is left as it is");
            ("load_read_only", "nothing".to_owned())
        }
        Err(error) => panic!("{error}"),
        Ok(()) => {
            let kept = after.iter().zip(bytes).take_while(|(one, other)| one == other).count();
            let action = if diagnostics.is_empty() { "load" } else { "load_with_warning" };
            let whole = kept == bytes.len();
            // The first byte of the next record may be the same as that of a fragment.
            let cut = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let is_cut = diagnostics.iter().any(|found| found.kind == DiagnosticKind::TornTail);
            let newline = whole && !is_cut && !bytes.ends_with(b"\n");
            let before = if is_cut { format!("truncate_to:{cut}") } else { "nothing".to_owned() };
            let again: Vec<_> = read_dsh(&path).unwrap().1;
            assert_eq!(again.len(), events.len() + 1, "nothing is glued together");
            assert_eq!(read_dsh(&path).unwrap().1[..events.len()], events[..]);
            (action, if newline { "write_newline".to_owned() } else { before })
        }
    };
    let found: Vec<Value> = diagnostics.iter().map(|found| json!([found.line, kind(found.kind)])).collect();
    said(action, &json!(seqs), &json!(found), &before_append)
}

#[tokio::test]
async fn every_damaged_log_is_read_as_expected_or_as_decided_otherwise() {
    let otherwise: BTreeMap<&str, (&str, &str)> =
        OTHERWISE.iter().map(|(name, says, why)| (*name, (*says, *why))).collect();
    let mut wrong = vec![];
    let all = fixtures();
    assert!(all.len() >= 25, "the fixtures are missing");
    for path in &all {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let neutral = fs::read(path).unwrap();
        let expectation: Value =
            serde_json::from_slice(&fs::read(path.with_extension("expect.json")).unwrap()).unwrap();
        let cut = |at: u64| ours(&neutral[..at as usize]).len() as u64;
        let expected = expected(&expectation, &cut);
        let actual = actual(&ours(&neutral)).await;
        match otherwise.get(name.as_str()) {
            None if expected.contains(&actual) => {}
            Some((says, _)) if *says == actual && !expected.contains(&actual) => {}
            said => wrong.push(format!("{name}\n  {actual}\n  not {expected:?}\n  decided: {said:?}")),
        }
    }
    for (name, (_, why)) in otherwise {
        assert!(all.iter().any(|path| path.file_stem().is_some_and(|stem| stem == name)), "{name} is no fixture");
        assert!(!why.is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
