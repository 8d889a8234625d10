//! Workspaces of their own for children: whatever happens while one is being made or looked at.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Limits, Receipt, Runtime};
use impresario_kernel::{Cause, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Workspace, Workspaces};
use impresario_stores::MemoryStore;
use serde_json::json;
use tokio::sync::Semaphore;

/// Makes workspaces when it is let, and writes down what it was asked.
#[derive(Clone)]
struct Slow {
    gate: Arc<Semaphore>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    fn new(permits: usize) -> Self {
        Self { gate: Arc::new(Semaphore::new(permits)), asked: Arc::default() }
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.starts_with(what)).count()
    }

    async fn until(&self, what: &str, times: usize) {
        while self.count(what) < times {
            tokio::task::yield_now().await;
        }
    }
}

impl Workspaces for Slow {
    fn open(&self, dir: PathBuf, name: String) -> BoxFuture<'static, Result<Workspace, String>> {
        self.note(format!("open {name}"));
        let gate = Arc::clone(&self.gate);
        async move {
            gate.acquire().await.expect("it stays open").forget();
            Ok(Workspace { root: name.into(), dir })
        }
        .boxed()
    }

    fn changes(&self, root: PathBuf) -> BoxFuture<'static, Result<Option<String>, String>> {
        self.note(format!("changes {}", root.display()));
        async move { Ok(Some("much\n".into())) }.boxed()
    }

    fn close(&self, root: PathBuf) -> BoxFuture<'static, Result<(), String>> {
        self.note(format!("close {}", root.display()));
        async move { Ok(()) }.boxed()
    }
}

async fn begin(workspaces: &Slow, limits: Limits) -> (Runtime, impresario_actors::AgentHandle) {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root", 1) => {
            let child = json!({"prompt": "dig", "isolation": "worktree"}).to_string();
            Answer::calls("", vec![("subagent".into(), child.clone()), ("subagent".into(), child)])
        }
        ("root", _) => Answer::text(format!("{:?}", view.messages())),
        _ => Answer::text("done"),
    });
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(script).workspaces(workspaces.clone());
    let runtime = builder.limits(limits).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    (runtime, root)
}

fn kinds(receipt: &Receipt) -> Vec<Option<OutcomeKind>> {
    receipt.agents.iter().map(|agent| agent.outcome).collect()
}

#[tokio::test]
async fn what_was_changed_is_told_and_the_runtime_closes_them_at_its_end() {
    let workspaces = Slow::new(9);
    let (runtime, root) = begin(&workspaces, Limits::default()).await;
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(kinds(&receipt), [Some(OutcomeKind::Completed); 3]);
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert_eq!(said.matches("[changed in its worktree ").count(), 2, "{said}");
    runtime.shutdown().await.unwrap();
    assert_eq!((workspaces.count("open"), workspaces.count("changes"), workspaces.count("close")), (2, 2, 2));
}

#[tokio::test]
async fn a_stop_does_not_wait_for_workspaces_and_no_child_is_there() {
    let workspaces = Slow::new(0);
    let (runtime, root) = begin(&workspaces, Limits::default()).await;
    workspaces.until("open", 2).await;
    let receipt = runtime.stop(root.id(), Cause::user("enough"), Duration::from_secs(9)).await.unwrap();
    assert!(receipt.at_rest());
    assert_eq!(kinds(&receipt), [Some(OutcomeKind::Cancelled)]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_supervisor_or_an_agent_that_fails_meanwhile_loses_no_child_and_no_workspace() {
    let workspaces = Slow::new(0);
    let (runtime, root) = begin(&workspaces, Limits::default()).await;
    workspaces.until("open", 2).await;
    runtime.fail_supervisor();
    workspaces.gate.add_permits(9);
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(kinds(&receipt), [Some(OutcomeKind::Completed); 3], "{receipt:?}");
    assert_eq!(workspaces.count("changes"), 2, "each has its own");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_that_may_not_be_there_leaves_no_workspace() {
    let workspaces = Slow::new(9);
    let (runtime, root) = begin(&workspaces, Limits { descendants_max: 1, ..Limits::default() }).await;
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(receipt.agents.len(), 2);
    workspaces.until("close", 1).await;
    runtime.shutdown().await.unwrap();
    assert_eq!(workspaces.count("close"), 2);
}
