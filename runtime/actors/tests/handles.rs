//! Handles: every verb, durable acceptance, and ids that may be sent again.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use impresario_actors::{AgentHandle, AgentSpec, Error, Limits, Runtime, Seen, Subscription};
use impresario_kernel::{Cause, Event, Fact, MessageId, OutcomeKind, RestartPolicy, Seq};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Observed, SessionFilter, Store};
use impresario_stores::MemoryStore;
use tokio::sync::Semaphore;

/// A model that says how many prompts it has seen.
fn counts() -> ScriptedModel {
    ScriptedModel::from_fn(|view: &View<'_>| {
        let prompts: Vec<String> = view
            .messages()
            .iter()
            .filter(|message| message.source.kind == "user")
            .map(|message| message.text())
            .collect();
        Answer::text(prompts.join("+"))
    })
}

async fn begin(model: ScriptedModel) -> (Runtime, AgentHandle) {
    let runtime =
        Runtime::builder(Arc::new(MemoryStore::new())).model(model).limits(Limits::default()).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    (runtime, root)
}

async fn said(handle: &AgentHandle) -> String {
    handle.wait().await.unwrap().map_or_else(String::new, |outcome| outcome.text.to_string())
}

#[tokio::test]
async fn a_followup_runs_and_an_injection_waits_for_it() {
    let (_runtime, root) = begin(counts()).await;
    assert_eq!(root.wait().await.unwrap(), None);
    root.inject("know").await.unwrap();
    assert_eq!(root.wait().await.unwrap(), None, "an injection opens nothing");
    root.followup("go").await.unwrap();
    assert_eq!(said(&root).await, "know+go");
    root.steer("more").await.unwrap();
    assert_eq!(said(&root).await, "know+go+more");
    let texts: Vec<String> = root.transcript().await.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(texts[1..], ["know", "go", "know+go", "more", "know+go+more"]);
}

#[tokio::test]
async fn the_same_id_again_is_accepted_and_changes_nothing() {
    let (_runtime, root) = begin(counts()).await;
    for _ in 0..3 {
        root.followup_as(MessageId::new("once"), "go").await.unwrap();
        assert_eq!(said(&root).await, "go");
    }
}

#[tokio::test]
async fn what_still_waits_can_be_taken_back_or_replaced() {
    let (_runtime, root) = begin(counts()).await;
    let [gone, old] = [root.inject("gone").await.unwrap(), root.inject("old").await.unwrap()];
    assert!(root.remove(gone.clone()).await.unwrap());
    assert!(!root.remove(gone).await.unwrap(), "it no longer waits");
    assert!(root.replace(old.clone(), "new").await.unwrap().is_some());
    assert_eq!(root.replace(old, "newer").await.unwrap(), None);
    root.followup("go").await.unwrap();
    assert_eq!(said(&root).await, "new+go");
}

#[tokio::test]
async fn b093_an_interrupt_ends_the_turn_and_whoever_waits_hears_of_what_comes_behind_it() {
    let gate = Arc::new(Semaphore::new(0));
    let model = Gated { gate: Arc::clone(&gate), scripted: counts() };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).build().await.unwrap();
    let mut seen = runtime.subscribe();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("one").await.unwrap();
    root.followup("two").await.unwrap();
    until_a_turn_starts(&mut seen).await;
    root.interrupt(Cause::user("test")).unwrap();
    gate.add_permits(10);
    let outcome = root.wait().await.unwrap().unwrap();
    assert_eq!((outcome.turn, outcome.kind), (2, OutcomeKind::Completed));
    assert_eq!(&*outcome.text, "one+two");
}

async fn until_a_turn_starts(seen: &mut Subscription) {
    loop {
        let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
        if matches!(event.what, Observed::TurnStarted { .. }) {
            return;
        }
    }
}

/// Answers only when it is let.
struct Gated {
    gate: Arc<Semaphore>,
    scripted: ScriptedModel,
}

impl impresario_seams::Model for Gated {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(
        &self,
        request: impresario_seams::ModelRequest,
    ) -> futures::future::BoxFuture<'static, Result<impresario_seams::ChunkStream, impresario_kernel::Failure>> {
        let (gate, scripted) = (Arc::clone(&self.gate), self.scripted.clone());
        Box::pin(async move {
            gate.acquire().await.expect("the gate is never closed").forget();
            scripted.stream(request).await
        })
    }
}

#[tokio::test]
async fn handles_outlive_their_runtime_and_say_so() {
    let (runtime, root) = begin(counts()).await;
    root.followup("go").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let stored = runtime.agents(SessionFilter::default()).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].head.title, "go");
    assert_eq!(runtime.agent(root.id()).unwrap().id(), root.id());
    assert!(matches!(runtime.agent(&"nobody".into()), Err(Error::UnknownAgent(_))));
    runtime.shutdown().await.unwrap();
    assert!(matches!(root.followup("more").await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_with_the_numbers() {
    let limits = Limits { message_bytes_max: 10, ..Limits::default() };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(counts()).limits(limits).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    let refused = root.followup("eleven byte").await.unwrap_err();
    assert!(refused.to_string().contains("11 bytes and the limit is 10"), "{refused}");
    assert_eq!(refused.code(), "REFUSED");
    let waits = root.inject("short").await.unwrap();
    assert_eq!(root.replace(waits, "eleven byte").await.unwrap_err().code(), "REFUSED");
}

#[tokio::test]
async fn a_log_is_followed_from_anywhere_however_slowly_and_to_its_end() {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store.clone()).model(ScriptedModel::builtin()).build().await.unwrap();
    let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", std::env::temp_dir())).await.unwrap();
    let (mut early, mut late) = (agent.subscribe(Seq(0)), agent.subscribe(Seq(5)));
    assert_eq!(early.next().await.unwrap().unwrap().seq, Seq(0));
    for n in 0..40 {
        agent.followup(&format!("[[SAY {n}]]")).await.unwrap();
        agent.wait().await.unwrap();
    }
    // It is read only now, and is all there.
    assert_eq!(late.next().await.unwrap().unwrap().seq, Seq(5));
    let said = async |events: &mut (dyn Stream<Item = Result<Arc<Event>, Error>> + Send + Unpin)| {
        let mut said = vec![];
        let mut next = None;
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            assert!(next.is_none_or(|next| next == event.seq), "a gap before {:?}", event.seq);
            next = Some(event.next_seq());
            if let Fact::AssistantMessage(answer) = &event.fact {
                said.push(answer.message.text());
            }
        }
        said
    };
    runtime.shutdown().await.unwrap();
    let all: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(said(&mut early).await, all);
    assert_eq!(said(&mut late).await, all);
    assert!(agent.subscribe(Seq(0)).count().await > 40, "what is stored can be read behind the end, too");
}

#[tokio::test]
async fn an_event_is_told_to_whoever_follows_when_it_comes() {
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).build().await.unwrap();
    let agent = runtime.spawn(AgentSpec::new("scripted", "builtin", std::env::temp_dir())).await.unwrap();
    let mut events = agent.subscribe(Seq(0));
    let follows = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if matches!(event.unwrap().fact, Fact::OutcomeReached(_)) {
                return true;
            }
        }
        false
    });
    agent.followup("[[SAY here]]").await.unwrap();
    assert!(follows.await.unwrap());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_is_never_to_be_started_again_is_gone_with_its_actor_and_others_are_not() {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store).model(ScriptedModel::builtin()).build().await.unwrap();
    let spec = AgentSpec::new("scripted", "builtin", std::env::temp_dir());
    let once = AgentSpec { restarts: Some(RestartPolicy::NEVER), ..spec.clone() };
    let (once, again) = (runtime.spawn(once).await.unwrap(), runtime.spawn(spec).await.unwrap());
    runtime.fail_agent(once.id());
    runtime.fail_agent(again.id());
    let end = runtime.quiesce(once.id()).await.unwrap();
    assert_eq!(end.agents[0].outcome, Some(OutcomeKind::Crashed), "{end:?}");
    assert!(matches!(once.followup("[[SAY here]]").await, Err(Error::Closed)));
    again.followup("[[SAY here]]").await.unwrap();
    assert_eq!(&*again.wait().await.unwrap().unwrap().text, "here");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_fork_goes_on_from_the_same_conversation_and_neither_hears_of_the_other() {
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::builder(store.clone()).model(counts()).build().await.unwrap();
    let spec = || AgentSpec::new("scripted", "any", std::env::temp_dir());
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("one").await.unwrap();
    root.wait().await.unwrap();
    root.inject("for the first alone").await.unwrap();
    let (left, right) = (root.fork().await.unwrap(), root.fork().await.unwrap());
    assert_eq!(left.outcome().await.unwrap(), None, "it has done nothing of its own yet");
    for (handle, word) in [(&left, "left"), (&right, "right"), (&root, "on")] {
        handle.followup(word).await.unwrap();
    }
    assert_eq!(said(&left).await, "one+left");
    assert_eq!(said(&right).await, "one+right");
    assert_eq!(said(&root).await, "one+for the first alone+on");
    // A fork of a fork.
    let again = left.fork().await.unwrap();
    again.followup("again").await.unwrap();
    assert_eq!(said(&again).await, "one+left+again");
    let infos = runtime.agents(SessionFilter::default()).await.unwrap();
    assert_eq!(infos.len(), 4);
    let info = infos.iter().find(|info| info.id() == left.id()).unwrap();
    assert_eq!(info.new.fork.as_ref().map(|fork| &fork.session), Some(root.id()));
    runtime.shutdown().await.unwrap();

    // Read back, they are what they were.
    let runtime = Runtime::builder(store.clone()).model(counts()).build().await.unwrap();
    let again = runtime.open(again.id(), spec()).await.unwrap();
    again.followup("later").await.unwrap();
    assert_eq!(said(&again).await, "one+left+again+later");
    for info in &infos {
        let events: Vec<_> = store.read(info.id().clone(), Seq(0)).map(Result::unwrap).collect().await;
        assert_eq!(impresario_kernel::invariant::check_log(&info.new.header, &events), [], "{}", info.id());
    }
    runtime.shutdown().await.unwrap();
}
