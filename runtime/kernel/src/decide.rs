//! Decisions: what an input means in the state that an agent is in, as the events that it leads to.
//!
//! One file for each kind of input. A decision is drafted on a copy (which costs next to nothing), so that each event
//! is made in the state that the one before it left.

mod call;
mod cancel;
mod deliver;
mod fork;
mod judge;
mod model;
mod recover;
mod step;

use std::sync::Arc;

pub use fork::{Boundary, Fork, NoFork};
use serde_json::Value;

use crate::agent::Agent;
use crate::chunk::Chunk;
use crate::event::{Birth, ErrorInfo, Event, Fact, Lane, QueueRule, SeqRanges, SubagentDescribed, TodoWritten};
use crate::id::{CallKey, MessageId, Millis, RunKey};
use crate::judge::{HookAsked, Judgement};
use crate::message::{Block, Message};
use crate::outcome::{Cause, Failure};

/// What an agent is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// It is made: by itself, or from the prefix of another (see [`Agent::fork`]).
    Born {
        /// Where it stands, and what it may do.
        birth: Birth,
        /// What kind of subagent it is; none for a root.
        descriptor: Option<SubagentDescribed>,
        /// For a fork: how many turns of the other it is shown; all without a number.
        last_turns: Option<u32>,
    },
    /// A message. One that was accepted before changes nothing.
    Deliver {
        /// When it is taken up.
        lane: Lane,
        /// Whether it opens a turn when none is open.
        wakes: bool,
        /// The message.
        message: Arc<Message>,
    },
    /// Take a person's message that waits away, or put another in its place. One that no longer waits is left as it is.
    Amend {
        /// Which.
        id: MessageId,
        /// What stands in its place; `None` for nothing.
        with: Option<Arc<Message>>,
    },
    /// End the turn.
    Cancel {
        /// Who, and why.
        cause: Cause,
        /// What becomes of messages that wait.
        queue: QueueRule,
    },
    /// The log was read back: close what a dead process left open.
    Recovered,
    /// It may open a turn.
    SlotGranted,
    /// Some of an attempt's answer, with the time at which each piece came.
    ChunksArrived {
        /// Which attempt.
        run: RunKey,
        /// In order; usage and finish included.
        chunks: Vec<(Millis, Chunk)>,
    },
    /// An attempt is over.
    ModelSettled {
        /// Which attempt.
        run: RunKey,
        /// What failed, unless a finish chunk says so.
        result: Result<(), Failure>,
        /// Anything: spreads the waits of many agents.
        dice: u64,
    },
    /// An attempt cannot be paid for: the turn ends with what there is.
    Unfunded {
        /// Which attempt.
        run: RunKey,
        /// The limit that is in the way.
        limit: String,
        /// Its value.
        max: u64,
    },
    /// The time of a [`crate::turn::Want::Retry`] has come.
    RetryDue {
        /// The attempt that may start.
        run: RunKey,
    },
    /// Somebody was asked at a point of the turn and has answered.
    Judged {
        /// What was asked.
        asked: HookAsked,
        /// The answer.
        judgement: Judgement,
        /// As in [`Input::ModelSettled`].
        dice: u64,
    },
    /// A call has really ended.
    CallSettled {
        /// Which.
        call: CallKey,
        /// What it gave.
        report: CallReport,
    },
}

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallReport {
    /// For the model.
    pub content: Vec<Block>,
    /// Whether it failed.
    pub is_error: bool,
    /// Name and code of the failure, when it has one.
    pub error: Option<ErrorInfo>,
    /// For displays.
    pub meta: Option<Value>,
    /// The todo list that it wrote.
    pub todos: Option<TodoWritten>,
    /// Whether the turn ends with its step.
    pub concludes: bool,
    /// What the turn was to come out with; the turn ends with it.
    pub output: Option<Arc<Value>>,
    /// Messages that this result contains. In the same append they are accepted, if they were not before, and taken out
    /// of the inbox, if they wait there: nobody is told twice.
    pub claims: Vec<Arc<Message>>,
    /// What joins the next step, behind the results of this one, without waking the agent.
    pub contexts: Vec<Arc<Message>>,
    /// Under which id the result is accepted, when it is something that could come again as a message.
    pub id: Option<MessageId>,
}

impl CallReport {
    /// A failure that the model is told as `Error: <message>`.
    pub fn failed(name: &str, code: &str, message: &str) -> Self {
        Self {
            content: vec![Block::text(format!("Error: {message}"))],
            is_error: true,
            error: Some(ErrorInfo { name: name.into(), code: code.into() }),
            ..Self::default()
        }
    }
}

/// Why an input changes nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It reports on something that is over.
    #[error("the report is late: what it speaks of is over")]
    Stale,
    /// It asks for a turn while one is open, or while nothing waits.
    #[error("no turn can open now")]
    NoTurn,
    /// It was born before.
    #[error("the agent was born before")]
    BornTwice,
}

impl Agent {
    /// Decides and folds: what happened, which the caller writes down. What is refused changes nothing.
    pub fn tell(&mut self, input: Input, now: Millis) -> Result<Vec<Arc<Event>>, Refused> {
        let events = self.decide(input, now)?;
        for event in &events {
            // What is decided was drafted in this very state: INV LOG-2.
            self.apply(event).expect("a decided event applies");
        }
        Ok(events)
    }

    /// What `input` leads to. Reads, never changes; empty when there is nothing to do.
    pub fn decide(&self, input: Input, now: Millis) -> Result<Vec<Arc<Event>>, Refused> {
        match input {
            Input::Born { birth, descriptor, last_turns } => self.decide_born(birth, descriptor, last_turns, now),
            Input::Deliver { lane, wakes, message } => Ok(self.decide_deliver(lane, wakes, message, now)),
            Input::Amend { id, with } => Ok(self.decide_amend(&id, with, now)),
            Input::Cancel { cause, queue } => Ok(self.decide_cancel(cause, queue, now)),
            Input::Recovered => Ok(self.decide_recovered()),
            Input::SlotGranted => self.decide_slot_granted(now),
            Input::ChunksArrived { run, chunks } => self.decide_chunks(run, chunks),
            Input::ModelSettled { run, result, dice } => self.decide_model_settled(run, result, dice, now),
            Input::Unfunded { run, limit, max } => self.decide_unfunded(run, limit, max, now),
            Input::RetryDue { run } => self.decide_retry_due(run, now),
            Input::Judged { asked, judgement, dice } => self.decide_judged(asked, judgement, dice, now),
            Input::CallSettled { call, report } => self.decide_call_settled(call, report, now),
        }
    }
}

/// Events in the making, on a copy of the agent.
pub(crate) struct Draft {
    pub(crate) agent: Agent,
    now: Millis,
    events: Vec<Arc<Event>>,
}

impl Draft {
    fn new(agent: &Agent, now: Millis) -> Self {
        Self { agent: agent.clone(), now, events: vec![] }
    }

    /// Adds the next event.
    fn say(&mut self, fact: Fact) {
        self.add(fact, None);
    }

    /// Adds the next event, made from `sources`.
    fn say_from(&mut self, fact: Fact, sources: SeqRanges) {
        self.add(fact, Some(sources));
    }

    fn add(&mut self, fact: Fact, sources: Option<SeqRanges>) {
        self.add_event(Event { sources, ..Event::new(self.agent.log.next_seq(), self.now, fact) });
    }

    fn add_event(&mut self, event: Event) {
        let event = Arc::new(event);
        // A draft takes the next place by construction, appends to the surface, and splices what it has just looked at.
        self.agent.apply(&event).expect("a drafted event fits the state that it was drafted in");
        self.events.push(event);
    }

    fn done(self) -> Vec<Arc<Event>> {
        self.events
    }
}
