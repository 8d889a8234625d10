//! A tree is stopped in the middle of its work: the receipt names every agent and how it ended.
//!
//! `cargo run -p impresario-examples --bin cancel_and_rest`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use impresario::kernel::Cause;
use impresario::models::scripted::ScriptedModel;
use impresario::seams::Observed;
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Runtime, Seen};

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::builtin()).build().await?;
    let mut seen = runtime.subscribe();
    let lead = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;
    // Three children that would think for an hour each.
    lead.followup("[[FANOUT n=3 tool=subagent leaf=\"latency=3600000\"]]").await?;

    let mut turns = 0;
    while turns < 4 {
        match seen.next().await {
            Some(Seen::Event(event)) => turns += usize::from(matches!(event.what, Observed::TurnStarted { .. })),
            Some(Seen::Missed(_)) => {}
            None => break,
        }
    }

    let receipt = runtime.stop(lead.id(), Cause::user("enough"), Duration::from_secs(10)).await?;
    for agent in &receipt.agents {
        let outcome = agent.outcome.map_or("nothing yet", |outcome| outcome.as_str());
        println!("{}: {outcome}", agent.path);
    }
    println!("at rest: {}", receipt.at_rest());
    runtime.shutdown().await
}
