//! Agents that rest go to the store and keep their addresses; whatever is wanted of them brings them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentHandle, AgentSpec, Error, Limits, Runtime};
use impresario_kernel::invariant::check_log;
use impresario_kernel::{AgentId, Budget, Event, Millis, OutcomeKind, Seq, SessionHeader};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Hook, HookCall, SessionFilter, Store, Verdict};
use impresario_stores::MemoryStore;
use serde_json::json;

const IDLE: Duration = Duration::from_secs(60);

/// Says what it was told since it last spoke; a root that is told to spawn has a child do it.
fn script() -> ScriptedModel {
    ScriptedModel::from_fn(|view: &View<'_>| {
        let messages = view.messages();
        let last = messages.iter().rposition(|message| message.source.kind == "model").map_or(0, |at| at + 1);
        let told: Vec<String> = messages[last..]
            .iter()
            .filter(|message| message.source.kind != "plugin" && message.source.kind != "tool")
            .map(|message| message.text())
            .collect();
        let told = told.join("+");
        match told.strip_prefix("spawn ") {
            Some(rest) => {
                let slow = rest.starts_with("slow");
                let arguments = json!({"prompt": rest, "label": "w", "background": slow, "may_spawn": 1});
                Answer::calls("", vec![("subagent".into(), arguments.to_string())])
            }
            None => {
                let latency = told.starts_with("slow").then_some(Duration::from_secs(600));
                Answer { latency, ..Answer::text(format!("[{told}]")) }
            }
        }
    })
}

async fn start(store: &Arc<MemoryStore>, limits: Limits) -> Runtime {
    Runtime::builder(store.clone()).model(script()).limits(limits).build().await.unwrap()
}

fn limits() -> Limits {
    Limits { idle_after: Some(IDLE), ..Limits::default() }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "any", std::env::temp_dir())
}

async fn told(agent: &AgentHandle, text: &str) -> String {
    agent.followup(text).await.unwrap();
    agent.wait().await.unwrap().unwrap().text.to_string()
}

async fn log(store: &MemoryStore, id: &AgentId) -> Vec<Arc<Event>> {
    let events: Vec<_> = store.read(id.clone(), Seq(0)).try_collect().await.unwrap();
    assert_eq!(check_log(&SessionHeader::new(id.clone(), Millis(0)), &events), []);
    events
}

async fn child(runtime: &Runtime, root: &AgentId) -> AgentId {
    let filter = SessionFilter { parent: Some(root.clone()), ..SessionFilter::default() };
    runtime.agents(filter).await.unwrap()[0].id().clone()
}

#[tokio::test(start_paused = true)]
async fn who_rests_goes_to_the_store_and_comes_back_for_mail_as_if_it_had_stayed() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, limits()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    assert_eq!(told(&root, "one").await, "[one]");
    tokio::time::sleep(IDLE / 2).await;
    assert_eq!((runtime.resident(), told(&root, "two").await.as_str()), (1, "[two]"));
    // The clock begins anew with every rest.
    tokio::time::sleep(IDLE * 2 / 3).await;
    assert_eq!(runtime.resident(), 1);
    tokio::time::sleep(IDLE).await;
    assert_eq!(runtime.resident(), 0);
    let before = log(&store, root.id()).await;
    // A question brings it back, and being away has left nothing in its log.
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "[two]");
    assert_eq!((runtime.resident(), log(&store, root.id()).await.len()), (1, before.len()));
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!(runtime.resident(), 0);
    assert_eq!(told(&runtime.agent(root.id()).unwrap(), "three").await, "[three]");
    runtime.shutdown().await.unwrap();
    log(&store, root.id()).await;
}

#[tokio::test(start_paused = true)]
async fn who_works_stays_and_a_child_finds_a_parent_that_went_away() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, limits()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    assert_eq!(told(&root, "spawn slow").await, "[]");
    tokio::time::sleep(IDLE * 3).await;
    // The child has ten minutes to think; its parent has nothing to do meanwhile.
    assert_eq!(runtime.resident(), 1);
    let worker = child(&runtime, root.id()).await;
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("[root/w completed") && said.contains("[slow]"), "{said}");
    tokio::time::sleep(IDLE * 3).await;
    assert_eq!(runtime.resident(), 0);
    // Mail for the child brings those above it back, and its next answer is told there.
    let worker = runtime.wake(&worker).await.unwrap();
    assert_eq!(runtime.resident(), 2);
    assert_eq!(told(&worker, "more").await, "[more]");
    runtime.quiesce(root.id()).await.unwrap();
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("[more]"), "{said}");
    runtime.shutdown().await.unwrap();
    let told: Vec<String> = log(&store, root.id()).await.iter().map(|event| format!("{:?}", event.fact)).collect();
    assert!(!told.iter().any(|fact| fact.starts_with("SeedEnded")), "its life was one");
    for answer in ["[slow]", "[more]"] {
        let notice = |fact: &&String| fact.starts_with("UserMessage") && fact.contains(answer);
        assert_eq!(told.iter().filter(notice).count(), 1, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_ceiling_sends_away_who_rests_longest_and_nobody_who_works() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, Limits { idle_after: None, resident_max: Some(3), ..limits() }).await;
    let slow = runtime.spawn(spec()).await.unwrap();
    slow.followup("slow").await.unwrap();
    let mut roots = vec![];
    for n in 0..20 {
        let root = runtime.spawn(spec()).await.unwrap();
        assert_eq!(told(&root, &n.to_string()).await, format!("[{n}]"));
        roots.push(root);
        assert!(runtime.resident() <= 4, "{}", runtime.resident());
    }
    runtime.quiesce(roots[19].id()).await.unwrap();
    assert!(runtime.resident() <= 3, "{}", runtime.resident());
    assert_eq!(&*slow.wait().await.unwrap().unwrap().text, "[slow]");
    for (n, root) in roots.iter().enumerate() {
        assert_eq!(told(root, "again").await, "[again]");
        assert_eq!(root.transcript().await.unwrap().iter().filter(|message| message.source.kind == "model").count(), 2);
        assert!(runtime.resident() <= 4, "{n}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_is_never_lost_between_the_actor_and_the_store() {
    // The moments at which one goes away and a message comes are as close as they get.
    for n in 0..200 {
        let store = Arc::new(MemoryStore::new());
        let limits = Limits { idle_after: Some(Duration::from_millis(7)), ..limits() };
        let runtime = Runtime::builder(store.clone()).model(script()).limits(limits).seeded(n).build().await.unwrap();
        let root = runtime.spawn(spec()).await.unwrap();
        for m in 0..8_u64 {
            assert_eq!(told(&root, &format!("{m}")).await, format!("[{m}]"), "seed {n}");
            tokio::time::sleep(Duration::from_millis(6 + (n + m) % 3)).await;
        }
        runtime.shutdown().await.unwrap();
        log(&store, root.id()).await;
    }
}

/// Counts the calls that it judges, and denies them.
struct Guard(Arc<AtomicUsize>);

impl Hook for Guard {
    fn name(&self) -> &str {
        "guard"
    }

    fn points(&self) -> &[impresario_kernel::Point] {
        &[]
    }

    fn pre_execute(&self, _: Arc<HookCall>) -> BoxFuture<'static, Verdict> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Verdict::Deny { reason: "not today".into() } })
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_rights_and_budgets_come_back_with_it() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, limits()).await;
    let judged = Arc::new(AtomicUsize::new(0));
    let budget = Budget { tokens: Some(1_000_000), ..Budget::default() };
    let guarded = AgentSpec { budget: Some(budget), ..spec().hook(Guard(Arc::clone(&judged))) };
    let root = runtime.spawn(guarded).await.unwrap();
    assert_eq!(told(&root, "one").await, "[one]");
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!(runtime.resident(), 0);
    assert_eq!(told(&root, "spawn child").await, "[]");
    assert_eq!(judged.load(Ordering::SeqCst), 1, "its hook has said no to the child");
    let spent = runtime.reopen(root.id()).await.unwrap().outcome().await.unwrap().unwrap().spent;
    assert!(spent.input_tokens > 0);
    let tree = log(&store, &root.id().tree_log()).await;
    let settled = tree.iter().filter(|event| format!("{:?}", event.fact).starts_with("BudgetSettled")).count();
    assert_eq!(settled, 3, "each of its model calls is paid for");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whatever_is_stored_can_be_written_to_and_is_as_its_log_says() {
    let store = Arc::new(MemoryStore::new());
    let first = start(&store, limits()).await;
    let root = first.spawn(AgentSpec { system: Some("Be brief.".into()), ..spec() }).await.unwrap();
    assert_eq!(told(&root, "spawn child").await, "[]");
    let worker = child(&first, root.id()).await;
    let never = first.spawn(spec()).await.unwrap();
    first.shutdown().await.unwrap();

    let second = start(&store, limits()).await;
    // Nothing was opened: the child alone is asked for, and those above it come with it.
    let worker = second.wake(&worker).await.unwrap();
    assert_eq!(told(&worker, "more").await, "[more]");
    second.quiesce(root.id()).await.unwrap();
    let root = second.agent(root.id()).unwrap();
    assert!(root.outcome().await.unwrap().unwrap().text.contains("[more]"));
    let texts: Vec<String> = log(&store, root.id()).await.iter().map(|event| format!("{:?}", event.fact)).collect();
    let headers = texts.iter().filter(|text| text.starts_with("RequestHeader"));
    assert_eq!(headers.filter(|text| text.contains("Be brief.")).count(), 2, "one a life");
    assert!(matches!(second.wake(never.id()).await, Err(Error::Unreadable { .. })), "nobody knows its model");
    assert!(matches!(second.wake(&"nobody".into()).await, Err(Error::UnknownAgent(_))));
    second.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_rests_is_deleted_and_one_that_works_is_not() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, limits()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    told(&root, "spawn slow").await;
    let worker = child(&runtime, root.id()).await;
    assert!(matches!(runtime.delete(root.id()).await, Err(Error::Refused(_))));
    assert!(matches!(runtime.delete(&worker).await, Err(Error::Refused(_))));
    runtime.quiesce(root.id()).await.unwrap();
    let fork = root.fork().await.unwrap();
    runtime.delete(root.id()).await.unwrap();
    assert!(matches!(root.followup("still there?").await, Err(Error::Closed)));
    assert!(matches!(runtime.delete(root.id()).await, Err(Error::UnknownAgent(_))));
    // A fork of it stays whole, can be forked, and outlives the process.
    assert_eq!(told(&fork, "fork").await, "[fork]");
    let again = fork.fork().await.unwrap();
    runtime.shutdown().await.unwrap();
    let runtime = start(&store, limits()).await;
    let fork = runtime.reopen(fork.id()).await.unwrap();
    assert_eq!(told(&fork, "on").await, "[on]");
    let said = runtime.fork(again.id(), impresario_kernel::Boundary::Completed, spec()).await.unwrap();
    assert!(said.transcript().await.unwrap().iter().any(|message| message.text() == "spawn slow"));
    assert_eq!(runtime.agents(SessionFilter::default()).await.unwrap().len(), 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_injected_waits_in_the_store_and_a_stop_reaches_who_is_there() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(&store, limits()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    assert_eq!(told(&root, "one").await, "[one]");
    root.inject("by the way").await.unwrap();
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!(runtime.resident(), 0);
    root.interrupt(impresario_kernel::Cause::user("nothing to interrupt")).unwrap();
    let receipt = runtime.stop(root.id(), impresario_kernel::Cause::user("enough"), IDLE).await.unwrap();
    assert_eq!((receipt.at_rest(), receipt.parked), (true, 1));
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!(runtime.resident(), 0);
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!((receipt.agents[0].outcome, receipt.parked), (Some(OutcomeKind::Completed), 1));
    assert_eq!(told(&root, "two").await, "[by the way+two]");
    runtime.shutdown().await.unwrap();
}
