//! From lines to events: what is a record, what continues the log, and what is wrong with the rest.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use impresario_kernel::wire::{self, WireError};
use impresario_kernel::{Event, HeaderError, Millis, Seq, SessionHeader};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::diagnosis::{Diagnostic, DiagnosticKind};
use super::line::{Line, Lines, Next};

/// How many records may stand before the one that they continue.
const AHEAD_MAX: usize = 64;

/// How many records back a second copy of one is known as such.
const BACK_MAX: usize = 256;

/// Why a file is no log that can be read.
#[derive(Debug)]
pub(super) enum NoHeader {
    /// It ends before its first line does.
    Empty,
    /// A newer program wrote it.
    Newer(u64),
    /// Its first line is something else.
    Other(String),
    /// The system says so.
    Io(std::io::Error),
}

/// Reads the first line.
pub(super) fn header(lines: &mut Lines) -> Result<SessionHeader, NoHeader> {
    loop {
        match lines.next().map_err(NoHeader::Io)? {
            Next::End { .. } => return Err(NoHeader::Empty),
            Next::Bad { what, .. } => return Err(NoHeader::Other(what)),
            Next::Line(line) => {
                let bytes = line.bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line.bytes).trim_ascii();
                if bytes.is_empty() {
                    continue;
                }
                return match parse_header(bytes) {
                    Err(NoHeader::Other(_)) if !line.is_ended && is_incomplete(bytes) => Err(NoHeader::Empty),
                    parsed => parsed,
                };
            }
        }
    }
}

fn parse_header(bytes: &[u8]) -> Result<SessionHeader, NoHeader> {
    let other = |what: String| NoHeader::Other(what);
    let value: Value = serde_json::from_slice(bytes).map_err(|error| other(format!("no header: {error}")))?;
    if value.get("type").is_some_and(|kind| kind != "session") {
        return Err(other("the first line is not the header of a session".into()));
    }
    match &value["version"] {
        version if version.as_u64().is_some() => {}
        Value::Null => return Err(other("the header has no version".into())),
        version => return Err(other(format!("the header's version is {version}"))),
    }
    let header = serde_json::from_value::<SessionHeader>(value.clone());
    let header = match (header, value["version"].as_u64()) {
        (Ok(header), _) => header,
        (Err(_), Some(version)) if version > impresario_kernel::header::FORMAT_VERSION => {
            return Err(NoHeader::Newer(version));
        }
        (Err(error), _) => return Err(other(format!("no header: {error}"))),
    };
    match header.check() {
        Ok(()) => Ok(header),
        Err(HeaderError::NewerVersion(version)) => Err(NoHeader::Newer(version)),
        Err(error) => Err(other(error.to_string())),
    }
}

/// Whether bytes are the beginning of something and not the whole of something else.
fn is_incomplete(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_err()
}

/// A record on the disk.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// The place of its line or frame.
    offset: u64,
    /// Of its text.
    hash: u64,
}

/// Follows a log, record by record.
#[derive(Debug)]
pub(super) struct Follow {
    /// Where the next record goes.
    next: Seq,
    /// Where it may begin instead: the log of a fork has its own events only, or its prefix too.
    or_begins: Option<Seq>,
    time: Millis,
    ahead: BTreeMap<Seq, (Written, Arc<Event>)>,
    /// The last records, by what they say.
    back: VecDeque<(Seq, u64)>,
    ready: VecDeque<(u64, Arc<Event>)>,
    diagnostics: Vec<Diagnostic>,
    /// Nothing behind a gap is read.
    is_lost: bool,
    /// Records before this were looked at by another reader and are passed over.
    known: Seq,
    /// Whether the last line has no newline and is whole.
    lacks_newline: bool,
    /// Where the last line begins, if it is a fragment.
    fragment: Option<u64>,
}

impl Follow {
    /// A log that begins at `next`, or at the other place.
    pub(super) fn new(next: Seq, or_begins: Option<Seq>, time: Millis) -> Self {
        Self {
            next,
            or_begins,
            time,
            ahead: BTreeMap::new(),
            back: VecDeque::new(),
            ready: VecDeque::new(),
            diagnostics: vec![],
            is_lost: false,
            known: Seq(0),
            lacks_newline: false,
            fragment: None,
        }
    }

    /// A log from the record at `next` on. Second copies of what is before that may come.
    pub(super) fn behind(next: Seq, time: Millis) -> Self {
        Self { known: next, ..Self::new(next, None, time) }
    }

    /// Where the next record goes.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// The next event, and the place of its line or frame.
    pub(super) fn ready(&mut self) -> Option<(u64, Arc<Event>)> {
        self.ready.pop_front()
    }

    /// What was found so far and not taken yet.
    pub(super) fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }

    /// Whether every record that was read was in its place, so that a reader may begin behind it.
    pub(super) fn is_level(&self) -> bool {
        self.ahead.is_empty()
    }

    pub(super) fn lacks_newline(&self) -> bool {
        self.lacks_newline
    }

    pub(super) fn fragment(&self) -> Option<u64> {
        self.fragment
    }

    /// Takes whatever comes next; `false` at the end.
    pub(super) fn feed(&mut self, next: Next) -> bool {
        match next {
            Next::Line(line) => self.line(&line),
            Next::Bad { offset, what } => {
                self.say(None, DiagnosticKind::BadFrame, format!("byte {offset}: {what}"));
            }
            Next::End { torn } => {
                self.end(torn);
                return false;
            }
        }
        true
    }

    fn say(&mut self, line: Option<u64>, kind: DiagnosticKind, note: impl Into<String>) {
        self.diagnostics.push(Diagnostic { line, kind, note: note.into() });
    }

    fn end(&mut self, torn: Option<u64>) {
        if torn.is_some() {
            self.say(None, DiagnosticKind::TornTail, "the last frame was not written to its end");
            self.fragment = torn;
        }
        if let Some((first, _)) = self.ahead.first_key_value().filter(|_| !self.is_lost) {
            let note = format!("events {} to {} are missing", self.next, first.0 - 1);
            self.say(None, DiagnosticKind::SeqGap, note);
            self.is_lost = true;
        }
    }

    fn line(&mut self, line: &Line) {
        let number = Some(line.number);
        let bytes = line.bytes.trim_ascii();
        let record = strip_nuls(bytes);
        if record.len() < bytes.len() && line.is_ended {
            let note = format!("{} zero bytes", bytes.len() - record.len());
            self.say(number, DiagnosticKind::NulBytes, note);
        }
        if record.is_empty() {
            if !bytes.is_empty() && !line.is_ended {
                self.torn(line);
            }
            return;
        }
        match std::str::from_utf8(record) {
            Ok(text) => self.record(line, text),
            Err(_) if !line.is_ended => self.torn(line),
            Err(error) => {
                self.say(number, DiagnosticKind::InvalidUtf8, format!("bytes that are no text: {error}"));
            }
        }
    }

    fn torn(&mut self, line: &Line) {
        self.say(Some(line.number), DiagnosticKind::TornTail, "the last record was not written to its end");
        self.fragment = Some(line.offset);
    }

    fn record(&mut self, line: &Line, text: &str) {
        let number = Some(line.number);
        match wire::decode(text, self.next, self.time) {
            Ok(event) => {
                self.lacks_newline = !line.is_ended;
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                let written = Written { offset: line.offset, hash: hasher.finish() };
                self.place(line.number, written, Arc::new(event));
            }
            Err(error @ WireError::UnknownRequired { .. }) => {
                self.say(number, DiagnosticKind::UnknownType, error.to_string());
                self.is_lost = true;
            }
            Err(_) if !line.is_ended && is_incomplete(text.as_bytes()) => self.torn(line),
            Err(_) if !text.starts_with('{') && !is_incomplete(text.as_bytes()) => {
                self.say(number, DiagnosticKind::NotARecord, "JSON, but no record");
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                let note = format!("{error}{}", source.unwrap_or_default());
                self.say(number, DiagnosticKind::Unparseable, note);
            }
        }
    }

    /// Puts a record where it belongs.
    fn place(&mut self, line: u64, written: Written, event: Arc<Event>) {
        if self.is_lost || event.seq < self.known {
            return;
        }
        if let Some(begins) = self.or_begins.take().filter(|begins| *begins == event.seq) {
            self.next = begins;
        }
        if event.seq > self.next {
            self.ahead.entry(event.seq).or_insert((written, event));
            if self.ahead.len() > AHEAD_MAX {
                self.end(None);
            }
        } else if event.seq == self.next {
            if !self.ahead.is_empty() {
                let note = format!("event {} stands behind later ones", event.seq);
                self.say(Some(line), DiagnosticKind::OutOfOrder, note);
            }
            self.deliver(written, event);
            while let Some((written, event)) = self.ahead.remove(&self.next) {
                self.deliver(written, event);
            }
        } else if self.back.contains(&(event.seq, written.hash)) {
            let note = format!("event {} is there twice", event.seq);
            self.say(Some(line), DiagnosticKind::DuplicateRecord, note);
        } else {
            let note = format!("another event {} than the one before: two programs wrote to this log", event.seq);
            self.say(Some(line), DiagnosticKind::SeqConflict, note);
        }
    }

    fn deliver(&mut self, written: Written, event: Arc<Event>) {
        self.next = event.next_seq();
        self.time = event.time;
        if self.back.len() == BACK_MAX {
            self.back.pop_front();
        }
        self.back.push_back((event.seq, written.hash));
        self.ready.push_back((written.offset, event));
    }
}

/// What is between the zeros at both ends.
fn strip_nuls(bytes: &[u8]) -> &[u8] {
    let from = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let to = bytes.iter().rposition(|byte| *byte != 0).map_or(from, |last| last + 1);
    bytes[from..to].trim_ascii()
}

/// `<file>: line 3: …`, as an error says it.
pub(super) fn named(path: &Path, diagnostic: &Diagnostic) -> String {
    format!("{}: {diagnostic}", path.display())
}
