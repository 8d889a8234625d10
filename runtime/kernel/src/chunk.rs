//! What a model streams, and runs of it: one record of a log stands for many deltas of one block.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CallId;
use crate::message::Block;
use crate::outcome::{Failure, Usage};

/// One piece of a model's answer.
///
/// Adapters send usage before the finish, nothing after it, and tool arguments as raw text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Chunk {
    /// A block begins. Optional: a delta of an unseen index begins one too.
    BlockStart {
        /// Which block.
        index: u32,
        /// `text`, `reasoning`, `tool-call`.
        block_type: String,
    },
    /// More visible text.
    TextDelta {
        /// Which block.
        index: u32,
        /// What to append.
        text: String,
    },
    /// More reasoning.
    ReasoningDelta {
        /// Which block.
        index: u32,
        /// What to append.
        text: String,
    },
    /// More of a call.
    ToolCallDelta {
        /// Which block.
        index: u32,
        /// The call's id.
        id: CallId,
        /// The tool's name, when it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Arc<str>>,
        /// What to append to the arguments.
        arguments_delta: String,
    },
    /// A block is whole; what it says wins over the deltas before it.
    BlockEnd {
        /// Which block.
        index: u32,
        /// The whole block.
        block: Block,
    },
    /// What the call cost.
    Usage {
        /// Tokens, as far as the provider says.
        usage: Usage,
    },
    /// The answer is over.
    Finish {
        /// Why.
        reason: FinishReason,
        /// What the provider wants to see again with the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay_state: Option<Value>,
    },
}

/// Why an answer is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The model asks for tools.
    ToolCalls,
    /// The output limit was reached; calls in this answer are not run.
    MaxTokens,
    /// The request was cancelled.
    Aborted {
        /// What the adapter knows.
        failure: Failure,
    },
    /// The attempt failed.
    Error {
        /// What the adapter knows.
        failure: Failure,
    },
    /// A reason of another version: kept, and treated as `Stop`.
    #[serde(untagged)]
    Other(Value),
}

/// Consecutive deltas of one block, `n` wire events in one record.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkRun {
    /// Turn number.
    pub turn: u32,
    /// Step in the turn.
    pub step: u32,
    /// Which block.
    pub index: u32,
    /// Which kind of delta.
    pub kind: RunKind,
    /// The deltas, in order; never empty.
    pub deltas: Vec<String>,
    /// Milliseconds from each delta to the next: one fewer than deltas. May be negative.
    pub gaps: Vec<i64>,
}

/// Which kind of delta a run is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunKind {
    /// Visible text.
    Text,
    /// Reasoning.
    Reasoning,
    /// Arguments of one call.
    ToolCall {
        /// The call's id.
        id: CallId,
        /// The tool's name.
        name: Option<Arc<str>>,
    },
}

impl ChunkRun {
    /// How many wire events the run stands for.
    pub fn len(&self) -> u64 {
        self.deltas.len() as u64
    }

    /// Whether the run is empty, which a run in a log never is.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    /// The wire chunk of the delta at `at`.
    ///
    /// # Panics
    /// When `at` is not below [`ChunkRun::len`].
    pub fn chunk(&self, at: usize) -> Chunk {
        let (index, delta) = (self.index, self.deltas[at].clone());
        match &self.kind {
            RunKind::Text => Chunk::TextDelta { index, text: delta },
            RunKind::Reasoning => Chunk::ReasoningDelta { index, text: delta },
            RunKind::ToolCall { id, name } => {
                Chunk::ToolCallDelta { index, id: id.clone(), name: name.clone(), arguments_delta: delta }
            }
        }
    }
}

/// The parts of a delta chunk; `None` for a chunk that is no delta.
pub fn split_delta(chunk: &Chunk) -> Option<(u32, RunKind, String)> {
    match chunk {
        Chunk::TextDelta { index, text } => Some((*index, RunKind::Text, text.clone())),
        Chunk::ReasoningDelta { index, text } => Some((*index, RunKind::Reasoning, text.clone())),
        Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
            Some((*index, RunKind::ToolCall { id: id.clone(), name: name.clone() }, arguments_delta.clone()))
        }
        Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage { .. } | Chunk::Finish { .. } => None,
    }
}
