//! The decoder against bodies that break real clients, each cut in several ways.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use impresario_kernel::assembler::Assembler;
use impresario_kernel::message::joined_text;
use impresario_kernel::{Block, Chunk, Failure, Usage};
use serde_json::Value;

use super::deltas::Decoder;
use super::failure::{self, Named};

/// Cases that we read in another way, each with the reason. A case that passes must leave the list.
const KNOWN_GAPS: &[(&str, &str)] = &[
    ("046_name_never_arrives", "an answer whose only call has no name fails the attempt as malformed"),
    ("053_arguments_not_json", "the call is started and refused by the pipeline as INVALID_ARGS"),
    ("065_finish_tool_calls_but_truncated_json", "the call is started and refused by the pipeline as INVALID_ARGS"),
];

struct Outcome {
    answer: Assembler,
    failure: Option<Failure>,
}

struct Headers(BTreeMap<String, String>);

impl Named for Headers {
    fn named(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

fn decode(body: &[u8], pieces: &[usize]) -> Outcome {
    let (mut decoder, mut answer) = (Decoder::new(), Assembler::default());
    let mut rest = body;
    let mut cuts = pieces.iter().copied().cycle();
    let mut failed = None;
    while !rest.is_empty() && failed.is_none() {
        let (piece, behind) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
        rest = behind;
        failed = take(decoder.push(piece), &mut answer);
    }
    let failure = failed.or_else(|| take(decoder.end(), &mut answer));
    Outcome { answer, failure }
}

fn take(result: Result<Vec<Chunk>, (Vec<Chunk>, Failure)>, answer: &mut Assembler) -> Option<Failure> {
    let (chunks, failure) = match result {
        Ok(chunks) => (chunks, None),
        Err((chunks, failure)) => (chunks, Some(failure)),
    };
    chunks.iter().for_each(|chunk| answer.push(chunk));
    failure
}

/// What is wrong; empty when all is as expected.
fn compare(expect: &Value, outcome: &Outcome) -> Vec<String> {
    let mut wrong = vec![];
    let mut check = |what: &str, ours: String, theirs: String| {
        if ours != theirs {
            wrong.push(format!("{what}: {ours} where {theirs} was due"));
        }
    };
    let blocks = outcome.answer.blocks();
    check("text", joined_text(&blocks), expect["text"].as_str().unwrap_or_default().to_owned());
    let thoughts: String = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Reasoning { text } => Some(&**text),
            _ => None,
        })
        .collect();
    check("reasoning", thoughts, expect["reasoning"].as_str().unwrap_or_default().to_owned());
    check("failed", outcome.failure.is_some().to_string(), (expect["outcome"] == "error").to_string());
    if let (Some(failure), Some(kind)) = (&outcome.failure, expect["error_kind"].as_str()) {
        check("code", code_of(failure).to_owned(), kind.to_owned());
        let retryable = expect["retryable"] == true;
        check("retryable", failure.is_retryable().to_string(), retryable.to_string());
    }
    let calls: Vec<String> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall { name, arguments, .. } => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                Some(format!("{name} {arguments}"))
            }
            _ => None,
        })
        .collect();
    let due = expect["tool_calls"].as_array().cloned().unwrap_or_default();
    let due: Vec<String> =
        due.iter().map(|call| format!("{} {}", call["name"].as_str().unwrap_or_default(), call["arguments"])).collect();
    check("calls", calls.join(", "), due.join(", "));
    if expect["outcome"] == "ok" {
        check("usage", outcome.answer.usage().map_or("null".into(), shown), due_usage(&expect["usage"]));
    }
    wrong
}

fn shown(usage: Usage) -> String {
    let cached = usage.cache_read_tokens.unwrap_or(0);
    format!("{} of {} cached, {}", cached, usage.input_tokens + cached, usage.output_tokens)
}

fn due_usage(usage: &Value) -> String {
    if usage.is_null() {
        return "null".into();
    }
    let number = |key: &str| usage[key].as_u64().unwrap_or(0);
    format!("{} of {} cached, {}", number("cached_input"), number("input"), number("output"))
}

/// The fixtures' word for one of our codes.
fn code_of(failure: &Failure) -> &'static str {
    match (failure.code.as_str(), failure.status) {
        ("STREAM_CLOSED", _) => "truncated_stream",
        ("EMPTY_RESPONSE", _) => "empty_stream",
        ("MALFORMED_RESPONSE", _) => "protocol",
        ("RATE_LIMIT", _) => "rate_limited",
        ("SERVER", Some(503 | 529)) => "overloaded",
        ("SERVER", _) if failure.message.to_lowercase().contains("overload") => "overloaded",
        ("SERVER", _) => "server_error",
        ("CONTEXT_WINDOW_EXCEEDED", _) => "context_overflow",
        ("INVALID_REQUEST", _) => "invalid_request",
        ("AUTH", _) => "auth",
        ("QUOTA", _) => "insufficient_balance",
        _ => "provider_error",
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sse")
}

fn try_fixture(name: &str) -> Vec<String> {
    let read = |ending: &str| fs::read(folder().join(format!("{name}{ending}"))).expect("a fixture has two files");
    let (body, case) = (read(".txt"), read(".expect.json"));
    let case: Value = serde_json::from_slice(&case).expect("what is expected is JSON");
    let http = &case["http"];
    let status = u16::try_from(http["status"].as_u64().unwrap_or(200)).unwrap_or(200);
    if status != 200 {
        let headers = http["headers"].as_object().cloned().unwrap_or_default();
        let headers = headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap_or_default().to_owned()));
        let refusal = failure::of_status(status, &Headers(headers.collect()), &String::from_utf8_lossy(&body));
        return compare(&case["expect"], &Outcome { answer: Assembler::default(), failure: Some(refusal) });
    }
    let others = case["also_acceptable"].as_array().cloned().unwrap_or_default();
    [&[][..], &[1], &[2], &[7], &[1, 30, 2]]
        .iter()
        .flat_map(|pieces| {
            let outcome = decode(&body, pieces);
            let wrong = compare(&case["expect"], &outcome);
            let is_fine = others.iter().any(|other| compare(&overridden(&case["expect"], other), &outcome).is_empty());
            if is_fine { vec![] } else { wrong }
        })
        .collect()
}

/// What is expected, but for what `other` says.
fn overridden(expect: &Value, other: &Value) -> Value {
    let mut expect = expect.clone();
    for (key, value) in other.as_object().into_iter().flatten() {
        expect[key.as_str()] = value.clone();
    }
    expect
}

#[test]
fn bodies_that_break_real_clients_are_read_as_they_are_meant() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("the fixtures are part of the crate")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".txt").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() > 60, "only {} fixtures", names.len());
    let mut wrong = vec![];
    for name in names {
        let found = try_fixture(&name);
        let is_gap = KNOWN_GAPS.iter().any(|(gap, _)| *gap == name);
        match (found.is_empty(), is_gap) {
            (false, false) => wrong.push(format!("{name}: {}", found.join("; "))),
            (true, true) => wrong.push(format!("{name} is listed as a gap and passes")),
            (true, false) | (false, true) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
