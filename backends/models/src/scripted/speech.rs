//! An answer as it comes: in pieces, at its pace, with its usage, to its end or to where it breaks.

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use impresario_kernel::{Block, Chunk, Failure, FinishReason, Usage};
use impresario_seams::{ChunkStream, ModelRequest};
use tokio::time::Instant;

use super::latency::Pace;
use super::view::View;
use super::{Answer, Silence};

/// How many bytes of text come in one piece, about.
const PIECE: usize = 24;

/// What is to be said, and how it ends.
pub(super) struct Speech {
    /// Each chunk with how many tokens come before it.
    chunks: VecDeque<(u64, Chunk)>,
    end: End,
}

/// How a speech ends.
#[derive(Clone, Debug)]
enum End {
    Finished,
    Failed(Failure),
    Silent(Silence),
}

impl Speech {
    pub(super) fn of(request: &ModelRequest, answer: &Answer, silence: Silence) -> Self {
        let deltas = match (answer.breaks_after, &answer.failure) {
            (Some(most), _) => deltas(request, answer).into_iter().take(most).collect(),
            (None, Some(_)) => said(answer),
            (None, None) => deltas(request, answer),
        };
        let mut chunks = counted(deltas);
        let end = match (&answer.failure, answer.breaks_after) {
            (Some(failure), _) => End::Failed(failure.clone()),
            (None, Some(_)) => End::Silent(silence),
            (None, None) => End::Finished,
        };
        if let End::Finished = end {
            let usage = answer.usage.unwrap_or_else(|| estimated(request, answer));
            // Behind the last token, whatever the pieces have come to.
            let last = usage.output_tokens.saturating_sub(1);
            let reason = match (answer.is_cut, answer.calls.is_empty()) {
                (true, _) => FinishReason::MaxTokens,
                (false, true) => FinishReason::Stop,
                (false, false) => FinishReason::ToolCalls,
            };
            chunks.push_back((last, Chunk::Usage { usage }));
            chunks.push_back((last, Chunk::Finish { reason, replay_state: None }));
        }
        Self { chunks, end }
    }

    /// The stream of it, which began to be waited for at `asked`. What fails before anything is said is no stream.
    pub(super) fn stream(self, pace: Pace, asked: Instant) -> Result<ChunkStream, Failure> {
        let end = match self.end {
            End::Failed(failure) if self.chunks.is_empty() => return Err(failure),
            End::Failed(failure) => stream::iter([Err(failure)]).boxed(),
            End::Silent(silence) => stream::once(silence.broken()).map(Err).boxed(),
            End::Finished => stream::empty().boxed(),
        };
        Ok(paced(self.chunks, pace, asked).map(Ok).chain(end).boxed())
    }
}

/// Chunks, each with how many tokens come before it.
pub(crate) fn counted(chunks: impl IntoIterator<Item = Chunk>) -> VecDeque<(u64, Chunk)> {
    let mut before = 0;
    let count = |chunk: Chunk| {
        let at = before;
        before += size(&chunk);
        (at, chunk)
    };
    chunks.into_iter().map(count).collect()
}

/// The chunks, each when its first token comes; the first comes at once, for it was waited for.
pub(crate) fn paced(chunks: VecDeque<(u64, Chunk)>, pace: Pace, asked: Instant) -> BoxStream<'static, Chunk> {
    if pace.token.is_zero() {
        return stream::iter(chunks.into_iter().map(|(_, chunk)| chunk)).boxed();
    }
    let said = stream::unfold(chunks, move |mut chunks| async move {
        let (before, chunk) = chunks.pop_front()?;
        tokio::time::sleep_until(asked + pace.until(before + 1)).await;
        Some((chunk, chunks))
    });
    said.boxed()
}

impl Silence {
    /// Comes when an adapter would have given up.
    async fn broken(self) -> Failure {
        let Some(idle) = self.0 else { return std::future::pending().await };
        tokio::time::sleep(idle).await;
        Failure::new("TIMEOUT", format!("the provider was silent for {} s", idle.as_secs()))
    }
}

/// What it thinks, says and asks for.
fn deltas(request: &ModelRequest, answer: &Answer) -> Vec<Chunk> {
    let mut chunks = said(answer);
    let index = u32::from(!answer.reasoning.is_empty()) + u32::from(!answer.text.is_empty());
    for (at, (name, arguments)) in (0u32..).zip(&answer.calls) {
        let id = View::new(request).call_id(at);
        let half = (0..=arguments.len() / 2).rev().find(|&end| arguments.is_char_boundary(end)).unwrap_or(0);
        for part in [&arguments[..half], &arguments[half..]] {
            let (id, name) = (id.clone(), Some(name.as_str().into()));
            chunks.push(Chunk::ToolCallDelta { index: index + at, id, name, arguments_delta: part.into() });
        }
    }
    chunks
}

/// What it thinks and says.
fn said(answer: &Answer) -> Vec<Chunk> {
    let mut chunks = vec![];
    let index = u32::from(!answer.reasoning.is_empty());
    chunks.extend(pieces(&answer.reasoning).map(|text| Chunk::ReasoningDelta { index: 0, text: text.into() }));
    chunks.extend(pieces(&answer.text).map(|text| Chunk::TextDelta { index, text: text.into() }));
    chunks
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// How many tokens a delta has.
fn size(chunk: &Chunk) -> u64 {
    match chunk {
        Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. } => tokens(text.len()),
        Chunk::ToolCallDelta { arguments_delta, .. } => tokens(arguments_delta.len()),
        Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage { .. } | Chunk::Finish { .. } => 0,
    }
}

/// A token for every four bytes of what was heard and said.
fn estimated(request: &ModelRequest, answer: &Answer) -> Usage {
    let said = answer.text.len() + answer.reasoning.len() + answer.calls.iter().map(|call| call.1.len()).sum::<usize>();
    let system = request.header.system.as_ref().map_or(0, |system| system.len());
    let heard: usize = system + request.messages.iter().map(|message| heard(&message.content)).sum::<usize>();
    Usage { input_tokens: tokens(heard), output_tokens: tokens(said), ..Usage::default() }
}

/// How many bytes of texts, calls and results there are.
fn heard(blocks: &[Block]) -> usize {
    let bytes = |block: &Block| match block {
        Block::Text { text } | Block::Reasoning { text } => text.len(),
        Block::ToolCall { arguments, .. } => arguments.len(),
        Block::ToolResult { content, .. } => heard(content),
        Block::Other(_) => 0,
    };
    blocks.iter().map(bytes).sum()
}

/// A text in pieces of about [`PIECE`] bytes, cut behind spaces where there are some.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_end = |end: &usize| rest.is_char_boundary(*end);
        let least = (PIECE.min(rest.len())..=rest.len()).find(is_end).unwrap_or(rest.len());
        let end = rest[..least].rfind(' ').map_or(least, |space| space + 1);
        let (piece, behind) = rest.split_at(if least == rest.len() { least } else { end });
        rest = behind;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_text() {
        for text in ["", "a", &"word ".repeat(40), &"ö".repeat(100)] {
            assert_eq!(pieces(text).collect::<String>(), text);
        }
        assert!(pieces(&"word ".repeat(40)).count() > 5);
    }
}
