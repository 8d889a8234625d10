//! Recorded sessions of the reference open here: each decodes, folds, keeps the invariants, and is written out again
//! without a changed value. The recordings are not part of the project; without them these tests say so and pass.

// A test that has nothing to read says so.
#![allow(clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use impresario_kernel::invariant::check_log;
use impresario_kernel::{Agent, Event, Fact, Input, Millis, RequestHeader, Seq, SessionHeader, Spec, wire};
use serde_json::Value;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/dsh");
    let mut found = vec![];
    let mut open = vec![folder.clone()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "jsonl") {
                found.push(path);
            }
        }
    }
    found.sort();
    if found.is_empty() {
        eprintln!("SKIPPED: there are no recordings at {}", folder.display());
    }
    found
}

fn spec() -> Arc<Spec> {
    Arc::new(Spec::new(RequestHeader::new("p", "m")))
}

/// An event and the line that it was read from.
type Line = (String, Arc<Event>);

/// Header and events.
fn read(path: &Path) -> Result<(SessionHeader, Vec<Line>), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let header = lines.next().ok_or("no header")?;
    let header: SessionHeader = serde_json::from_str(header).map_err(|error| format!("header: {error}"))?;
    let (mut next, mut events) = (Seq(0), vec![]);
    for line in lines {
        let event = wire::decode(line, next, Millis(next.0)).map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{source} in {}", line.chars().take(200).collect::<String>())
        })?;
        next = event.next_seq();
        events.push((line.to_owned(), Arc::new(event)));
    }
    Ok((header, events))
}

/// Whether the recording is of an older form, whose messages have no id. It is refused, not guessed at.
fn is_older(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let messages = text.lines().filter(|line| line.contains("\"type\":\"user/message\""));
    messages.map(data).any(|message| message.get("id").is_none())
}

/// Everything that is wrong with one recording.
fn problems(path: &Path) -> Vec<String> {
    let (header, lines) = match read(path) {
        Ok(_) if is_older(path) => return vec!["an older form was taken for ours".into()],
        Ok(read) => read,
        Err(_) if is_older(path) => return vec![],
        Err(error) => return vec![error],
    };
    let events: Vec<Arc<Event>> = lines.iter().map(|(_, event)| Arc::clone(event)).collect();
    // Some recordings are what a model streamed and nothing else: they are read and written, but are no sessions.
    let is_session = events.iter().any(|event| matches!(event.fact, Fact::TurnStarted(_)));
    let mut problems: Vec<String> = match is_session {
        true => check_log(&header, &events).iter().map(ToString::to_string).collect(),
        false => vec![],
    };
    for (line, event) in &lines {
        let row = wire::encode_row(event).expect("what was read can be written");
        match wire::decode(&row, event.seq, event.time) {
            Ok(again) if again == **event => {}
            other => problems.push(format!("{row} reads back as {other:?}")),
        }
        let (theirs, ours) = (data(line), data(&row));
        if theirs != ours {
            problems.push(format!("written as {ours} where it was {theirs}"));
        }
    }
    let first = fs::read_to_string(path).unwrap_or_default();
    let theirs: Value = serde_json::from_str(first.lines().next().unwrap_or_default()).unwrap_or_default();
    let ours = wire::encode_header(&header).expect("what was read can be written");
    if serde_json::from_str::<Value>(&ours).ok().as_ref() != Some(&theirs) {
        problems.push(format!("the header is written as {ours} where it was {theirs}"));
    }
    match Agent::fold(spec(), &events) {
        Ok(agent) if is_session => problems.extend(closes(agent, &header)),
        Ok(_) => {}
        Err(broken) => problems.push(broken.to_string()),
    }
    problems
}

fn data(line: &str) -> Value {
    serde_json::from_str::<Value>(line).map(|mut line| line["data"].take()).unwrap_or_default()
}

/// Repair makes a log of it that keeps every invariant.
fn closes(mut agent: Agent, header: &SessionHeader) -> Vec<String> {
    agent.tell(Input::Recovered, Millis(0)).expect("recovery is never refused");
    let events: Vec<Arc<Event>> = agent.log().iter().cloned().collect();
    let mut problems: Vec<String> =
        check_log(header, &events).iter().map(|found| format!("repaired: {found}")).collect();
    if !agent.is_at_rest() {
        problems.push("repaired, but not at rest".into());
    }
    problems
}

#[test]
fn recorded_sessions_open_keep_the_invariants_and_are_written_out_unchanged() {
    let mut wrong = vec![];
    let (mut files, mut chunks) = (0, 0);
    for path in recordings() {
        files += 1;
        wrong.extend(problems(&path).into_iter().map(|problem| format!("{}: {problem}", path.display())));
        if let Ok((_, lines)) = read(&path) {
            chunks += lines.iter().filter(|(_, event)| matches!(event.fact, Fact::Chunks(_))).count();
        }
    }
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    assert!(files == 0 || chunks > 0, "no recording has a packed row");
}
