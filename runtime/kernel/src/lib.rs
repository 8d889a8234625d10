//! The pure decisions of Impresario.
//!
//! No tokio, no IO, no clock, no randomness, no logging: time, ids and dice enter as arguments, and what should
//! happen comes out as values. `decide` reads, `apply` folds, `wants` names the work that should be in flight.

pub mod admission;
pub mod agent;
pub mod assembler;
pub mod budget;
pub mod checkpoint;
pub mod chunk;
pub mod decide;
pub mod event;
pub mod header;
pub mod id;
pub mod inbox;
pub mod invariant;
pub mod judge;
pub mod ledger;
pub mod log;
pub mod message;
pub mod outcome;

pub mod spec;
pub mod surface;
pub mod tree;
pub mod turn;
pub mod wire;
pub mod wishes;

pub use agent::{Agent, Broken};
pub use budget::{Budget, Funds, Resource, Window};
pub use chunk::{Chunk, ChunkRun, FinishReason, RunKind};
pub use decide::{Boundary, CallReport, Fork, Input, NoFork, Refused};
pub use event::*;
pub use header::{HeaderError, SessionHeader};
pub use id::{AgentId, AgentPath, CallId, CallKey, ChargeId, MessageId, Millis, RunKey, Seq};
pub use judge::{Entry, HookAsked, Judgement, Point, Recovery, Said};
pub use log::Log;
pub use message::{Block, Message, Role, Source};
pub use outcome::{Cause, Failure, Outcome, OutcomeKind, Spent, TurnEnd, Usage};
pub use spec::{Overlap, RestartPolicy, RetryPolicy, Spec, TurnLimits};
pub use turn::Want;
