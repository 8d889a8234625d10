//! How things end: failures of a model, causes of a cancel, reasons of a turn, outcomes of an agent, and what it all cost.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::Resource;

/// Why a model call failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// For people; never empty.
    pub message: String,
    /// For programs: `RATE_LIMIT`, `AUTH`, `TRANSPORT`, … (`behaviour` of the adapters lists them).
    pub code: String,
    /// HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asked to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_retry_after_ms: Option<u64>,
    /// The provider's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Failure {
    /// A failure with a code and a text.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: code.into(),
            status: None,
            provider_retry_after_ms: None,
            request_id: None,
        }
    }

    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        ["EMPTY_RESPONSE", "MALFORMED_RESPONSE", "RATE_LIMIT", "SERVER", "STREAM_CLOSED", "TIMEOUT", "TRANSPORT"]
            .contains(&self.code.as_str())
    }

    /// Whether no request to this provider can work: key, payment, model, or nobody there.
    pub fn is_provider_unusable(&self) -> bool {
        ["AUTH", "QUOTA", "MISSING_CREDENTIAL", "INVALID_CREDENTIAL", "UNKNOWN_MODEL", "TRANSPORT"]
            .contains(&self.code.as_str())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// Who ended a turn, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// A person.
    User {
        /// In the person's or the program's words (`SIGINT`, `timeout`, `output_closed`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An ancestor.
    Parent,
    /// A hook.
    Hook {
        /// What the hook said.
        reason: String,
    },
    /// The runtime is shutting down or gives the agent up.
    Disposed,
    /// A cause of another version: kept.
    #[serde(untagged)]
    Other(Value),
}

impl Cause {
    /// A person, for `reason`.
    pub fn user(reason: &str) -> Self {
        Self::User { reason: Some(reason.into()) }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { reason: Some(reason) } => write!(f, "by the user ({reason})"),
            Self::User { reason: None } => f.write_str("by the user"),
            Self::Parent => f.write_str("by its parent"),
            Self::Hook { reason } => write!(f, "by a hook ({reason})"),
            Self::Disposed => f.write_str("by shutdown"),
            Self::Other(value) => write!(f, "by {value}"),
        }
    }
}

/// Why a turn ended, in the wire form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TurnEnd {
    /// The model was done.
    Completed,
    /// Cancelled.
    Aborted {
        /// By whom, and why.
        reason: Cause,
    },
    /// A hook did not let the prompt in.
    Blocked {
        /// What the hook said; logs of other programs do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A model call or the machinery failed.
    Error {
        /// In which step; logs of other programs may not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        /// What failed.
        error: Failure,
    },
    /// The output limit was reached in one of its steps.
    MaxTokens,
    /// Written by repair: the process ended first.
    Interrupted,
    /// Closes the parent's open turn at the head of a fork.
    Forked,
    /// A ceiling of the turn was reached.
    Limit {
        /// Which: `steps`, `tool_calls`, `tokens`, `wall_ms`, or one of a budget: `budget_tokens`, `budget_micro_usd`,
        /// `budget_tool_calls`, `budget_wall_ms`.
        limit: String,
        /// Its value.
        max: u64,
    },
    /// A reason of another version: kept.
    #[serde(untagged)]
    Other(Value),
}

/// How a turn of an agent came out. Each ended turn has exactly one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    /// Done.
    Completed,
    /// Cut short by a limit, with what there was until then.
    Partial,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
    /// The process or the agent died under it.
    Crashed,
    /// Never let in: a hook, a limit, a cancelled parent.
    Refused,
}

impl OutcomeKind {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Crashed => "crashed",
            Self::Refused => "refused",
        }
    }

    /// What a turn that ended for `end` comes out as.
    pub fn of(end: &TurnEnd) -> Self {
        match end {
            TurnEnd::Completed => Self::Completed,
            TurnEnd::Aborted { .. } => Self::Cancelled,
            TurnEnd::Blocked { .. } => Self::Refused,
            TurnEnd::Error { .. } => Self::Failed,
            TurnEnd::MaxTokens | TurnEnd::Limit { .. } => Self::Partial,
            TurnEnd::Interrupted | TurnEnd::Forked => Self::Crashed,
            TurnEnd::Other(_) => Self::Failed,
        }
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How one turn of an agent came out, with its text so far and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The turn.
    pub turn: u32,
    /// The kind.
    pub kind: OutcomeKind,
    /// Why the turn ended.
    pub end: TurnEnd,
    /// The last text the agent itself said in this turn; empty if none.
    pub text: Arc<str>,
    /// What it was to come out with, if anything was asked for and given.
    pub output: Option<Arc<Value>>,
    /// What the agent spent so far, all turns, descendants apart.
    pub spent: Spent,
}

impl Outcome {
    /// What it came out with: its output as JSON, if there is one, and else its text.
    pub fn answer(&self) -> Arc<str> {
        self.output.as_ref().map_or_else(|| Arc::clone(&self.text), |output| output.to_string().into())
    }

    /// What failed, if something did.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.end {
            TurnEnd::Error { error, .. } => Some(error),
            TurnEnd::Completed
            | TurnEnd::Aborted { .. }
            | TurnEnd::Blocked { .. }
            | TurnEnd::MaxTokens
            | TurnEnd::Interrupted
            | TurnEnd::Forked
            | TurnEnd::Limit { .. }
            | TurnEnd::Other(_) => None,
        }
    }

    /// One sentence on why it is not `completed`; empty when it is.
    pub fn why(&self) -> String {
        match &self.end {
            TurnEnd::Completed => String::new(),
            TurnEnd::Aborted { reason } => format!("cancelled {reason}"),
            TurnEnd::Blocked { reason: None } => "its prompt was not let in".into(),
            TurnEnd::Blocked { reason: Some(reason) } => format!("its prompt was not let in: {reason}"),
            TurnEnd::Error { error, .. } => error.to_string(),
            TurnEnd::MaxTokens => "the output limit was reached".into(),
            TurnEnd::Interrupted => "the process ended under it".into(),
            TurnEnd::Forked => "the turn belongs to the parent".into(),
            TurnEnd::Limit { limit, max } => {
                match Resource::ALL.into_iter().find(|resource| resource.as_str() == limit) {
                    Some(resource) => format!("the budget of {} has no room for another call", resource.show(*max)),
                    None => format!("its limit of {max} {} was reached", limit.replace('_', " ")),
                }
            }
            TurnEnd::Other(reason) => format!("ended for {reason}"),
        }
    }
}

/// Tokens of one model call. `input_tokens` does not contain the cached ones; reasoning is part of the output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Input that was not cached.
    #[serde(default)]
    pub input_tokens: u64,
    /// Output.
    #[serde(default)]
    pub output_tokens: u64,
    /// Input that came from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    /// Input that was written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// The part of the output that was reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

/// What an agent spent: sums over its own calls. A call whose usage the provider did not tell is counted, not guessed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Of these, cached.
    pub cached_input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Of these, reasoning.
    pub reasoning_tokens: u64,
    /// Model calls.
    pub model_calls: u64,
    /// Of these, calls whose usage is unknown.
    pub unmetered_calls: u64,
    /// Tool calls that started.
    pub tool_calls: u64,
}

impl Spent {
    /// Counts one model call. What a provider says may be anything, so nothing here overflows.
    pub fn count_call(&mut self, usage: Option<&Usage>) {
        self.model_calls += 1;
        match usage {
            None => self.unmetered_calls += 1,
            Some(usage) => {
                let cached = usage.cache_read_tokens.unwrap_or(0);
                let input = usage.input_tokens.saturating_add(cached);
                self.input_tokens = self.input_tokens.saturating_add(input);
                self.cached_input_tokens = self.cached_input_tokens.saturating_add(cached);
                self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
                self.reasoning_tokens = self.reasoning_tokens.saturating_add(usage.reasoning_tokens.unwrap_or(0));
            }
        }
    }

    /// Adds what another agent spent.
    pub fn add(&mut self, other: &Spent) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.cached_input_tokens, other.cached_input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.reasoning_tokens, other.reasoning_tokens);
        add(&mut self.model_calls, other.model_calls);
        add(&mut self.unmetered_calls, other.unmetered_calls);
        add(&mut self.tool_calls, other.tool_calls);
    }

    /// Input and output together.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Whether any token count is known.
    pub fn is_metered(&self) -> bool {
        self.model_calls > self.unmetered_calls
    }
}
