//! One request in, a stream of chunks out.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{AgentId, AgentPath, Chunk, Failure, Message, RequestHeader};

/// The chunks of one attempt. It ends behind `Chunk::Finish`; an `Err` ends it too. Dropping it closes the connection.
pub type ChunkStream = BoxStream<'static, Result<Chunk, Failure>>;

/// A model provider. One call is one attempt: retries belong to the kernel's policy.
pub trait Model: Send + Sync + 'static {
    /// Which provider this is: the part of `provider:model` before the colon.
    fn provider(&self) -> &str;

    /// Starts one attempt. A failure before the first chunk may come as the outer `Err` or as the stream's.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>>;

    /// Whether calls cost nothing and leave the machine alone, so that many may run at once.
    fn is_scripted(&self) -> bool {
        false
    }
}

/// All that a model sees: a pure function of the log.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Route, sampling, system text, tools.
    pub header: Arc<RequestHeader>,
    /// The surface, in order.
    pub messages: Vec<Arc<Message>>,
    /// Who asks, for scripted models, traces and rate limits; never sent to another machine.
    pub scope: ModelScope,
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct ModelScope {
    /// The agent.
    pub agent: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// Turn, from 1.
    pub turn: u32,
    /// Step in the turn, from 1.
    pub step: u32,
    /// Attempt in the step, from 0.
    pub attempt: u32,
}
