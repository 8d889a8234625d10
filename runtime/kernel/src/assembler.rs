//! Chunks to blocks.

use std::sync::Arc;

use serde_json::Value;

use crate::chunk::{Chunk, ChunkRun, FinishReason, RunKind};
use crate::id::CallId;
use crate::message::Block;
use crate::outcome::{Failure, Usage};

/// Puts the blocks of one attempt together, in the order in which they were first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembler {
    parts: Vec<Part>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    replay_state: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    index: u32,
    body: Body,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Text(String),
    Reasoning(String),
    Call {
        id: Option<CallId>,
        name: Option<Arc<str>>,
        arguments: String,
    },
    /// Closed by what the adapter said at its end.
    Whole(Block),
}

impl Assembler {
    /// Takes one chunk in. What does not fit (a delta behind its block's end) is ignored, as the reference does.
    pub fn push(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                let body = match block_type.as_str() {
                    "reasoning" => Body::Reasoning(String::new()),
                    "tool-call" => Body::Call { id: None, name: None, arguments: String::new() },
                    _ => Body::Text(String::new()),
                };
                self.part(*index, body);
            }
            Chunk::TextDelta { index, text } => self.delta(*index, &RunKind::Text, text),
            Chunk::ReasoningDelta { index, text } => self.delta(*index, &RunKind::Reasoning, text),
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                self.delta(*index, &RunKind::ToolCall { id: id.clone(), name: name.clone() }, arguments_delta);
            }
            Chunk::BlockEnd { index, block } => {
                let part = self.part(*index, Body::Whole(block.clone()));
                if !matches!(part.body, Body::Whole(_)) {
                    part.body = Body::Whole(block.clone());
                }
            }
            Chunk::Usage { usage } => self.usage = Some(*usage),
            Chunk::Finish { reason, replay_state } => {
                if self.finish.is_none() {
                    self.finish = Some(reason.clone());
                    self.replay_state = replay_state.clone();
                }
            }
        }
    }

    /// Takes a run of deltas in.
    pub fn push_run(&mut self, run: &ChunkRun) {
        for delta in &run.deltas {
            self.delta(run.index, &run.kind, delta);
        }
    }

    fn delta(&mut self, index: u32, kind: &RunKind, delta: &str) {
        let empty = match kind {
            RunKind::Text => Body::Text(String::new()),
            RunKind::Reasoning => Body::Reasoning(String::new()),
            RunKind::ToolCall { .. } => Body::Call { id: None, name: None, arguments: String::new() },
        };
        match (&mut self.part(index, empty).body, kind) {
            (Body::Text(text), RunKind::Text) | (Body::Reasoning(text), RunKind::Reasoning) => text.push_str(delta),
            (Body::Call { id, name, arguments }, RunKind::ToolCall { id: new_id, name: new_name }) => {
                id.get_or_insert_with(|| new_id.clone());
                if name.is_none() {
                    name.clone_from(new_name);
                }
                arguments.push_str(delta);
            }
            (Body::Whole(_) | Body::Text(_) | Body::Reasoning(_) | Body::Call { .. }, _) => {}
        }
    }

    fn part(&mut self, index: u32, new: Body) -> &mut Part {
        // Pieces come in order, or nearly so: the last parts are looked at first.
        let at = self.parts.iter().rposition(|part| part.index == index).unwrap_or_else(|| {
            self.parts.push(Part { index, body: new });
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    /// What the attempt cost, if that is known.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Why the attempt is over, once it is.
    pub fn finish(&self) -> Option<&FinishReason> {
        self.finish.as_ref()
    }

    /// Why the stream failed, if its last chunk says so.
    pub fn failure(&self) -> Option<&Failure> {
        match self.finish()? {
            FinishReason::Error { failure } | FinishReason::Aborted { failure } => Some(failure),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MaxTokens | FinishReason::Other(_) => None,
        }
    }

    /// What the provider wants to see again.
    pub fn replay_state(&self) -> Option<&Value> {
        self.replay_state.as_ref()
    }

    /// All blocks.
    pub fn blocks(&self) -> Vec<Block> {
        self.parts.iter().filter_map(Part::block).collect()
    }

    /// All blocks but calls: what stays of an answer that ran into the output limit.
    pub fn blocks_without_calls(&self) -> Vec<Block> {
        self.blocks().into_iter().filter(|block| !matches!(block, Block::ToolCall { .. })).collect()
    }

    /// What a person had seen when the stream was cut: text and reasoning that is not blank.
    pub fn visible_blocks(&self) -> Vec<Block> {
        let mut blocks = self.blocks();
        blocks.retain(|block| match block {
            Block::Text { text } | Block::Reasoning { text } => !text.trim().is_empty(),
            Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Other(_) => false,
        });
        blocks
    }
}

impl Part {
    /// The block so far; an empty text is none.
    fn block(&self) -> Option<Block> {
        match &self.body {
            Body::Text(text) => (!text.is_empty()).then(|| Block::text(text.as_str())),
            Body::Reasoning(text) => Some(Block::Reasoning { text: text.as_str().into() }),
            Body::Call { id, name, arguments } => Some(Block::ToolCall {
                id: id.clone().unwrap_or_else(|| format!("call-{}", self.index).into()),
                name: name.clone().unwrap_or_default(),
                arguments: arguments.as_str().into(),
            }),
            Body::Whole(block) => Some(block.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(index: u32, text: &str) -> Chunk {
        Chunk::TextDelta { index, text: text.into() }
    }

    #[test]
    fn blocks_come_in_the_order_in_which_they_were_first_seen() {
        let mut assembler = Assembler::default();
        for chunk in [text(3, "a"), text(1, "b"), text(3, "c")] {
            assembler.push(&chunk);
        }
        assert_eq!(assembler.blocks(), [Block::text("ac"), Block::text("b")]);
    }

    #[test]
    fn the_end_of_a_block_wins_and_the_first_end_counts() {
        let mut assembler = Assembler::default();
        assembler.push(&text(0, "abc"));
        assembler.push(&Chunk::BlockEnd { index: 0, block: Block::text("xyz") });
        assembler.push(&Chunk::BlockEnd { index: 0, block: Block::text("late") });
        assembler.push(&text(0, "straggler"));
        assert_eq!(assembler.blocks(), [Block::text("xyz")]);
    }

    #[test]
    fn a_call_without_id_and_name_gets_stand_ins() {
        let mut assembler = Assembler::default();
        assembler.push(&Chunk::BlockStart { index: 2, block_type: "tool-call".into() });
        let expected = Block::ToolCall { id: "call-2".into(), name: "".into(), arguments: "".into() };
        assert_eq!(assembler.blocks(), [expected]);
    }

    #[test]
    fn what_stays_of_a_cut_stream_is_what_was_visible() {
        let mut assembler = Assembler::default();
        assembler.push(&Chunk::ReasoningDelta { index: 0, text: "  \n".into() });
        assembler.push(&text(1, "so far"));
        assembler.push(&Chunk::ToolCallDelta {
            index: 2,
            id: "c".into(),
            name: Some("bash".into()),
            arguments_delta: "{".into(),
        });
        assert_eq!(assembler.visible_blocks(), [Block::text("so far")]);
    }
}
