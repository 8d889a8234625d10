//! Turns as hooks see them.

use std::sync::Arc;

use impresario_kernel::{AgentId, AgentPath, Failure, Message, RequestConfig, TodoItem};

/// Which step of which agent something is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Whose.
    pub agent: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// Turn number, from 1.
    pub turn: u32,
    /// Step in the turn, from 1.
    pub step: u32,
}

/// An agent is about to take its first step in this life of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionStarted {
    /// That step.
    pub place: Place,
    /// Why it is the first.
    pub beginning: Beginning,
}

/// Why a session starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Beginning {
    /// It is new: its agent was made just now, perhaps as a fork.
    Startup,
    /// It was opened again.
    Resume,
}

/// A step is about to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProposed {
    /// Which.
    pub place: Place,
    /// What it would put before the model, in order; empty when all it does is show the results of calls.
    pub messages: Vec<Arc<Message>>,
}

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepVerdict {
    /// It begins, as far as this hook goes.
    Enter,
    /// It begins with these messages, all of them a user's. With none at all the turn ends, unless the model is owed
    /// the results of calls.
    Rewrite {
        /// In order.
        messages: Vec<Arc<Message>>,
    },
    /// It begins with this behind its messages.
    Add {
        /// For the model.
        context: String,
    },
    /// It does not begin, and the turn ends `blocked`. What was to be shown is never shown.
    Reject {
        /// For people.
        reason: String,
    },
}

/// A model is about to be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestPlanned {
    /// In which step.
    pub place: Place,
    /// Which attempt of the step, from 0.
    pub attempt: u32,
    /// The settings.
    pub config: RequestConfig,
}

/// A request failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFailed {
    /// In which step.
    pub place: Place,
    /// Which attempt of the step, from 0.
    pub attempt: u32,
    /// The settings that it had.
    pub config: RequestConfig,
    /// Why.
    pub failure: Failure,
}

/// What follows a failed request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AfterFailure {
    /// What the retry policy says, as far as this hook goes.
    Policy,
    /// Another attempt, whatever failed, as long as the policy's number of retries is not used up.
    Retry {
        /// How long to wait, in milliseconds; `None` waits as the policy says.
        delay_ms: Option<u64>,
    },
    /// None.
    GiveUp,
}

/// The model is done, and the turn is about to end.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnStops {
    /// The last step.
    pub place: Place,
    /// The last text that the agent said in this turn.
    pub text: Option<Arc<str>>,
    /// The todo list, if this turn wrote it.
    pub todos: Option<Vec<TodoItem>>,
    /// Whether an answer of this turn ran into the output limit.
    pub is_cut: bool,
    /// The hooks that have let this turn go on before, in order.
    pub steered: Vec<String>,
}

/// Something to say to a model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// For the model.
    pub text: String,
    /// For displays, in a line.
    pub summary: Option<String>,
}
