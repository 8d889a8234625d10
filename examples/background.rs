//! A lead that does not wait: its subagent works in the background, the lead answers at once, and what the subagent
//! finds opens another turn of the lead's, whenever it comes.
//!
//! `cargo run -p impresario-examples --bin background`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use impresario::models::scripted::{Answer, ScriptedModel, View};
use impresario::stores::MemoryStore;
use impresario::{AgentSpec, Runtime};
use serde_json::json;

fn script(view: &View<'_>) -> Answer {
    let scope = view.scope();
    match (scope.path.as_str(), scope.turn, scope.step) {
        ("root", 1, 1) => {
            let digger = json!({"prompt": "Dig.", "label": "digger", "background": true});
            Answer::calls("", vec![("subagent".into(), digger.to_string())])
        }
        ("root", 1, _) => Answer::text("Somebody digs; ask me something else."),
        // The message that opened this turn is the digger's.
        ("root", ..) => {
            let found = view.messages().last().map(|message| message.text()).unwrap_or_default();
            Answer::text(format!("News: {}", found.lines().last().unwrap_or_default()))
        }
        _ => Answer { latency: Some(Duration::from_millis(300)), ..Answer::text("I have found a bone.") },
    }
}

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::from_fn(script)).build().await?;
    let lead = runtime.spawn(AgentSpec::new("scripted", "any", ".")).await?;
    lead.followup("Find something.").await?;
    for _ in 0..2 {
        // Answered when the lead itself has nothing to do, whatever goes on below it.
        if let Some(outcome) = lead.wait().await? {
            println!("turn {}: {}", outcome.turn, outcome.text);
        }
        runtime.quiesce(lead.id()).await?;
    }
    runtime.shutdown().await
}
