//! Joins: what a wait for several children waits for, and what becomes of the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use impresario_actors::{AgentHandle, AgentSpec, Receipt, Runtime};
use impresario_kernel::{Failure, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{ChunkStream, Model, ModelRequest};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

/// The root starts children by name in the background and waits for them; a child does what its name says: `fast` answers
/// at once, `bad` fails, `slow` says a word and never ends.
struct Racing {
    script: ScriptedModel,
    /// Streams of slow ones that nobody has closed.
    open: Arc<AtomicUsize>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model for Racing {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        if !request.scope.path.segment().starts_with("slow") {
            return self.script.stream(request);
        }
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.open));
        let word = impresario_kernel::Chunk::TextDelta { index: 0, text: "half a thought".into() };
        Box::pin(async move {
            let never = stream::pending().inspect(move |_: &Result<_, Failure>| {
                let _held = &open;
            });
            Ok(stream::iter([Ok(word)]).chain(never).boxed())
        })
    }
}

fn script(children: &'static [&'static str], wait: Value) -> ScriptedModel {
    ScriptedModel::from_fn(move |view: &View<'_>| {
        let name = view.scope().path.segment().to_owned();
        match (view.scope().path.as_str(), view.scope().turn, view.scope().step) {
            ("root", 1, 1) => {
                let child = |label: &&str| {
                    let arguments = json!({"prompt": "go", "label": label, "background": true});
                    ("subagent".to_owned(), arguments.to_string())
                };
                Answer::calls("", children.iter().map(child).collect())
            }
            ("root", 1, 2) => Answer::calls("", vec![("wait_agents".into(), wait.to_string())]),
            // What the wait has said, in the turns that children's notices open, too.
            ("root", ..) => {
                let is_answer = |said: &String| said.contains("\"done\":") || said.starts_with("Error: wait_agents:");
                Answer::text(view.messages().iter().map(|message| said(message)).rfind(is_answer).unwrap_or_default())
            }
            _ if name.starts_with("bad") => Answer::failure(Failure::new("BAD_REQUEST", "as its name says")),
            _ => Answer { latency: Some(Duration::from_millis(30)), ..Answer::text(format!("{name} is done")) },
        }
    })
}

fn said(message: &impresario_kernel::Message) -> String {
    let results = message.content.iter().filter_map(|block| match block {
        impresario_kernel::Block::ToolResult { content, .. } => Some(content),
        _ => None,
    });
    results.flatten().filter_map(|block| block.as_text()).collect()
}

struct Race {
    runtime: Runtime,
    root: AgentHandle,
    open: Arc<AtomicUsize>,
}

impl Race {
    async fn begin(children: &'static [&'static str], wait: Value) -> Self {
        let open = Arc::new(AtomicUsize::new(0));
        let model = Racing { script: script(children, wait), open: Arc::clone(&open) };
        let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).build().await.unwrap();
        let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
        root.followup("race").await.unwrap();
        Self { runtime, root, open }
    }

    /// What the wait said, when it has.
    async fn said(&self) -> Value {
        let outcome = self.root.wait().await.unwrap().expect("the root has had a turn");
        serde_json::from_str(&outcome.text).unwrap_or_else(|_| Value::String(outcome.text.to_string()))
    }

    /// `(path, outcome)` of what the wait lists as done, in its order.
    async fn done(&self) -> Vec<(String, String)> {
        let said = self.said().await;
        let entries = said["done"].as_array().unwrap_or_else(|| panic!("{said}")).clone();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        entries.iter().map(|entry| (text(entry, "path"), text(entry, "outcome"))).collect()
    }

    async fn end(self) -> Receipt {
        let receipt = self.runtime.quiesce(self.root.id()).await.unwrap();
        self.runtime.shutdown().await.unwrap();
        receipt
    }
}

const TEN: [&str; 10] = ["slow", "slow", "slow", "fast", "slow", "slow", "slow", "slow", "slow", "slow"];

#[tokio::test]
async fn the_first_that_completes_wins_and_the_rest_is_stopped_with_what_it_had() {
    let race = Race::begin(&TEN, json!({"until": "first_success", "stop_rest": true})).await;
    let said = race.said().await;
    let done = race.done().await;
    assert_eq!(done.len(), 10, "{said}");
    let cancelled = done.iter().filter(|(_, outcome)| outcome == "cancelled").count();
    assert_eq!((cancelled, said["pending"].as_array().unwrap().len()), (9, 0));
    assert!(done.contains(&("root/fast".into(), "completed".into())), "{said}");
    let slow = said["done"].as_array().unwrap().iter().find(|entry| entry["outcome"] == "cancelled").unwrap();
    assert_eq!(slow["text"], "half a thought");
    assert!(slow["usage"]["input_tokens"].is_u64(), "{slow}");
    let open = Arc::clone(&race.open);
    let receipt = race.end().await;
    assert!(receipt.at_rest(), "{receipt:?}");
    assert_eq!(receipt.agents.iter().filter(|end| end.outcome == Some(OutcomeKind::Cancelled)).count(), 9);
    assert_eq!(open.load(Ordering::SeqCst), 0, "every stream was closed");
}

#[tokio::test]
async fn a_failure_wins_no_race_and_when_all_have_failed_it_is_over() {
    let race = Race::begin(&["bad", "fast", "bad"], json!({"until": "first_success"})).await;
    let completed = race.done().await.into_iter().find(|(_, outcome)| outcome == "completed");
    assert_eq!(completed.unwrap().0, "root/fast");
    race.end().await;
    let race = Race::begin(&["bad", "bad", "bad"], json!({"until": "first_success"})).await;
    assert_eq!(race.done().await.len(), 3);
    race.end().await;
}

#[tokio::test]
async fn a_quorum_is_over_when_it_is_met_and_when_it_cannot_be_any_more() {
    let wait = json!({"until": "quorum", "quorum": 2, "stop_rest": true});
    let race = Race::begin(&["fast", "slow", "fast", "bad"], wait.clone()).await;
    let done = race.done().await;
    assert_eq!(done.len(), 4);
    assert_eq!(done.iter().filter(|(_, outcome)| outcome == "completed").count(), 2);
    race.end().await;
    // Of three, two have failed: two cannot complete any more.
    let race = Race::begin(&["bad", "slow", "bad"], wait).await;
    let done = race.done().await;
    assert_eq!(done.iter().filter(|(_, outcome)| outcome == "cancelled").count(), 1, "{done:?}");
    race.end().await;
}

#[tokio::test]
async fn a_wait_in_vain_is_an_error_and_stops_nobody() {
    for (wait, why) in [
        (json!({"until": "quorum", "quorum": 3, "stop_rest": true}), "more than the 2 agents"),
        (json!({"until": "quorum"}), "needs `quorum`"),
        (json!({"quorum": 1}), "goes with `until: quorum`"),
        (json!({"until": "first_success", "agents": ["nobody"], "stop_rest": true}), "no subagent"),
    ] {
        let race = Race::begin(&["fast", "fast"], wait).await;
        let said = race.said().await.to_string();
        assert!(said.contains(why), "{said}");
        let receipt = race.end().await;
        assert!(receipt.agents.iter().all(|end| end.outcome == Some(OutcomeKind::Completed)), "{receipt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_out_lists_who_is_pending_and_stops_nobody() {
    let race = Race::begin(&["slow", "slow"], json!({"until": "any", "stop_rest": true, "timeout_ms": 500})).await;
    let said = race.said().await;
    assert_eq!(said["done"].as_array().unwrap().len(), 0);
    assert_eq!(said["pending"].as_array().unwrap().len(), 2);
    assert_eq!(race.open.load(Ordering::SeqCst), 2, "they go on");
    race.runtime.shutdown().await.unwrap();
}
