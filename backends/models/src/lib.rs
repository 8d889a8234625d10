//! Models for Impresario: scripted, OpenAI-compatible, and the scripted model as a server.

#[cfg(feature = "openai")]
pub mod openai;
#[cfg(feature = "scripted")]
pub mod scripted;
#[cfg(feature = "serve")]
pub mod serve;
