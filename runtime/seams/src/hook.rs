//! Somebody who looks at turns and calls on their way, and may have a say.

mod call;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use impresario_kernel::{Point, RequestConfig};

use crate::tool::{ToolError, ToolOutput};

pub use call::{Afterwards, HookCall, HookResult, ToolRun, Verdict};
pub use turn::{
    AfterFailure, Beginning, Notice, Place, RequestFailed, RequestPlanned, SessionStarted, StepProposed, StepVerdict,
    TurnStops,
};

/// A hook. Every method has a default that changes nothing.
///
/// Hooks are asked in the order in which they were registered, the runtime's before the agent's own, and each sees what
/// the one before it left. Where they decide they fail closed: a hook that panics or takes longer than its
/// [`Hook::timeout`] denies the call, hides the result, ends the turn; where they only add something
/// ([`Hook::session_start`]) nothing is added. What a hook is shown is shared and cannot change under it: what was
/// judged is what runs.
///
/// A cancel does not wait for hooks: whatever one of them is being asked then is asked no more, and its future is
/// dropped.
pub trait Hook: Send + Sync + 'static {
    /// What it is called in errors and in logs.
    fn name(&self) -> &str;

    /// How long one decision may take. [`Hook::around`] may take as long as the call does.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// The points of a turn at which it is asked. Each costs a turn two events and a wait for the store, so a hook that
    /// is about calls only should answer `&[]`; a point that is not named here is never asked about.
    fn points(&self) -> &[Point] {
        &Point::ALL
    }

    /// Whether it is asked about calls. A hook that is about turns only should say no: calls for other agents that nobody
    /// looks at are handed on at once.
    fn judges_calls(&self) -> bool {
        true
    }

    /// Before the first step of an agent, and before the first one since its session was opened again: context that is
    /// put before the model ahead of everything else.
    fn session_start(&self, session: Arc<SessionStarted>) -> BoxFuture<'static, Option<String>> {
        drop(session);
        ready(None).boxed()
    }

    /// Before a step, with the messages that it would put before the model.
    fn pre_step(&self, step: Arc<StepProposed>) -> BoxFuture<'static, StepVerdict> {
        drop(step);
        ready(StepVerdict::Enter).boxed()
    }

    /// Before each request to a model: other settings for it. They hold for this request alone.
    fn request(&self, request: Arc<RequestPlanned>) -> BoxFuture<'static, Option<RequestConfig>> {
        drop(request);
        ready(None).boxed()
    }

    /// When a request has failed. The first hook with an opinion decides.
    fn request_error(&self, failed: Arc<RequestFailed>) -> BoxFuture<'static, AfterFailure> {
        drop(failed);
        ready(AfterFailure::Policy).boxed()
    }

    /// When the model is done and the turn would end: something to say to the model, which lets the turn go on. After
    /// some rounds of that ([`impresario_kernel::TurnLimits::continuations`]) hooks are not asked any more.
    fn turn_stopping(&self, turn: Arc<TurnStops>) -> BoxFuture<'static, Option<Notice>> {
        drop(turn);
        ready(None).boxed()
    }

    /// Before a call runs. The first that denies ends it; if one asks, somebody is asked when all have spoken.
    fn pre_execute(&self, call: Arc<HookCall>) -> BoxFuture<'static, Verdict> {
        drop(call);
        ready(Verdict::Allow).boxed()
    }

    /// The last word before a call runs, whoever allowed it: a reason to deny it, if there is one.
    fn guard(&self, call: Arc<HookCall>) -> BoxFuture<'static, Option<String>> {
        drop(call);
        ready(None).boxed()
    }

    /// Around a call that may run: to time it, to run it again, or to answer in its place. `run` runs what the hooks
    /// behind this one and the tool do. A cancel reaches the tool however it is wrapped. Not asked for calls that only
    /// wait for other agents.
    fn around(&self, call: Arc<HookCall>, run: ToolRun) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        drop(call);
        run.run()
    }

    /// After a call ran, before the model sees its result. Not asked for calls that were denied.
    fn post_execute(&self, call: Arc<HookCall>, result: Arc<HookResult>) -> BoxFuture<'static, Afterwards> {
        drop((call, result));
        ready(Afterwards::Accept).boxed()
    }
}

impl fmt::Debug for dyn Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.name()).finish()
    }
}
