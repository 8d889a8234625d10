//! A thousand agents in mid-stream are stopped at once.

// How long it took is for people to read.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_actors::{AgentSpec, Limits, Runtime};
use impresario_kernel::{Cause, Chunk, Failure, OutcomeKind};
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{ChunkStream, Model, ModelRequest};
use impresario_stores::MemoryStore;

/// The root follows its directive; everybody else says a word and never ends.
struct Endless {
    lead: ScriptedModel,
    /// Streams that said their word and were not closed.
    open: Arc<AtomicUsize>,
}

/// Counts a stream for as long as somebody holds it.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model for Endless {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        if request.scope.path.as_str() == "root" {
            return self.lead.stream(request);
        }
        let open = Arc::clone(&self.open);
        async move {
            // The guard lives in the stream until that is dropped.
            let stream = stream::unfold((open, None::<Open>), |(open, said)| async move {
                if said.is_some() {
                    std::future::pending::<()>().await;
                }
                open.fetch_add(1, Ordering::SeqCst);
                let guard = Some(Open(Arc::clone(&open)));
                Some((Ok(Chunk::TextDelta { index: 0, text: "well".into() }), (open, guard)))
            });
            Ok(stream.boxed())
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_agents_in_mid_stream_are_stopped_with_a_receipt_that_names_each() {
    let open = Arc::new(AtomicUsize::new(0));
    let limits = Limits { running_max: 2_000, descendants_max: 2_000, ..Limits::default() };
    let model = Endless { lead: ScriptedModel::builtin(), open: Arc::clone(&open) };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).limits(limits).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("[[FANOUT n=999 tool=subagent]]").await.unwrap();
    while open.load(Ordering::SeqCst) < 999 {
        tokio::task::yield_now().await;
    }
    let began = std::time::Instant::now();
    let receipt = runtime.stop(root.id(), Cause::user("test"), Duration::from_secs(30)).await.unwrap();
    println!("1,000 agents stopped in {} ms", began.elapsed().as_millis());
    assert!(receipt.at_rest(), "{receipt:?}");
    assert_eq!(receipt.agents.len(), 1_000);
    assert!(receipt.agents.iter().all(|agent| agent.outcome == Some(OutcomeKind::Cancelled)), "{receipt:?}");
    while open.load(Ordering::SeqCst) > 0 {
        // A dropped task is dropped by its own thread.
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
}
