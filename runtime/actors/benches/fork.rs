//! What a fork costs, by the length of what it is forked from: time and memory, with the sqlite store.
//!
//! `cargo bench -p impresario-actors --bench fork`. Only the ratios within one run mean anything.

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use impresario_actors::{AgentSpec, Runtime};
use impresario_kernel::Seq;
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{SessionFilter, Store};
use impresario_stores::SqliteStore;

const FORKS: u32 = 500;

/// What this process has in memory, in bytes.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4_096
}

async fn length(store: &dyn Store, id: &impresario_kernel::AgentId) -> u64 {
    store.info(id.clone()).await.ok().flatten().map_or(0, |info| info.len.0)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>8}  {:>12}  {:>12}  {:>14}  {:>14}", "events", "median", "p99", "memory/fork", "file/fork");
    for events in [1_000, 10_000, 100_000] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("store.sqlite");
        let store = Arc::new(SqliteStore::open(path.clone())?);
        let runtime = Runtime::builder(store.clone()).model(ScriptedModel::builtin()).build().await?;
        let root = runtime.spawn(AgentSpec::new("scripted", "builtin", std::env::temp_dir())).await?;
        while length(&*store, root.id()).await < events {
            for n in 0..50 {
                root.followup(&format!("[[SAY the answer to question {n}]]")).await?;
            }
            root.wait().await?;
        }
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let (memory, file) = (resident(), size(&path));
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..FORKS {
            let began = Instant::now();
            root.fork().await?;
            times.push(began.elapsed());
        }
        times.sort();
        let (memory, grown) = (resident() - memory, size(&path).saturating_sub(file));
        println!(
            "{:>8}  {:>12?}  {:>12?}  {:>12} B  {:>12} B",
            length(&*store, root.id()).await,
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            memory / i64::from(FORKS),
            grown / u64::from(FORKS),
        );
        let forks = store.list(SessionFilter::default()).await?;
        assert_eq!(forks.len(), 1 + FORKS as usize);
        assert!(forks.iter().all(|info| info.len > Seq(0)));
        runtime.shutdown().await?;
    }
    Ok(())
}
