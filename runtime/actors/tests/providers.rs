//! Subagents that others run: who they are, what they are asked, what they are not asked, how they end.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use impresario_actors::{AgentSpec, Runtime};
use impresario_kernel::{Block, Chunk, Failure, FinishReason, Message, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Capabilities, ChunkStream, Store, SubagentRequest, Subagents};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

/// Says what it was told, when it may.
#[derive(Clone)]
struct Echo {
    can: Capabilities,
    asked: Arc<Mutex<Vec<SubagentRequest>>>,
    begun: Arc<Notify>,
    may: Arc<Semaphore>,
}

impl Echo {
    fn new(can: Capabilities) -> Self {
        Self {
            can,
            asked: Arc::default(),
            begun: Arc::default(),
            may: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    fn asked(&self) -> Vec<SubagentRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Subagents for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn run(&self, request: SubagentRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let (text, schema) = (format!("echo: {}", request.prompt()), request.output_schema.clone());
        let echo = self.clone();
        self.asked.lock().unwrap().push(request);
        self.begun.notify_one();
        async move {
            echo.may.acquire().await.expect("it is not closed").forget();
            let (text, reason) = match &schema {
                None => (Chunk::TextDelta { index: 0, text }, FinishReason::Stop),
                Some(_) => {
                    let (name, arguments_delta) = (Some("final_output".into()), r#"{"result": {"n": 7}}"#.into());
                    let call = Chunk::ToolCallDelta { index: 0, id: "out".into(), name, arguments_delta };
                    (call, FinishReason::ToolCalls)
                }
            };
            let chunks = [text, Chunk::Finish { reason, replay_state: None }];
            Ok(stream::iter(chunks.map(Ok)).boxed())
        }
        .boxed()
    }
}

type Calls = Vec<(&'static str, Value)>;

/// Calls of the root, one a step; it then says all their results, and so does every other agent what it was told.
fn script(calls: Calls) -> ScriptedModel {
    ScriptedModel::from_fn(move |view: &View<'_>| {
        let (scope, model) = (view.scope(), &view.header().config.model);
        if scope.path.as_str() == "root/a" && scope.step == 1 {
            return Answer::calls("", vec![("subagent".into(), json!({"prompt": "x", "label": "below"}).to_string())]);
        } else if scope.path.as_str() == "root/a" {
            return Answer::text(view.messages().iter().filter_map(said).collect::<String>());
        } else if scope.path.as_str() != "root" {
            return Answer::text(format!("{model} here"));
        }
        match calls.get(scope.step as usize - 1).filter(|_| scope.turn == 1) {
            Some((tool, arguments)) => Answer::calls("", vec![((*tool).to_owned(), arguments.to_string())]),
            None => Answer::text(view.messages().iter().filter_map(said).collect::<Vec<_>>().join("\u{1}")),
        }
    })
}

fn said(message: &Arc<Message>) -> Option<String> {
    let Block::ToolResult { content, .. } = message.content.first()? else { return None };
    Some(content.iter().filter_map(|block| block.as_text()).collect())
}

/// What the calls of a root were answered, and what is in the store then.
async fn ran(echo: &Echo, calls: Calls) -> (Vec<String>, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let builder = Runtime::builder(Arc::clone(&store)).model(script(calls)).subagents(echo.clone());
    let runtime = builder.build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    let outcome = root.outcome().await.unwrap().unwrap();
    assert_eq!(outcome.kind, OutcomeKind::Completed, "{outcome:?}");
    runtime.shutdown().await.unwrap();
    (outcome.text.split('\u{1}').map(str::to_owned).collect(), store)
}

fn asks(more: Value) -> (&'static str, Value) {
    let mut arguments = json!({"prompt": "look", "label": "w", "provider": "echo"});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ("subagent", arguments)
}

#[tokio::test]
async fn a_child_of_a_provider_is_a_child_like_any_other() {
    let echo = Echo::new(Capabilities::ALL);
    let calls = vec![
        asks(json!({"tools": [], "model": "large"})),
        ("message_agent", json!({"agent": "w", "message": "again"})),
        ("wait_agents", json!({})),
        ("list_agents", json!({})),
    ];
    let (said, store) = ran(&echo, calls).await;
    assert!(said[0].starts_with("[root/w completed") && said[0].ends_with("echo: look"), "{}", said[0]);
    let waited: Value = serde_json::from_str(&said[2]).unwrap();
    assert_eq!(waited["done"][0]["text"], "echo: again");
    let asked = echo.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].model.as_str(), asked[0].turn, asked[1].turn), ("large", 1, 2));
    assert_eq!((asked[0].path.as_str(), asked[0].may_spawn, asked[0].tools.len()), ("root/w", 0, 0));
    let listed = store.list(Default::default()).await.unwrap();
    assert_eq!(listed.iter().map(|info| info.head.turns).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn b150_an_unknown_provider_is_refused_and_so_is_a_second_one_of_a_name() {
    let echo = Echo::new(Capabilities::ALL);
    let nobody = ("subagent", json!({"prompt": "look", "provider": "nobody"}));
    let odd = ("subagent", json!({"prompt": "look", "provider": "spawn", "context": "fork"}));
    let (said, store) = ran(&echo, vec![nobody, odd]).await;
    assert!(said[0].contains("there is no provider \"nobody\"; there are spawn, fork, echo"), "{}", said[0]);
    assert!(said[1].contains("contradict"), "{}", said[1]);
    assert_eq!(store.list(Default::default()).await.unwrap().len(), 1);
    for name in ["echo", "spawn", "fork"] {
        let twice = Runtime::builder(Arc::new(MemoryStore::new())).model(script(vec![])).subagents(Echo::new(echo.can));
        let error = twice.subagents(Named(name)).build().await.unwrap_err();
        assert!(error.to_string().contains("DUPLICATE_PROVIDER"), "{error}");
    }
}

struct Named(&'static str);

impl Subagents for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn run(&self, _: SubagentRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        async { Err(Failure::new("NEVER", "nobody asks it")) }.boxed()
    }
}

#[tokio::test]
async fn b151_what_a_provider_cannot_do_is_refused_and_nobody_is_born() {
    let echo = Echo::new(Capabilities::default());
    let wishes = [
        ("context", json!({"context": "fork"})),
        ("model", json!({"model": "large"})),
        ("output_schema", json!({"output_schema": {"type": "object"}})),
        ("tools", json!({"tools": []})),
        ("may_spawn", json!({"may_spawn": 1})),
    ];
    let calls = wishes.iter().map(|(_, wish)| asks(wish.clone())).collect();
    let (said, store) = ran(&echo, calls).await;
    for ((name, _), said) in wishes.iter().zip(&said) {
        assert!(said.contains(&format!("echo does not know `{name}`")), "{name}: {said}");
    }
    assert_eq!((said.len(), echo.asked().len()), (5, 0));
    assert_eq!(store.list(Default::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_provider_of_one_turn_is_not_written_to_again() {
    let echo = Echo::new(Capabilities::default());
    let calls = vec![asks(json!({})), ("message_agent", json!({"agent": "w", "message": "again"}))];
    let (said, _) = ran(&echo, calls).await;
    assert!(said[1].contains("one turn a subagent"), "{}", said[1]);
    assert_eq!(echo.asked().len(), 1);
}

#[tokio::test]
async fn a_provider_gives_an_output_that_is_checked() {
    let echo = Echo::new(Capabilities::ALL);
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let (said, _) = ran(&echo, vec![asks(json!({"output_schema": schema}))]).await;
    assert!(said[0].ends_with("{\"n\":7}"), "{}", said[0]);
}

#[tokio::test]
async fn b162_a_provider_that_is_taken_away_ends_what_it_runs() {
    let echo = Echo { may: Arc::new(Semaphore::new(0)), ..Echo::new(Capabilities::ALL) };
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(script(vec![asks(json!({})), asks(json!({}))]));
    let runtime = builder.subagents(echo.clone()).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    echo.begun.notified().await;
    assert!(runtime.remove_subagents("echo") && !runtime.remove_subagents("echo"));
    echo.may.add_permits(1);
    runtime.quiesce(root.id()).await.unwrap();
    let text = root.outcome().await.unwrap().unwrap().text.to_string();
    let (first, second) = text.split_once('\u{1}').unwrap();
    assert!(first.ends_with("echo: look"), "{first}");
    assert!(second.contains("there is no provider \"echo\""), "{second}");
    runtime.add_subagents(echo).unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_is_answered_by_the_model_that_is_chosen_for_it_and_so_are_those_below() {
    let echo = Echo::new(Capabilities::ALL);
    let calls = vec![
        ("subagent", json!({"prompt": "look", "label": "a", "model": "small", "may_spawn": 1})),
        ("subagent", json!({"prompt": "look", "label": "b", "model": "scripted:other"})),
        ("subagent", json!({"prompt": "look", "label": "c", "context": "fork", "model": "third"})),
        ("subagent", json!({"prompt": "look", "label": "d", "model": "nobody:x"})),
        ("subagent", json!({"prompt": "look", "label": "e"})),
    ];
    let (said, store) = ran(&echo, calls).await;
    assert!(said[0].contains("root/a/below completed"), "{}", said[0]);
    let ends = ["small here", "other here", "third here", "with one of scripted", "any here"];
    for (said, end) in said.iter().zip(ends) {
        assert!(said.ends_with(end), "{said}");
    }
    // The choice outlives the process.
    let runtime = Runtime::builder(Arc::clone(&store)).model(script(vec![])).build().await.unwrap();
    let spec = AgentSpec::new("scripted", "new", std::env::temp_dir());
    let stored = store.list(Default::default()).await.unwrap();
    let id = |path: &str| stored.iter().find(|info| info.new.path.as_str() == path).unwrap().id();
    runtime.open(id("root"), spec).await.unwrap();
    for (path, text) in [("root/b", "other here"), ("root/a/below", "small here"), ("root/e", "new here")] {
        let child = runtime.wake(id(path)).await.unwrap();
        child.followup("again").await.unwrap();
        runtime.quiesce(id(path)).await.unwrap();
        assert_eq!(&*child.outcome().await.unwrap().unwrap().text, text, "{path}");
    }
    runtime.shutdown().await.unwrap();
}
