//! A turn: one enum whose variants hold only what is true in them.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde_json::Value;

use crate::assembler::Assembler;
use crate::event::{CallSettled, Lane, QueueRule, SeqRanges};
use crate::id::{CallId, CallKey, Millis, RunKey, Seq};
use crate::judge::HookAsked;
use crate::message::Message;
use crate::outcome::{Cause, Failure, Spent};
use crate::spec::Overlap;

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
    /// Whether a call of the step said that the turn ends with it.
    pub concludes: bool,
    /// Whether the model was done when the last step ended: it owes nobody an answer.
    pub is_done: bool,
    /// Messages that this turn has taken up and that no step has begun with yet.
    pub claimed: Vector<(Lane, Arc<Message>)>,
    /// What somebody is asked just now; everything else waits for the answer.
    pub judging: Option<HookAsked>,
    /// The hooks that have let this turn go on when the model was done, in order.
    pub steered: Vector<String>,
    /// Whether the todo list was written in this turn.
    pub wrote_todos: bool,
    /// Set while it is being cancelled.
    pub stopping: Option<Stopping>,
    /// The last text that the agent itself said in this turn.
    pub text: Option<Said>,
    /// What the turn was to come out with, once a call has given it.
    pub output: Option<Arc<Value>>,
    /// What the agent had spent when the turn began.
    pub spent_before: Spent,
}

/// A text and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// No step is open. At the end of an append only while somebody is asked.
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

/// Work that should be in flight now.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Want {
    /// The right to open a turn.
    Slot,
    /// What somebody says to this.
    Judge(HookAsked),
    /// This attempt at a model's answer.
    Sample(RunKey),
    /// To be told when this time has come: the wait before this attempt is over.
    Retry(RunKey, Millis),
    /// This call.
    Run(CallKey),
    /// The real end of this call, soon.
    Stop(CallKey),
}

/// The calls of one answer. What is asked of it costs the same however many there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Calling {
    /// The `assistant/message` that asks for them.
    pub from: Seq,
    /// In the model's order.
    pub calls: Vector<Call>,
    /// How many of them, from the first on, have their result.
    pub answered: usize,
    /// Where each stands.
    places: OrdMap<CallId, usize>,
    /// Those that have not started.
    waiting: OrdSet<usize>,
    /// Those that run and do more than wait for other agents.
    working: OrdSet<usize>,
    /// What those that run call for.
    wants: OrdSet<Want>,
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
    /// How it may overlap with the others.
    pub overlap: Overlap,
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
        CallKey::at(self.number, self.step, index)
    }
}

impl Calling {
    /// The calls of the answer at `from`; none has started.
    pub(crate) fn new(from: Seq, calls: Vector<Call>) -> Self {
        // Of calls that share an id, which no log of ours has, the first one is meant.
        let places = calls.iter().enumerate().rev().map(|(at, call)| (call.id.clone(), at)).collect();
        let waiting = (0..calls.len()).collect();
        Self { from, calls, answered: 0, places, waiting, working: OrdSet::new(), wants: OrdSet::new() }
    }

    /// The same calls, as if nothing had been done about them.
    pub(crate) fn restarted(&self) -> Self {
        let waiting = |call: &Call| Call { state: CallState::Waiting, ..call.clone() };
        Self::new(self.from, self.calls.iter().map(waiting).collect())
    }

    /// Moves the call `id` on; `false` if it is not one of these. `key` makes its key of its place.
    pub(crate) fn set(
        &mut self,
        id: &CallId,
        state: CallState,
        key: impl Fn(usize) -> CallKey,
        is_stopping: bool,
    ) -> bool {
        let Some(&at) = self.places.get(id) else { return false };
        let Some(call) = self.calls.get_mut(at) else { return false };
        let key = key(at);
        self.waiting.remove(&at);
        match &state {
            CallState::Started { .. } => {
                if call.overlap != Overlap::Delegation {
                    self.working.insert(at);
                }
                self.wants.insert(if is_stopping { Want::Stop(key) } else { Want::Run(key) });
            }
            CallState::Waiting | CallState::Settled(_) | CallState::Answered => {
                self.working.remove(&at);
                self.wants.remove(&Want::Run(key));
                self.wants.remove(&Want::Stop(key));
            }
        }
        if state == CallState::Waiting {
            self.waiting.insert(at);
        }
        call.state = state;
        while self.calls.get(self.answered).is_some_and(|call| call.state == CallState::Answered) {
            self.answered += 1;
        }
        true
    }

    /// What runs is to end.
    pub(crate) fn stop(&mut self) {
        let stop = |want: &Want| match want {
            Want::Run(call) => Want::Stop(*call),
            other => *other,
        };
        self.wants = self.wants.iter().map(stop).collect();
    }

    /// What the calls that run call for.
    pub(crate) fn wants(&self) -> &OrdSet<Want> {
        &self.wants
    }

    /// Whether every call has its result.
    pub fn is_answered(&self) -> bool {
        self.answered == self.calls.len()
    }

    /// Whether a call runs that does more than wait for other agents.
    pub(crate) fn is_working(&self) -> bool {
        !self.working.is_empty()
    }

    /// The waiting calls that may start now, in the model's order, when `parallel_max` may run beside each other.
    /// Exclusive ones are barriers; those that only wait for other agents count for nothing.
    pub(crate) fn startable(&self, parallel_max: usize) -> Vec<usize> {
        let overlap = |at: &usize| self.calls.get(*at).map(|call| call.overlap);
        // Calls start in order, so whatever runs stands before whatever waits.
        if self.working.iter().any(|at| overlap(at) == Some(Overlap::Exclusive)) {
            return vec![];
        }
        let mut pool = parallel_max.max(1).saturating_sub(self.working.len());
        let mut is_first = self.wants.is_empty();
        let mut startable = vec![];
        for at in &self.waiting {
            match overlap(at) {
                Some(Overlap::Exclusive) => {
                    startable.extend(is_first.then_some(*at));
                    break;
                }
                Some(Overlap::Parallel) if pool == 0 => break,
                Some(Overlap::Parallel) => pool -= 1,
                Some(Overlap::Delegation) | None => {}
            }
            startable.push(*at);
            is_first = false;
        }
        startable
    }
}
