//! What an observer of a runtime sees, as it happens.
//!
//! Facts that matter to people, not the log itself: the log is in the store. Shared, never copied per observer.

use std::sync::Arc;

use impresario_kernel::{AgentId, AgentPath, CallId, Context, Millis, Outcome};

/// One thing that happened to one agent.
#[derive(Clone, Debug)]
pub struct ObservedEvent {
    /// When.
    pub time: Millis,
    /// The root of the tree.
    pub root: AgentId,
    /// To whom.
    pub agent: AgentId,
    /// Where it stands.
    pub path: AgentPath,
    /// Its parent; none for a root.
    pub parent: Option<AgentId>,
    /// What.
    pub what: Observed,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Observed {
    /// It waits for a turn slot.
    Queued {
        /// How many turns may run at once.
        limit: usize,
        /// Its place in the queue, from 1.
        position: usize,
    },
    /// It was born.
    Started {
        /// What it is for.
        label: String,
        /// How much of its parent's context it has.
        context: Context,
        /// `provider:model`.
        model: String,
    },
    /// A turn began.
    TurnStarted {
        /// Which.
        turn: u32,
    },
    /// Some text arrived.
    TextDelta {
        /// The new text.
        text: Arc<str>,
    },
    /// The model's answer is whole.
    Message {
        /// Its visible text; may be empty when it only calls tools.
        text: Arc<str>,
    },
    /// A call began.
    ToolStarted {
        /// Which.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments as the model wrote them.
        input: Arc<str>,
    },
    /// A call was answered.
    ToolEnded {
        /// Which.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Whether it failed.
        is_error: bool,
        /// What the model sees.
        text: Arc<str>,
    },
    /// A failed model call will be tried again.
    Retry {
        /// Of the failure.
        code: String,
        /// How long the wait is, in milliseconds.
        wait_ms: u64,
        /// From 1.
        attempt: u32,
    },
    /// A limit was reached.
    LimitReached {
        /// Which.
        limit: String,
        /// How much is in use.
        used: u64,
        /// Its value.
        max: u64,
    },
    /// The store fails; work waits for it.
    Stalled {
        /// What the store said.
        error: String,
    },
    /// A turn is over and came out as this.
    Ended {
        /// How, with text and what was spent.
        outcome: Arc<Outcome>,
        /// From the turn's start, in milliseconds.
        duration_ms: u64,
    },
}
