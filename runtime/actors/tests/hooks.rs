//! Hooks: what they may decide, and what their failures decide.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Runtime, RuntimeBuilder};
use impresario_kernel::{Access, Block, Overlap, ToolSchema};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{
    Afterwards, Approver, Hook, HookCall, HookResult, Question, Tool, ToolContext, ToolError, ToolOutput, Verdict,
};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

/// Says what it was given, and counts how often it ran.
#[derive(Clone, Default)]
struct Echo(Arc<AtomicUsize>);

impl Tool for Echo {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: "echo".into(), description: "a test tool".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        Overlap::Parallel
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, input: Value, _: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        async move { Ok(ToolOutput::text(format!("echo {input}"))) }.boxed()
    }
}

/// A hook of closures.
#[derive(Clone)]
struct Says {
    before: fn() -> Verdict,
    guard: fn() -> Option<String>,
    after: fn(&HookResult) -> Afterwards,
    hangs: bool,
}

const SILENT: Says = Says { before: || Verdict::Allow, guard: || None, after: |_| Afterwards::Accept, hangs: false };

impl Hook for Says {
    fn name(&self) -> &str {
        "says"
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn pre_execute(&self, _: Arc<HookCall>) -> BoxFuture<'static, Verdict> {
        let Self { before, hangs, .. } = *self;
        async move { if hangs { std::future::pending().await } else { before() } }.boxed()
    }

    fn guard(&self, _: Arc<HookCall>) -> BoxFuture<'static, Option<String>> {
        let guard = self.guard;
        async move { guard() }.boxed()
    }

    fn post_execute(&self, _: Arc<HookCall>, result: Arc<HookResult>) -> BoxFuture<'static, Afterwards> {
        let after = self.after;
        async move { after(&result) }.boxed()
    }
}

struct Answers(bool);

impl Approver for Answers {
    fn ask(&self, _: Question) -> BoxFuture<'static, bool> {
        let yes = self.0;
        async move { yes }.boxed()
    }
}

/// What the model was told of one call of `echo`, and how often it ran.
async fn told(options: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> (String, usize) {
    let echo = Echo::default();
    let base =
        Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).tool(Arc::new(echo.clone()));
    let runtime = options(base).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("[[TOOL echo {\"a\":1}]]").await.unwrap();
    let text = root.wait().await.unwrap().unwrap().text.to_string();
    runtime.shutdown().await.unwrap();
    (text, echo.0.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_silent_hook_changes_nothing() {
    assert_eq!(told(|options| options.hook(SILENT)).await, ("echo {\"a\":1}".into(), 1));
}

#[tokio::test]
async fn b130_a_denied_call_does_not_run_and_says_why() {
    let deny = Says { before: || Verdict::Deny { reason: "not today".into() }, ..SILENT };
    assert_eq!(told(|options| options.hook(SILENT).hook(deny)).await, ("Error: not today".into(), 0));
}

#[tokio::test]
async fn b131_a_question_is_answered_by_somebody_or_no() {
    let ask = Says { before: || Verdict::Ask { question: "may it?".into() }, ..SILENT };
    let (text, ran) = told(|options| options.hook(ask.clone())).await;
    assert!(text.contains("not approved"), "{text}");
    assert_eq!(ran, 0);
    assert_eq!(told(|options| options.hook(ask.clone()).approver(Answers(false))).await.1, 0);
    assert_eq!(told(|options| options.hook(ask).approver(Answers(true))).await, ("echo {\"a\":1}".into(), 1));
}

#[tokio::test]
async fn b133_a_guard_has_the_last_word() {
    let guard = Says { guard: || Some("never".into()), ..SILENT };
    let ask = Says { before: || Verdict::Ask { question: "may it?".into() }, ..SILENT };
    let (text, ran) = told(|options| options.hook(guard).hook(ask).approver(Answers(true))).await;
    assert_eq!((text.as_str(), ran), ("Error: never", 0));
}

#[tokio::test]
async fn b138_a_result_can_be_replaced_and_the_next_hook_sees_what_is_left() {
    let replace = Says { after: |_| Afterwards::Replace { content: vec![Block::text("other")] }, ..SILENT };
    let twice = Says {
        after: |result| match result.content[0].as_text() {
            Some("other") => Afterwards::Replace { content: vec![Block::text("seen")] },
            _ => Afterwards::Accept,
        },
        ..SILENT
    };
    assert_eq!(told(|options| options.hook(replace).hook(twice)).await, ("seen".into(), 1));
}

#[tokio::test]
async fn b139_a_blocked_result_is_withheld_although_the_call_ran() {
    let block = Says { after: |_| Afterwards::Block { reason: "secret".into() }, ..SILENT };
    let (text, ran) = told(|options| options.hook(block)).await;
    assert!(text.starts_with("Error: secret") && !text.contains("echo {"), "{text}");
    assert_eq!(ran, 1);
}

#[tokio::test]
async fn a_hook_that_panics_or_hangs_has_said_no() {
    let panics: Says = Says { before: || panic!("as asked"), ..SILENT };
    let (text, ran) = told(|options| options.hook(panics)).await;
    assert!(text.contains("hook says failed") && text.contains("as asked"), "{text}");
    assert_eq!(ran, 0);
    let hangs = Says { hangs: true, ..SILENT };
    let (text, ran) = told(|options| options.hook(hangs)).await;
    assert!(text.contains("longer than 200 ms"), "{text}");
    assert_eq!(ran, 0);
    let hides: Says = Says { after: |_| panic!("while looking"), ..SILENT };
    let (text, ran) = told(|options| options.hook(hides)).await;
    assert!(text.contains("while looking") && text.contains("withheld"), "{text}");
    assert_eq!(ran, 1);
}

#[tokio::test]
async fn calls_for_other_agents_are_judged_too() {
    let deny = Says { before: || Verdict::Deny { reason: "no delegation".into() }, ..SILENT };
    for (hook, expected) in [(SILENT, "fanout done results=3"), (deny, "fanout done results=0 failed=3")] {
        let base = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin());
        let runtime = base.hook(hook).build().await.unwrap();
        let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
        root.followup("[[FANOUT n=3 tool=subagent]]").await.unwrap();
        runtime.quiesce(root.id()).await.unwrap();
        assert_eq!(&*root.outcome().await.unwrap().unwrap().text, expected);
    }
}

/// Says yes, and keeps who asked.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Approver for Asked {
    fn ask(&self, question: Question) -> BoxFuture<'static, bool> {
        self.0.lock().unwrap().push(question.path.to_string());
        async { true }.boxed()
    }
}

#[tokio::test]
async fn a_childs_question_goes_to_who_answers_those_of_the_nearest_agent_above_it() {
    let ask = Says { before: || Verdict::Ask { question: "may it?".into() }, ..SILENT };
    let echo = Echo::default();
    let script = ScriptedModel::from_fn(|view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root/w", 1) => Answer::calls("", vec![("echo".into(), "{}".into())]),
        ("root", 1) => Answer::calls("", vec![("subagent".into(), r#"{"prompt": "go", "label": "w"}"#.into())]),
        _ => Answer::text("done"),
    });
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(script).tool(Arc::new(echo.clone())).hook(ask);
    // Nobody who answers for the whole runtime says yes.
    let runtime = builder.approver(Answers(false)).build().await.unwrap();
    let asked = Asked::default();
    let spec = AgentSpec::new("scripted", "any", std::env::temp_dir()).approver(asked.clone());
    let root = runtime.spawn(spec).await.unwrap();
    root.followup("go").await.unwrap();
    root.wait().await.unwrap();
    runtime.shutdown().await.unwrap();
    assert_eq!(*asked.0.lock().unwrap(), ["root", "root/w"]);
    assert_eq!(echo.0.load(Ordering::SeqCst), 1);
}
