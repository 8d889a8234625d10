//! A model without a model: its answers are a function of what the request contains and of who asks.
//!
//! No key, no network, no chance: the same request gets the same answer whatever else runs. For demonstrations, tests
//! and for measuring what delegation costs when tokens cost nothing.

mod demo;
mod dice;
mod directive;
mod latency;
mod rules;
mod view;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_kernel::{Block, Chunk, Failure, FinishReason, Usage};
use impresario_seams::{ChunkStream, Model, ModelRequest};

pub use latency::{Latency, LatencyError, Pace};
pub use rules::ScriptError;
pub use view::{Answered, View};

/// How many bytes of text come in one piece, about.
const PIECE: usize = 24;

/// An answer to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What it thought before.
    pub reasoning: String,
    /// What it says.
    pub text: String,
    /// The calls that it asks for: tool and arguments as JSON text.
    pub calls: Vec<(String, String)>,
    /// How long it takes to begin; none takes as long as the model's answers usually do
    /// ([`ScriptedModel::with_latency`]).
    pub latency: Option<Duration>,
    /// The attempt fails with this, behind what it says; calls are not asked for.
    pub failure: Option<Failure>,
    /// Whether it runs into its output limit.
    pub is_cut: bool,
}

impl Answer {
    /// Says something.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Says something and asks for calls.
    pub fn calls(text: impl Into<String>, calls: Vec<(String, String)>) -> Self {
        Self { text: text.into(), calls, ..Self::default() }
    }

    /// Fails.
    pub fn failure(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

type Decide = dyn Fn(&View<'_>) -> Answer + Send + Sync;

/// A model that follows a script.
#[derive(Clone)]
pub struct ScriptedModel {
    decide: Arc<Decide>,
    latency: Duration,
}

impl ScriptedModel {
    /// Follows the directives in what it is told, `[[FANOUT n=4 tool=subagent]]` for one; without one it repeats what
    /// it was told. [`directives`](Self::DIRECTIVES) lists them.
    pub fn builtin() -> Self {
        Self::from_fn(directive::answer)
    }

    /// The directives of [`ScriptedModel::builtin`], a line each.
    pub const DIRECTIVES: &str = directive::HELP;

    /// Plays the lead and the subagents of `impresario demo`, at a speed that a person can follow.
    pub fn demo() -> Self {
        Self::from_fn(|view| Answer { latency: Some(demo::latency(view)), ..demo::answer(view) })
    }

    /// As [`ScriptedModel::demo`], with one latency for all answers.
    pub fn demo_with_latency(latency: Duration) -> Self {
        Self::from_fn(demo::answer).with_latency(latency)
    }

    /// Follows the rules of a script; directives work where no rule matches. The format is in the README.
    ///
    /// # Errors
    /// [`ScriptError`] with the line, for what is not TOML or not a rule.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        let script = rules::parse(text)?;
        Ok(Self::from_fn(move |view| script.answer(view).unwrap_or_else(|| directive::answer(view))))
    }

    /// Answers with a function.
    pub fn from_fn(decide: impl Fn(&View<'_>) -> Answer + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), latency: Duration::ZERO }
    }

    /// Sets how long an answer that does not say so itself takes to begin; by default it begins at once.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").finish_non_exhaustive()
    }
}

impl Model for ScriptedModel {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let (decide, latency) = (Arc::clone(&self.decide), self.latency);
        async move {
            let answer = decide(&View::new(&request));
            let latency = answer.latency.unwrap_or(latency);
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
            match answer.failure.clone() {
                Some(failure) if answer.text.is_empty() && answer.reasoning.is_empty() => Err(failure),
                Some(failure) => {
                    let said: Vec<_> = said(&answer).into_iter().map(Ok).chain([Err(failure)]).collect();
                    Ok(stream::iter(said).boxed())
                }
                None => Ok(stream::iter(chunks(&request, &answer).into_iter().map(Ok)).boxed()),
            }
        }
        .boxed()
    }

    fn is_scripted(&self) -> bool {
        true
    }
}

/// What it thinks and says.
fn said(answer: &Answer) -> Vec<Chunk> {
    let mut chunks = vec![];
    let index = u32::from(!answer.reasoning.is_empty());
    chunks.extend(pieces(&answer.reasoning).map(|text| Chunk::ReasoningDelta { index: 0, text: text.into() }));
    chunks.extend(pieces(&answer.text).map(|text| Chunk::TextDelta { index, text: text.into() }));
    chunks
}

fn chunks(request: &ModelRequest, answer: &Answer) -> Vec<Chunk> {
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
    let said = answer.text.len() + answer.reasoning.len() + answer.calls.iter().map(|call| call.1.len()).sum::<usize>();
    let system = request.header.system.as_ref().map_or(0, |system| system.len());
    let heard: usize = system + request.messages.iter().map(|message| heard(&message.content)).sum::<usize>();
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    let usage = Usage { input_tokens: tokens(heard), output_tokens: tokens(said), ..Usage::default() };
    chunks.push(Chunk::Usage { usage });
    let reason = match (answer.is_cut, answer.calls.is_empty()) {
        (true, _) => FinishReason::MaxTokens,
        (false, true) => FinishReason::Stop,
        (false, false) => FinishReason::ToolCalls,
    };
    chunks.push(Chunk::Finish { reason, replay_state: None });
    chunks
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
