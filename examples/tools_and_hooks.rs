//! A tool from a closure, and a hook that has a say in its calls.
//!
//! `cargo run -p impresario-examples --bin tools_and_hooks`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::future::ready;
use std::sync::Arc;

use impresario::models::scripted::ScriptedModel;
use impresario::seams::{Hook, HookCall, ToolError, ToolOutput, Verdict};
use impresario::stores::MemoryStore;
use impresario::tools::FunctionTool;
use impresario::tools::schemars::{self, JsonSchema};
use impresario::{AgentSpec, Options, Runtime};
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Divide {
    /// What is divided.
    a: i64,
    /// By what.
    b: i64,
}

/// Nobody divides by seven.
struct NoSevens;

impl Hook for NoSevens {
    fn name(&self) -> &str {
        "no-sevens"
    }

    fn pre_execute(&self, call: Arc<HookCall>) -> std::pin::Pin<Box<dyn Future<Output = Verdict> + Send>> {
        let verdict = match call.input["b"].as_i64() {
            Some(7) => Verdict::Deny { reason: "nobody divides by seven here".into() },
            _ => Verdict::Allow,
        };
        Box::pin(ready(verdict))
    }
}

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let divide = FunctionTool::new("divide", "Divides a by b.", |input: Divide, _ctx| async move {
        match input.a.checked_div(input.b) {
            Some(quotient) => Ok(ToolOutput::text(quotient.to_string())),
            None => Err(ToolError::new("b must not be 0")),
        }
    });
    let options = Options::new(Arc::new(MemoryStore::new()))
        .model(ScriptedModel::builtin())
        .tool(Arc::new(divide))
        .hook(NoSevens);
    let runtime = Runtime::start(options).await?;

    let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;
    for b in [3, 0, 7] {
        agent.followup(&format!("[[TOOL divide {{\"a\":12,\"b\":{b}}}]]")).await?;
        let text = agent.wait().await?.map_or_else(String::new, |outcome| outcome.text.to_string());
        println!("12 / {b}: {text}");
    }
    runtime.shutdown().await
}
