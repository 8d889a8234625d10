//! A model without a model: its answers are a function of what the request contains and of who asks.
//!
//! No key, no network, no chance: the same request gets the same answer whatever else runs. For demonstrations, tests
//! and for measuring what delegation costs when tokens cost nothing.

mod demo;
mod dice;
mod directive;
mod latency;
mod rules;
mod speech;
mod view;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_kernel::{Failure, Usage};
use impresario_seams::{ChunkStream, Model, ModelRequest};
use tokio::time::Instant;

use speech::Speech;
#[cfg(feature = "replay")]
pub(crate) use speech::{counted, paced};

pub use latency::{Latency, LatencyError, Pace};
pub use rules::ScriptError;
pub use view::{Answered, View};

/// How long adapters let a provider be silent, by default.
const IDLE: Duration = Duration::from_secs(120);

/// An answer to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What it thought before.
    pub reasoning: String,
    /// What it says.
    pub text: String,
    /// The calls that it asks for: tool and arguments as JSON text.
    pub calls: Vec<(String, String)>,
    /// How long it takes to begin; none takes as long as the model's answers usually do
    /// ([`ScriptedModel::with_latency`]).
    pub latency: Option<Duration>,
    /// How long each token behind the first takes; none is no time where `latency` says something, else as usual.
    pub per_token: Option<Duration>,
    /// What it costs; none is a token for every four bytes.
    pub usage: Option<Usage>,
    /// The attempt fails with this, behind what it says; calls are not asked for.
    pub failure: Option<Failure>,
    /// It breaks after so many pieces, with its failure, or, if it has none, falls silent.
    pub breaks_after: Option<usize>,
    /// Whether it runs into its output limit.
    pub is_cut: bool,
}

impl Answer {
    /// Says something.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Says something and asks for calls.
    pub fn calls(text: impl Into<String>, calls: Vec<(String, String)>) -> Self {
        Self { text: text.into(), calls, ..Self::default() }
    }

    /// Fails.
    pub fn failure(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

type Decide = dyn Fn(&View<'_>) -> Answer + Send + Sync;

/// A model that follows a script.
#[derive(Clone)]
pub struct ScriptedModel {
    decide: Arc<Decide>,
    latency: Latency,
    seed: u64,
    silence: Silence,
}

/// After how long somebody who is silent is given up; none is never.
#[derive(Clone, Copy, Debug)]
struct Silence(Option<Duration>);

impl ScriptedModel {
    /// Follows the directives in what it is told, `[[FANOUT n=4 tool=subagent]]` for one; without one it repeats what
    /// it was told. [`directives`](Self::DIRECTIVES) lists them.
    pub fn builtin() -> Self {
        Self::from_fn(directive::answer)
    }

    /// The directives of [`ScriptedModel::builtin`], a line each.
    pub const DIRECTIVES: &str = directive::HELP;

    /// Plays the lead and the subagents of `impresario demo`, at a speed that a person can follow.
    pub fn demo() -> Self {
        Self::from_fn(|view| Answer { latency: Some(demo::latency(view)), ..demo::answer(view) })
    }

    /// As [`ScriptedModel::demo`], with one latency for all answers.
    pub fn demo_with_latency(latency: Duration) -> Self {
        Self::from_fn(demo::answer).with_latency(latency)
    }

    /// Follows the rules of a script; directives work where no rule matches. [`ScriptedModel::SCRIPTS`] says what can be
    /// in one:
    ///
    /// ```text
    #[doc = include_str!("scripted/script.txt")]
    /// ```
    ///
    /// # Errors
    /// [`ScriptError`] with the line, for what is not TOML or not a rule.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        let script = rules::parse(text)?;
        let seed = script.seed();
        Ok(Self::from_fn(move |view| script.answer(view, directive::answer)).with_seed(seed))
    }

    /// The form of scripts.
    pub const SCRIPTS: &str = include_str!("scripted/script.txt");

    /// Answers with a function.
    pub fn from_fn(decide: impl Fn(&View<'_>) -> Answer + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), latency: Latency::default(), seed: 0, silence: Silence(Some(IDLE)) }
    }

    /// Sets how long an answer that does not say so itself takes to begin; by default it begins at once.
    #[must_use]
    pub fn with_latency(self, latency: impl Into<Latency>) -> Self {
        Self { latency: latency.into(), ..self }
    }

    /// Sets what the usual latencies are drawn from; a script that says its own seed keeps it for its own.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Lets answers that fall silent stay so: who asks over HTTP gives up by itself. Otherwise they fail with `TIMEOUT`
    /// after two minutes, as they do in adapters.
    #[must_use]
    pub fn silent_for_ever(self) -> Self {
        Self { silence: Silence(None), ..self }
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").finish_non_exhaustive()
    }
}

impl Model for ScriptedModel {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let Self { decide, latency, seed, silence } = self.clone();
        async move {
            let asked = Instant::now();
            let answer = decide(&View::new(&request));
            let pace = pace(&answer, latency.draw(seed, &request.scope));
            pace.wait(asked).await;
            Speech::of(&request, &answer, silence).stream(pace, asked)
        }
        .boxed()
    }

    fn is_scripted(&self) -> bool {
        true
    }
}

/// What an answer says of its pace, else what is usual.
fn pace(answer: &Answer, usual: Pace) -> Pace {
    match answer.latency {
        Some(first) => Pace { first, token: answer.per_token.unwrap_or_default() },
        None => Pace { token: answer.per_token.unwrap_or(usual.token), ..usual },
    }
}
