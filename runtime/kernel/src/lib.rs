//! The pure decisions of Impresario.
//!
//! No tokio, no IO, no clock, no randomness, no logging: time, ids and dice enter as arguments, and what should
//! happen comes out as values. `decide` reads, `apply` folds, `wants` names the work that should be in flight.

pub mod chunk;
pub mod event;
pub mod header;
pub mod id;
pub mod message;
pub mod outcome;
pub mod wire;

pub use chunk::{Chunk, ChunkRun, FinishReason, RunKind};
pub use event::*;
pub use header::{HeaderError, SessionHeader};
pub use id::{AgentId, AgentPath, CallId, CallKey, MessageId, Millis, RunKey, Seq};
pub use message::{Block, Message, Role, Source};
pub use outcome::{Cause, Failure, Outcome, OutcomeKind, Spent, TurnEnd, Usage};
