//! Many prompts, one root agent each.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use impresario_kernel::{AgentId, Cause, Outcome, OutcomeKind, Spent};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::output::OutputSchema;
use crate::runtime::{Runtime, quiesce, spawn};
use crate::shared::Shared;
use crate::spec::AgentSpec;
use crate::supervisor::{Stop, SupervisorMessage};

/// How long what is dropped may take to end.
const DROP_DEADLINE: Duration = Duration::from_secs(10);

/// How one prompt of a fan-out came out.
#[derive(Clone, Debug)]
pub struct Settled<T = String> {
    /// Which prompt it was, from 0.
    pub index: usize,
    /// The agent that had it; `None` if none could be made.
    pub id: Option<AgentId>,
    /// How its turn came out. One that failed, was cancelled or hit a limit has an outcome, too: an error is for an agent
    /// that could not be made or asked.
    pub result: Result<Arc<Outcome>, Error>,
    /// What it came out with, when it has completed.
    pub output: Option<T>,
    /// From the moment that it began.
    pub duration: Duration,
}

impl<T> Settled<T> {
    /// What it said last, whole or not.
    pub fn text(&self) -> &str {
        self.result.as_ref().map_or("", |outcome| &outcome.text)
    }

    /// Whether it came to a good end.
    pub fn is_completed(&self) -> bool {
        self.result.as_ref().is_ok_and(|outcome| outcome.kind == OutcomeKind::Completed)
    }
}

/// The outcomes of a fan-out, in the order in which they come; see [`Runtime::fan_out`].
///
/// Dropping it stops what it has begun and not finished.
#[must_use = "nothing begins before it is polled"]
pub struct FanOut<T = String> {
    settled: BoxStream<'static, Settled<T>>,
    counts: BTreeMap<OutcomeKind, usize>,
    errors: usize,
    spent: Spent,
}

impl<T> FanOut<T> {
    /// Waits for all, and gives them in the order of the prompts.
    pub async fn all(mut self) -> Vec<Settled<T>> {
        let mut all = vec![];
        while let Some(settled) = self.next().await {
            all.push(settled);
        }
        all.sort_by_key(|settled| settled.index);
        all
    }

    /// `10 agents: 9 completed, 1 failed; 41000 tokens`, of those that have settled so far.
    pub fn summary(&self) -> String {
        let count = self.counts.values().sum::<usize>() + self.errors;
        let mut parts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        parts.extend((self.errors > 0).then(|| format!("{} not begun", self.errors)));
        let tokens = self.spent.tokens();
        let agents = if count == 1 { "agent" } else { "agents" };
        format!("{count} {agents}: {}; {tokens} tokens", parts.join(", "))
    }
}

impl<T> Stream for FanOut<T> {
    type Item = Settled<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Settled<T>>> {
        let next = self.settled.poll_next_unpin(cx);
        if let Poll::Ready(Some(settled)) = &next {
            match &settled.result {
                Ok(outcome) => {
                    *self.counts.entry(outcome.kind).or_default() += 1;
                    self.spent.add(&outcome.spent);
                }
                Err(_) => self.errors += 1,
            }
        }
        next
    }
}

impl<T> fmt::Debug for FanOut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut").field("settled", &self.summary()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Gives each prompt to a root agent of its own, made of `spec`, and streams how they come out, the first first. At
    /// most [`crate::Limits::running_max`] of them are at it at once; the next begins when one, with all that is below it,
    /// has come to rest. One failure never ends the stream.
    pub fn fan_out<P: Into<String>>(&self, spec: AgentSpec, prompts: impl IntoIterator<Item = P>) -> FanOut {
        self.fan(spec, prompts, |outcome| Some(outcome.answer().to_string()))
    }

    /// As [`Runtime::fan_out`], with outputs that can be read as a `T`: each agent is told so, gives its output with the
    /// tool `final_output`, and is told what is wrong with it until it fits. One that gives none has failed.
    pub fn fan_out_as<T>(&self, spec: AgentSpec, prompts: impl IntoIterator<Item = impl Into<String>>) -> FanOut<T>
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let spec = AgentSpec { output: Some(OutputSchema::of::<T>()), ..spec };
        self.fan(spec, prompts, |outcome| T::deserialize(&**outcome.output.as_ref()?).ok())
    }

    fn fan<T: Send + 'static>(
        &self,
        spec: AgentSpec,
        prompts: impl IntoIterator<Item = impl Into<String>>,
        read: fn(&Outcome) -> Option<T>,
    ) -> FanOut<T> {
        let shared = Arc::clone(self.shared());
        let most = shared.limits.running_max.max(1);
        let prompts: Vec<String> = prompts.into_iter().map(Into::into).collect();
        let one = move |(index, prompt)| settle(Arc::clone(&shared), spec.clone(), index, prompt, read);
        let settled = stream::iter(prompts.into_iter().enumerate()).map(one).buffer_unordered(most).boxed();
        FanOut { settled, counts: BTreeMap::new(), errors: 0, spent: Spent::default() }
    }
}

async fn settle<T>(
    shared: Arc<Shared>,
    spec: AgentSpec,
    index: usize,
    prompt: String,
    read: fn(&Outcome) -> Option<T>,
) -> Settled<T> {
    let began = Instant::now();
    let handle = match spawn(&shared, spec).await {
        Ok(handle) => handle,
        Err(error) => return Settled { index, id: None, result: Err(error), output: None, duration: began.elapsed() },
    };
    let id = handle.id().clone();
    let mut owned = Owned { shared: Arc::clone(&shared), id: Some(id.clone()) };
    let result = async {
        handle.followup(&prompt).await?;
        quiesce(&shared, &id).await?;
        handle.outcome().await?.ok_or(Error::Closed)
    }
    .await;
    owned.id = None;
    let completed = result.as_ref().ok().filter(|outcome: &&Arc<Outcome>| outcome.kind == OutcomeKind::Completed);
    let output = completed.and_then(|outcome| read(outcome));
    Settled { index, id: Some(id), result, output, duration: began.elapsed() }
}

/// An agent that is stopped when nobody waits for it any more.
struct Owned {
    shared: Arc<Shared>,
    id: Option<AgentId>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(top) = self.id.take() else { return };
        let halt = self.shared.halt(&top);
        let (reply, _) = oneshot::channel();
        let stop = Stop { top, cause: Cause::Disposed, deadline: DROP_DEADLINE, halt, reply };
        self.shared.supervisor.cast(SupervisorMessage::Stop(stop));
    }
}
