//! Who runs subagents that are not agents of this runtime: other programs, other machines.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use impresario_kernel::{Access, AgentId, AgentPath, Block, Failure, Message};
use serde_json::Value;

use crate::model::ChunkStream;

/// A provider of subagents. A child of it is an agent like any other: it has a session, an inbox, a place in its tree and
/// an outcome of each turn; only what happens in its turns is the provider's.
///
/// One turn is one [`Subagents::run`]. It may act on the world, so it is tried again only when it fails in a way that
/// [`Failure::is_retryable`] says is one to retry.
pub trait Subagents: Send + Sync + 'static {
    /// How `subagent {provider}` asks for it. `spawn` and `fork` are this runtime's own.
    fn name(&self) -> &str;

    /// What it can do. What it cannot do is refused before a child is born, never ignored.
    fn capabilities(&self) -> Capabilities;

    /// Runs one turn. Dropping the future or the stream ends it and all that it has started.
    ///
    /// Where an output is required, the stream calls the tool `final_output` with it; one that does not fit is answered
    /// with the reason, in another run of the same turn.
    fn run(&self, request: SubagentRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>>;
}

/// What a provider of subagents can do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Capabilities {
    /// Begin with the conversation of the parent: `context: "fork"`.
    pub fork: bool,
    /// Take the name of a model: `model`.
    pub model: bool,
    /// Give an output that fits a JSON Schema: `output_schema`.
    pub output_schema: bool,
    /// Keep to a list of tools: `tools`.
    pub tool_filter: bool,
    /// Bound the subagents of its own: `may_spawn`.
    pub depth_limit: bool,
    /// Have more than one turn.
    pub continuable: bool,
}

impl Capabilities {
    /// All of them.
    pub const ALL: Self =
        Self { fork: true, model: true, output_schema: true, tool_filter: true, depth_limit: true, continuable: true };
}

/// One turn of a subagent.
#[derive(Clone, Debug)]
pub struct SubagentRequest {
    /// The agent.
    pub agent: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// Which of its turns, from 1.
    pub turn: u32,
    /// The provider's name for what it is to run.
    pub model: String,
    /// The folder it works in.
    pub dir: PathBuf,
    /// What it may do there.
    pub access: Access,
    /// The tools of its parent that it may use: who knows [`Capabilities::tool_filter`] keeps to them.
    pub tools: Vec<String>,
    /// How many agents it may have below it.
    pub may_spawn: u32,
    /// What it has to come out with.
    pub output_schema: Option<Arc<Value>>,
    /// The whole conversation.
    pub messages: Vec<Arc<Message>>,
}

impl SubagentRequest {
    /// What it was told since it last said something, the runtime's own notes left out.
    pub fn prompt(&self) -> String {
        let is_new = |message: &&Arc<Message>| message.source.kind != "model";
        let new: Vec<_> = self.messages.iter().rev().take_while(is_new).collect();
        let told = new.into_iter().rev().filter(|message| message.source.kind != "plugin");
        let texts: Vec<&str> = told.flat_map(|message| &message.content).filter_map(text).collect();
        texts.join("\n\n")
    }
}

/// What a block says, whether somebody wrote it or a call gave it.
fn text(block: &Block) -> Option<&str> {
    match block {
        Block::ToolResult { content, .. } => content.iter().find_map(Block::as_text),
        other => other.as_text(),
    }
}
