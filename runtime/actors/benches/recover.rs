//! How long it takes until a tree can be written to again whose process died: a root with a thousand and with ten thousand
//! children, a hundred of which had a turn open, with the sqlite store. Beside it, in the same run, reading the same rows.
//!
//! `cargo bench -p impresario-actors --bench recover`. Only the ratios within one run mean anything.

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use impresario_actors::{AgentSpec, Limits, Runtime};
use impresario_kernel::{AgentId, Seq};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{SessionFilter, Store, TurnState};
use impresario_stores::SqliteStore;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// How many children never end their turn.
const STUCK: usize = 100;

const ROUNDS: usize = 3;

/// A root asks for as many children as it is told; the first hundred think for ever.
fn model() -> ScriptedModel {
    ScriptedModel::from_fn(|view: &View<'_>| {
        let told = view.prompt().map(|(_, text)| text).unwrap_or_default();
        if let Some(n) = told.strip_prefix("children ").and_then(|n| n.parse::<usize>().ok()) {
            let call = |n| {
                ("subagent".to_owned(), format!("{{\"prompt\":\"child {n}\",\"label\":\"c\",\"background\":true}}"))
            };
            let is_first = view.answered(0).is_empty();
            return if is_first { Answer::calls("", (0..n).map(call).collect()) } else { Answer::text("all begun") };
        }
        let number = told.strip_prefix("child ").and_then(|n| n.parse::<usize>().ok());
        let is_stuck = number.is_some_and(|number| number < STUCK);
        Answer { latency: is_stuck.then_some(Duration::from_secs(86_400)), ..Answer::text("done") }
    })
}

fn limits(children: usize) -> Limits {
    Limits {
        descendants_max: u32::try_from(children).unwrap_or(u32::MAX),
        running_max: 2 * STUCK,
        same_prompt_max: u32::MAX,
        ..Limits::default()
    }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "builtin", std::env::temp_dir())
}

/// A tree whose process died when all but the hundred had ended.
async fn crashed(path: &Path, children: usize) -> Fallible<AgentId> {
    let store = Arc::new(SqliteStore::open(path)?);
    let runtime = Runtime::builder(store.clone()).model(model()).limits(limits(children)).build().await?;
    let root = runtime.spawn(spec()).await?;
    root.followup(&format!("children {children}")).await?;
    let filter = SessionFilter { parent: Some(root.id().clone()), ..SessionFilter::default() };
    loop {
        let children_now = store.list(filter.clone()).await?;
        let ended = children_now.iter().filter(|info| info.head.outcome.is_some()).count();
        let open = children_now.iter().filter(|info| info.head.state == TurnState::Open).count();
        if (ended, open) == (children - STUCK, STUCK) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let id = root.id().clone();
    // Without a word, as if the process had died.
    drop(runtime);
    Ok(id)
}

async fn read_all(path: &Path) -> Fallible<f64> {
    let store = SqliteStore::open_read_only(path)?;
    let sessions = store.list(SessionFilter::default()).await?;
    let began = Instant::now();
    for session in sessions {
        store.read(session.id().clone(), Seq(0)).try_for_each(async |_| Ok(())).await?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// In milliseconds: until it can be written to, and until all is repaired.
async fn open(path: &Path, id: &AgentId, children: usize) -> Fallible<(f64, f64)> {
    let began = Instant::now();
    let store = Arc::new(SqliteStore::open(path)?);
    let runtime = Runtime::builder(store).model(model()).limits(limits(children)).build().await?;
    let root = runtime.open(id, spec()).await?;
    root.inject("are you there?").await?;
    let addressable = began.elapsed().as_secs_f64() * 1e3;
    runtime.quiesce(id).await?;
    let repaired = began.elapsed().as_secs_f64() * 1e3;
    runtime.shutdown().await?;
    Ok((addressable, repaired))
}

#[tokio::main]
async fn main() -> Fallible<()> {
    for children in [1_000, 10_000] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("store.sqlite");
        let id = crashed(&path, children).await?;
        for round in 1..=ROUNDS {
            let copy = dir.path().join(format!("round-{round}.sqlite"));
            SqliteStore::open(&path)?.backup(&copy)?;
            let floor = read_all(&copy).await?;
            let (addressable, repaired) = open(&copy, &id, children).await?;
            println!(
                "{children} children: rows read in {floor:.0} ms; can be written to after {addressable:.0} ms ({:.1} times); \
                 repaired after {repaired:.0} ms ({:.1} times)",
                addressable / floor,
                repaired / floor,
            );
        }
    }
    Ok(())
}
