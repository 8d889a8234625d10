//! Forks at every boundary, of agents that are at it, at rest, or only stored.

use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentHandle, AgentSpec, Error, Runtime};
use impresario_kernel::invariant::check_log;
use impresario_kernel::{Boundary, Fact, Failure, Message, OutcomeKind, Seq};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{ChunkStream, Model, ModelRequest, SessionFilter, Store};
use impresario_stores::MemoryStore;
use serde_json::json;
use tokio::sync::Semaphore;

/// Says what people have said to it, in order.
fn echo() -> ScriptedModel {
    ScriptedModel::from_fn(|view: &View<'_>| Answer::text(heard(view.messages()).join("+")))
}

fn heard(messages: &[Arc<Message>]) -> Vec<String> {
    messages.iter().filter(|message| message.source.kind == "user").map(|message| message.text()).collect()
}

/// A script that keeps what it is asked, and answers when it is let.
struct Kept {
    script: ScriptedModel,
    gate: Arc<Semaphore>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Model for Kept {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        self.requests.lock().unwrap().push(request.clone());
        let (gate, answer) = (Arc::clone(&self.gate), self.script.stream(request));
        Box::pin(async move {
            gate.acquire().await.expect("it stays open").forget();
            answer.await
        })
    }
}

struct Home {
    store: Arc<MemoryStore>,
    gate: Arc<Semaphore>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Home {
    fn new(permits: usize) -> Self {
        Self { store: Arc::default(), gate: Arc::new(Semaphore::new(permits)), requests: Arc::default() }
    }

    async fn runtime(&self, script: ScriptedModel) -> Runtime {
        let (gate, requests) = (Arc::clone(&self.gate), Arc::clone(&self.requests));
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        Runtime::builder(store).model(Kept { script, gate, requests }).build().await.unwrap()
    }

    /// Waits until so many requests have been made.
    async fn asked(&self, times: usize) {
        while self.requests.lock().unwrap().len() < times {
            tokio::task::yield_now().await;
        }
    }

    async fn check(&self) {
        for info in self.store.list(SessionFilter::default()).await.unwrap() {
            let events: Vec<_> = self.store.read(info.id().clone(), Seq(0)).try_collect().await.unwrap();
            assert_eq!(check_log(&info.new.header, &events), [], "{}", info.id());
        }
    }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "any", std::env::temp_dir())
}

async fn said(agent: &AgentHandle, words: &str) -> String {
    agent.followup(words).await.unwrap();
    agent.wait().await.unwrap().expect("a turn has ended").text.to_string()
}

fn why(refused: Result<AgentHandle, Error>) -> String {
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), "REFUSED", "{refused}");
    refused.to_string()
}

#[tokio::test]
async fn an_agent_in_a_turn_is_forked_behind_the_one_before() {
    let home = Home::new(1);
    let runtime = home.runtime(echo()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    assert_eq!(said(&root, "one").await, "one");
    root.followup("two").await.unwrap();
    home.asked(2).await;
    let fork = root.fork().await.unwrap();
    assert!(why(root.fork_at(Boundary::Live).await).contains("runs no calls"));
    home.gate.add_permits(9);
    assert_eq!(said(&fork, "left").await, "one+left");
    root.wait().await.unwrap();
    assert_eq!(said(&root, "three").await, "one+two+three");
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn b031_a_fork_begins_between_turns_and_nowhere_else() {
    let home = Home::new(99);
    let runtime = home.runtime(echo()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    said(&root, "one").await;
    said(&root, "two").await;
    let events: Vec<_> = home.store.read(root.id().clone(), Seq(0)).try_collect().await.unwrap();
    let mut begun = vec![];
    let (mut inside, mut forks) = (false, 0);
    for event in &events {
        inside |= matches!(event.fact, Fact::TurnStarted(_));
        let fork = root.fork_at(Boundary::At(event.next_seq())).await;
        inside &= !matches!(event.fact, Fact::OutcomeReached(_));
        if inside {
            assert!(why(fork).contains("is within a turn"), "{event:?}");
        } else {
            forks += 1;
            begun.push(said(&fork.unwrap(), "three").await);
        }
    }
    begun.dedup();
    assert_eq!(begun, ["three", "one+three", "one+two+three"], "of {forks}");
    let end = events.last().unwrap().next_seq();
    assert!(why(root.fork_at(Boundary::At(end.plus(1))).await).contains(&format!("its log has {end} events")));
    assert_eq!(runtime.agents(SessionFilter::default()).await.unwrap().len(), 1 + forks, "no refused one is there");
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn a_fork_is_shown_as_many_of_the_last_turns_as_it_may_see() {
    let home = Home::new(99);
    let runtime = home.runtime(echo()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    for word in ["one", "two", "three"] {
        said(&root, word).await;
    }
    let mut ids = vec![];
    for (turns, expected) in
        [(0, "x"), (1, "three+x"), (2, "two+three+x"), (3, "one+two+three+x"), (9, "one+two+three+x")]
    {
        let fork = root.fork_at(Boundary::LastTurns(turns)).await.unwrap();
        assert_eq!(said(&fork, "x").await, expected, "{turns}");
        ids.push(fork.id().clone());
    }
    let told = home.requests.lock().unwrap().last().unwrap().messages.iter().map(|it| it.text()).collect::<String>();
    assert!(told.contains("Your place: root"), "what the runtime says is said again: {told}");
    runtime.shutdown().await.unwrap();
    // Read back, it sees what it saw.
    let runtime = home.runtime(echo()).await;
    let fork = runtime.open(&ids[1], spec()).await.unwrap();
    assert_eq!(said(&fork, "y").await, "three+x+y");
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn what_is_only_stored_is_forked_without_being_touched() {
    let home = Home::new(2);
    let script = || {
        ScriptedModel::from_fn(|view: &View<'_>| {
            let (heard, path) = (heard(view.messages()), view.scope().path.as_str());
            match (path, view.messages().len()) {
                ("root", 2) if heard == ["one"] => {
                    Answer::calls("", vec![("subagent".into(), json!({"prompt": "dig"}).to_string())])
                }
                ("root/a1", _) => Answer::text("I dug"),
                (_, known) => Answer::text(format!("{} after {known}", heard.join("+"))),
            }
        })
    };
    let runtime = home.runtime(script()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("one").await.unwrap();
    // The process dies when the root is about to say what came of it.
    home.asked(3).await;
    let root = root.id().clone();
    drop(runtime);
    home.gate.add_permits(99);
    let runtime = home.runtime(script()).await;
    let all = |filter| runtime.agents(filter);
    let before = all(SessionFilter::default()).await.unwrap();
    let child = before.iter().find(|info| info.new.header.parent_session.is_some()).unwrap().id().clone();
    let fork = runtime.fork(&child, Boundary::Completed, spec()).await.unwrap();
    // Its place, the task, the answer, the place that is the fork's, and this.
    assert_eq!(said(&fork, "and now").await, "and now after 5");
    let fork = runtime.fork(&root, Boundary::Completed, spec()).await.unwrap();
    assert_eq!(said(&fork, "instead").await, "instead after 2", "its turn was never finished");
    let nobody = runtime.fork(&"nobody".into(), Boundary::Completed, spec()).await;
    assert_eq!(nobody.unwrap_err().code(), "UNKNOWN_AGENT");
    let after = all(SessionFilter::default()).await.unwrap();
    for info in &before {
        let again = after.iter().find(|other| other.id() == info.id()).unwrap();
        assert_eq!(again.len, info.len, "{}", info.new.path);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b157_a_fork_that_says_nothing_has_no_answer_of_its_parents() {
    let home = Home::new(99);
    let script = ScriptedModel::from_fn(|view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root", 1) => {
            let fork = json!({"prompt": "fail", "context": "fork"}).to_string();
            Answer::calls("a word of the parent's", vec![("subagent".into(), fork)])
        }
        ("root", _) => Answer::text("well"),
        _ => Answer::failure(Failure::new("BAD_REQUEST", "no")),
    });
    let runtime = home.runtime(script).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("go").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    let child = runtime.agent(&receipt.agents[1].id).unwrap().outcome().await.unwrap().unwrap();
    assert_eq!((child.kind, &*child.text, child.spent.model_calls), (OutcomeKind::Failed, "", 1));
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn live_forks_ask_with_the_same_frame_and_the_same_conversation_as_their_parent() {
    let home = Home::new(99);
    let script = ScriptedModel::from_fn(|view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root", 1) => {
            let fork = |n: u32| json!({"prompt": format!("part {n}"), "context": "fork"}).to_string();
            Answer::calls("three of us", (0..3).map(|n| ("subagent".into(), fork(n))).collect())
        }
        _ => Answer::text("done"),
    });
    let runtime = home.runtime(script).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("go").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let requests = home.requests.lock().unwrap().clone();
    let (parents, forks): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.scope.path.as_str() == "root");
    assert_eq!((parents.len(), forks.len()), (2, 3));
    let frame = serde_json::to_string(&*parents[0].header).unwrap();
    let shared = parents[0].messages.len() + 1;
    for fork in forks {
        assert_eq!(serde_json::to_string(&*fork.header).unwrap(), frame, "tools and system text included");
        assert_eq!(fork.messages[..shared], parents[1].messages[..shared], "up to the answer that asked for them");
        assert!(Arc::ptr_eq(&fork.messages[shared - 1], &parents[1].messages[shared - 1]), "shared, not copied");
    }
    runtime.shutdown().await.unwrap();
}
