//! A model, tools and a store that do whatever a seed says.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{Access, AgentId, Event, Failure, Overlap, Seq, ToolSchema};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{
    Checkpoint, ChunkStream, Commit, Lease, Model, ModelRequest, SessionFilter, SessionInfo, Store, StoreError, Tool,
    ToolContext, ToolError, ToolOutput,
};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

use crate::dice::Dice;

/// Who asked a model, in order.
pub(crate) type Asked = Arc<Mutex<Vec<AgentId>>>;

/// How many models are being asked, and how many were at most.
#[derive(Default)]
pub(crate) struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Busy {
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn one(self: Arc<Self>) -> One {
        self.most.fetch_max(1 + self.now.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        One(self)
    }
}

/// Counts for as long as it is held.
struct One(Arc<Busy>);

impl Drop for One {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A model that counts who asks it at the same time.
pub(crate) struct Counted {
    pub(crate) model: ScriptedModel,
    pub(crate) busy: Arc<Busy>,
}

impl Model for Counted {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let (answer, busy) = (self.model.stream(request), Arc::clone(&self.busy));
        Box::pin(async move {
            let one = busy.one();
            let stream = answer.await?;
            Ok(stream
                .inspect(move |_| {
                    let _held = &one;
                })
                .boxed())
        })
    }
}

/// A model whose answers depend on the seed and on who asks in which turn and step, and on nothing else.
pub(crate) fn model(seed: u64, asked: Asked) -> ScriptedModel {
    ScriptedModel::from_fn(move |view| {
        asked.lock().unwrap().push(view.scope().agent.clone());
        answer(seed, view)
    })
}

fn answer(seed: u64, view: &View<'_>) -> Answer {
    let scope = view.scope();
    let mut dice = Dice::of(seed, &format!("{} {} {} {}", scope.path, scope.turn, scope.step, scope.attempt));
    let latency = Some(Duration::from_millis(dice.below(40)));
    if dice.one_in(12) {
        let code = if dice.one_in(2) { "SERVER" } else { "BAD_REQUEST" };
        return Answer { latency, ..Answer::failure(Failure::new(code, "as the seed says")) };
    }
    // Later steps and deeper agents ask for less, so that every tree ends.
    let depth = scope.path.as_str().matches('/').count() as u64;
    let eager = dice.below(3 + depth + 2 * u64::from(scope.step)) < 4;
    // One seed in forty is for wide trees.
    let width = if seed % 40 == 7 { 14 } else { 4 };
    let count = if eager { 1 + dice.below(width) } else { 0 };
    let calls = (0..count).map(|n| call(&mut dice, n)).collect();
    Answer { latency, ..Answer::calls(format!("{} says something", scope.path), calls) }
}

fn call(dice: &mut Dice, n: u64) -> (String, String) {
    let whom = format!("c{}", dice.below(4));
    let (name, arguments) = match dice.below(13) {
        0..=2 => (
            "subagent",
            json!({"prompt": format!("do {} of it", dice.below(9)), "label": format!("c{n}"), "may_spawn": 40}),
        ),
        3 => ("subagent", json!({"prompt": "do some of it, alone"})),
        4 => (
            "subagent",
            json!({"prompt": "do some of it", "background": true, "may_spawn": 9, "budget": {"tokens": 9000}}),
        ),
        5 => ("subagent", json!({"prompt": "go on from here", "context": "fork", "may_spawn": 9})),
        6 => {
            let until = ["all", "any", "first_success"][dice.below(3) as usize];
            let (timeout_ms, stop_rest) = (20 + dice.below(30_000), dice.one_in(3));
            ("wait_agents", json!({"timeout_ms": timeout_ms, "until": until, "stop_rest": stop_rest}))
        }
        7 => ("panic_now", json!({})),
        8 => ("linger", json!({})),
        9 => ("message_agent", json!({"agent": whom, "message": "and this"})),
        10 => ("interrupt_agent", json!({"agent": whom})),
        11 => ("stop_agent", json!({"agent": whom})),
        _ => ("nap", json!({})),
    };
    (name.into(), arguments.to_string())
}

/// Tools that take a while, never end by themselves, or panic.
pub(crate) fn tools() -> Vec<Arc<dyn Tool>> {
    let small = |name, overlap, run| Arc::new(Small { name, overlap, run }) as Arc<dyn Tool>;
    vec![
        small("nap", Overlap::Exclusive, |_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(25)).await;
                Ok(ToolOutput::text("rested"))
            })
        }),
        small("linger", Overlap::Parallel, |ctx: ToolContext| {
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = ctx.cancel.cancelled() => Err(ToolError::aborted()),
                    () = tokio::time::sleep(Duration::from_secs(40)) => Ok(ToolOutput::text("at last")),
                }
            })
        }),
        small("panic_now", Overlap::Parallel, |_| Box::pin(async { panic!("as the seed says") })),
    ]
}

type Run = fn(ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;

struct Small {
    name: &'static str,
    overlap: Overlap,
    run: Run,
}

impl Tool for Small {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: self.name.into(), description: "a test tool".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        self.overlap
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.run)(ctx)
    }
}

/// How many reads fail at most in one seed.
const READS_TO_FAIL: u64 = 12;

/// A store that is slow, and fails now and then for a while.
pub(crate) struct Unsteady {
    /// What it fails to give or take; this never fails.
    pub(crate) store: Arc<MemoryStore>,
    dice: AtomicU64,
    /// One commit in so many fails; 0 for none.
    fails: u64,
    /// How many reads have failed.
    unread: AtomicU64,
}

impl Unsteady {
    pub(crate) fn new(seed: u64, fails: u64) -> Self {
        Self { store: Arc::new(MemoryStore::new()), dice: AtomicU64::new(seed), fails, unread: AtomicU64::new(0) }
    }

    fn dice(&self) -> Dice {
        Dice(self.dice.fetch_add(1, Ordering::Relaxed))
    }

    fn fails_to_read(&self) -> bool {
        if self.fails == 0 || !self.dice().one_in(4 * self.fails) {
            return false;
        }
        // Not for ever: a tree of four hundred is opened from the front with every failure.
        self.unread.fetch_add(1, Ordering::Relaxed) < READS_TO_FAIL
    }
}

fn unread() -> StoreError {
    StoreError::Full { location: "the seed, reading".into() }
}

impl Store for Unsteady {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut dice = self.dice();
        let (store, fails) = (Arc::clone(&self.store), self.fails);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(dice.below(3))).await;
            if fails > 0 && dice.one_in(fails) {
                // Written or not: whoever is not told must send again.
                if dice.one_in(2) {
                    store.commit(commit).await?;
                }
                return Err(StoreError::Full { location: "the seed".into() });
            }
            store.commit(commit).await
        })
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        if self.fails_to_read() { Box::pin(async { Err(unread()) }) } else { self.store.info(id) }
    }

    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
        let events = self.store.read(id, from);
        // In the middle, behind some.
        let fails = self.fails_to_read().then(|| futures::stream::iter([Err(unread())]));
        match fails {
            Some(fails) => events.take(3).chain(fails).boxed(),
            None => events,
        }
    }

    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>> {
        if self.fails_to_read() { Box::pin(async { Err(unread()) }) } else { self.store.list(filter) }
    }

    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        self.store.put_artifact(owner, bytes)
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        self.store.artifact(name)
    }

    fn put_checkpoint(
        &self,
        lease: Option<Lease>,
        session: AgentId,
        mut checkpoint: Checkpoint,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut dice = self.dice();
        // Some are lost, some are torn, and some come late.
        if self.fails > 0 && dice.one_in(4) {
            let len = checkpoint.bytes.len() as u64;
            checkpoint.bytes.truncate(dice.below(len + 1) as usize);
        }
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(dice.below(100))).await;
            store.put_checkpoint(lease, session, checkpoint).await
        })
    }

    fn checkpoint(&self, session: AgentId) -> BoxFuture<'static, Result<Option<Checkpoint>, StoreError>> {
        if self.fails_to_read() { Box::pin(async { Err(unread()) }) } else { self.store.checkpoint(session) }
    }

    fn location(&self) -> String {
        "the seed".into()
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
