//! Someone who can say yes.

use futures::future::BoxFuture;
use impresario_kernel::{AgentId, AgentPath};

/// Answers questions before a call runs. Without one, every question is answered no, at once.
pub trait Approver: Send + Sync + 'static {
    /// Whether the call may run, this once.
    fn ask(&self, question: Question) -> BoxFuture<'static, bool>;
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Who wants to run it.
    pub agent: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// The tool.
    pub tool: String,
    /// What it would do, in a line: the command, for a shell.
    pub what: String,
}
