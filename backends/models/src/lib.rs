//! Models for Impresario: scripted, OpenAI-compatible, the scripted model as a server, and what any of them said, kept and
//! replayed.

#[cfg(any(feature = "openai", feature = "scripted"))]
mod aside;
#[cfg(any(feature = "openai", feature = "serve"))]
mod asker;
#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "replay")]
pub mod replay;
#[cfg(feature = "scripted")]
pub mod scripted;
#[cfg(feature = "serve")]
pub mod serve;
