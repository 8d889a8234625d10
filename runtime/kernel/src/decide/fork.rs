//! A fork: an agent that begins with what another one has said and done.

use std::sync::Arc;

use super::Draft;
use crate::agent::Agent;
use crate::event::{Event, Fact, SeqRanges, SurfaceOp};
use crate::id::Seq;
use crate::message::{Message, Source};
use crate::spec::Spec;
use crate::turn::{Phase, Turn};

/// What stands for the turns that a fork does not see.
const LEFT_OUT: &str = "[Earlier turns of this conversation are left out.]";

/// Where in its log an agent is forked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Boundary {
    /// Behind its last turn that has ended.
    #[default]
    Completed,
    /// There, too; but the fork is shown only so many of the last turns.
    LastTurns(u32),
    /// Before this event, which must not be within a turn.
    At(Seq),
    /// In the middle of a turn whose calls are being run, behind the answer that asked for them: the calls are its own.
    Live,
}

/// A fork that is not born yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// With the settings of the agent that it was forked from.
    pub agent: Agent,
    /// How many events both share.
    pub until: Seq,
    /// For [`super::Input::Born`].
    pub last_turns: Option<u32>,
}

/// Why an agent cannot be forked there.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoFork {
    /// There is a turn.
    #[error("event {0} is within a turn; a fork begins between turns")]
    OpenTurn(Seq),
    /// No call is being run.
    #[error("it runs no calls; without them there is no live boundary")]
    NotCalling,
    /// Its log is not at hand from there on: it is to be read from the beginning.
    #[error("its log from the beginning to event {0} is not at hand")]
    NotAtHand(Seq),
    /// There is no such event.
    #[error("its log has {0} events")]
    Behind(Seq),
    /// Nothing has happened yet.
    #[error("it has no log yet")]
    Unborn,
}

impl Agent {
    /// The beginning of an agent that shares this one's conversation up to `boundary`. `rested` is this agent as it was
    /// before its open turn, if it is known; without it the log is folded once more.
    ///
    /// But for that and for [`Boundary::At`] it costs the same whatever the length of the log.
    ///
    /// # Errors
    /// When there is no such boundary.
    pub fn fork_at(&self, boundary: Boundary, rested: Option<&Self>) -> Result<Fork, NoFork> {
        let whole = |agent: Self, last_turns| {
            let until = agent.log.next_seq();
            // Its own birth comes behind the one that it shares.
            Fork { agent: Self { birth: None, ..agent }, until, last_turns }
        };
        if self.log.is_empty() {
            return Err(NoFork::Unborn);
        }
        match boundary {
            Boundary::Live => {
                let (agent, until) = self.fork(Arc::clone(&self.spec)).ok_or(NoFork::NotCalling)?;
                Ok(Fork { agent, until, last_turns: None })
            }
            Boundary::Completed => Ok(whole(self.rested(rested)?, None)),
            Boundary::LastTurns(turns) => Ok(whole(self.rested(rested)?, Some(turns))),
            Boundary::At(seq) if seq > self.log.next_seq() => Err(NoFork::Behind(self.log.next_seq())),
            Boundary::At(seq) if self.log.begins_at() > Seq(0) => Err(NoFork::NotAtHand(seq)),
            Boundary::At(seq) => {
                let agent = self.folded(seq);
                if agent.birth.is_none() {
                    return Err(NoFork::Unborn);
                }
                // A turn ends with its outcome.
                let told = agent.outcome.as_ref().map(|outcome| outcome.turn);
                let is_between = agent.turn.is_idle() && agent.ended.as_ref().map(|ended| ended.turn) == told;
                if is_between { Ok(whole(agent, None)) } else { Err(NoFork::OpenTurn(seq)) }
            }
        }
    }

    /// As it was when its last turn had ended, or before its first.
    fn rested(&self, known: Option<&Self>) -> Result<Self, NoFork> {
        if self.turn.is_idle() {
            return Ok(self.clone());
        }
        if let Some(known) = known.filter(|known| known.turn.is_idle()) {
            return Ok(Self { spec: Arc::clone(&self.spec), ..known.clone() });
        }
        match self.turns.last() {
            None => Ok(self.clone()),
            Some(&started) if self.log.begins_at() > Seq(0) => Err(NoFork::NotAtHand(started)),
            Some(&started) => Ok(self.folded(started)),
        }
    }

    fn folded(&self, until: Seq) -> Self {
        let prefix = self.log.prefix(until);
        // A prefix of what was folded before can be folded.
        Self::fold(Arc::clone(&self.spec), prefix.iter()).unwrap_or_else(|_| Self::new(Arc::clone(&self.spec)))
    }

    /// The same agent with other settings.
    #[must_use]
    pub fn with_spec(self, spec: Arc<Spec>) -> Self {
        Self { spec, ..self }
    }

    /// The beginning of a child that shares this agent's conversation up to the answer whose calls are being run, and
    /// the number of events that it shares. It is not born yet: [`super::Input::Born`] closes the parent's turn in its
    /// log first. `None` unless calls are being run.
    ///
    /// Costs the same whatever the length of the log.
    pub fn fork(&self, spec: Arc<Spec>) -> Option<(Self, Seq)> {
        let (_, calling) = self.calling()?;
        let until = calling.from.plus(1);
        let mut child = Self { spec, log: self.log.prefix(until), ..self.clone() };
        child.surface.truncate(until);
        if let Turn::Open(open) = &mut child.turn {
            open.stopping = None;
            open.concludes = false;
            if let Phase::Calling(calling) = &mut open.phase {
                *calling = calling.restarted();
            }
        }
        Some((child, until))
    }
}

impl Draft {
    /// What came before the last so many turns is not seen any more; the log keeps it.
    pub(super) fn leave_out_all_but(&mut self, turns: u32) {
        let from = match turns.checked_sub(1) {
            None => Some(self.agent.log.next_seq()),
            Some(more) => self.agent.turns.iter().rev().nth(more as usize).copied(),
        };
        let Some(from) = from else { return };
        let nodes = self.agent.surface.before(from);
        let (Some(&start), Some(&end)) = (nodes.first(), nodes.last()) else { return };
        let mut sources = SeqRanges::empty();
        // Nodes stand in any order once some were replaced.
        let mut sorted = nodes;
        sorted.sort_unstable();
        for node in sorted {
            // Sorted, and no node is there twice.
            let _ = sources.push(node.0, node.0);
        }
        let source = Source::plugin("fork", "notice");
        let fact = Fact::UserMessage(Arc::new(Message::context("left-out", LEFT_OUT, source)));
        let event = Event::new(self.agent.log.next_seq(), self.now, fact);
        let surface = Some(SurfaceOp::Replace { start, end });
        self.add_event(Event { surface, sources: Some(sources), ..event });
    }
}
