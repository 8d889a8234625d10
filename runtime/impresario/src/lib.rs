//! Run trees of LLM agents that you can bound, stop, kill and resume without losing a result.

pub use impresario_actors::{
    AgentEnd, AgentHandle, AgentSpec, Error, Limits, Options, Receipt, Runtime, Seen, Subscription,
};
pub use impresario_kernel as kernel;
pub use impresario_models as models;
pub use impresario_seams as seams;
pub use impresario_stores as stores;
#[cfg(feature = "tools")]
pub use impresario_tools as tools;

/// `Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
