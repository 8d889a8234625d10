//! What is durable before what: a store that fails, stalls and lies at every call, and looks at each act that leaves the
//! runtime whether its reason had been written. And what changes when less is asked for.

#[path = "../../kernel/tests/kit/dice.rs"]
#[allow(dead_code)]
mod dice;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dice::Dice;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use impresario_actors::{AgentSpec, Durability, Limits, Runtime, Seen};
use impresario_kernel::event::{Fact, ToolSchema};
use impresario_kernel::invariant::check_log;
use impresario_kernel::{Access, AgentId, Chunk, Event, Failure, FinishReason, Millis, Overlap, Seq, SessionHeader};
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{
    ChunkStream, Commit, Lease, Model, ModelRequest, Observed, SessionFilter, SessionInfo, Store, StoreError, Tool,
    ToolContext, ToolError, ToolOutput,
};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The fates of commits.
const FAILS: u64 = 0;
const LIES: u64 = 1;
const STALLS: u64 = 2;
const STALLS_BEHIND: u64 = 3;
const WORKS: u64 = 4;

/// A store in memory whose commits go wrong as a seed says, and wait while its door is shut.
struct Fickle {
    store: Arc<MemoryStore>,
    dice: Mutex<Dice>,
    /// What becomes of the next commits, or that the dice say it.
    fate: Mutex<Option<u64>>,
    door: watch::Sender<bool>,
    /// How many commits need not be flushed, and how many must be.
    buffered: AtomicUsize,
    flushed: AtomicUsize,
}

impl Fickle {
    fn new(seed: u64, fate: Option<u64>) -> Arc<Self> {
        let (buffered, flushed) = Default::default();
        let (dice, door) = (Mutex::new(Dice(seed)), watch::Sender::new(true));
        Arc::new(Self { store: Arc::default(), dice, fate: Mutex::new(fate), door, buffered, flushed })
    }

    /// What is written of a session; reading memory waits for nothing.
    fn log(&self, id: &AgentId) -> Vec<Arc<Event>> {
        let events = self.store.read(id.clone(), Seq(0)).try_collect::<Vec<_>>();
        events.now_or_never().expect("memory waits for nothing").unwrap_or_default()
    }
}

impl Store for Fickle {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        let counter = if commit.is_buffered { &self.buffered } else { &self.flushed };
        counter.fetch_add(1, Ordering::SeqCst);
        let fate = self.fate.lock().unwrap().unwrap_or_else(|| self.dice.lock().unwrap().below(12));
        let (store, mut door) = (Arc::clone(&self.store), self.door.subscribe());
        async move {
            door.wait_for(|is_open| *is_open).await.expect("the store is there");
            let failed = || Err(StoreError::Full { location: "fickle".into() });
            match fate {
                // Nothing was written, and it says so.
                FAILS => return failed(),
                // It lies: all was written.
                LIES => return store.commit(commit).await.and_then(|()| failed()),
                // It stalls, before and behind.
                STALLS => tokio::time::sleep(Duration::from_secs(30)).await,
                STALLS_BEHIND => {
                    store.commit(commit).await?;
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    return Ok(());
                }
                _ => tokio::task::yield_now().await,
            }
            store.commit(commit).await
        }
        .boxed()
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        self.store.info(id)
    }

    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
        self.store.read(id, from)
    }

    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>> {
        self.store.list(filter)
    }

    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        self.store.put_artifact(owner, bytes)
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        self.store.artifact(name)
    }

    fn location(&self) -> String {
        "fickle".into()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        self.store.lease()
    }

    fn take_over(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        self.store.take_over()
    }

    fn delete(&self, lease: Option<Lease>, sessions: Vec<AgentId>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.store.delete(lease, sessions)
    }
}

/// A model that looks into the store before it answers, and counts.
struct Watching {
    store: Arc<Fickle>,
    model: ScriptedModel,
    asked: Arc<AtomicU64>,
}

impl Model for Watching {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let scope = &request.scope;
        let log = self.store.log(&scope.agent);
        let is_step = |event: &Arc<Event>| matches!(&event.fact, Fact::StepStarted(mark) if (mark.turn, mark.step) == (scope.turn, scope.step));
        assert!(log.iter().any(is_step), "{}: asked in a step that is not written", scope.path);
        for message in &request.messages {
            let is_written = log.iter().any(|event| event.fact.message().is_some_and(|known| known.id == message.id));
            assert!(is_written, "{}: {} is shown and not written", scope.path, message.id);
            if message.text().contains("done") && message.source.kind == "tool" {
                self.children_have_ended(&scope.agent);
            }
        }
        self.model.stream(request)
    }

    fn is_scripted(&self) -> bool {
        true
    }
}

impl Watching {
    /// Who is told how its children came out is told what they have written.
    fn children_have_ended(&self, parent: &AgentId) {
        let filter = SessionFilter { parent: Some(parent.clone()), ..SessionFilter::default() };
        let children = self.store.list(filter).now_or_never().expect("memory waits for nothing").unwrap();
        for child in children {
            let has_ended =
                self.store.log(child.id()).iter().any(|event| matches!(event.fact, Fact::OutcomeReached(_)));
            assert!(has_ended, "{} has answered and not written it", child.new.path);
        }
    }
}

/// A tool that looks whether its call is written when it starts.
struct Act(Arc<Fickle>, Arc<AtomicU64>);

impl Tool for Act {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: "act".into(), description: "a test tool".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        Overlap::Parallel
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let is_call =
            |event: &Arc<Event>| matches!(&event.fact, Fact::ToolCalled(called) if called.call_id == ctx.call);
        assert!(self.0.log(&ctx.agent).iter().any(is_call), "{} runs and is not written", ctx.call);
        async { Ok(ToolOutput::text("done")) }.boxed()
    }
}

struct World {
    store: Arc<Fickle>,
    runtime: Runtime,
    asked: Arc<AtomicU64>,
    acted: Arc<AtomicU64>,
}

async fn world(store: &Arc<Fickle>) -> World {
    let (asked, acted) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let model = Watching { store: store.clone(), model: ScriptedModel::builtin(), asked: asked.clone() };
    let runtime = Runtime::builder(store.clone())
        .model(model)
        .tool(Arc::new(Act(store.clone(), acted.clone())))
        .limits(Limits { idle_after: None, ..Limits::default() })
        .seeded(7);
    World { store: store.clone(), runtime: runtime.build().await.unwrap(), asked, acted }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "builtin", std::env::temp_dir())
}

const TASK: &str = "[[FANOUT n=3 tool=subagent leaf=\"tool=act args={}\"]]";

#[tokio::test(start_paused = true)]
// The seed of a failure is the last that was printed.
#[allow(clippy::print_stdout)]
async fn nothing_acts_on_what_is_not_written_whatever_the_store_does() {
    let seeds = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    for seed in seeds.map_or(0..200, |seed: u64| seed..seed + 1) {
        println!("seed {seed}");
        let World { store, runtime, asked, acted } = world(&Fickle::new(seed * 1_000, None)).await;
        let root = runtime.spawn(spec()).await.unwrap();
        for turn in 1..=2 {
            let id = root.followup(TASK).await.unwrap();
            let is_told = |event: &Arc<Event>| {
                let Fact::InboxSpliced(splice) = &event.fact else { return false };
                splice.inserted.iter().any(|message| message.id == id)
            };
            assert!(store.log(root.id()).iter().any(is_told), "accepted and not written");
            let outcome = root.wait().await.unwrap().unwrap();
            assert_eq!((outcome.turn, &*outcome.text), (turn, "fanout done results=3"));
            let is_out =
                |event: &Arc<Event>| matches!(&event.fact, Fact::OutcomeReached(reached) if reached.turn == turn);
            assert!(store.log(root.id()).iter().any(is_out), "waited for and not written");
        }
        runtime.shutdown().await.unwrap();
        // A call of the model for each step: nothing was tried again because the store had failed.
        assert_eq!((asked.load(Ordering::SeqCst), acted.load(Ordering::SeqCst)), (2 * (2 + 3 * 2), 2 * 3));
        assert_eq!(store.buffered.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_lose_its_last_moments_waits_for_no_disk_and_its_children_neither() {
    let store = Fickle::new(0, Some(WORKS));
    let runtime = Runtime::builder(store.clone()).model(ScriptedModel::builtin()).build().await.unwrap();
    let durable = runtime.spawn(spec()).await.unwrap();
    let flushed = store.flushed.load(Ordering::SeqCst);
    store.door.send_replace(false);
    let root = runtime.spawn(spec().durability(Durability::Buffered)).await.unwrap();
    root.followup("[[FANOUT n=3 tool=subagent]]").await.unwrap();
    assert_eq!(&*root.wait().await.unwrap().unwrap().text, "fanout done results=3");
    let waits = tokio::time::timeout(Duration::from_secs(60), durable.followup("[[SAY hi]]")).await;
    assert!(waits.is_err(), "what must be durable waits for the disk");
    assert_eq!(store.log(root.id()).len(), 0, "nothing of it is written yet");

    store.door.send_replace(true);
    // Whoever reads finds what was said to be written.
    let said: Vec<String> = root.transcript().await.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(said.last().map(String::as_str), Some("fanout done results=3"));
    let filter = SessionFilter { root: Some(root.id().clone()), ..SessionFilter::default() };
    let outcomes: BTreeMap<String, bool> = (runtime.agents(filter).await.unwrap().into_iter())
        .map(|info| (info.new.path.to_string(), info.head.outcome.is_some()))
        .collect();
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.values().all(|has_ended| *has_ended), "{outcomes:?}");
    assert_eq!(durable.wait().await.unwrap().map(|outcome| outcome.text.to_string()).as_deref(), Some("hi"));
    assert!(store.buffered.load(Ordering::SeqCst) > 0, "these need not be flushed");
    assert!(store.flushed.load(Ordering::SeqCst) > flushed, "and these must be");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_promised_while_the_store_fails() {
    let store = Fickle::new(0, Some(WORKS));
    let runtime = Runtime::builder(store.clone()).model(ScriptedModel::builtin()).build().await.unwrap();
    let root = runtime.spawn(spec().durability(Durability::Buffered)).await.unwrap();
    root.followup("[[SAY one]]").await.unwrap();
    root.wait().await.unwrap();
    root.transcript().await.unwrap();
    *store.fate.lock().unwrap() = Some(FAILS);
    // That it fails now nobody knows yet.
    root.inject("a note").await.unwrap();
    let is_late = |text: &'static str| tokio::time::timeout(Duration::from_secs(60), root.inject(text));
    assert!(is_late("another note").await.is_err(), "it is known that the store fails");
    *store.fate.lock().unwrap() = Some(WORKS);
    root.inject("the last").await.unwrap();
    assert_eq!(root.followup("[[SAY two]]").await.map(|_| ()).ok(), Some(()));
    assert_eq!(&*root.wait().await.unwrap().unwrap().text, "two");
    let said: Vec<String> = root.transcript().await.unwrap().iter().map(|message| message.text()).collect();
    for text in ["a note", "another note", "the last", "two"] {
        assert!(said.iter().any(|said| said.contains(text)), "{text} is lost: {said:?}");
    }
    runtime.shutdown().await.unwrap();
}

/// A model that says a word every twenty milliseconds.
struct Slow;

impl Model for Slow {
    fn provider(&self) -> &str {
        "slow"
    }

    fn stream(&self, _: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let words = stream::iter(0..100u32).then(|n| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(Chunk::TextDelta { index: 0, text: format!("{n} ") })
        });
        let finish = stream::iter([Ok(Chunk::Finish { reason: FinishReason::Stop, replay_state: None })]);
        async { Ok(words.chain(finish).boxed()) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn the_words_of_an_answer_are_seen_as_they_come_and_written_some_at_a_time() {
    let store = Fickle::new(0, Some(WORKS));
    let runtime = Runtime::builder(store.clone()).model(Slow).build().await.unwrap();
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(AgentSpec::new("slow", "slow", std::env::temp_dir())).await.unwrap();
    root.followup("speak").await.unwrap();
    let began = tokio::time::Instant::now();
    while !matches!(seen.next().await, Some(Seen::Event(event)) if matches!(event.what, Observed::TextDelta { .. })) {}
    assert!(began.elapsed() < Duration::from_millis(50), "the first word is seen after {:?}", began.elapsed());
    let said = root.wait().await.unwrap().unwrap().text.to_string();
    assert_eq!(said, (0..100).map(|n| format!("{n} ")).collect::<String>());
    runtime.shutdown().await.unwrap();
    let log = store.log(root.id());
    let runs: Vec<_> = (log.iter())
        .filter_map(|event| match &event.fact {
            Fact::Chunks(run) => Some(run),
            _ => None,
        })
        .collect();
    assert!(runs.len() <= 5, "two seconds of words in {} rows", runs.len());
    assert_eq!(runs.iter().flat_map(|run| &run.deltas).cloned().collect::<String>(), said);
    let header = SessionHeader::new(root.id().clone(), Millis(0));
    assert_eq!(check_log(&header, &log), []);
}
