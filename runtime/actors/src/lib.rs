//! The shell of Impresario: ractor actors that feed the kernel and perform what it wants.

mod address;
mod agent;
#[doc(hidden)]
pub mod bare;
mod builder;
mod capacity;
mod chance;
mod checkpoints;
mod delegation;
mod durability;
mod error;
mod fan_out;
mod feed;
mod follow;
mod halts;
mod handle;
mod hooks;
mod journal;
mod limits;
mod output;
mod pipeline;
mod prices;
mod profile;
mod providers;
mod receipt;
mod recovery;
mod root;
mod router;
mod runtime;
mod sampling;
mod shared;
mod spec;
mod supervisor;

pub use builder::RuntimeBuilder;
pub use capacity::{Capacity, LiveLimits};
pub use durability::Durability;
pub use error::Error;
pub use fan_out::{FanOut, Settled};
pub use feed::{Seen, Subscription};
pub use handle::AgentHandle;
pub use limits::Limits;
pub use output::OutputSchema;
pub use prices::{Price, PriceTable};
pub use receipt::{AgentEnd, Receipt};
pub use runtime::Runtime;
pub use spec::{AgentSpec, Answerer};
