//! Calls as hooks see them.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use impresario_kernel::{AgentId, AgentPath, Block, CallId};
use serde_json::Value;

use crate::tool::{ToolError, ToolOutput};

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
    /// The model sees it, and this behind the results of the step.
    Add {
        /// For the model.
        context: String,
    },
    /// The model is told that the result is withheld, and why.
    Block {
        /// For the model.
        reason: String,
    },
}

/// The rest of a call: the hooks that are still to wrap it, and the tool. May be run more than once.
#[derive(Clone)]
pub struct ToolRun(Arc<Run>);

type Run = dyn Fn() -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

impl ToolRun {
    /// What `run` does.
    pub fn new(run: impl Fn() -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(run))
    }

    /// Runs it, once for each time that this is called.
    pub fn run(&self) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.0)()
    }
}

impl fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolRun")
    }
}
