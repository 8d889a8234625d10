//! Tool calls as the logs have them, against what they have left in the world.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::archive::{Archive, Session, said, text};
use crate::figures::Figures;

/// One call that a model asked for.
pub(crate) struct Call {
    pub(crate) turn: u64,
    pub(crate) step: u64,
    /// Its place among the calls of its message.
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) tool: String,
    arguments: String,
    /// The log says so before anything is run.
    is_started: bool,
    has_answer: bool,
    is_error: bool,
    code: Option<String>,
    pub(crate) answer: String,
}

impl Call {
    /// Whether it was answered, and not with an error.
    pub(crate) fn is_done(&self) -> bool {
        self.has_answer && !self.is_error
    }

    /// What it writes: the text between the first quotes of its command.
    fn token(&self) -> Option<String> {
        let arguments: Value = serde_json::from_str(&self.arguments).ok()?;
        let token = arguments["command"].as_str().and_then(|command| command.split('\'').nth(1));
        token.filter(|_| self.tool == "bash").map(str::to_owned)
    }

    /// The least and the most that it may have written.
    fn lines(&self) -> (u32, u32) {
        match (self.is_started, self.is_done()) {
            (true, true) => (1, 1),
            (true, false) => (0, 1),
            (false, _) => (0, 0),
        }
    }
}

/// All calls of a session's own life.
pub(crate) fn calls(session: &Session) -> Vec<Call> {
    let mut calls = Vec::new();
    for event in session.own() {
        let data = &event["data"];
        match event["type"].as_str() {
            Some("assistant/message") => calls.extend(asked(data)),
            Some("tool/call") => {
                if let Some(call) = open(&mut calls, &text(&data["callId"])) {
                    call.is_started = true;
                }
            }
            Some("tool/result") => {
                let block = &data["message"]["content"][0];
                if let Some(call) = open(&mut calls, &text(&block["toolCallId"])) {
                    call.has_answer = true;
                    call.is_error = block["isError"] == true;
                    call.code = data["error"]["code"].as_str().map(str::to_owned);
                    call.answer = said(&data["message"]);
                }
            }
            _ => {}
        }
    }
    calls
}

fn open<'a>(calls: &'a mut [Call], id: &str) -> Option<&'a mut Call> {
    calls.iter_mut().rev().find(|call| call.id == id && !call.has_answer)
}

fn asked(data: &Value) -> Vec<Call> {
    let (turn, step) = (data["turn"].as_u64().unwrap_or(0), data["step"].as_u64().unwrap_or(0));
    let blocks = data["message"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let calls = blocks.iter().filter(|block| block["type"] == "tool-call").enumerate();
    let call = |(index, block): (usize, &Value)| Call {
        turn,
        step,
        index,
        id: text(&block["id"]),
        tool: text(&block["name"]),
        arguments: text(&block["arguments"]),
        is_started: false,
        has_answer: false,
        is_error: false,
        code: None,
        answer: String::new(),
    };
    calls.map(call).collect()
}

/// A call that no log says was started has left nothing; one that ended well has left its line; one whose end is not known
/// has left it or not; and nothing left it twice.
pub(crate) fn leave_what_their_logs_say(archive: &Archive, counter: &str, figures: &mut Figures) {
    let mut bounds = BTreeMap::<String, (u32, u32)>::new();
    for session in archive.sessions.values() {
        for call in calls(session) {
            count(session, &call, figures);
            if let Some(token) = call.token() {
                let (least, most) = call.lines();
                let bound = bounds.entry(token).or_default();
                (bound.0, bound.1) = (bound.0 + least, bound.1 + most);
            }
        }
    }
    let mut written = BTreeMap::<&str, u32>::new();
    counter.lines().for_each(|line| *written.entry(line).or_default() += 1);
    let tokens: BTreeSet<&str> = bounds.keys().map(String::as_str).chain(written.keys().copied()).collect();
    for token in tokens {
        let (least, most) = bounds.get(token).copied().unwrap_or_default();
        let lines = written.get(token).copied().unwrap_or(0);
        let what = format!("{token:?} was written {lines} times; the logs say {least} to {most}");
        if lines > most {
            figures.duplicates.push(what);
        } else if lines < least {
            figures.losses.push(what);
        }
    }
}

fn count(session: &Session, call: &Call, figures: &mut Figures) {
    let what = || format!("{} of {} {}", call.id, session.root, session.path);
    let code = call.code.as_deref();
    match code {
        Some("TOOL_NOT_STARTED") => figures.not_started += 1,
        Some("TOOL_OUTCOME_UNKNOWN") => figures.unknown += 1,
        _ if call.is_started && call.has_answer => figures.run += 1,
        _ => {}
    }
    let is_lie = match code {
        Some("TOOL_NOT_STARTED") => call.is_started,
        Some("TOOL_OUTCOME_UNKNOWN") => !call.is_started,
        _ => !call.has_answer || (call.is_done() && !call.is_started),
    };
    if is_lie {
        figures.violations.push(format!("{} is answered with {code:?}; started: {}", what(), call.is_started));
    }
}
