//! The reference's testable behaviours that only real actors can show, by number.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentHandle, AgentSpec, Error, Runtime, RuntimeBuilder, Seen, Subscription};
use impresario_kernel::{Access, Cause, Event, Fact, Overlap, Seq, ToolSchema, TurnEnd};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Observed, Tool, ToolContext, ToolError, ToolOutput};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

type Run = fn(ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;

/// A tool of one line.
struct Small(&'static str, Run);

impl Tool for Small {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: self.0.into(), description: "a test tool".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        Overlap::Exclusive
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.1)(ctx)
    }
}

/// Asks for the tool that the prompt names, and is done when it has its result.
fn obedient() -> ScriptedModel {
    ScriptedModel::from_fn(|view: &View<'_>| {
        let prompt =
            view.messages().iter().rfind(|message| message.source.kind == "user").map(|message| message.text());
        match view.scope().step {
            1 => Answer::calls("", vec![(prompt.unwrap_or_default(), "{}".into())]),
            _ => Answer::text("done"),
        }
    })
}

fn builder() -> RuntimeBuilder {
    Runtime::builder(Arc::new(MemoryStore::new())).model(obedient())
}

/// A runtime with one tool, and a root that was told to use it.
async fn uses(tool: Small) -> (Runtime, AgentHandle, Subscription) {
    let name = tool.0;
    let runtime = builder().tool(Arc::new(tool)).build().await.unwrap();
    let seen = runtime.subscribe();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup(name).await.unwrap();
    (runtime, root, seen)
}

async fn until_a_tool_runs(seen: &mut Subscription) {
    loop {
        let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
        if matches!(event.what, Observed::ToolStarted { .. }) {
            return;
        }
    }
}

async fn log(root: &AgentHandle) -> Vec<Arc<Event>> {
    // Read behind the end of the runtime: what is stored is all there is.
    root.subscribe(Seq(0)).try_collect().await.unwrap()
}

/// The code and the text of the one result.
fn result(log: &[Arc<Event>]) -> (String, String) {
    let mut results = log.iter().filter_map(|event| match &event.fact {
        Fact::ToolResult(result) => Some(result),
        _ => None,
    });
    let result = results.next().expect("a call has a result");
    assert!(results.next().is_none(), "and only one");
    let code = result.error.as_ref().map(|error| error.code.to_string()).unwrap_or_default();
    (code, format!("{:?}", result.message.content))
}

fn ends(log: &[Arc<Event>]) -> Vec<TurnEnd> {
    let ends = log.iter().filter_map(|event| match &event.fact {
        Fact::TurnEnded(ended) => Some(ended.reason.clone()),
        _ => None,
    });
    ends.collect()
}

/// Runs until it is cancelled.
fn lingers(ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    Box::pin(async move {
        ctx.cancel.cancelled().await;
        Err(ToolError::aborted())
    })
}

#[tokio::test]
async fn b096_a_provider_that_is_not_there_is_named_with_those_that_are() {
    let runtime = builder().build().await.unwrap();
    let error = runtime.spawn(AgentSpec::new("nowhere", "any", std::env::temp_dir())).await.unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("scripted"), "{error}");
}

#[tokio::test]
async fn b105_b092_a_shutdown_in_a_turn_ends_it_disposed_and_what_waited_opens_no_other() {
    let (runtime, root, mut seen) = uses(Small("linger", lingers)).await;
    until_a_tool_runs(&mut seen).await;
    root.followup("linger").await.unwrap();
    runtime.shutdown().await.unwrap();
    let log = log(&root).await;
    assert_eq!(ends(&log), [TurnEnd::Aborted { reason: Cause::Disposed }]);
    let started = log.iter().filter(|event| matches!(event.fact, Fact::TurnStarted(_))).count();
    assert_eq!(started, 1);
}

#[tokio::test]
async fn b106_two_stops_at_once_are_both_answered_when_there_is_rest() {
    let (runtime, root, mut seen) = uses(Small("linger", lingers)).await;
    until_a_tool_runs(&mut seen).await;
    let stop = || runtime.stop(root.id(), Cause::user("test"), Duration::from_secs(5));
    let (one, other) = tokio::join!(stop(), stop());
    assert!(one.unwrap().at_rest() && other.unwrap().at_rest());
    runtime.shutdown().await.unwrap();
    assert_eq!(ends(&log(&root).await).len(), 1);
}

#[tokio::test]
async fn b137_a_tool_that_fails_behind_a_cancel_keeps_its_own_error() {
    let tool = Small("linger", |ctx| {
        Box::pin(async move {
            ctx.cancel.cancelled().await;
            Err(ToolError::new("half of it was written"))
        })
    });
    let (runtime, root, mut seen) = uses(tool).await;
    until_a_tool_runs(&mut seen).await;
    runtime.stop(root.id(), Cause::user("test"), Duration::from_secs(5)).await.unwrap();
    runtime.shutdown().await.unwrap();
    let (_, text) = result(&log(&root).await);
    assert!(text.contains("half of it was written"), "{text}");
}

#[tokio::test]
async fn b141_a_panic_of_any_kind_is_a_result_with_a_fixed_text() {
    let tool = Small("odd", |_| Box::pin(async { std::panic::panic_any(vec![1, 2, 3]) }));
    let (runtime, root, _) = uses(tool).await;
    assert_eq!(&*root.wait().await.unwrap().unwrap().text, "done");
    runtime.shutdown().await.unwrap();
    let (code, text) = result(&log(&root).await);
    assert_eq!(code, "PANIC");
    assert!(text.contains("no message"), "{text}");
}

#[tokio::test]
async fn b146_two_tools_of_one_name_are_refused_by_it() {
    let tool = |name| Arc::new(Small(name, lingers));
    let twice = builder().tool(tool("linger")).tool(tool("linger")).build().await.unwrap_err();
    assert!(matches!(&twice, Error::Refused(why) if why.contains("\"linger\"")), "{twice}");
    let own = builder().tool(tool("subagent")).build().await.unwrap_err();
    assert!(own.to_string().contains("subagent"), "{own}");
    let providers = builder().model(obedient()).build().await.unwrap_err();
    assert!(providers.to_string().contains("scripted"), "{providers}");
}
