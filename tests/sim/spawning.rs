//! A stop while children are being spawned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use impresario_actors::{AgentSpec, Runtime};
use impresario_kernel::{Cause, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel};
use impresario_stores::MemoryStore;

use crate::dice::Dice;
use crate::{every, number};

/// How many orders of events are tried.
const INTERLEAVINGS: u64 = 10_000;

/// What one order came to.
#[derive(Default)]
struct Counts {
    /// Stops that came before any child had asked its model.
    before: AtomicU64,
    /// Stops that came behind that.
    behind: AtomicU64,
}

fn run(seed: u64, counts: &Counts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut dice = Dice(seed);
        let stopped = Arc::new(AtomicBool::new(false));
        let (earlier, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let background = dice.one_in(3);
        let model = {
            let (stopped, earlier, late) = (Arc::clone(&stopped), Arc::clone(&earlier), Arc::clone(&late));
            ScriptedModel::from_fn(move |view| {
                if stopped.load(Ordering::SeqCst) {
                    late.fetch_add(1, Ordering::SeqCst);
                }
                if view.scope().path.as_str() != "root" {
                    earlier.fetch_add(1, Ordering::SeqCst);
                    return Answer { latency: Some(Duration::from_secs(5)), ..Answer::text("done") };
                }
                let arguments = format!(r#"{{"prompt": "do it", "background": {background}}}"#);
                let calls = (0..1 + seed % 3).map(|_| ("subagent".to_owned(), arguments.clone())).collect();
                if view.scope().step == 1 { Answer::calls("", calls) } else { Answer::text("done") }
            })
        };
        let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).seeded(seed).build().await.unwrap();
        let root = runtime.spawn(AgentSpec::new("scripted", "sim", std::env::temp_dir())).await.unwrap();
        root.followup("delegate").await.unwrap();
        for _ in 0..dice.below(90) {
            tokio::task::yield_now().await;
        }
        stopped.store(true, Ordering::SeqCst);
        let asked = earlier.load(Ordering::SeqCst);
        let receipt = runtime.stop(root.id(), Cause::user("the seed"), Duration::from_secs(60)).await.unwrap();
        assert!(receipt.at_rest(), "{receipt:?}");
        // A root whose children run in the background may have been done.
        let may_be_done = |path: &str| background && path == "root";
        for agent in &receipt.agents {
            let is_cancelled = agent.outcome == Some(OutcomeKind::Cancelled);
            assert!(is_cancelled || may_be_done(agent.path.as_str()), "{receipt:?}");
        }
        // A minute later still nothing has been asked.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(late.load(Ordering::SeqCst), 0, "a model was asked behind the stop");
        let count = if asked == 0 { &counts.before } else { &counts.behind };
        count.fetch_add(1, Ordering::Relaxed);
        runtime.shutdown().await.unwrap();
    });
}

#[test]
fn a_child_that_is_spawned_while_its_tree_is_stopped_makes_no_model_call() {
    let counts = Counts::default();
    match number("SEED") {
        Some(seed) => run(seed, &counts),
        None => {
            every(INTERLEAVINGS, "cargo sim spawned", |seed| run(seed, &counts));
            let (before, behind) = (counts.before.into_inner(), counts.behind.into_inner());
            // The stops fall on both sides of what this is about.
            assert!(before > INTERLEAVINGS / 10 && behind > INTERLEAVINGS / 10, "{before} before, {behind} behind");
        }
    }
}
