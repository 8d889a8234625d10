//! A race: five subagents look for the same thing, the first that finds it wins, and the others are stopped at once, with
//! what they had.
//!
//! `cargo run -p impresario-examples --bin race`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use impresario::models::scripted::{Answer, ScriptedModel, View};
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Runtime};
use serde_json::json;

/// What a model would decide: to start five, to wait for the first, and to say that it is done.
fn script(view: &View<'_>) -> Answer {
    let scope = view.scope();
    match (scope.path.as_str(), scope.turn, scope.step) {
        ("root", 1, 1) => {
            let runner = |lane: u32| {
                let arguments = json!({"prompt": "look for it", "label": format!("lane-{lane}"), "background": true});
                ("subagent".to_owned(), arguments.to_string())
            };
            Answer::calls("On your marks.", (1..=5).map(runner).collect())
        }
        ("root", 1, 2) => {
            let wait = json!({"until": "first_success", "stop_rest": true});
            Answer::calls("", vec![("wait_agents".into(), wait.to_string())])
        }
        ("root", ..) => Answer::text("We have a winner."),
        // The third is the fast one; the others would take a minute.
        (path, ..) => {
            let latency = if path == "root/lane-3" { Duration::from_millis(50) } else { Duration::from_secs(60) };
            Answer { latency: Some(latency), ..Answer::text("found it") }
        }
    }
}

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let began = Instant::now();
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::from_fn(script)).build().await?;
    let lead = runtime.spawn(AgentSpec::new("scripted", "race", ".")).await?;
    lead.followup("Find it, quickly.").await?;

    let receipt = runtime.quiesce(lead.id()).await?;
    for agent in &receipt.agents {
        println!("{}: {}", agent.path, agent.outcome.map_or("nothing yet", |outcome| outcome.as_str()));
    }
    println!("nobody waited for a minute: {}", began.elapsed() < Duration::from_secs(30));
    runtime.shutdown().await
}
