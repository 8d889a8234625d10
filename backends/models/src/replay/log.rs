//! Session logs as recordings: a log says what was asked, since a request is a function of it, and what came.

use std::sync::Arc;

use impresario_kernel::assembler::Assembler;
use impresario_kernel::surface::Surface;
use impresario_kernel::{
    AgentId, AgentPath, Block, Chunk, Event, Fact, Failure, FinishReason, RequestHeader, Seq, SessionHeader, TurnEnd,
    Usage,
};

use super::asked::{Asked, Sight};
use super::file::{End, Line};
use super::recording::Recording;

/// A session as it is stored: its header and its log.
pub(super) type Session = (SessionHeader, Vec<Arc<Event>>);

/// A session with its place in its tree.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) id: AgentId,
    pub(super) path: AgentPath,
    /// What is before this place somebody else asked for.
    pub(super) own: Seq,
    pub(super) events: Vec<Arc<Event>>,
}

impl Recording {
    /// Takes session logs, whole ones, as a recording of their agents; what a fork has inherited is not its own.
    ///
    /// Logs of this program say where their agents stand, and requests are compared whole. Logs of dsh do not: a
    /// session without its parent among them is a root, and a child has the path that it would have here, `a1` for the
    /// first call of its parent that asks for one. Their calls of `subagent` and `subagent_fork` are said in our words,
    /// all others stay as they are, and only what people and the model said is compared, since frames, tools and results
    /// are not those of this program.
    pub fn of_logs(sessions: Vec<(SessionHeader, Vec<Arc<Event>>)>) -> Self {
        let Some(births) = sessions.iter().map(|(_, events)| birth(events)).collect::<Option<Vec<_>>>() else {
            return Self::of_dsh(sessions);
        };
        let mut recording = Self::of(Sight::Whole);
        for ((header, events), (path, own)) in sessions.into_iter().zip(births) {
            let placed = Placed { id: header.id, path, own, events };
            lines(&placed, Sight::Whole).into_iter().for_each(|line| recording.add(line));
        }
        recording
    }
}

/// Where an agent of this program stands, and where its own events begin. A fork has inherited another birth, too.
fn birth(events: &[Arc<Event>]) -> Option<(AgentPath, Seq)> {
    events.iter().rev().find_map(|event| match &event.fact {
        Fact::AgentBorn(birth) => Some((birth.path.clone(), event.seq)),
        _ => None,
    })
}

/// The attempts of a session's own steps, in order.
pub(super) fn lines(session: &Placed, sight: Sight) -> Vec<Line> {
    let header = Arc::new(RequestHeader::new("", ""));
    let mut reader =
        Reader { session, sight, header, surface: Surface::default(), step: None, chunks: vec![], lines: vec![] };
    for event in &session.events {
        reader.take(event);
    }
    // A log that ends in a step was cut off in it.
    reader.end(End::Dropped, None);
    reader.lines
}

/// A log on its way through.
struct Reader<'a> {
    session: &'a Placed,
    sight: Sight,
    header: Arc<RequestHeader>,
    surface: Surface,
    /// Turn, step and attempt that are asked for now.
    step: Option<(u32, u32, u32)>,
    chunks: Vec<Chunk>,
    lines: Vec<Line>,
}

impl Reader<'_> {
    fn take(&mut self, event: &Event) {
        match &event.fact {
            Fact::StepStarted(mark) => self.step = Some((mark.turn, mark.step, 0)),
            Fact::Chunk(streamed) => self.chunks.push(streamed.chunk.clone()),
            Fact::Chunks(run) => self.chunks.extend((0..run.deltas.len()).map(|at| run.chunk(at))),
            Fact::RequestHeader(logged) => self.header = Arc::clone(&logged.header),
            Fact::AssistantMessage(answer) => {
                if !answer.interrupted && !self.is_whole(&answer.message.content) {
                    self.chunks = chunks(&answer.message.content, answer.usage, self.finish());
                }
                self.end(if answer.interrupted { End::Dropped } else { End::Finished }, None);
                self.step = None;
            }
            Fact::RetryScheduled(retry) => {
                self.end(End::Failed, Some(retry.failure.clone()));
                self.step = Some((retry.turn, retry.step, retry.retry));
            }
            Fact::TurnEnded(ended) => {
                match &ended.reason {
                    TurnEnd::Error { error, .. } => self.end(End::Failed, Some(error.clone())),
                    _ => self.end(End::Dropped, None),
                }
                self.step = None;
            }
            _ => {}
        }
        // A log that was read keeps the rules; what a damaged one replaces it goes without.
        let _ = self.surface.apply(event);
        if event.seq < self.session.own {
            self.lines.clear();
        }
    }

    /// The attempt is over, if there is one that somebody was asked in.
    fn end(&mut self, end: End, failure: Option<Failure>) {
        let mut chunks = std::mem::take(&mut self.chunks);
        let Some(when) = self.step else { return };
        // The log says in the stream, too, why it failed.
        if end != End::Finished {
            chunks.retain(|chunk| !matches!(chunk, Chunk::Finish { .. }));
        }
        let config = &self.header.config;
        let asked = Asked::of(self.sight, &self.header, self.surface.messages());
        let who = (self.session.id.clone(), self.session.path.clone());
        let line = Line::new(who, when, (&config.provider, &config.model), asked);
        self.lines.push(line.ended(chunks, end, failure));
    }

    /// Why the answer was over, if its stream said so.
    fn finish(&self) -> Option<FinishReason> {
        self.chunks.iter().find_map(|chunk| match chunk {
            Chunk::Finish { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Whether the stream is all there and comes to what the model is said to have answered. Ids of calls may have been
    /// made unique since.
    fn is_whole(&self, content: &[Block]) -> bool {
        let mut assembler = Assembler::default();
        self.chunks.iter().for_each(|chunk| assembler.push(chunk));
        let blocks = match assembler.finish() {
            None => return false,
            Some(FinishReason::MaxTokens) => assembler.blocks_without_calls(),
            Some(_) => assembler.blocks(),
        };
        Asked::of_blocks(&blocks) == Asked::of_blocks(content)
    }
}

/// An answer as a stream.
pub(super) fn chunks(content: &[Block], usage: Option<Usage>, finish: Option<FinishReason>) -> Vec<Chunk> {
    let has_calls = content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    let blocks = (0u32..).zip(content).map(|(index, block)| Chunk::BlockEnd { index, block: block.clone() });
    let reason = finish.unwrap_or(if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop });
    let end = [Chunk::Finish { reason, replay_state: None }];
    blocks.chain(usage.map(|usage| Chunk::Usage { usage })).chain(end).collect()
}
