//! Keeping what models say, and answering from it: the same tree again, without the models.
//!
//! ```text
//! request ──► Recorder::record(model) ──► recording.jsonl ──► Recording::open ──► ReplayModel ──► the same answer
//!                                         session logs ─────► Recording::of_logs ──────────┘
//! ```
//!
//! A request is known by who asks and when (path, turn, step, attempt) and by all that it contains, so that agents that
//! ask at once get their own answers in whatever order they ask. What is not recorded fails with the code [`MISS`] and a
//! text that names the place and the first byte that differs; nobody else is asked.
//!
//! Not compared are provider and model, what the runtime says about itself (folder, limits), ids of messages and calls,
//! and which ids agents have, as long as the same ones stand in the same places: an answer that names an agent names
//! the one of this run.
//!
//! # The file
//!
//! `recording.jsonl` in a folder of its own. The first line says what it is, `{"recording":"impresario","version":1}`;
//! each further one is an attempt at an answer, written when that was over:
//!
//! | key | holds |
//! |---|---|
//! | `agent`, `path`, `turn`, `step`, `attempt` | who asked, and when; `attempt` counts from 0 |
//! | `provider`, `model` | whom |
//! | `digest` | of the request, with ids of agents numbered |
//! | `kept`, `of`, `asked` | the request, part by part: so many parts of what the line `of` asked, then these |
//! | `chunks` | what came, as it came |
//! | `end` | `finished`, `failed`, or `dropped` by who asked |
//! | `failure` | why it failed |
//!
//! Lines are in the order in which the attempts ended. A last line without its end was cut off by a crash and does not
//! count.

mod asked;
mod dsh;
mod file;
mod log;
mod record;
mod recording;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_kernel::chunk::split_delta;
use impresario_kernel::{Block, Chunk, Failure};
use impresario_seams::{ChunkStream, Model, ModelRequest};
use tokio::time::Instant;

use crate::scripted::{Latency, counted, paced};
use asked::{Asked, Sight, replaced};
use recording::{Attempt, Ended};

pub use file::RecordingError;
pub use record::{Recorder, RecordingModel};
pub use recording::Recording;

/// The code of a request that is not in the recording.
pub const MISS: &str = "REPLAY_MISS";

/// A model that answers from a recording, and from nothing else.
#[derive(Clone, Debug)]
pub struct ReplayModel {
    provider: String,
    recording: Arc<Recording>,
    latency: Latency,
    seed: u64,
}

impl ReplayModel {
    /// Answers from `recording`, at once.
    pub fn new(recording: impl Into<Arc<Recording>>) -> Self {
        Self { provider: "replay".into(), recording: recording.into(), latency: Latency::default(), seed: 0 }
    }

    /// The same answers for who asks for `provider`: a recorded call may ask for a subagent on it.
    #[must_use]
    pub fn under(&self, provider: &str) -> Self {
        Self { provider: provider.into(), ..self.clone() }
    }

    /// Sets how long answers take, by a draw from `seed` for each attempt.
    #[must_use]
    pub fn with_latency(self, latency: Latency, seed: u64) -> Self {
        Self { latency, seed, ..self }
    }

    /// What it answers from.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }
}

impl Model for ReplayModel {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let (recording, pace) = (Arc::clone(&self.recording), self.latency.draw(self.seed, &request.scope));
        async move {
            let asked = Instant::now();
            let (attempt, ids) = found(&recording, &request)?;
            pace.wait(asked).await;
            let chunks = renamed(&attempt.chunks, recording.sight, &ids);
            let said = paced(counted(chunks), pace, asked).map(Ok);
            match &attempt.end {
                Ended::Finished => Ok(said.boxed()),
                Ended::Failed(failure) if attempt.chunks.is_empty() => Err(failure.clone()),
                Ended::Failed(failure) => Ok(said.chain(stream::iter([Err(failure.clone())])).boxed()),
                // Whoever asked went away, and will again: a race that a sibling won is won by that sibling once more.
                Ended::Dropped => Ok(said.chain(stream::pending()).boxed()),
            }
        }
        .boxed()
    }

    fn is_scripted(&self) -> bool {
        true
    }
}

/// The recorded ids that are others now, each with that one.
type Ids = Vec<(Arc<str>, Arc<str>)>;

/// The attempt that answers a request, and the recorded ids with those of this run.
fn found(recording: &Recording, request: &ModelRequest) -> Result<(Arc<Attempt>, Ids), Failure> {
    let asked = Asked::of(recording.sight, &request.header, &request.messages).numbered(recording.sight);
    let attempt = recording.find(&request.scope, &asked)?;
    let ids = attempt.asked.ids.iter().cloned().zip(asked.ids).filter(|(one, other)| one != other).collect();
    Ok((attempt, ids))
}

/// Chunks with the ids of this run. The deltas of a block that names a recorded one become one, for an id may be cut.
fn renamed(chunks: &[Chunk], sight: Sight, ids: &[(Arc<str>, Arc<str>)]) -> Vec<Chunk> {
    if ids.is_empty() {
        return chunks.to_vec();
    }
    let other = |id: &str| ids.iter().find(|(recorded, _)| &**recorded == id).map(|(_, now)| now.to_string());
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    for (index, _, delta) in chunks.iter().filter_map(split_delta) {
        texts.entry(index).or_default().push_str(&delta);
    }
    let now = texts.into_iter().map(|(index, text)| (index, replaced(&text, sight, other), text));
    let mut changed: BTreeMap<u32, Option<String>> =
        now.filter(|(_, now, text)| now != text).map(|(index, now, _)| (index, Some(now))).collect();
    let mut renamed = vec![];
    for chunk in chunks {
        let whole = split_delta(chunk).and_then(|(index, ..)| changed.get_mut(&index));
        match whole {
            Some(whole) => renamed.push(with_delta(chunk, whole.take().unwrap_or_default())),
            None => renamed.push(whole_renamed(chunk, sight, other)),
        }
    }
    renamed
}

/// The chunk with another text.
fn with_delta(chunk: &Chunk, delta: String) -> Chunk {
    let mut chunk = chunk.clone();
    match &mut chunk {
        Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. } => *text = delta,
        Chunk::ToolCallDelta { arguments_delta, .. } => *arguments_delta = delta,
        Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage { .. } | Chunk::Finish { .. } => {}
    }
    chunk
}

/// A block that came whole, with the ids of this run.
fn whole_renamed(chunk: &Chunk, sight: Sight, other: impl Fn(&str) -> Option<String>) -> Chunk {
    let Chunk::BlockEnd { index, block } = chunk else { return chunk.clone() };
    let now = |text: &str| replaced(text, sight, &other).into();
    let block = match block {
        Block::Text { text } => Block::Text { text: now(text) },
        Block::Reasoning { text } => Block::Reasoning { text: now(text) },
        Block::ToolCall { id, name, arguments } => {
            Block::ToolCall { id: id.clone(), name: name.clone(), arguments: now(arguments) }
        }
        Block::ToolResult { .. } | Block::Other(_) => block.clone(),
    };
    Chunk::BlockEnd { index: *index, block }
}
