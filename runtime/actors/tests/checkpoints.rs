//! Long logs are read from a checkpoint on, and whatever is wrong with one changes nothing but that.

use std::sync::Arc;

use futures::TryStreamExt;
use impresario_actors::{AgentHandle, AgentSpec, Limits, Runtime};
use impresario_kernel::invariant::check_log;
use impresario_kernel::{AgentId, Boundary, Event, Fact, Millis, Seq, SessionHeader};
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{Checkpoint, Store};
use impresario_stores::{MemoryStore, SqliteStore};

async fn start(store: &Arc<dyn Store>, after: Option<u64>) -> Runtime {
    let limits = Limits { checkpoint_after: after, ..Limits::default() };
    Runtime::builder(store.clone()).model(ScriptedModel::builtin()).limits(limits).build().await.unwrap()
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "builtin", std::env::temp_dir())
}

async fn told(agent: &AgentHandle, text: &str) -> String {
    agent.followup(&format!("[[SAY {text}]]")).await.unwrap();
    agent.wait().await.unwrap().unwrap().text.to_string()
}

async fn log(store: &Arc<dyn Store>, id: &AgentId) -> Vec<Arc<Event>> {
    let events: Vec<_> = store.read(id.clone(), Seq(0)).try_collect().await.unwrap();
    assert_eq!(check_log(&SessionHeader::new(id.clone(), Millis(0)), &events), []);
    events
}

/// A root that has had three turns, and is written down.
async fn begin(store: &Arc<dyn Store>) -> AgentId {
    let runtime = start(store, Some(1)).await;
    let root = runtime.spawn(spec()).await.unwrap();
    for text in ["one", "two", "three"] {
        assert_eq!(told(&root, text).await, text);
    }
    runtime.shutdown().await.unwrap();
    root.id().clone()
}

#[tokio::test]
async fn an_agent_comes_back_from_its_checkpoint_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join("store.sqlite")).unwrap());
    let id = begin(&store).await;
    let written = log(&store, &id).await;
    let kept = store.checkpoint(id.clone()).await.unwrap().expect("a checkpoint");
    assert_eq!(Some(kept.until), written.last().map(|last| last.next_seq()));

    let runtime = start(&store, None).await;
    let root = runtime.open(&id, spec()).await.unwrap();
    assert_eq!(told(&root, "four").await, "four");
    // Where its log is not at hand any more, forks read it from the store.
    let turns: Vec<Seq> =
        (written.iter()).filter(|event| matches!(event.fact, Fact::TurnStarted(_))).map(|event| event.seq).collect();
    for boundary in [Boundary::At(turns[1]), Boundary::LastTurns(3), Boundary::LastTurns(1), Boundary::Completed] {
        let fork = root.fork_at(boundary).await.unwrap();
        assert_eq!(told(&fork, "fork").await, "fork");
        let said = fork.transcript().await.unwrap();
        let has = |text: &str| said.iter().any(|message| message.source.kind == "model" && message.text() == text);
        let is_cut = matches!(boundary, Boundary::At(_));
        assert_eq!((has("one"), has("two"), has("four")), (true, !is_cut, !is_cut), "{boundary:?}");
        log(&store, fork.id()).await;
    }
    runtime.shutdown().await.unwrap();
    log(&store, &id).await;
}

#[tokio::test]
async fn a_checkpoint_that_does_not_fit_is_not_used() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (id, other) = (begin(&store).await, begin(&store).await);
    let own = store.checkpoint(id.clone()).await.unwrap().expect("a checkpoint");
    let others = store.checkpoint(other).await.unwrap().expect("a checkpoint");
    let text = String::from_utf8(own.bytes.clone()).unwrap();
    let half = text[..text.len() / 2].into();
    let ahead = text.replacen("\"next\":", "\"next\":9", 1).into();
    let newer = text.replacen("1\n", "999\n", 1).into();
    for (what, bytes) in
        [("another's", others.bytes), ("half", half), ("ahead", ahead), ("newer", newer), ("none", vec![])]
    {
        assert_ne!(bytes, own.bytes, "{what}");
        store.put_checkpoint(None, id.clone(), Checkpoint { until: own.until, bytes }).await.unwrap();
        let runtime = start(&store, None).await;
        let root = runtime.open(&id, spec()).await.unwrap();
        assert_eq!(told(&root, what).await, what);
        let said: Vec<String> = root.transcript().await.unwrap().iter().map(|message| message.text()).collect();
        assert!(said.iter().any(|said| said == "one"), "{what}: {said:?}");
        runtime.shutdown().await.unwrap();
        log(&store, &id).await;
    }
}

#[tokio::test]
async fn a_fork_of_a_long_log_writes_nothing_of_it_down() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let id = begin(&store).await;
    let runtime = start(&store, Some(20)).await;
    let root = runtime.open(&id, spec()).await.unwrap();
    let fork = root.fork().await.unwrap();
    assert_eq!(told(&fork, "four").await, "four");
    runtime.shutdown().await.unwrap();
    assert_eq!(store.checkpoint(fork.id().clone()).await.unwrap(), None);
}
