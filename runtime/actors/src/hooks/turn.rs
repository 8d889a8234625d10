//! Asking hooks at the points of a turn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use impresario_kernel::{
    Block, Entry, Failure, Judgement, Message, Point, Recovery, RequestConfig, Role, Said, Source, TodoItem,
};
use impresario_seams::{
    AfterFailure, Beginning, Hook, Place, RequestFailed, RequestPlanned, SessionStarted, StepProposed, StepVerdict,
    TurnStops,
};

use super::{HookFailure, Hooks, asked};
use crate::shared::panic_text;

/// What hooks are asked.
pub(crate) enum Question {
    SessionStart(Beginning),
    PreStep(Vec<Arc<Message>>),
    Request { attempt: u32, config: RequestConfig },
    RequestError { attempt: u32, config: RequestConfig, failure: Failure },
    TurnStopping { text: Option<Arc<str>>, todos: Option<Vec<TodoItem>>, is_cut: bool, steered: Vec<String> },
}

/// What all hooks together say. Never panics: a hook that does has failed.
pub(crate) async fn judge(hooks: Hooks, place: Place, question: Question) -> Judgement {
    let point = question.point();
    let chain = Chain { hooks, place };
    let judgement = AssertUnwindSafe(chain.ask(question)).catch_unwind().await.unwrap_or_else(|panic| {
        let why = format!("naming or listing it panicked: {}", panic_text(&*panic));
        Err(HookFailure { hook: "(unknown)".into(), why })
    });
    judgement.unwrap_or_else(|HookFailure { hook, why }| Judgement::Failed { point, hook, why })
}

impl Question {
    fn point(&self) -> Point {
        match self {
            Self::SessionStart(_) => Point::SessionStart,
            Self::PreStep(_) => Point::PreStep,
            Self::Request { .. } => Point::Request,
            Self::RequestError { .. } => Point::RequestError,
            Self::TurnStopping { .. } => Point::TurnStopping,
        }
    }
}

/// The hooks, and what they are asked about.
struct Chain {
    hooks: Hooks,
    place: Place,
}

impl Chain {
    async fn ask(&self, question: Question) -> Result<Judgement, HookFailure> {
        match question {
            Question::SessionStart(beginning) => self.session_start(beginning).await,
            Question::PreStep(messages) => self.pre_step(messages).await,
            Question::Request { attempt, config } => self.request(attempt, config).await,
            Question::RequestError { attempt, config, failure } => {
                let place = self.place.clone();
                self.request_error(Arc::new(RequestFailed { place, attempt, config, failure })).await
            }
            Question::TurnStopping { text, todos, is_cut, steered } => {
                let place = self.place.clone();
                self.turn_stopping(Arc::new(TurnStops { place, text, todos, is_cut, steered })).await
            }
        }
    }

    fn at(&self, point: Point) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.hooks.iter().filter(move |hook| hook.points().contains(&point))
    }

    async fn session_start(&self, beginning: Beginning) -> Result<Judgement, HookFailure> {
        let started = Arc::new(SessionStarted { place: self.place.clone(), beginning });
        let mut context = vec![];
        for hook in self.at(Point::SessionStart) {
            if let Some(text) = asked(&**hook, |hook| hook.session_start(Arc::clone(&started))).await? {
                let what =
                    self.message(Point::SessionStart, context.len(), text, Source::plugin(hook.name(), "context"));
                context.push(Said { hook: hook.name().to_owned(), what });
            }
        }
        Ok(Judgement::SessionStart(context))
    }

    async fn pre_step(&self, mut messages: Vec<Arc<Message>>) -> Result<Judgement, HookFailure> {
        let mut changed: Vec<String> = vec![];
        for hook in self.at(Point::PreStep) {
            let proposed = Arc::new(StepProposed { place: self.place.clone(), messages: messages.clone() });
            let name = || hook.name().to_owned();
            match asked(&**hook, |hook| hook.pre_step(proposed)).await? {
                StepVerdict::Enter => continue,
                StepVerdict::Rewrite { messages: others } => {
                    all_of_a_user(&others).map_err(|why| HookFailure { hook: name(), why })?;
                    messages = others;
                }
                StepVerdict::Add { context } => {
                    let source = Source::plugin(hook.name(), "context");
                    messages.push(self.message(Point::PreStep, changed.len(), context, source));
                }
                StepVerdict::Reject { reason } => {
                    return Ok(Judgement::PreStep(Entry::Reject(Said { hook: name(), what: reason })));
                }
            }
            changed.push(name());
        }
        let entry = if changed.is_empty() { Entry::Pass } else { Entry::Enter { messages, hooks: changed } };
        Ok(Judgement::PreStep(entry))
    }

    async fn request(&self, attempt: u32, mut config: RequestConfig) -> Result<Judgement, HookFailure> {
        let mut changed = None;
        for hook in self.at(Point::Request) {
            let planned = Arc::new(RequestPlanned { place: self.place.clone(), attempt, config: config.clone() });
            if let Some(other) = asked(&**hook, |hook| hook.request(planned)).await? {
                config = other;
                changed = Some(hook.name().to_owned());
            }
        }
        Ok(Judgement::Request(changed.map(|hook| Said { hook, what: config })))
    }

    async fn request_error(&self, failed: Arc<RequestFailed>) -> Result<Judgement, HookFailure> {
        for hook in self.at(Point::RequestError) {
            let name = || hook.name().to_owned();
            let recovery = match asked(&**hook, |hook| hook.request_error(Arc::clone(&failed))).await? {
                AfterFailure::Policy => continue,
                AfterFailure::Retry { delay_ms } => Recovery::Retry { hook: name(), delay_ms },
                AfterFailure::GiveUp => Recovery::GiveUp { hook: name() },
            };
            return Ok(Judgement::RequestError(recovery));
        }
        Ok(Judgement::RequestError(Recovery::Policy))
    }

    async fn turn_stopping(&self, stops: Arc<TurnStops>) -> Result<Judgement, HookFailure> {
        let mut steers = vec![];
        for hook in self.at(Point::TurnStopping) {
            if let Some(notice) = asked(&**hook, |hook| hook.turn_stopping(Arc::clone(&stops))).await? {
                let mut source = Source::plugin(hook.name(), "notice");
                if let Some(summary) = notice.summary {
                    source = source.with("summary", summary);
                }
                let what = self.message(Point::TurnStopping, steers.len(), notice.text, source);
                steers.push(Said { hook: hook.name().to_owned(), what });
            }
        }
        Ok(Judgement::TurnStopping(steers))
    }

    /// A message of a hook: the `n`th of them at this point.
    fn message(&self, point: Point, n: usize, text: String, source: Source) -> Arc<Message> {
        let id = format!("{point}-{}-{}-{n}", self.place.turn, self.place.step);
        Arc::new(Message::context(id, text, source))
    }
}

/// A hook may not speak for the model, nor answer calls.
fn all_of_a_user(messages: &[Arc<Message>]) -> Result<(), String> {
    let is_said = |block: &Block| matches!(block, Block::Text { .. } | Block::Other(_));
    let is_users = |message: &&Arc<Message>| message.role == Role::User && message.content.iter().all(is_said);
    let twice = (1..messages.len()).find(|&at| messages[..at].iter().any(|message| message.id == messages[at].id));
    match (messages.iter().find(|message| !is_users(message)), twice) {
        (Some(message), _) => Err(format!("it put message {} before the model, which is not a user's", message.id)),
        (None, Some(at)) => Err(format!("it put message {} before the model twice", messages[at].id)),
        (None, None) => Ok(()),
    }
}
