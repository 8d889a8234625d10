//! Points of a turn at which somebody outside may have a say, and what can be said there.
//!
//! That it was asked and what was said are in the log, so that the state of an agent that waits for a say is a fold
//! like any other. A point that nobody wants to be asked at costs nothing.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::RequestConfig;
use crate::message::Message;

/// A point of a turn.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// Before the first step since the agent was made or its session was opened again.
    SessionStart,
    /// Before a step, with the messages that it would put before the model.
    PreStep,
    /// Before a model is asked, with the settings of the request.
    Request,
    /// When a model call has failed.
    RequestError,
    /// When the model is done and the turn would end.
    TurnStopping,
}

impl Point {
    /// Every point, in the order of a turn.
    pub const ALL: [Self; 5] =
        [Self::SessionStart, Self::PreStep, Self::Request, Self::RequestError, Self::TurnStopping];

    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => "session-start",
            Self::PreStep => "pre-step",
            Self::Request => "request",
            Self::RequestError => "request-error",
            Self::TurnStopping => "turn-stopping",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One question: fences late answers. As a fact, that it was asked.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct HookAsked {
    /// The open turn.
    pub turn: u32,
    /// The step that it is about: the next one at [`Point::SessionStart`] and [`Point::PreStep`], the last one at
    /// [`Point::TurnStopping`], the open one otherwise.
    pub step: u32,
    /// The attempt that it is about, from 0; 0 between steps.
    #[serde(default, skip_serializing_if = "is_first")]
    pub attempt: u32,
    /// Where.
    pub point: Point,
}

fn is_first(attempt: &u32) -> bool {
    *attempt == 0
}

impl fmt::Display for HookAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{}.{}", self.point, self.turn, self.step, self.attempt)
    }
}

/// What came of a question.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HookJudged {
    /// The open turn.
    pub turn: u32,
    /// As asked.
    pub step: u32,
    /// Where.
    pub point: Point,
    /// What came of it.
    pub decision: Decision,
    /// Who made it so; empty when nobody objected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What came of a question, in a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Nobody objected.
    Passed,
    /// It goes on with something changed or added.
    Changed,
    /// The step does not begin.
    Rejected,
    /// The model is asked again, whatever the retry policy says.
    Retried,
    /// The model is not asked again, whatever the retry policy says.
    GaveUp,
    /// The turn goes on.
    Steered,
    /// A hook failed.
    Failed,
}

/// What was said at a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// At [`Point::SessionStart`]: these are put before the model, ahead of everything else.
    SessionStart(Vec<Said<Arc<Message>>>),
    /// At [`Point::PreStep`].
    PreStep(Entry),
    /// At [`Point::Request`]: the settings to use, and who changed them.
    Request(Option<Said<RequestConfig>>),
    /// At [`Point::RequestError`].
    RequestError(Recovery),
    /// At [`Point::TurnStopping`]: with any of these the turn goes on.
    TurnStopping(Vec<Said<Arc<Message>>>),
    /// Somebody failed to say anything: what that means depends on the point.
    Failed {
        /// Where.
        point: Point,
        /// Whose failure.
        hook: String,
        /// Why, for people.
        why: String,
    },
}

/// Something and who said it.
#[derive(Clone, Debug, PartialEq)]
pub struct Said<T> {
    /// Who.
    pub hook: String,
    /// What.
    pub what: T,
}

/// What a step begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The messages that were shown.
    Pass,
    /// These messages instead.
    Enter {
        /// In order. None at all ends a turn that owes the model nothing.
        messages: Vec<Arc<Message>>,
        /// Who changed them.
        hooks: Vec<String>,
    },
    /// Nothing: the turn ends.
    Reject(Said<String>),
}

/// What follows a failed model call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Recovery {
    /// What the retry policy says.
    Policy,
    /// One more attempt, if the policy's number of retries allows it.
    Retry {
        /// Who said so.
        hook: String,
        /// How long to wait, in milliseconds; `None` waits as the policy says.
        delay_ms: Option<u64>,
    },
    /// None.
    GiveUp {
        /// Who said so.
        hook: String,
    },
}

impl Judgement {
    /// At which point this is said.
    pub fn point(&self) -> Point {
        match self {
            Self::SessionStart(_) => Point::SessionStart,
            Self::PreStep(_) => Point::PreStep,
            Self::Request(_) => Point::Request,
            Self::RequestError(_) => Point::RequestError,
            Self::TurnStopping(_) => Point::TurnStopping,
            Self::Failed { point, .. } => *point,
        }
    }
}
