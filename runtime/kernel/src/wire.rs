//! The written form of events.
//!
//! Two spellings of the same log. The *wire* form has one object an event, as dsh writes it. The *row* form is what a
//! store keeps: a run of deltas is one row (`text-chunks`, `reasoning-chunks`, `tool-call-chunks`), and
//! `sourceEventSeqs` holds ranges (`[3, [7, 90]]`). Reading accepts both.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::chunk::{ChunkRun, RunKind};
use crate::event::{Event, Fact, OtherFact, SeqRanges, StreamedChunk, SurfaceOp};
use crate::header::SessionHeader;
use crate::id::{CallId, Millis, Seq};

/// Types that other programs own: read, kept, written out again, never interpreted here.
const FOREIGN: &[&str] = &[
    "agent-preset/selected",
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "command/run",
    "command/done",
    "compaction/start",
    "compaction/summary",
    "compaction/prune",
    "compaction/end",
    "feedback/record",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "permission/preset",
    "plan/mode",
    "sandbox/mode",
    "schedule/change",
    "session/title",
    "session/title-llm-request",
    "team/member",
    "team/task",
    "team/message/queued",
    "team/message/delivered",
    "tool-workflow/run-start",
    "tool-workflow/agent-start",
    "tool-workflow/agent-end",
    "tool-workflow/run-end",
    "tool/code-dispatch-start",
    "tool/code-dispatch",
    "web/deepseek-search-llm-request",
];

/// A line that is no event.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not the JSON of an event.
    #[error("not an event")]
    Malformed(#[from] serde_json::Error),
    /// A type that this version does not know and may not skip.
    #[error("event {seq} is of the unknown type `{kind}`; a newer version wrote it: upgrade to open this session")]
    UnknownRequired {
        /// The type.
        kind: String,
        /// Where.
        seq: Seq,
    },
    /// Surface fields where there must be none, or none where there must be some.
    #[error("event {seq} ({kind}): {rule}")]
    Envelope {
        /// The type.
        kind: String,
        /// Where.
        seq: Seq,
        /// What is wrong.
        rule: &'static str,
    },
    /// A packed row that does not add up.
    #[error("packed row at {seq}: {rule}")]
    Row {
        /// Where.
        seq: Seq,
        /// What is wrong.
        rule: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(alias = "seq0")]
    seq: Option<u64>,
    #[serde(alias = "time0")]
    time: Option<u64>,
    #[serde(borrow)]
    data: &'a RawValue,
    surface_op: Option<SurfaceOp>,
    source_event_seqs: Option<SeqRanges>,
    #[serde(default)]
    ignorable: bool,
}

#[derive(Serialize, Deserialize)]
struct PackedRun {
    turn: u32,
    step: u32,
    index: u32,
    dt: Vec<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<std::sync::Arc<str>>,
}

/// Writes the first line of a log on its own: the header, marked as one.
pub fn encode_header(header: &SessionHeader) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct HeaderLine<'a> {
        r#type: &'static str,
        #[serde(flatten)]
        header: &'a SessionHeader,
    }
    serde_json::to_string(&HeaderLine { r#type: "session", header })
}

/// Reads one line. `at` and `time` stand in where the line has none of its own, as in recorded fixtures.
pub fn decode(line: &str, at: Seq, time: Millis) -> Result<Event, WireError> {
    let envelope: Envelope<'_> = serde_json::from_str(line)?;
    let seq = envelope.seq.map_or(at, Seq);
    let kind = &*envelope.r#type;
    let data = envelope.data.get();
    let fact = match kind {
        "text-chunks" | "reasoning-chunks" | "tool-call-chunks" => Fact::Chunks(unpack(kind, data, seq)?),
        _ => match Fact::decode(kind, data) {
            Some(fact) => fact?,
            None if envelope.ignorable || FOREIGN.contains(&kind) => {
                Fact::Other(OtherFact { kind: kind.to_owned(), data: serde_json::from_str(data)? })
            }
            None => return Err(WireError::UnknownRequired { kind: kind.to_owned(), seq }),
        },
    };
    let event = Event {
        seq,
        time: envelope.time.map_or(time, Millis),
        fact,
        surface: envelope.surface_op,
        sources: envelope.source_event_seqs,
        ignorable: envelope.ignorable,
    };
    check_envelope(&event)?;
    Ok(event)
}

fn check_envelope(event: &Event) -> Result<(), WireError> {
    let refuse = |rule| Err(WireError::Envelope { kind: event.fact.kind().to_owned(), seq: event.seq, rule });
    let on_surface = event.fact.is_surface();
    if on_surface && event.surface.is_none() {
        return refuse("`surfaceOp` is missing");
    }
    if !on_surface && (event.surface.is_some() || event.sources.is_some()) {
        return refuse("`surfaceOp` and `sourceEventSeqs` belong to messages only");
    }
    if let Some(sources) = &event.sources {
        if sources.last().is_some_and(|last| last >= event.seq) {
            return refuse("`sourceEventSeqs` must name earlier events");
        }
        if sources.is_empty() && !matches!(event.fact, Fact::AssistantMessage(_)) {
            return refuse("`sourceEventSeqs` must not be empty");
        }
    }
    Ok(())
}

fn unpack(kind: &str, data: &str, seq: Seq) -> Result<ChunkRun, WireError> {
    let row: PackedRun = serde_json::from_str(data)?;
    let broken = |rule| WireError::Row { seq, rule };
    let (kind, deltas) = match kind {
        "text-chunks" => (RunKind::Text, row.texts),
        "reasoning-chunks" => (RunKind::Reasoning, row.texts),
        _ => {
            let id = row.id.ok_or(broken("a call's row has an `id`"))?;
            (RunKind::ToolCall { id, name: row.name }, row.args)
        }
    };
    let deltas = deltas.ok_or(broken("the deltas are missing"))?;
    if deltas.is_empty() || row.dt.len() + 1 != deltas.len() {
        return Err(broken("there must be one gap fewer than deltas, and one delta at least"));
    }
    Ok(ChunkRun { turn: row.turn, step: row.step, index: row.index, kind, deltas, gaps: row.dt })
}

/// Writes one event as a store keeps it: always one line, without the newline.
pub fn encode_row(event: &Event) -> Result<String, serde_json::Error> {
    let Fact::Chunks(run) = &event.fact else {
        return envelope(event, event.fact.kind(), ("seq", "time"), &event.fact.encode()?, Spelling::Row);
    };
    let (kind, id, name) = match &run.kind {
        RunKind::Text => ("text-chunks", None, None),
        RunKind::Reasoning => ("reasoning-chunks", None, None),
        RunKind::ToolCall { id, name } => ("tool-call-chunks", Some(id.clone()), name.clone()),
    };
    let deltas = Some(run.deltas.clone());
    let (texts, args) = if id.is_some() { (None, deltas) } else { (deltas, None) };
    let (turn, step, index, dt) = (run.turn, run.step, run.index, run.gaps.clone());
    let data = serde_json::to_string(&PackedRun { turn, step, index, dt, texts, args, id, name })?;
    envelope(event, kind, ("seq0", "time0"), &data, Spelling::Row)
}

/// Writes an event in the wire form: one line an event, so a run gives as many as it has deltas.
pub fn encode_wire(event: &Event) -> Result<Vec<String>, serde_json::Error> {
    let Fact::Chunks(run) = &event.fact else {
        let data = event.fact.encode()?;
        return Ok(vec![envelope(event, event.fact.kind(), ("seq", "time"), &data, Spelling::Wire)?]);
    };
    let mut time = event.time.0;
    let mut lines = Vec::with_capacity(run.deltas.len());
    for at in 0..run.deltas.len() {
        if let Some(gap) = at.checked_sub(1).and_then(|before| run.gaps.get(before)) {
            time = time.saturating_add_signed(*gap);
        }
        let (turn, step, chunk) = (run.turn, run.step, run.chunk(at));
        let fact = Fact::Chunk(StreamedChunk { turn, step, chunk });
        let one = Event {
            seq: event.seq.plus(at as u64),
            time: Millis(time),
            fact,
            ..Event::new(event.seq, event.time, empty())
        };
        lines.push(envelope(&one, "assistant/chunk", ("seq", "time"), &one.fact.encode()?, Spelling::Wire)?);
    }
    Ok(lines)
}

fn empty() -> Fact {
    Fact::SeedEnded(crate::event::SeedEnded {})
}

#[derive(Clone, Copy)]
enum Spelling {
    Row,
    Wire,
}

fn envelope(
    event: &Event,
    kind: &str,
    (seq_key, time_key): (&str, &str),
    data: &str,
    spelling: Spelling,
) -> Result<String, serde_json::Error> {
    let mut out = Vec::with_capacity(data.len() + 96);
    let mut serializer = serde_json::Serializer::new(&mut out);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("type", kind)?;
    map.serialize_entry(seq_key, &event.seq)?;
    map.serialize_entry(time_key, &event.time)?;
    let data: &RawValue = serde_json::from_str(data)?;
    map.serialize_entry("data", data)?;
    if let Some(sources) = &event.sources {
        match spelling {
            Spelling::Row => map.serialize_entry("sourceEventSeqs", &AsRanges(sources))?,
            Spelling::Wire => map.serialize_entry("sourceEventSeqs", &AsList(sources))?,
        }
    }
    if let Some(surface) = &event.surface {
        map.serialize_entry("surfaceOp", surface)?;
    }
    if event.ignorable {
        map.serialize_entry("ignorable", &true)?;
    }
    SerializeMap::end(map)?;
    Ok(String::from_utf8(out).expect("serde_json writes UTF-8"))
}

struct AsList<'a>(&'a SeqRanges);

impl Serialize for AsList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

struct AsRanges<'a>(&'a SeqRanges);

impl Serialize for AsRanges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for &(from, to) in self.0.ranges() {
            if from == to {
                list.serialize_element(&from)?;
            } else {
                list.serialize_element(&(from, to))?;
            }
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for SeqRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Item {
            One(u64),
            Span(u64, u64),
        }
        let mut items: Vec<(u64, u64)> = Vec::<Item>::deserialize(deserializer)?
            .into_iter()
            .map(|item| match item {
                Item::One(seq) => (seq, seq),
                Item::Span(from, to) => (from, to),
            })
            .collect();
        items.sort_unstable();
        let mut ranges = Self::default();
        for (from, to) in items {
            if from > to || !ranges.push(from, to) {
                return Err(D::Error::custom("`sourceEventSeqs` must not name an event twice"));
            }
        }
        Ok(ranges)
    }
}

impl Serialize for SurfaceOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Append => serializer.serialize_str("append"),
            Self::Replace { start, end } => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("op", "replace")?;
                map.serialize_entry("start", start)?;
                map.serialize_entry("end", end)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for SurfaceOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelled {
            Word(String),
            Replace(Replace),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Replace {
            op: String,
            start: Seq,
            end: Seq,
        }
        match Spelled::deserialize(deserializer)? {
            Spelled::Word(word) if word == "append" => Ok(Self::Append),
            Spelled::Replace(Replace { op, start, end }) if op == "replace" => Ok(Self::Replace { start, end }),
            Spelled::Word(_) | Spelled::Replace(_) => {
                Err(D::Error::custom("`surfaceOp` is \"append\" or {op: \"replace\", start, end}"))
            }
        }
    }
}

/// Merges the deltas and the runs of a log into runs, wherever they follow each other in one block.
pub fn pack(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut packed: Vec<Event> = Vec::new();
    let mut last_time = Millis(0);
    for event in events {
        let time = event.time;
        let mut ended = time;
        match as_run(&event) {
            None => packed.push(event),
            Some(run) => {
                let seq = event.seq;
                ended = Millis(time.0.saturating_add_signed(run.gaps.iter().sum()));
                let joined = packed.last_mut().is_some_and(|last| join(last, seq, &run, time, last_time));
                if !joined {
                    packed.push(Event { fact: Fact::Chunks(run), ..Event::new(seq, time, empty()) });
                }
            }
        }
        last_time = ended;
    }
    packed.iter_mut().for_each(|event| event.ignorable = event.ignorable && !matches!(event.fact, Fact::Chunks(_)));
    packed
}

fn as_run(event: &Event) -> Option<ChunkRun> {
    if let Fact::Chunks(run) = &event.fact {
        return Some(run.clone());
    }
    let Fact::Chunk(StreamedChunk { turn, step, chunk }) = &event.fact else { return None };
    let (index, kind, delta) = crate::chunk::split_delta(chunk)?;
    Some(ChunkRun { turn: *turn, step: *step, index, kind, deltas: vec![delta], gaps: vec![] })
}

/// Appends the deltas of `next` to `last`, if they are of one block and follow each other.
fn join(last: &mut Event, seq: Seq, next: &ChunkRun, time: Millis, last_time: Millis) -> bool {
    let expected = last.next_seq();
    let Fact::Chunks(run) = &mut last.fact else { return false };
    let same_block = (run.turn, run.step, run.index) == (next.turn, next.step, next.index) && run.kind == next.kind;
    if expected != seq || !same_block {
        return false;
    }
    run.deltas.extend(next.deltas.iter().cloned());
    run.gaps.push(time.0 as i64 - last_time.0 as i64);
    run.gaps.extend(&next.gaps);
    true
}
