//! One lead, three subagents at once, and what became of each of them: a whole program, without a key or a network.
//!
//! `cargo run -p impresario-examples --bin delegate`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use impresario::models::scripted::ScriptedModel;
use impresario::seams::Observed;
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Runtime, Seen};

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let builder =
        Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).tools(impresario::tools::all());
    let runtime = builder.build().await?;
    let mut seen = runtime.subscribe();

    let lead = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;
    lead.followup("[[FANOUT n=3 tool=subagent]]").await?;

    // Nothing of the tree runs, waits to run, or is on its way any more.
    let receipt = runtime.quiesce(lead.id()).await?;
    for agent in &receipt.agents {
        let outcome = agent.outcome.map_or("nothing yet", |outcome| outcome.as_str());
        println!("{}: {outcome}", agent.path);
    }
    if let Some(outcome) = lead.outcome().await? {
        println!("{}", outcome.text);
    }

    runtime.shutdown().await?;
    let mut calls = 0;
    while let Some(next) = seen.next().await {
        if let Seen::Event(event) = next
            && matches!(event.what, Observed::ToolEnded { .. })
        {
            calls += 1;
        }
        if calls == 3 {
            break;
        }
    }
    println!("{calls} calls were answered");
    Ok(())
}
