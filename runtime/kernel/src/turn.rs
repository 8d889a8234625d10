//! A turn: one enum whose variants hold only what is true in them.

use std::sync::Arc;

use imbl::Vector;

use crate::assembler::Assembler;
use crate::event::{CallSettled, QueueRule, SeqRanges};
use crate::id::{CallId, CallKey, Millis, RunKey, Seq};
use crate::message::Message;
use crate::outcome::{Cause, Failure, Spent};

/// How far an agent's turn is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Turn {
    /// None is open.
    #[default]
    Idle,
    /// One is open.
    Open(Box<Open>),
}

/// An open turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// From 1.
    pub number: u32,
    /// When it began.
    pub started: Millis,
    /// The step that is open or was open last; 0 before the first.
    pub step: u32,
    /// What it does.
    pub phase: Phase,
    /// Whether one of its answers ran into the output limit.
    pub max_tokens: bool,
    /// Whether a call said that the turn ends with its step.
    pub concludes: bool,
    /// Set while it is being cancelled.
    pub stopping: Option<Stopping>,
    /// The last text that the agent itself said in this turn.
    pub text: Option<Said>,
    /// What the agent had spent when the turn began.
    pub spent_before: Spent,
}

/// A text and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The `assistant/message`.
    pub at: Seq,
    /// Its message.
    pub message: Arc<Message>,
}

/// A cancel that waits for the real ends of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopping {
    /// Who, and why. The first cause stays.
    pub cause: Cause,
    /// What becomes of the queue.
    pub queue: QueueRule,
    /// Whether something that wakes arrived since: it must not be parked with the rest.
    pub woken: bool,
}

/// What an open turn does.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// No step is open. Never the state at the end of an append.
    Between,
    /// A model answers.
    Sampling(Sampling),
    /// A failed attempt waits for its retry.
    Backoff(Backoff),
    /// The answer is whole; its calls (perhaps none) are run.
    Calling(Calling),
}

/// One attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// From 0; the number of retries so far.
    pub attempt: u32,
    /// The chunks of this attempt.
    pub sources: SeqRanges,
    /// What they say.
    pub assembler: Assembler,
}

/// The wait before a retry.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// Pairs the schedule with the start.
    pub retry_id: String,
    /// From 1.
    pub retry: u32,
    /// When the wait is over.
    pub until: Millis,
    /// What failed.
    pub failure: Failure,
}

/// The calls of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Calling {
    /// The `assistant/message` that asks for them.
    pub from: Seq,
    /// In the model's order.
    pub calls: Vector<Call>,
    /// How many of them, from the first on, have their result.
    pub answered: usize,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Unique in the session.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: Arc<str>,
    /// The arguments as the model wrote them.
    pub arguments: Arc<str>,
    /// How far it is.
    pub state: CallState,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub enum CallState {
    /// Not started.
    Waiting,
    /// Its `tool/call` is in the log; its effects are unknown until it settles.
    Started {
        /// That `tool/call`.
        at: Seq,
    },
    /// It has its result, and waits for those before it.
    Settled(Arc<CallSettled>),
    /// Its `tool/result` is in the log.
    Answered,
}

impl Turn {
    /// The open turn.
    pub fn open(&self) -> Option<&Open> {
        match self {
            Self::Idle => None,
            Self::Open(open) => Some(open),
        }
    }

    /// Whether none is open.
    pub fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }
}

impl Open {
    /// The running attempt, while a model answers.
    pub fn run(&self) -> Option<RunKey> {
        match &self.phase {
            Phase::Sampling(sampling) => Some(self.run_of(sampling.attempt)),
            Phase::Between | Phase::Backoff(_) | Phase::Calling(_) => None,
        }
    }

    pub(crate) fn run_of(&self, attempt: u32) -> RunKey {
        RunKey { turn: self.number, step: self.step, attempt }
    }

    /// The key of the call at `index`.
    pub(crate) fn key(&self, index: usize) -> CallKey {
        CallKey { turn: self.number, step: self.step, index: u32::try_from(index).unwrap_or(u32::MAX) }
    }
}

impl Calling {
    /// Where the call `id` stands.
    pub(crate) fn position(&self, id: &CallId) -> Option<usize> {
        self.calls.iter().position(|call| call.id == *id)
    }

    /// Whether every call has its result.
    pub fn is_answered(&self) -> bool {
        self.answered == self.calls.len()
    }
}
