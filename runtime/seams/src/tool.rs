//! Something that a model can call.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use impresario_kernel::{Access, AgentId, Block, CallId, ErrorInfo, TodoWritten, ToolSchema};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use impresario_kernel::Overlap;

/// Something that a model can call.
pub trait Tool: Send + Sync + 'static {
    /// What the model is told. The same value each time: requests must start with the same bytes.
    fn schema(&self) -> Arc<ToolSchema>;

    /// How its calls may overlap.
    fn overlap(&self) -> Overlap;

    /// The least access that an agent needs to be offered it.
    fn access(&self) -> Access;

    /// Runs one call. `input` is what the model sent, parsed; a tool checks it and answers
    /// [`ToolError::invalid`] for what does not fit.
    ///
    /// When `ctx.cancel` trips, the tool stops what it started and returns as soon as that has really ended.
    fn run(&self, input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// Where a call runs, and for whom.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The calling agent.
    pub agent: AgentId,
    /// The call.
    pub call: CallId,
    /// The folder that the agent works in: absolute, symlinks resolved. Paths stay inside.
    pub dir: PathBuf,
    /// What the agent may do there.
    pub access: Access,
    /// Trips when the call is to stop.
    pub cancel: CancellationToken,
}

/// What a call gave.
#[derive(Clone, Debug, Default)]
pub struct ToolOutput {
    /// For the model.
    pub content: Vec<Block>,
    /// For displays; never shown to the model.
    pub meta: Option<Value>,
    /// The todo list that the call wrote, if it is that tool.
    pub todos: Option<TodoWritten>,
}

impl ToolOutput {
    /// An output of one text block.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { content: vec![Block::text(text)], ..Self::default() }
    }
}

/// Why a call failed: told to the model as `Error: <message>`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// For the model: what, where, what to do.
    pub message: String,
    /// For programs.
    pub info: Option<ErrorInfo>,
}

impl ToolError {
    /// A failure without a code.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), info: None }
    }

    /// A failure with a name and a code.
    pub fn coded(name: &str, code: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), info: Some(ErrorInfo { name: name.into(), code: code.into() }) }
    }

    /// Arguments that do not fit: `ToolArgsError`, `INVALID_ARGS`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::coded("ToolArgsError", "INVALID_ARGS", message)
    }

    /// The call was cancelled after it had started: `AbortError`, `ABORTED`.
    pub fn aborted() -> Self {
        Self::coded("AbortError", "ABORTED", "tool call aborted")
    }
}
