//! Bounds that change while a tree runs, what of them is in use, and delegation that goes round in circles.

use std::sync::Arc;

use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Capacity, Limits, LiveLimits, Runtime, Seen};
use impresario_kernel::{Failure, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{ChunkStream, Model, ModelRequest, Observed};
use impresario_stores::MemoryStore;
use serde_json::json;
use tokio::sync::Semaphore;

/// A script whose children answer when they are let.
struct Gated {
    script: ScriptedModel,
    gate: Arc<Semaphore>,
}

impl Model for Gated {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let is_root = request.scope.path.as_str() == "root";
        let (gate, answer) = (Arc::clone(&self.gate), self.script.stream(request));
        Box::pin(async move {
            if !is_root {
                gate.acquire().await.expect("it stays open").forget();
            }
            answer.await
        })
    }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "any", std::env::temp_dir())
}

fn child(prompt: &str) -> (String, String) {
    ("subagent".into(), json!({"prompt": prompt, "may_spawn": 9}).to_string())
}

#[tokio::test]
async fn a_limit_is_raised_and_lowered_while_turns_wait_for_it() {
    let gate = Arc::new(Semaphore::new(0));
    let script = ScriptedModel::from_fn(|view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root", 1) => Answer::calls("", (0..12).map(|n| child(&format!("part {n}"))).collect()),
        _ => Answer::text("done"),
    });
    let model = Gated { script, gate: Arc::clone(&gate) };
    let limits = Limits { running_max: 2, ..Limits::default() };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).limits(limits).build().await.unwrap();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("go").await.unwrap();
    let until = async |running: usize, queued: usize| loop {
        let capacity = runtime.capacity(root.id()).await.unwrap();
        if (capacity.running, capacity.queued) == (running, queued) {
            return capacity;
        }
        tokio::task::yield_now().await;
    };
    let expected =
        Capacity { running: 2, queued: 10, running_max: 2, descendants: 12, descendants_max: 200, depth_max: 3 };
    assert_eq!(until(2, 10).await, expected);
    let set = |limits| runtime.set_limits(root.id(), limits);
    set(LiveLimits { running_max: Some(5), ..LiveLimits::default() }).await.unwrap();
    until(5, 7).await;
    // It holds behind a supervisor that fails, too.
    runtime.fail_supervisor();
    until(5, 7).await;
    // Those that run go on; none begins before there is room.
    set(LiveLimits { running_max: Some(1), depth_max: Some(7), ..LiveLimits::default() }).await.unwrap();
    let lowered = until(5, 7).await;
    assert_eq!((lowered.running_max, lowered.depth_max), (1, 7));
    gate.add_permits(4);
    until(1, 7).await;
    gate.add_permits(99);
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(receipt.agents.iter().filter(|agent| agent.outcome == Some(OutcomeKind::Completed)).count(), 13);
    let rest = runtime.capacity(root.id()).await.unwrap();
    assert_eq!((rest.running, rest.queued), (0, 0), "no slot is left taken");
    assert_eq!(runtime.capacity(&"nobody".into()).await.unwrap_err().code(), "UNKNOWN_AGENT");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_task_that_is_handed_down_unchanged_is_told_of_and_then_refused() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match view.scope().step {
        // Words count, not the space between them.
        1 => Answer::calls("", vec![child(["do  the work", "do the work\n"][view.scope().path.as_str().len() % 2])]),
        _ => {
            let results = view.messages().iter().flat_map(|message| &message.content).filter_map(|block| match block {
                impresario_kernel::Block::ToolResult { content, .. } => content[0].as_text(),
                _ => None,
            });
            Answer::text(results.collect::<String>())
        }
    });
    let limits = Limits { depth_max: 9, ..Limits::default() };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(script).limits(limits).build().await.unwrap();
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("begin").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    let paths: Vec<&str> = receipt.agents.iter().map(|agent| agent.path.as_str()).collect();
    assert_eq!(paths, ["root", "root/a1", "root/a1/a1"]);
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("2 agents above have been given this very task"), "{said}");
    let mut flagged = vec![];
    while let Some(Seen::Event(event)) = seen.next().await {
        match &event.what {
            Observed::LimitReached { limit, used, .. } => flagged.push((event.path.to_string(), limit.clone(), *used)),
            Observed::Ended { .. } if event.path.as_str() == "root" => break,
            _ => {}
        }
    }
    assert_eq!(flagged, [("root/a1/a1".to_owned(), "same_prompt".to_owned(), 1)]);
    runtime.shutdown().await.unwrap();
}
