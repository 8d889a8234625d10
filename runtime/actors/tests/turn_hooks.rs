//! Hooks at the points of a turn, against real actors.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Runtime};
use impresario_kernel::{Cause, Failure, Message, Outcome, OutcomeKind, Point, RequestConfig, TurnEnd};
use impresario_models::scripted::{Answer, ScriptedModel};
use impresario_seams::{
    AfterFailure, Afterwards, Beginning, Hook, HookCall, HookResult, Notice, RequestFailed, RequestPlanned,
    SessionStarted, StepProposed, StepVerdict, Store, ToolError, ToolOutput, ToolRun, TurnStops,
};
use impresario_stores::MemoryStore;

/// A hook that does one thing and writes down what it saw.
#[derive(Clone, Default)]
struct Spy {
    seen: Arc<Mutex<Vec<String>>>,
    step: Option<fn(&StepProposed) -> StepVerdict>,
    other_model: Option<&'static str>,
    other_provider: Option<&'static str>,
    after_failure: Option<AfterFailure>,
    steers: Option<&'static str>,
    panics_at: Option<Point>,
    hangs_at: Option<Point>,
    adds: Option<&'static str>,
    replaces: bool,
}

impl Spy {
    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn at<T: Send + 'static>(&self, point: Point, answer: T) -> BoxFuture<'static, T> {
        assert!(self.panics_at != Some(point), "as the test wants");
        if self.hangs_at == Some(point) { std::future::pending().boxed() } else { ready(answer).boxed() }
    }
}

impl Hook for Spy {
    fn name(&self) -> &str {
        "spy"
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn session_start(&self, session: Arc<SessionStarted>) -> BoxFuture<'static, Option<String>> {
        self.note(format!("session {:?} {}", session.beginning, session.place.path));
        let context = (session.beginning == Beginning::Resume).then(|| "welcome back".into());
        self.at(Point::SessionStart, context)
    }

    fn pre_step(&self, step: Arc<StepProposed>) -> BoxFuture<'static, StepVerdict> {
        let texts: Vec<String> = step.messages.iter().map(|message| message.text()).collect();
        self.note(format!("step {} {texts:?}", step.place.step));
        self.at(Point::PreStep, self.step.map_or(StepVerdict::Enter, |verdict| verdict(&step)))
    }

    fn request(&self, request: Arc<RequestPlanned>) -> BoxFuture<'static, Option<RequestConfig>> {
        self.note(format!("request {} {}", request.attempt, request.config.model));
        let mut config = request.config.clone();
        config.model = self.other_model.unwrap_or("any").into();
        config.provider = self.other_provider.unwrap_or("scripted").into();
        self.at(Point::Request, (config != request.config).then_some(config))
    }

    fn request_error(&self, failed: Arc<RequestFailed>) -> BoxFuture<'static, AfterFailure> {
        self.note(format!("failed {} {}", failed.attempt, failed.failure.code));
        self.at(Point::RequestError, self.after_failure.clone().unwrap_or(AfterFailure::Policy))
    }

    fn turn_stopping(&self, turn: Arc<TurnStops>) -> BoxFuture<'static, Option<Notice>> {
        self.note(format!("stops {:?}", turn.text));
        let steers = self.steers.filter(|_| turn.steered.is_empty());
        self.at(Point::TurnStopping, steers.map(|text| Notice { text: text.into(), summary: None }))
    }

    fn post_execute(&self, call: Arc<HookCall>, result: Arc<HookResult>) -> BoxFuture<'static, Afterwards> {
        self.note(format!("result of {} {:?}", call.tool, result.content[0].as_text()));
        let replaced = vec![impresario_kernel::Block::text("seen by the spy")];
        ready(match self.adds {
            Some(context) => Afterwards::Add { context: context.into() },
            None if self.replaces => Afterwards::Replace { content: replaced },
            None => Afterwards::Accept,
        })
        .boxed()
    }
}

/// Answers with the model's name and all that was said to it; a text that begins with `fail` fails.
fn echo() -> ScriptedModel {
    ScriptedModel::from_fn(|view| {
        let (_, said) = view.prompt().unwrap_or_default();
        if said.starts_with("fail") && view.header().config.model == "any" {
            return Answer::failure(Failure::new("BAD_REQUEST", "as the test wants"));
        }
        Answer::text(format!("{}: {said}", view.header().config.model))
    })
}

struct Ran {
    outcome: Arc<Outcome>,
    messages: Vec<Arc<Message>>,
}

async fn run(spy: &Spy, model: ScriptedModel, prompt: &str) -> Ran {
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).hook(spy.clone()).build().await.unwrap();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup(prompt).await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let (outcome, messages) = (root.outcome().await.unwrap().unwrap(), root.transcript().await.unwrap());
    runtime.shutdown().await.unwrap();
    Ran { outcome, messages }
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "any", std::env::temp_dir())
}

#[tokio::test]
async fn every_point_of_a_turn_is_asked_in_its_order() {
    let spy = Spy::default();
    let ran = run(&spy, echo(), "hello").await;
    assert_eq!(ran.outcome.text.as_ref(), "any: hello");
    assert_eq!(
        spy.seen(),
        ["session Startup root", "step 1 [\"hello\"]", "request 0 any", "stops Some(\"any: hello\")"]
    );
}

#[tokio::test]
async fn b065_what_a_hook_turns_down_never_reaches_the_model() {
    let step: fn(&StepProposed) -> StepVerdict = |_| StepVerdict::Reject { reason: "not here".into() };
    let ran = run(&Spy { step: Some(step), ..Spy::default() }, echo(), "a secret").await;
    assert_eq!(ran.outcome.kind, OutcomeKind::Refused);
    assert_eq!(ran.outcome.end, TurnEnd::Blocked { reason: Some("not here".into()) });
    assert!(ran.outcome.why().contains("not here"));
    assert!(ran.messages.is_empty(), "{:?}", ran.messages);
}

#[tokio::test]
async fn b068_what_a_hook_rewrites_is_what_the_model_sees() {
    let step: fn(&StepProposed) -> StepVerdict = |step| {
        let message = &step.messages[0];
        let text = message.text().replace("secret", "[redacted]");
        StepVerdict::Rewrite { messages: vec![Arc::new(Message::user(message.id.clone(), text))] }
    };
    let spy = Spy { step: Some(step), ..Spy::default() };
    assert_eq!(&*run(&spy, echo(), "a secret").await.outcome.text, "any: a [redacted]");
}

#[tokio::test]
async fn a_hook_may_not_speak_for_the_model() {
    let step: fn(&StepProposed) -> StepVerdict = |step| {
        let message = Message { role: impresario_kernel::Role::Assistant, ..Message::clone(&step.messages[0]) };
        StepVerdict::Rewrite { messages: vec![Arc::new(message)] }
    };
    let ran = run(&Spy { step: Some(step), ..Spy::default() }, echo(), "hello").await;
    assert_eq!(ran.outcome.kind, OutcomeKind::Failed);
    assert!(ran.outcome.why().contains("not a user's"), "{}", ran.outcome.why());
}

#[tokio::test]
async fn a_hook_may_choose_another_model_and_not_one_that_is_not_there() {
    let spy = Spy { other_model: Some("cheap"), ..Spy::default() };
    assert_eq!(&*run(&spy, echo(), "hello").await.outcome.text, "cheap: hello");
    let spy = Spy { other_provider: Some("nobody"), ..Spy::default() };
    let why = run(&spy, echo(), "hello").await.outcome.why();
    assert!(why.contains("NO_ADAPTER") && why.contains("nobody"), "{why}");
}

#[tokio::test]
async fn b080_a_hook_may_ask_again_and_with_another_model() {
    let retry = AfterFailure::Retry { delay_ms: Some(1) };
    let spy = Spy { after_failure: Some(retry.clone()), ..Spy::default() };
    let ran = run(&spy, echo(), "fail").await;
    assert_eq!(ran.outcome.kind, OutcomeKind::Failed);
    assert_eq!(spy.seen().iter().filter(|seen| seen.starts_with("failed")).count(), 6, "as often as any retry");
    let spy = Spy { after_failure: Some(retry), other_model: Some("fallback"), ..Spy::default() };
    assert_eq!(&*run(&spy, echo(), "fail").await.outcome.text, "fallback: fail");
}

#[tokio::test]
async fn b071_a_hook_may_let_a_turn_go_on() {
    let spy = Spy { steers: Some("look again"), ..Spy::default() };
    let ran = run(&spy, echo(), "hello").await;
    let texts: Vec<String> = ran.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts[1..], ["hello", "any: hello", "look again", "any: hello"]);
    assert_eq!(ran.outcome.turn, 1);
    assert_eq!(spy.seen().iter().filter(|seen| seen.starts_with("stops")).count(), 2);
}

#[tokio::test]
async fn hooks_that_panic_or_hang_fail_closed_where_they_gate_and_open_where_they_add() {
    for (point, kind) in [
        (Point::SessionStart, OutcomeKind::Completed),
        (Point::PreStep, OutcomeKind::Failed),
        (Point::Request, OutcomeKind::Failed),
        (Point::TurnStopping, OutcomeKind::Failed),
    ] {
        for spy in [Spy { panics_at: Some(point), ..Spy::default() }, Spy { hangs_at: Some(point), ..Spy::default() }] {
            let outcome = run(&spy, echo(), "hello").await.outcome;
            assert_eq!(outcome.kind, kind, "{point}: {}", outcome.why());
            if kind == OutcomeKind::Failed {
                assert!(outcome.why().contains("the hook spy failed"), "{}", outcome.why());
            }
        }
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_hooks() {
    for point in [Point::SessionStart, Point::PreStep, Point::Request, Point::TurnStopping] {
        let spy = Slow(Spy { hangs_at: Some(point), ..Spy::default() });
        let runtime =
            Runtime::builder(Arc::new(MemoryStore::new())).model(echo()).hook(spy.clone()).build().await.unwrap();
        let root = runtime.spawn(spec()).await.unwrap();
        root.followup("hello").await.unwrap();
        while !spy.0.seen().iter().any(|seen| seen.starts_with(mark(point))) {
            tokio::task::yield_now().await;
        }
        let receipt = runtime.stop(root.id(), Cause::user("test"), Duration::from_secs(60)).await.unwrap();
        assert!(receipt.at_rest(), "{receipt:?}");
        assert_eq!(receipt.agents[0].outcome, Some(OutcomeKind::Cancelled));
        runtime.shutdown().await.unwrap();
    }
}

/// A spy with all the time in the world.
#[derive(Clone)]
struct Slow(Spy);

impl Hook for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn session_start(&self, session: Arc<SessionStarted>) -> BoxFuture<'static, Option<String>> {
        self.0.session_start(session)
    }

    fn pre_step(&self, step: Arc<StepProposed>) -> BoxFuture<'static, StepVerdict> {
        self.0.pre_step(step)
    }

    fn request(&self, request: Arc<RequestPlanned>) -> BoxFuture<'static, Option<RequestConfig>> {
        self.0.request(request)
    }

    fn turn_stopping(&self, turn: Arc<TurnStops>) -> BoxFuture<'static, Option<Notice>> {
        self.0.turn_stopping(turn)
    }
}

fn mark(point: Point) -> &'static str {
    match point {
        Point::SessionStart => "session",
        Point::PreStep => "step",
        Point::Request => "request",
        Point::RequestError => "failed",
        Point::TurnStopping => "stops",
    }
}

#[tokio::test]
async fn a_session_that_is_opened_again_starts_again() {
    let (store, spy) = (Arc::new(MemoryStore::new()), Spy::default());
    let options = || Runtime::builder(Arc::clone(&store) as Arc<dyn Store>).model(echo()).hook(spy.clone());
    let runtime = options().build().await.unwrap();
    let root = runtime.spawn(spec()).await.unwrap();
    for prompt in ["one", "two"] {
        root.followup(prompt).await.unwrap();
        runtime.quiesce(root.id()).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    let runtime = options().build().await.unwrap();
    let root = runtime.open(root.id(), spec()).await.unwrap();
    root.followup("three").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let starts: Vec<String> = spy.seen().into_iter().filter(|seen| seen.starts_with("session")).collect();
    assert_eq!(starts, ["session Startup root", "session Resume root"]);
    let texts: Vec<String> = root.transcript().await.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(texts[texts.len() - 3..], ["welcome back", "three", "any: three"]);
}

/// A hook of calls only, which an agent has for itself.
#[derive(Clone, Default)]
struct Twice(Arc<AtomicUsize>);

impl Hook for Twice {
    fn name(&self) -> &str {
        "twice"
    }

    fn points(&self) -> &[Point] {
        &[]
    }

    fn around(&self, _: Arc<HookCall>, run: ToolRun) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let runs = Arc::clone(&self.0);
        async move {
            run.run().await?;
            runs.fetch_add(1, Ordering::SeqCst);
            run.run().await
        }
        .boxed()
    }
}

#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl impresario_seams::Tool for Counter {
    fn schema(&self) -> Arc<impresario_kernel::ToolSchema> {
        let parameters = serde_json::json!({});
        Arc::new(impresario_kernel::ToolSchema { name: "count".into(), description: "counts".into(), parameters })
    }

    fn overlap(&self) -> impresario_seams::Overlap {
        impresario_seams::Overlap::Parallel
    }

    fn access(&self) -> impresario_kernel::Access {
        impresario_kernel::Access::Read
    }

    fn run(
        &self,
        _: serde_json::Value,
        _: impresario_seams::ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ready(Ok(ToolOutput::text(count.to_string()))).boxed()
    }
}

#[tokio::test]
async fn an_agent_and_its_children_have_its_own_hooks_and_others_do_not() {
    let (hook, tool) = (Twice::default(), Arc::new(Counter::default()));
    let builder =
        Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).tool(Arc::clone(&tool) as _);
    let runtime = builder.build().await.unwrap();
    let hooked = runtime.spawn(spec().hook(hook.clone())).await.unwrap();
    hooked.followup("[[FANOUT n=2 tool=subagent leaf=\"tool=count args={}\"]]").await.unwrap();
    runtime.quiesce(hooked.id()).await.unwrap();
    assert_eq!((hook.0.load(Ordering::SeqCst), tool.0.load(Ordering::SeqCst)), (2, 4));
    let plain = runtime.spawn(spec()).await.unwrap();
    plain.followup("[[TOOL count {}]]").await.unwrap();
    runtime.quiesce(plain.id()).await.unwrap();
    assert_eq!((hook.0.load(Ordering::SeqCst), tool.0.load(Ordering::SeqCst)), (2, 5));
}

#[tokio::test]
async fn b124_context_that_hooks_add_to_a_result_is_there_in_the_next_step() {
    let spy = Spy { adds: Some("mind the gap"), ..Spy::default() };
    let runtime = Runtime::builder(Arc::new(MemoryStore::new()))
        .model(ScriptedModel::builtin())
        .tool(Arc::new(Counter::default()))
        .hook(spy.clone())
        .build()
        .await
        .unwrap();
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("[[TOOL count {}]]").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    assert!(spy.seen().contains(&"step 2 [\"mind the gap\"]".to_owned()), "{:?}", spy.seen());
}

#[tokio::test]
async fn a_childs_answer_passes_the_hooks_behind_its_call() {
    let spy = Spy { replaces: true, ..Spy::default() };
    let ran = run(&spy, ScriptedModel::builtin(), "[[CHAIN d=1]]").await;
    assert!(spy.seen().iter().any(|seen| seen.starts_with("result of subagent")), "{:?}", spy.seen());
    let results: Vec<String> = ran.messages.iter().map(|message| format!("{:?}", message.content)).collect();
    assert!(results.iter().any(|result| result.contains("seen by the spy")), "{results:?}");
}
