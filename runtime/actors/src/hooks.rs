//! Asking hooks. A hook that panics or takes too long has said no.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_kernel::{Block, CallReport};
use impresario_seams::{Afterwards, Hook, HookCall, HookResult, Verdict};

use crate::shared::{Shared, panic_text};

/// All hooks before a call: a report if one denies, and otherwise what somebody must be asked, if one asks.
pub(crate) async fn before(shared: &Shared, call: &Arc<HookCall>) -> Result<Option<String>, Box<CallReport>> {
    let mut question = None;
    for hook in &shared.hooks {
        match decided(&**hook, |hook| hook.pre_execute(Arc::clone(call))).await? {
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
pub(crate) async fn guard(shared: &Shared, call: &Arc<HookCall>) -> Result<(), Box<CallReport>> {
    for hook in &shared.hooks {
        if let Some(reason) = decided(&**hook, |hook| hook.guard(Arc::clone(call))).await? {
            return Err(denied("GUARD_DENIED", &reason));
        }
    }
    Ok(())
}

/// All hooks after a call, each on what the one before it left.
pub(crate) async fn after(shared: &Shared, call: Arc<HookCall>, mut report: CallReport) -> CallReport {
    for hook in &shared.hooks {
        let result = Arc::new(HookResult { content: report.content.clone(), is_error: report.is_error });
        match decided(&**hook, |hook| hook.post_execute(Arc::clone(&call), result)).await {
            Ok(Afterwards::Accept) => {}
            Ok(Afterwards::Replace { content }) => report.content = content,
            Ok(Afterwards::Block { reason }) => return withheld(report, *denied("HOOK_BLOCKED", &reason)),
            Err(failure) => return withheld(report, *failure),
        }
    }
    report
}

/// The call has run: what it did stays written down, what it said does not.
fn withheld(report: CallReport, mut instead: CallReport) -> CallReport {
    instead.content.push(Block::text("The call has run; its result is withheld."));
    CallReport { todos: report.todos, concludes: report.concludes, ..instead }
}

fn denied(code: &str, reason: &str) -> Box<CallReport> {
    CallReport::failed("HookError", code, reason).into()
}

async fn decided<T>(
    hook: &dyn Hook,
    ask: impl FnOnce(&dyn Hook) -> BoxFuture<'static, T>,
) -> Result<T, Box<CallReport>> {
    let failed = |why: String| {
        let message = format!("the hook {} failed, so this was refused: {why}", hook.name());
        tracing::warn!(hook = hook.name(), why, "a hook failed");
        denied("HOOK_FAILED", &message)
    };
    let decision = std::panic::catch_unwind(AssertUnwindSafe(|| ask(hook)));
    let decision = decision.map_err(|panic| failed(format!("it panicked: {}", panic_text(&*panic))))?;
    match tokio::time::timeout(hook.timeout(), AssertUnwindSafe(decision).catch_unwind()).await {
        Ok(Ok(decision)) => Ok(decision),
        Ok(Err(panic)) => Err(failed(format!("it panicked: {}", panic_text(&*panic)))),
        Err(_) => Err(failed(format!("it took longer than {} ms", hook.timeout().as_millis()))),
    }
}
