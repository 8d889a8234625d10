//! Somebody who looks at calls on their way, and may have a say.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use impresario_kernel::{AgentId, AgentPath, Block, CallId};
use serde_json::Value;

/// A hook. Every method has a default that changes nothing.
///
/// Hooks are asked in the order in which they were registered. Where they decide they fail closed: a hook that panics
/// or takes longer than its [`Hook::timeout`] denies the call, or hides its result. What a hook is shown is shared and
/// cannot change under it: the tool gets the very input that was judged.
pub trait Hook: Send + Sync + 'static {
    /// What it is called in errors.
    fn name(&self) -> &str;

    /// How long one decision may take.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Before a call runs. The first that denies ends it; if one asks, somebody is asked when all have spoken.
    fn pre_execute(&self, call: Arc<HookCall>) -> BoxFuture<'static, Verdict> {
        drop(call);
        ready(Verdict::Allow).boxed()
    }

    /// The last word before a call runs, whoever allowed it: a reason to deny it, if there is one.
    fn guard(&self, call: Arc<HookCall>) -> BoxFuture<'static, Option<String>> {
        drop(call);
        ready(None).boxed()
    }

    /// After a call ran, before the model sees its result. Not asked for calls that were denied, nor for those that
    /// only wait for other agents.
    fn post_execute(&self, call: Arc<HookCall>, result: Arc<HookResult>) -> BoxFuture<'static, Afterwards> {
        drop((call, result));
        ready(Afterwards::Accept).boxed()
    }
}

/// A call as hooks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// Who calls.
    pub agent: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub input: Value,
}

/// A result as hooks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct HookResult {
    /// What the model would see.
    pub content: Vec<Block>,
    /// Whether the call failed.
    pub is_error: bool,
}

/// What becomes of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It may run, as far as this hook goes.
    Allow,
    /// It does not run.
    Deny {
        /// For the model.
        reason: String,
    },
    /// Somebody must say yes; with nobody to ask it does not run.
    Ask {
        /// What to ask, in a line.
        question: String,
    },
}

/// What becomes of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Afterwards {
    /// The model sees it.
    Accept,
    /// The model sees this instead.
    Replace {
        /// The other content.
        content: Vec<Block>,
    },
    /// The model is told that the result is withheld, and why.
    Block {
        /// For the model.
        reason: String,
    },
}
