//! A model that is looked at while it is asked: who asks, when, and how many at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use impresario::kernel::{AgentPath, Chunk, Failure, Usage};
use impresario::seams::{ChunkStream, Model, ModelRequest};
use tokio::time::Instant;

/// One attempt at an answer, in time since the run began.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: AgentPath,
    pub(crate) began: Duration,
    /// None while it is under way, or when nobody waited for its end.
    pub(crate) ended: Option<Duration>,
}

/// What was seen of a model.
#[derive(Debug)]
pub(crate) struct Seen {
    origin: Instant,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    asked: Vec<Asked>,
    in_flight: usize,
    peak: usize,
    usage: Usage,
}

impl Seen {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), book: Mutex::default() })
    }

    /// Since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Every attempt so far, in the order in which they began.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.book().asked.clone()
    }

    /// How many are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.book().in_flight
    }

    /// How many were under way at once, at most.
    pub(crate) fn peak(&self) -> usize {
        self.book().peak
    }

    /// The tokens of all answers.
    pub(crate) fn usage(&self) -> Usage {
        self.book().usage
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, path: AgentPath) -> Attempt {
        let began = self.now();
        let mut book = self.book();
        book.in_flight += 1;
        book.peak = book.peak.max(book.in_flight);
        let at = book.asked.len();
        book.asked.push(Asked { path, began, ended: None });
        drop(book);
        Attempt { seen: Arc::clone(self), at }
    }
}

/// An attempt under way; it ends when it is dropped.
struct Attempt {
    seen: Arc<Seen>,
    at: usize,
}

impl Attempt {
    fn look(&self, chunk: &Chunk) {
        let Chunk::Usage { usage } = chunk else { return };
        let sum = &mut self.seen.book().usage;
        sum.input_tokens += usage.input_tokens;
        sum.output_tokens += usage.output_tokens;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let now = self.seen.now();
        let mut book = self.seen.book();
        book.in_flight -= 1;
        if let Some(asked) = book.asked.get_mut(self.at) {
            asked.ended = Some(now);
        }
    }
}

/// A model that is looked at.
pub(crate) struct Watched {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) seen: Arc<Seen>,
}

impl Model for Watched {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let attempt = self.seen.begin(request.scope.path.clone());
        let answer = self.model.stream(request);
        async move {
            let chunks = answer.await?;
            // The attempt is over with its stream, read to its end or not.
            let looked = chunks.inspect(move |chunk| {
                if let Ok(chunk) = chunk {
                    attempt.look(chunk);
                }
            });
            Ok(looked.boxed())
        }
        .boxed()
    }

    fn is_scripted(&self) -> bool {
        self.model.is_scripted()
    }
}
