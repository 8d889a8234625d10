//! A tool from a closure, a hook that has a say in its calls, and one that looks at prompts.
//!
//! `cargo run -p impresario-examples --bin tools_and_hooks`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use impresario::models::scripted::ScriptedModel;
use impresario::seams::{Hook, HookCall, Point, StepProposed, StepVerdict, ToolError, ToolOutput, Verdict};
use impresario::stores::MemoryStore;
use impresario::tools::FunctionTool;
use impresario::tools::schemars::{self, JsonSchema};
use impresario::{AgentSpec, Runtime};
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Divide {
    /// What is divided.
    a: i64,
    /// By what.
    b: i64,
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Nobody speaks of passwords.
struct NoPasswords;

impl Hook for NoPasswords {
    fn name(&self) -> &str {
        "no-passwords"
    }

    fn points(&self) -> &[Point] {
        &[Point::PreStep]
    }

    fn pre_step(&self, step: Arc<StepProposed>) -> Answer<StepVerdict> {
        let speaks = step.messages.iter().any(|message| message.text().contains("password"));
        let reject = || StepVerdict::Reject { reason: "passwords stay out of here".into() };
        Box::pin(ready(if speaks { reject() } else { StepVerdict::Enter }))
    }
}

/// Nobody divides by seven.
struct NoSevens;

impl Hook for NoSevens {
    fn name(&self) -> &str {
        "no-sevens"
    }

    // It has nothing to say about turns.
    fn points(&self) -> &[Point] {
        &[]
    }

    fn pre_execute(&self, call: Arc<HookCall>) -> Answer<Verdict> {
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
    let runtime = Runtime::builder(Arc::new(MemoryStore::new()))
        .model(ScriptedModel::builtin())
        .tool(Arc::new(divide))
        .hook(NoSevens)
        .hook(NoPasswords)
        .build()
        .await?;

    let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", ".")).await?;
    for b in [3, 0, 7] {
        agent.followup(&format!("[[TOOL divide {{\"a\":12,\"b\":{b}}}]]")).await?;
        let text = agent.wait().await?.map_or_else(String::new, |outcome| outcome.text.to_string());
        println!("12 / {b}: {text}");
    }
    agent.followup("my password is 1234").await?;
    println!("{}", agent.wait().await?.map_or_else(String::new, |outcome| outcome.why()));
    runtime.shutdown().await
}
