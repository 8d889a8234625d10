//! One agent: told something, steered, interrupted, and asked what was said.
//!
//! `cargo run -p impresario-examples --bin one_agent`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use impresario::models::scripted::ScriptedModel;
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Runtime};

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::builtin()).build().await?;
    let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;

    // Read at the next step, whenever that is; opens nothing by itself.
    agent.inject("Be brief.").await?;
    // Opens a turn. When this returns, the message is durable.
    agent.followup("[[SAY hello]]").await?;
    if let Some(outcome) = agent.wait().await? {
        println!("{}: {}", outcome.kind, outcome.text);
    }

    for message in agent.transcript().await?.iter().skip(1) {
        println!("{:?}: {}", message.role, message.text());
    }
    runtime.shutdown().await
}
