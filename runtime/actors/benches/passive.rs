//! What stored agents cost: a hundred thousand roots that have had a turn each and rest, then mail for a thousand of them,
//! with the sqlite store.
//!
//! `cargo bench -p impresario-actors --bench passive`; `AGENTS=n` says how many. Only the ratios within one run mean
//! anything.

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use impresario_actors::{AgentSpec, Error, Limits, Runtime};
use impresario_kernel::AgentId;
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{SessionFilter, Store};
use impresario_stores::SqliteStore;

/// How many get mail.
const WOKEN: usize = 1_000;

/// How many are told something at once.
const AT_ONCE: usize = 512;

/// What this process has in memory, in bytes.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4_096
}

async fn start(store: &Arc<SqliteStore>) -> Result<Runtime, Error> {
    let limits =
        Limits { idle_after: Some(Duration::from_millis(100)), resident_max: Some(2_000), ..Limits::default() };
    Runtime::builder(store.clone()).model(ScriptedModel::builtin()).limits(limits).build().await
}

async fn until_all_rest(runtime: &Runtime) {
    while runtime.resident() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Tells each of them something, and takes the answers.
async fn mail(runtime: &Runtime, to: Vec<AgentId>) -> Result<usize, Error> {
    let answers = stream::iter(to).map(|id| async move {
        let agent = runtime.wake(&id).await?;
        agent.followup("[[SAY awake]]").await?;
        let outcome = agent.wait().await?;
        Ok::<_, Error>(outcome.is_some_and(|outcome| &*outcome.text == "awake"))
    });
    let answers: Vec<bool> = answers.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().filter(|is_right| *is_right).count())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agents: usize = std::env::var("AGENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let dir = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(dir.path().join("store.sqlite"))?);
    let runtime = start(&store).await?;
    let spec = AgentSpec::new("scripted", "builtin", std::env::temp_dir());
    let before = resident();
    let began = Instant::now();
    let born = stream::iter(0..agents).map(|n| {
        let (runtime, spec) = (&runtime, spec.clone());
        async move {
            let root = runtime.spawn(spec).await?;
            root.followup(&format!("[[SAY {n}]]")).await?;
            root.wait().await?;
            Ok::<_, Error>(root.id().clone())
        }
    });
    let ids: Vec<AgentId> = born.buffer_unordered(AT_ONCE).try_collect().await?;
    println!("{agents} agents had a turn each in {:.1} s", began.elapsed().as_secs_f64());
    until_all_rest(&runtime).await;
    let each = (resident() - before) / agents as i64;
    println!("all rest: {} MB in memory, {each} bytes an agent more than before", resident() >> 20);

    let began = Instant::now();
    let listed = store.list(SessionFilter { roots_only: true, limit: Some(50), ..SessionFilter::default() }).await?;
    println!("the newest {} of them are listed in {:.1} ms", listed.len(), began.elapsed().as_secs_f64() * 1e3);

    // Far apart, and in no order.
    let chosen = |from: usize| (0..WOKEN).map(|n| ids[(from + n * 7_919) % ids.len()].clone()).collect::<Vec<_>>();
    let began = Instant::now();
    let right = mail(&runtime, chosen(0)).await?;
    println!("mail for {WOKEN}: {right} answered in {:.2} s", began.elapsed().as_secs_f64());
    until_all_rest(&runtime).await;
    println!("all rest again: {} MB in memory", resident() >> 20);
    runtime.shutdown().await?;

    let began = Instant::now();
    let runtime = start(&store).await?;
    println!("another runtime has begun in {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let began = Instant::now();
    let right = mail(&runtime, chosen(13)).await?;
    println!("mail for {WOKEN} others: {right} answered in {:.2} s", began.elapsed().as_secs_f64());
    runtime.shutdown().await?;
    Ok(())
}
