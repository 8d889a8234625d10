//! One tool call from its name to its report.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use impresario_kernel::event::Authority;
use impresario_kernel::{Access, AgentId, AgentPath, Block, CallId, CallKey, CallReport};
use impresario_seams::{HookCall, Question, Tool, ToolContext, ToolRun};
use ractor::ActorRef;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agent::AgentMessage;
use crate::delegation;
use crate::hooks::{self, Hooks};
use crate::shared::{Shared, panic_text};
use crate::spec::Answerer;

/// The tool that runs commands: under write access somebody is asked first.
const SHELL: &str = "bash";

/// The most bytes of one result that a model is shown, here; most tools keep within smaller bounds of their own. The rest is
/// kept as an artifact.
const RESULT_BYTES_MAX: usize = 256 * 1024;

/// A call that may run.
pub(crate) struct PipelineCall {
    pub(crate) key: CallKey,
    pub(crate) id: CallId,
    pub(crate) name: Arc<str>,
    pub(crate) arguments: Arc<str>,
    pub(crate) agent: AgentId,
    pub(crate) root: AgentId,
    pub(crate) path: AgentPath,
    pub(crate) authority: Authority,
    pub(crate) dir: PathBuf,
    pub(crate) cancel: CancellationToken,
    pub(crate) approver: Option<Answerer>,
    pub(crate) hooks: Hooks,
}

/// Runs one call to its real end and reports it.
pub(crate) async fn perform(shared: Arc<Shared>, call: PipelineCall, agent: ActorRef<AgentMessage>) {
    let key = call.key;
    let report = match AssertUnwindSafe(run(&shared, call)).catch_unwind().await {
        Ok(report) => report,
        Err(panic) => CallReport::failed("ToolPanic", "PANIC", &format!("the tool panicked: {}", panic_text(&*panic))),
    };
    // The actor may be gone; then nobody waits for this.
    let _ = agent.cast(AgentMessage::CallEnded { call: key, report });
}

/// Judges a call that others perform, and reports how that went.
pub(crate) async fn judge(call: PipelineCall, agent: ActorRef<AgentMessage>) {
    let verdict = AssertUnwindSafe(judged(&call)).catch_unwind().await.unwrap_or_else(|panic| {
        let message = format!("judging the call panicked: {}", panic_text(&*panic));
        Err(CallReport::failed("ToolPanic", "PANIC", &message).into())
    });
    // The actor may be gone; then nobody waits for this.
    let _ = match verdict {
        Ok(_) => agent.cast(AgentMessage::CallJudged { call: call.key }),
        Err(report) => agent.cast(AgentMessage::CallEnded { call: call.key, report: *report }),
    };
}

async fn run(shared: &Shared, call: PipelineCall) -> CallReport {
    let tool = match permitted(shared, &call.name, &call.authority) {
        Ok(tool) => Arc::clone(tool),
        Err(report) => return *report,
    };
    let shown = match judged(&call).await {
        Ok(shown) => shown,
        Err(report) => return *report,
    };
    let context = ToolContext {
        agent: call.agent.clone(),
        call: call.id.clone(),
        dir: call.dir.clone(),
        access: call.authority.access,
        cancel: call.cancel.clone(),
    };
    // Between the decision to start it and this moment somebody may have stopped the agent.
    tokio::select! {
        biased;
        () = call.cancel.cancelled() => return aborted(),
        () = shared.halts.lifted(&call.root, &call.path) => {}
    }
    let input = shown.input.clone();
    let body = ToolRun::new(move || tool.run(input.clone(), context.clone()));
    let report = match hooks::around(&call.hooks, &shown, body).run().await {
        Ok(output) => {
            let content = bounded(shared, &call, output.content).await;
            CallReport { content, meta: output.meta, todos: output.todos, ..CallReport::default() }
        }
        Err(error) => {
            let content = vec![Block::text(format!("Error: {}", error.message))];
            let content = bounded(shared, &call, content).await;
            CallReport { content, is_error: true, error: error.info, ..CallReport::default() }
        }
    };
    hooks::after(&call.hooks, call.key, shown, report).await
}

/// Lets hooks, guards and, where it must be asked, somebody say whether a call may run. What they were shown is what
/// runs.
pub(crate) async fn judged(call: &PipelineCall) -> Result<Arc<HookCall>, Box<CallReport>> {
    let shown = shown(call)?;
    let question = hooks::before(&call.hooks, &shown).await?.or_else(|| shell_question(&call.authority, &shown));
    if let Some(what) = question {
        approved(call, what).await?;
    }
    hooks::guard(&call.hooks, &shown).await?;
    Ok(shown)
}

/// The call as hooks see it.
fn shown(call: &PipelineCall) -> Result<Arc<HookCall>, Box<CallReport>> {
    Ok(Arc::new(HookCall {
        agent: call.agent.clone(),
        path: call.path.clone(),
        call: call.id.clone(),
        tool: call.name.to_string(),
        input: input(&call.arguments)?,
    }))
}

/// Lets hooks look at the result of a call that others performed.
pub(crate) async fn reviewed(call: PipelineCall, report: CallReport) -> CallReport {
    let key = call.key;
    let review = async {
        match shown(&call) {
            Ok(shown) => hooks::after(&call.hooks, key, shown, report).await,
            Err(report) => *report,
        }
    };
    AssertUnwindSafe(review).catch_unwind().await.unwrap_or_else(|panic| {
        CallReport::failed("HookError", "HOOK_FAILED", &format!("a hook panicked: {}", panic_text(&*panic)))
    })
}

/// The tool, if there is one of this name and the agent may use it.
fn permitted<'a>(shared: &'a Shared, name: &str, authority: &Authority) -> Result<&'a Arc<dyn Tool>, Box<CallReport>> {
    let may = authority.tools.iter().any(|tool| tool == name);
    let tool = shared.tool(name);
    match tool {
        Some(tool) if may && tool.access() <= authority.access => Ok(tool),
        Some(_) => {
            let message = format!(
                "you may not use {name} here (access {}); your tools are: {}",
                authority.access.as_str(),
                authority.tools.join(", ")
            );
            Err(CallReport::failed("ToolDeniedError", "TOOL_DENIED", &message).into())
        }
        None => {
            let message = format!("there is no tool {name:?}; your tools are: {}", authority.tools.join(", "));
            Err(CallReport::failed("ToolNotFoundError", "TOOL_NOT_FOUND", &message).into())
        }
    }
}

fn input(arguments: &str) -> Result<Value, Box<CallReport>> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments).map_err(|error| {
        let message = format!("the arguments are not JSON ({error}); send one JSON object");
        CallReport::failed("ToolArgsError", "INVALID_ARGS", &message).into()
    })
}

/// Under write access a command runs only when somebody says yes.
fn shell_question(authority: &Authority, call: &HookCall) -> Option<String> {
    let asks = call.tool == SHELL && authority.access == Access::Write;
    asks.then(|| call.input.get("command").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Asks; with nobody to ask the answer is no.
async fn approved(call: &PipelineCall, what: String) -> Result<(), Box<CallReport>> {
    let question = Question { agent: call.agent.clone(), path: call.path.clone(), tool: call.name.to_string(), what };
    let yes = match &call.approver {
        Some(Answerer(approver)) => tokio::select! {
            biased;
            yes = approver.ask(question) => yes,
            () = call.cancel.cancelled() => false,
        },
        None => false,
    };
    if yes {
        return Ok(());
    }
    let message = "this call was not approved; go on without it, or say what you would have done";
    Err(CallReport::failed("ApprovalDeniedError", "APPROVAL_DENIED", message).into())
}

/// What a model is shown of a result: what is too long is kept as an artifact, and it is told how to read on.
async fn bounded(shared: &Shared, call: &PipelineCall, content: Vec<Block>) -> Vec<Block> {
    let mut shown = Vec::with_capacity(content.len());
    for block in content {
        shown.push(match block {
            Block::Text { text } if text.len() > RESULT_BYTES_MAX => Block::text(cut_off(shared, call, &text).await),
            block => block,
        });
    }
    shown
}

async fn cut_off(shared: &Shared, call: &PipelineCall, text: &str) -> String {
    let end = delegation::cut(text, RESULT_BYTES_MAX);
    let (head, left) = (&text[..end], text.len() - end);
    match shared.store.put_artifact(call.agent.clone(), text.into()).await {
        Ok(name) => format!("{head}\n{}", delegation::more(&name, end, left)),
        Err(error) => {
            tracing::warn!(agent = %call.agent, %error, "the rest of a long result could not be kept");
            format!("{head}\n[… {left} more bytes are lost: {error}]")
        }
    }
}

/// A call whose tool was never started.
pub(crate) fn aborted() -> CallReport {
    CallReport::failed("AbortError", "ABORTED_BEFORE_DISPATCH", "tool call aborted before dispatch")
}

/// What a display may want to know of an abandoned call.
pub(crate) fn abandoned() -> CallReport {
    let message = "the call did not end in time after it was cancelled and was abandoned; its effects are unknown";
    let report = CallReport::failed("AbortError", "ABANDONED", message);
    CallReport { meta: Some(json!({"abandoned": true})), ..report }
}
