//! Ten prompts, ten agents, at most four at once; each outcome as it comes.
//!
//! `cargo run -p impresario-examples --bin fan_out`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use futures::StreamExt;
use impresario::models::scripted::ScriptedModel;
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Limits, Runtime};

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let limits = Limits { running_max: 4, ..Limits::default() };
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).limits(limits);
    let runtime = builder.build().await?;
    let auditor = AgentSpec::new("scripted", "builtin", ".");
    // The seventh is told to fail.
    let prompts = (1..=10).map(|part| format!("[[LEAF {part}{}]]", if part == 7 { " error" } else { "" }));

    let mut audits = runtime.fan_out(auditor, prompts);
    while let Some(audit) = audits.next().await {
        let part = audit.index + 1;
        match &audit.result {
            Ok(outcome) if audit.is_completed() => println!("part {part}: {}", outcome.text),
            Ok(outcome) => println!("part {part}: {}: {}", outcome.kind, outcome.why()),
            Err(error) => println!("part {part}: {error}"),
        }
    }
    println!("{}", audits.summary());
    runtime.shutdown().await
}
