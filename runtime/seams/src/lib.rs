//! The sockets of Impresario: what the actors need from the world, as traits over plain values.
//!
//! Backends implement these and know nothing of actors; tests implement them with scripts.

pub mod approver;
pub mod hook;
pub mod model;
pub mod observed;
pub mod store;
pub mod subagents;
pub mod tool;
pub mod workspaces;

pub use approver::{Approver, Question};
pub use hook::{
    AfterFailure, Afterwards, Beginning, Hook, HookCall, HookResult, Notice, Place, RequestFailed, RequestPlanned,
    SessionStarted, StepProposed, StepVerdict, ToolRun, TurnStops, Verdict,
};
pub use impresario_kernel::Point;
pub use model::{ChunkStream, Model, ModelRequest, ModelScope};
pub use observed::{Observed, ObservedEvent};
pub use store::{
    Batch, Checkpoint, Commit, ForkRef, Head, Lease, NewSession, SessionFilter, SessionInfo, Store, StoreError,
    TurnState,
};
pub use subagents::{Capabilities, SubagentRequest, Subagents};
pub use tool::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
pub use workspaces::{Workspace, Workspaces};
