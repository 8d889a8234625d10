//! One conversation, three ways to go on: each fork begins with all that was said, and none hears of the others.
//!
//! `cargo run -p impresario-examples --bin fork_and_compare`

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use futures::future::try_join_all;
use impresario::models::scripted::{Answer, ScriptedModel, View};
use impresario::stores::MemoryStore;
use impresario::{AgentHandle, AgentSpec, Runtime};

/// A model that repeats what it was told, all of it.
fn script(view: &View<'_>) -> Answer {
    let told = view.messages().iter().filter(|message| message.source.kind == "user");
    Answer::text(told.map(|message| message.text()).collect::<Vec<_>>().join(" "))
}

async fn go_on(agent: &AgentHandle, words: &str) -> impresario::Result<String> {
    let fork = agent.fork().await?;
    fork.followup(words).await?;
    Ok(fork.wait().await?.map_or_else(String::new, |outcome| outcome.text.to_string()))
}

#[tokio::main]
async fn main() -> impresario::Result<()> {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::from_fn(script)).build().await?;
    let agent = runtime.spawn(AgentSpec::new("scripted", "any", ".")).await?;
    agent.followup("Once upon a time").await?;
    agent.wait().await?;

    let ends = ["there was a crab.", "it was raining.", "nothing happened."];
    for story in try_join_all(ends.map(|end| go_on(&agent, end))).await? {
        println!("{story}");
    }
    agent.followup("I was here first.").await?;
    println!("{}", agent.wait().await?.map_or_else(String::new, |outcome| outcome.text.to_string()));
    runtime.shutdown().await
}
