//! Ten prompts, ten agents, at most four at once; each finding as it comes, as a value of a type.
//!
//! `cargo run -p impresario-examples --bin fan_out`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use futures::StreamExt;
use impresario::models::scripted::ScriptedModel;
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Limits, Runtime};
use schemars::JsonSchema;
use serde::Deserialize;

/// What each agent is to find: its doc comments are part of what the model is told.
#[derive(Debug, Deserialize, JsonSchema)]
struct Finding {
    /// Which part it is about.
    part: u32,
    /// How many unsafe blocks there are.
    unsafe_blocks: u32,
}

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let limits = Limits { running_max: 4, ..Limits::default() };
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).limits(limits);
    let runtime = builder.build().await?;
    let auditor = AgentSpec::new("scripted", "builtin", ".");
    // What a real model would find out, the scripted one is told; the seventh is told to fail.
    let prompts = (1..=10).map(|part| match part {
        7 => "[[LEAF 7 error]]".to_owned(),
        _ => format!(r#"[[TOOL final_output {{"result": {{"part": {part}, "unsafe_blocks": {}}}}}]]"#, part % 3),
    });

    let mut audits = runtime.fan_out_as::<Finding>(auditor, prompts);
    while let Some(audit) = audits.next().await {
        match (&audit.output, &audit.result) {
            (Some(finding), _) => println!("part {}: {} unsafe blocks", finding.part, finding.unsafe_blocks),
            (None, Ok(outcome)) => println!("part {}: {}: {}", audit.index + 1, outcome.kind, outcome.why()),
            (None, Err(error)) => println!("part {}: {error}", audit.index + 1),
        }
    }
    println!("{}", audits.summary());
    runtime.shutdown().await
}
