//! Asking hooks. A hook that panics or takes too long has failed, and what that means is decided where it was asked.

mod turn;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_kernel::{Block, CallKey, CallReport, Message, Source};
use impresario_seams::{Afterwards, Hook, HookCall, HookResult, ToolRun, Verdict};

use crate::shared::panic_text;

pub(crate) use turn::{Question, judge};

/// The hooks of an agent, in the order in which they are asked.
pub(crate) type Hooks = Arc<[Arc<dyn Hook>]>;

/// All hooks before a call: a report if one denies, and otherwise what somebody must be asked, if one asks.
pub(crate) async fn before(hooks: &Hooks, call: &Arc<HookCall>) -> Result<Option<String>, Box<CallReport>> {
    let mut question = None;
    for hook in hooks.iter() {
        match asked(&**hook, |hook| hook.pre_execute(Arc::clone(call))).await.map_err(HookFailure::report)? {
            Verdict::Allow => {}
            Verdict::Deny { reason } => return Err(denied("HOOK_DENIED", &reason)),
            Verdict::Ask { question: asked } => {
                question.get_or_insert(asked);
            }
        }
    }
    Ok(question)
}

/// All guards: none of them may have a reason to deny.
pub(crate) async fn guard(hooks: &Hooks, call: &Arc<HookCall>) -> Result<(), Box<CallReport>> {
    for hook in hooks.iter() {
        let reason = asked(&**hook, |hook| hook.guard(Arc::clone(call))).await.map_err(HookFailure::report)?;
        if let Some(reason) = reason {
            return Err(denied("GUARD_DENIED", &reason));
        }
    }
    Ok(())
}

/// `run` with every hook around it, the first one outermost.
pub(crate) fn around(hooks: &Hooks, call: &Arc<HookCall>, run: ToolRun) -> ToolRun {
    hooks.iter().rev().fold(run, |inner, hook| {
        let (hook, call) = (Arc::clone(hook), Arc::clone(call));
        ToolRun::new(move || hook.around(Arc::clone(&call), inner.clone()))
    })
}

/// All hooks after a call, each on what the one before it left.
pub(crate) async fn after(hooks: &Hooks, key: CallKey, call: Arc<HookCall>, mut report: CallReport) -> CallReport {
    for hook in hooks.iter() {
        let result = Arc::new(HookResult { content: report.content.clone(), is_error: report.is_error });
        match asked(&**hook, |hook| hook.post_execute(Arc::clone(&call), result)).await {
            Ok(Afterwards::Accept) => {}
            Ok(Afterwards::Replace { content }) => report.content = content,
            Ok(Afterwards::Add { context }) => {
                let id = format!("context-{}-{}-{}-{}", key.turn, key.step, key.index, report.contexts.len());
                let source = Source::plugin(hook.name(), "context");
                report.contexts.push(Arc::new(Message::context(id, context, source)));
            }
            Ok(Afterwards::Block { reason }) => return withheld(report, *denied("HOOK_BLOCKED", &reason)),
            Err(failure) => return withheld(report, *failure.report()),
        }
    }
    report
}

/// The call has run: what it did stays written down, what it said does not.
fn withheld(report: CallReport, mut instead: CallReport) -> CallReport {
    instead.content.push(Block::text("The call has run; its result is withheld."));
    CallReport { todos: report.todos, concludes: report.concludes, id: report.id, claims: report.claims, ..instead }
}

fn denied(code: &str, reason: &str) -> Box<CallReport> {
    CallReport::failed("HookError", code, reason).into()
}

/// A hook that gave no answer.
struct HookFailure {
    hook: String,
    why: String,
}

impl HookFailure {
    /// What it means for a call.
    fn report(self) -> Box<CallReport> {
        denied("HOOK_FAILED", &format!("the hook {} failed, so this was refused: {}", self.hook, self.why))
    }
}

async fn asked<T>(hook: &dyn Hook, ask: impl FnOnce(&dyn Hook) -> BoxFuture<'static, T>) -> Result<T, HookFailure> {
    let failed = |why: String| {
        tracing::warn!(hook = hook.name(), why, "a hook failed");
        HookFailure { hook: hook.name().to_owned(), why }
    };
    let panicked = |panic: Box<dyn std::any::Any + Send>| failed(format!("it panicked: {}", panic_text(&*panic)));
    let answer = std::panic::catch_unwind(AssertUnwindSafe(|| ask(hook))).map_err(panicked)?;
    match tokio::time::timeout(hook.timeout(), AssertUnwindSafe(answer).catch_unwind()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(panic)) => Err(panicked(panic)),
        Err(_) => Err(failed(format!("it took longer than {} ms", hook.timeout().as_millis()))),
    }
}
