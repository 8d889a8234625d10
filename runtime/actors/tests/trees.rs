//! Trees of agents on scripted models and the memory store: what a caller sees, and what the logs say of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Error, Limits, Runtime, Seen, Subscription};
use impresario_kernel::event::ToolSchema;
use impresario_kernel::invariant::check_log;
use impresario_kernel::{
    Access, Agent, AgentId, Cause, Event, Fact, OutcomeKind, Overlap, RequestHeader, RestartPolicy, Seq, Spec,
};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{
    Commit, Lease, Observed, SessionFilter, SessionInfo, Store, StoreError, Tool, ToolContext, ToolError, ToolOutput,
};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

/// A tool of one line.
struct Small {
    name: &'static str,
    run: fn(ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>,
}

impl Tool for Small {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: self.name.into(), description: "a test tool".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        Overlap::Parallel
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.run)(ctx)
    }
}

fn panics() -> Arc<dyn Tool> {
    Arc::new(Small { name: "panic_now", run: |_| Box::pin(async { panic!("as asked") }) })
}

/// Runs until it is cancelled.
fn lingers() -> Arc<dyn Tool> {
    Arc::new(Small {
        name: "linger",
        run: |ctx: ToolContext| {
            Box::pin(async move {
                ctx.cancel.cancelled().await;
                Err(ToolError::aborted())
            })
        },
    })
}

/// Never ends, whatever anybody says.
fn hangs() -> Arc<dyn Tool> {
    Arc::new(Small { name: "hang", run: |_| Box::pin(std::future::pending()) })
}

async fn start(store: Arc<dyn Store>, limits: Limits) -> Runtime {
    Runtime::builder(store)
        .model(ScriptedModel::builtin())
        .tools([panics(), lingers(), hangs()])
        .limits(limits)
        .build()
        .await
        .unwrap()
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "builtin", std::env::temp_dir())
}

/// A store, a tree that was run on it, and what the root said last.
struct Ran {
    store: Arc<MemoryStore>,
    runtime: Runtime,
    root: AgentId,
    text: String,
}

async fn run_with(limits: Limits, prompt: &str) -> Ran {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), limits).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup(prompt).await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    let outcome = root.outcome().await.unwrap().unwrap();
    Ran { store, runtime, root: root.id().clone(), text: outcome.text.to_string() }
}

async fn run(prompt: &str) -> Ran {
    run_with(Limits { running_max: 64, descendants_max: 10_000, ..Limits::default() }, prompt).await
}

async fn log_of(store: &dyn Store, id: &AgentId) -> Vec<Arc<Event>> {
    store.read(id.clone(), Seq(0)).try_collect().await.unwrap()
}

fn any_spec() -> Arc<Spec> {
    Arc::new(Spec::new(RequestHeader::new("any", "any")))
}

/// Every log of the tree folds and keeps every invariant; all agents are at rest. Returns the agents by path.
async fn verified(store: &dyn Store, root: &AgentId) -> Vec<(SessionInfo, Agent)> {
    let mut infos = store.list(SessionFilter { root: Some(root.clone()), ..SessionFilter::default() }).await.unwrap();
    infos.sort_by_key(|info| info.new.path.clone());
    let mut agents = vec![];
    for info in infos {
        let events = log_of(store, info.id()).await;
        assert_eq!(check_log(&info.new.header, &events), [], "{}", info.new.path);
        let agent = Agent::fold(any_spec(), events.iter()).unwrap();
        assert!(agent.turn().is_idle(), "{} has an open turn", info.new.path);
        assert_eq!(info.head.outcome, agent.outcome().map(|outcome| outcome.kind), "{}", info.new.path);
        agents.push((info, agent));
    }
    agents
}

fn count(agents: &[(SessionInfo, Agent)], kind: OutcomeKind) -> usize {
    agents.iter().filter(|(info, _)| info.head.outcome == Some(kind)).count()
}

#[tokio::test]
async fn a_fan_out_of_64_brings_every_result_back() {
    let ran = run("[[FANOUT n=64 tool=subagent]]").await;
    assert_eq!(ran.text, "fanout done results=64");
    let agents = verified(&*ran.store, &ran.root).await;
    assert_eq!((agents.len(), count(&agents, OutcomeKind::Completed)), (65, 65));
    let tree = log_of(&*ran.store, &ran.root.tree_log()).await;
    let delivered = tree.iter().filter(|event| matches!(event.fact, Fact::TreeDelivered(_))).count();
    assert_eq!(delivered, 64);
    ran.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn any_limit_on_running_turns_gets_a_chain_and_a_fan_out_done() {
    for running_max in [1, 2, 3] {
        let limits = Limits { running_max, depth_max: 9, ..Limits::default() };
        assert_eq!(run_with(limits.clone(), "[[FANOUT n=7 tool=subagent]]").await.text, "fanout done results=7");
        let chain = run_with(limits, "[[CHAIN d=6]]").await;
        assert_eq!(chain.text, "chain 6 -> chain 5 -> chain 4 -> chain 3 -> chain 2 -> chain 1 -> chain end");
        assert_eq!(verified(&*chain.store, &chain.root).await.len(), 7);
    }
}

#[tokio::test]
async fn depth_is_bounded_and_the_refusal_is_told() {
    let limits = Limits { depth_max: 2, ..Limits::default() };
    let ran = run_with(limits, "[[CHAIN d=4]]").await;
    assert!(ran.text.contains("2 deep"), "{}", ran.text);
    assert_eq!(verified(&*ran.store, &ran.root).await.len(), 3);
}

#[tokio::test]
async fn agents_in_the_background_are_waited_for_and_told_once() {
    let ran = run("[[FANOUT n=5 tool=subagent background=true latency=5]]").await;
    assert_eq!(ran.text, "fanout done results=5");
    let agents = verified(&*ran.store, &ran.root).await;
    assert_eq!(count(&agents, OutcomeKind::Completed), 6);
    let (_, root) = &agents[0];
    assert!(root.inbox().is_empty(), "a notice was left behind: {:?}", root.inbox());
}

#[tokio::test]
async fn b030_a_fork_sees_its_parents_conversation_without_a_copy() {
    let ran = run("[[FANOUT n=3 tool=subagent context=fork]]").await;
    assert_eq!(ran.text, "fanout done results=3");
    let agents = verified(&*ran.store, &ran.root).await;
    let (parent, root) = &agents[0];
    for (info, child) in &agents[1..] {
        let fork = info.new.fork.as_ref().expect("a fork refers to its parent");
        assert_eq!(fork.session, *parent.id());
        let header = &info.new.header;
        assert_eq!(header.parent_session.as_ref(), Some(parent.id()));
        assert_eq!(header.seed_length, Some(fork.until.0));
        assert_eq!(header.cwd, parent.new.header.cwd);
        assert_eq!(root.messages()[..2], child.messages()[..2]);
        assert_eq!(child.header(), root.header(), "the request starts with the same bytes");
    }
}

#[tokio::test]
async fn a_panic_in_one_childs_tool_and_a_failing_model_leave_the_rest_working() {
    let ran = run("[[FANOUT n=6 tool=subagent panic=2 fail=5]]").await;
    assert_eq!(ran.text, "fanout done results=5 failed=1");
    let agents = verified(&*ran.store, &ran.root).await;
    assert_eq!((count(&agents, OutcomeKind::Completed), count(&agents, OutcomeKind::Failed)), (6, 1));
    let panicked = agents.iter().find(|(info, _)| info.new.path.as_str() == "root/leaf-2").unwrap();
    assert_eq!(&*panicked.1.outcome().unwrap().text, "leaf 2: Error: the tool panicked: as asked");
}

#[tokio::test]
async fn a_stop_in_mid_fan_out_ends_every_agent_with_an_outcome() {
    let store = Arc::new(MemoryStore::new());
    let limits = Limits { running_max: 4, ..Limits::default() };
    let runtime = start(store.clone(), limits).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=12 tool=subagent leaf=\"tool=linger\"]]").await.unwrap();
    let mut lingering = 0;
    while lingering < 4 {
        match seen.next().await.unwrap() {
            Seen::Event(event) => {
                lingering +=
                    usize::from(matches!(event.what, Observed::ToolStarted { ref tool, .. } if &**tool == "linger"))
            }
            Seen::Missed(missed) => panic!("missed {missed}"),
        }
    }
    let receipt = runtime.stop(root.id(), Cause::user("SIGINT"), Duration::from_secs(10)).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    assert_eq!(receipt.agents.len(), 13);
    assert!(receipt.agents.iter().all(|agent| agent.outcome == Some(OutcomeKind::Cancelled)), "{receipt:?}");
    let agents = verified(&*store, root.id()).await;
    assert_eq!(count(&agents, OutcomeKind::Cancelled), 13);
    // The tree goes on when it is told to.
    root.followup("[[SAY still here]]").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "still here");
}

#[tokio::test]
async fn what_does_not_end_in_time_is_abandoned_by_name() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), Limits::default()).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[TOOL hang]]").await.unwrap();
    loop {
        if let Seen::Event(event) = seen.next().await.unwrap()
            && matches!(event.what, Observed::ToolStarted { .. })
        {
            break;
        }
    }
    let receipt = runtime.stop(root.id(), Cause::user("SIGINT"), Duration::from_millis(50)).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    let log = log_of(&*store, root.id()).await;
    let codes: Vec<_> = log
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ToolResult(result) => result.error.as_ref().map(|error| error.code.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["ABANDONED"]);
}

/// A store whose commits can be made to fail, or to stand still.
struct Moody {
    store: MemoryStore,
    failures: AtomicUsize,
    /// How many commits it takes before it refuses for good.
    fuse: AtomicUsize,
    /// How many reads panic.
    panics: AtomicUsize,
}

impl Moody {
    fn well() -> Self {
        let (failures, fuse, panics) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Self { store: MemoryStore::new(), failures, fuse, panics }
    }
}

fn count_down(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Store for Moody {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        if !count_down(&self.fuse) {
            return Box::pin(async { Err(StoreError::Fenced { location: "moody".into() }) });
        }
        if count_down(&self.failures) {
            return Box::pin(async { Err(StoreError::Full { location: "moody".into() }) });
        }
        self.store.commit(commit)
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        self.store.info(id)
    }

    fn read(&self, id: AgentId, from: Seq) -> futures::stream::BoxStream<'static, Result<Arc<Event>, StoreError>> {
        assert!(!count_down(&self.panics), "the store is broken");
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
        "moody".into()
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

#[tokio::test(start_paused = true)]
async fn a_full_disk_stalls_the_work_and_loses_nothing() {
    let store = Arc::new(Moody { failures: AtomicUsize::new(3), ..Moody::well() });
    let runtime = start(store.clone(), Limits::default()).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=3 tool=subagent]]").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "fanout done results=3");
    verified(&*store, root.id()).await;
    let mut stalls = 0;
    drop(runtime);
    while let Some(Seen::Event(event)) = seen.next().await {
        stalls += usize::from(matches!(event.what, Observed::Stalled { .. }));
        if matches!(&event.what, Observed::Ended { outcome, .. } if outcome.text.starts_with("fanout")) {
            break;
        }
    }
    assert_eq!(stalls, 1, "a full disk is said once");
}

#[tokio::test]
async fn a_supervisor_that_fails_is_replaced_and_the_agents_go_on() {
    let store = Arc::new(MemoryStore::new());
    let limits = Limits { running_max: 4, ..Limits::default() };
    let runtime = start(store.clone(), limits).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=12 tool=subagent leaf=\"latency=20\"]]").await.unwrap();
    let (mut ended, mut failed) = (0, 0);
    // At the start, among the spawns, and again and again while children end.
    let (rest, ()) = tokio::join!(runtime.quiesce(root.id()), async {
        while failed < 4 {
            let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
            let is_child = event.path.as_str() != "root";
            ended += usize::from(is_child && matches!(event.what, Observed::Ended { .. }));
            if matches!(event.what, Observed::TurnStarted { .. }) && !is_child || ended > 3 * failed {
                failed += 1;
                runtime.fail_supervisor();
            }
        }
    });
    let receipt = rest.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    assert_eq!(receipt.agents.len(), 13, "no child was made twice");
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "fanout done results=12");
    verified(&*store, root.id()).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stop_and_a_spawn_that_a_supervisor_did_not_live_to_answer_are_answered_by_the_next() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), Limits::default()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=3 tool=subagent leaf=\"tool=linger\"]]").await.unwrap();
    let stop = runtime.stop(root.id(), Cause::user("enough"), Duration::from_secs(5));
    let (receipt, other, ()) = tokio::join!(stop, runtime.spawn(spec()), async { runtime.fail_supervisor() });
    let receipt = receipt.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    let other = other.unwrap();
    other.followup("[[SAY here]]").await.unwrap();
    runtime.quiesce(other.id()).await.unwrap();
    assert_eq!(&*other.outcome().await.unwrap().unwrap().text, "here");
    let stored = runtime.agents(Default::default()).await.unwrap();
    let roots = stored.iter().filter(|agent| agent.new.header.parent_session.is_none()).count();
    assert_eq!(roots, 2, "the second root was made once");
    verified(&*store, root.id()).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_runtime_whose_supervisors_fail_again_and_again_ends_and_its_trees_can_be_opened_again() {
    let store = Arc::new(MemoryStore::new());
    let restarts = RestartPolicy { max_restarts: 0, ..RestartPolicy::default() };
    let runtime = start(store.clone(), Limits { restarts, ..Limits::default() }).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=3 tool=subagent leaf=\"tool=linger\"]]").await.unwrap();
    let (rest, ()) = tokio::join!(runtime.quiesce(root.id()), async { runtime.fail_supervisor() });
    assert!(matches!(rest, Err(Error::Closed)), "{rest:?}");
    assert!(matches!(root.wait().await, Err(Error::Closed)), "nobody waits for ever");
    assert!(matches!(root.followup("more").await, Err(Error::Closed)));
    drop(runtime);
    let runtime = start(store.clone(), Limits::default()).await;
    let root = runtime.open(root.id(), spec()).await.unwrap();
    root.followup("[[SAY back]]").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    verified(&*store, root.id()).await;
}

#[tokio::test]
async fn a_journal_whose_writer_fails_again_and_again_loses_nothing() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), Limits::default()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=12 tool=subagent latency=20]]").await.unwrap();
    for _ in 0..5 {
        runtime.fail_writer();
        tokio::task::yield_now().await;
    }
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert!(receipt.at_rest(), "{receipt:?}");
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "fanout done results=12");
    verified(&*store, root.id()).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_panic_while_a_stored_tree_is_read_is_an_error_and_asking_again_may_help() {
    let store = Arc::new(Moody::well());
    let runtime = start(store.clone(), Limits::default()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[SAY well]]").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    runtime.shutdown().await.unwrap();
    store.panics.store(1, Ordering::SeqCst);
    let runtime = start(store.clone(), Limits::default()).await;
    let error = runtime.open(root.id(), spec()).await.unwrap_err();
    assert!(error.to_string().contains("the store is broken"), "{error}");
    assert_eq!(&*runtime.open(root.id(), spec()).await.unwrap().outcome().await.unwrap().unwrap().text, "well");
}

#[tokio::test]
async fn a_tree_whose_process_died_comes_back_with_honest_ends() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), Limits::default()).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap().id().clone();
    let handle = runtime.open(&root, spec()).await.unwrap();
    handle.followup("[[FANOUT n=3 tool=subagent leaf=\"tool=linger\"]]").await.unwrap();
    let mut lingering = 0;
    while lingering < 3 {
        if let Seen::Event(event) = seen.next().await.unwrap() {
            lingering +=
                usize::from(matches!(event.what, Observed::ToolStarted { ref tool, .. } if &**tool == "linger"));
        }
    }
    // Dropping a runtime equals a crash.
    drop(runtime);
    let runtime = start(store.clone(), Limits::default()).await;
    let handle = runtime.open(&root, spec()).await.unwrap();
    let agents = verified(&*store, &root).await;
    assert_eq!(count(&agents, OutcomeKind::Crashed), 4);
    let tree = log_of(&*store, &root.tree_log()).await;
    assert_eq!(tree.iter().filter(|event| matches!(event.fact, Fact::TreeDelivered(_))).count(), 3);
    handle.followup("[[SAY back]]").await.unwrap();
    runtime.quiesce(&root).await.unwrap();
    assert_eq!(&*handle.outcome().await.unwrap().unwrap().text, "back");
    verified(&*store, &root).await;
}

#[tokio::test]
async fn a_store_that_was_taken_over_stops_everybody_and_says_so() {
    for fuse in [1, 2, 3, 5, 8] {
        let failures = AtomicUsize::new(0);
        let store = Arc::new(Moody { failures, fuse: AtomicUsize::new(fuse), ..Moody::well() });
        let runtime = start(store.clone(), Limits::default()).await;
        let root = runtime.spawn(spec()).await.unwrap();
        // Accepted or not, depending on how far the store went.
        let _ = root.followup("[[FANOUT n=5 tool=subagent latency=1]]").await;
        let lost = runtime.quiesce(root.id()).await.unwrap_err();
        assert!(matches!(lost, impresario_actors::Error::Store(StoreError::Fenced { .. })), "{lost:?}");
        assert!(runtime.stop(root.id(), Cause::user("x"), Duration::from_secs(1)).await.is_err());
        assert!(root.followup("more").await.is_err());
    }
}

#[tokio::test]
async fn a_wait_for_somebody_who_is_not_there_is_an_error_that_names_who_is() {
    let ran = run("[[TOOL wait_agents {\"agents\":[\"nobody\"]}]]").await;
    assert_eq!(ran.text, "Error: wait_agents: you have no subagent \"nobody\"; yours are: ");
    let ran = run("[[TOOL wait_agents {}]]").await;
    assert_eq!(ran.text, r#"{"done":[],"pending":[]}"#, "a wait for nobody is over at once");
}

/// Waits until `count` events were seen, or until `rest` says that no more will come.
async fn see(seen: &mut Subscription, count: usize, rest: impl Future) {
    let all = async {
        for _ in 0..count {
            seen.next().await;
        }
    };
    tokio::select! {
        () = all => {}
        _ = rest => {}
    }
}

/// Many trees at once on several threads, some of them stopped at any moment: whatever happens when, each comes to rest
/// with balanced logs and an outcome for every agent that was told something.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn trees_that_are_stopped_at_any_moment_keep_every_rule() {
    let prompts = [
        "[[FANOUT n=12 tool=subagent]]",
        "[[FANOUT n=9 tool=subagent background=true latency=1]]",
        "[[FANOUT n=6 tool=subagent context=fork latency=1]]",
        "[[FANOUT n=8 tool=subagent panic=3 fail=5]]",
        "[[FANOUT n=5 tool=subagent leaf=\"tool=linger\"]]",
        "[[CHAIN d=3 latency=1]]",
    ];
    for round in 0..40_usize {
        let store = Arc::new(MemoryStore::new());
        let limits = Limits { running_max: 1 + round % 5, ..Limits::default() };
        let runtime = start(store.clone(), limits).await;
        let mut seen = runtime.subscribe();
        let mut roots = vec![];
        for prompt in prompts {
            let root = runtime.spawn(spec()).await.unwrap();
            root.followup(prompt).await.unwrap();
            roots.push(root);
        }
        // The one that lingers never ends by itself, so all are stopped: at an event whose number the round says, or
        // when only that one is left.
        let ending = roots.iter().zip(prompts).filter(|(_, prompt)| !prompt.contains("linger"));
        let rest = futures::future::join_all(ending.map(|(root, _)| runtime.quiesce(root.id())));
        see(&mut seen, round * 8, rest).await;
        let stops =
            roots.iter().map(|root| runtime.stop(root.id(), Cause::user("any moment"), Duration::from_secs(20)));
        for receipt in futures::future::join_all(stops).await {
            let receipt = receipt.unwrap();
            assert!(receipt.at_rest(), "round {round}: {receipt:?}");
            assert!(receipt.agents.iter().all(|agent| agent.outcome.is_some()), "round {round}: {receipt:?}");
        }
        for root in &roots {
            let receipt = runtime.quiesce(root.id()).await.unwrap();
            assert!(receipt.at_rest(), "round {round}: {receipt:?}");
            verified(&*store, root.id()).await;
            // Whatever was parked goes on when it is told to, and nothing is stuck.
            root.followup("[[SAY still here]]").await.unwrap();
            runtime.quiesce(root.id()).await.unwrap();
        }
        runtime.shutdown().await.unwrap();
    }
}

/// The process dies at any moment, again and again: each opening closes honestly what was open, and hands every outcome
/// to its parent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn trees_whose_process_dies_at_any_moment_come_back() {
    let prompts = [
        "[[FANOUT n=12 tool=subagent]]",
        "[[FANOUT n=9 tool=subagent background=true latency=1]]",
        "[[FANOUT n=6 tool=subagent context=fork latency=1]]",
        "[[FANOUT n=8 tool=subagent fail=5]]",
        "[[CHAIN d=3 latency=1]]",
    ];
    let store = Arc::new(MemoryStore::new());
    let mut roots: Vec<AgentId> = vec![];
    for round in 0..16_usize {
        let runtime = start(store.clone(), Limits { running_max: 1 + round % 5, ..Limits::default() }).await;
        let mut seen = runtime.subscribe();
        if roots.is_empty() {
            for _ in prompts {
                roots.push(runtime.spawn(spec()).await.unwrap().id().clone());
            }
        }
        for (root, prompt) in roots.iter().zip(prompts) {
            let handle = runtime.open(root, spec()).await.unwrap();
            verified(&*store, root).await;
            handle.followup(prompt).await.unwrap();
        }
        let rest = futures::future::join_all(roots.iter().map(|root| runtime.quiesce(root)));
        see(&mut seen, round * 6, rest).await;
        drop(runtime);
    }
    let runtime = start(store.clone(), Limits::default()).await;
    for root in &roots {
        runtime.open(root, spec()).await.unwrap().followup("[[SAY whole]]").await.unwrap();
        runtime.quiesce(root).await.unwrap();
        let agents = verified(&*store, root).await;
        let notices = log_of(&*store, root).await;
        let mut told = std::collections::BTreeMap::<String, u32>::new();
        for message in notices.iter().filter_map(|event| event.fact.message()) {
            if message.id.as_str().starts_with("settled:") {
                *told.entry(message.id.to_string()).or_default() += 1;
            }
        }
        assert!(told.values().all(|&times| times == 1), "told twice: {told:?}");
        let children = agents.iter().filter(|(info, _)| info.new.header.parent_session.as_ref() == Some(root));
        for (info, agent) in children {
            let Some(outcome) = agent.outcome() else { continue };
            let id = format!("settled:{}:{}", info.id(), outcome.turn);
            let claimed = notices.iter().any(|event| format!("{:?}", event.fact).contains(&id));
            assert!(claimed, "{} was never told", info.new.path);
        }
    }
}

#[tokio::test]
async fn ceilings_of_a_turn_end_it_as_partial_with_their_name() {
    let limits = |calls_max, wall_ms_max| Limits { calls_max, wall_ms_max, ..Limits::default() };
    for (limits, name) in [(limits(Some(3), None), "tool calls"), (limits(None, Some(0)), "wall ms")] {
        let ran = run_with(limits, "[[FANOUT n=3 tool=subagent]]").await;
        let agents = verified(&*ran.store, &ran.root).await;
        let outcome = agents[0].1.outcome().unwrap();
        assert_eq!(outcome.kind, OutcomeKind::Partial);
        assert!(outcome.why().contains(name), "{}", outcome.why());
        assert_eq!(ran.text, "I ask 3 at once.", "what it said so far is kept");
    }
}

/// A root whose one answer asks for these calls, and whose children say `done`.
async fn run_calls(limits: Limits, calls: &'static [(&'static str, &'static str)]) -> Ran {
    let model = ScriptedModel::from_fn(move |view: &View<'_>| {
        if view.scope().path.as_str() != "root" {
            return Answer::text("done");
        }
        match view.answered(0).len() {
            0 => Answer::calls("", calls.iter().map(|(name, input)| ((*name).into(), (*input).into())).collect()),
            answered => Answer::text(format!("{answered} answered")),
        }
    });
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store.clone()).model(model).limits(limits).build().await.unwrap();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("go").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let text = root.outcome().await.unwrap().unwrap().text.to_string();
    verified(&*store, root.id()).await;
    Ran { store, runtime, root: root.id().clone(), text }
}

#[tokio::test]
async fn an_exclusive_call_behind_a_subagent_keeps_no_slot_from_it() {
    let limits = Limits { running_max: 1, ..Limits::default() };
    let calls = &[("subagent", r#"{"prompt":"x"}"#), ("nobody_has_this_tool", "{}")];
    assert_eq!(run_calls(limits, calls).await.text, "2 answered");
}

#[tokio::test]
async fn a_wait_beside_the_subagent_that_it_covers_ends_with_it() {
    let calls = &[("subagent", r#"{"prompt":"x"}"#), ("wait_agents", "{}")];
    assert_eq!(run_calls(Limits::default(), calls).await.text, "2 answered");
}

#[tokio::test]
async fn a_tree_that_is_opened_twice_at_once_is_read_once() {
    let ran = run("[[FANOUT n=3 tool=subagent]]").await;
    ran.runtime.shutdown().await.unwrap();
    let runtime = start(ran.store.clone(), Limits::default()).await;
    let opens = (0..8).map(|_| runtime.open(&ran.root, spec()));
    for handle in futures::future::join_all(opens).await {
        handle.unwrap().followup("[[SAY x]]").await.unwrap();
    }
    runtime.quiesce(&ran.root).await.unwrap();
    let agents = verified(&*ran.store, &ran.root).await;
    assert_eq!(agents[0].1.last_turn(), 9);
}

#[tokio::test]
async fn figures_and_deadlines_from_outside_cannot_overflow() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store, Limits::default()).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[SAY x]]").await.unwrap();
    let receipt = runtime.stop(root.id(), Cause::user("x"), Duration::MAX).await.unwrap();
    assert!(receipt.at_rest());
}

#[tokio::test]
async fn a_subtree_is_stopped_and_those_beside_and_above_it_go_on() {
    let store = Arc::new(MemoryStore::new());
    let runtime = start(store.clone(), Limits::default()).await;
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[FANOUT n=2 leaf=\"tool=hang\"]]").await.unwrap();
    let mut hanging = vec![];
    while hanging.len() < 2 {
        if let Seen::Event(event) = seen.next().await.unwrap()
            && matches!(event.what, Observed::ToolStarted { ref tool, .. } if &**tool == "hang")
        {
            hanging.push(event.agent.clone());
        }
    }
    let deadline = Duration::from_millis(50);
    let receipt = runtime.stop(&hanging[0], Cause::user("enough"), deadline).await.unwrap();
    assert!(receipt.at_rest() && receipt.agents.len() == 1, "{receipt:?}");
    assert_eq!((&receipt.agents[0].id, receipt.agents[0].outcome), (&hanging[0], Some(OutcomeKind::Cancelled)));
    // The other one still hangs, and its parent still waits for it.
    assert!(runtime.quiesce(&hanging[0]).await.unwrap().at_rest());
    assert!(futures::FutureExt::now_or_never(runtime.quiesce(root.id())).is_none());
    runtime.stop(&hanging[1], Cause::user("enough"), deadline).await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "fanout done results=0 failed=2");
    assert!(matches!(runtime.quiesce(&"nobody".into()).await, Err(Error::UnknownAgent(_))));
    verified(&*store, root.id()).await;
}
