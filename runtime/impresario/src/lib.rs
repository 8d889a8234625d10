//! Run trees of LLM agents that you can bound, stop, kill and resume without losing a result.
//!
//! ```
//! use std::sync::Arc;
//!
//! use impresario::models::scripted::ScriptedModel;
//! use impresario::stores::MemoryStore;
//! use impresario::{AgentSpec, Runtime};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> impresario::Result<()> {
//! let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).build().await?;
//! let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;
//! agent.followup("[[FANOUT n=3 tool=subagent]]").await?;
//! let receipt = runtime.quiesce(agent.id()).await?;
//! assert_eq!(receipt.agents.len(), 4);
//! runtime.shutdown().await
//! # }
//! ```

#[doc(hidden)]
pub use impresario_actors::bare;
pub use impresario_actors::{
    AgentEnd, AgentHandle, AgentSpec, Answerer, Capacity, Durability, Error, FanOut, Limits, LiveLimits, OutputSchema,
    Price, PriceTable, Receipt, Runtime, RuntimeBuilder, Seen, Settled, Subscription,
};
pub use impresario_kernel as kernel;
pub use impresario_models as models;
pub use impresario_seams as seams;
pub use impresario_stores as stores;
#[cfg(feature = "tools")]
pub use impresario_tools as tools;

/// `Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
