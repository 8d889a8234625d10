//! Keeping what a model said.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use impresario_kernel::{Chunk, Failure};
use impresario_seams::{ChunkStream, Model, ModelRequest};

use super::asked::{Asked, Sight};
use super::file::{End, Line, RecordingError, Writer};

/// A file that attempts of several models are added to.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Writer>>);

impl Recorder {
    /// A recording in `folder`, which is made if it is not there. What was recorded there before stays.
    ///
    /// # Errors
    /// [`RecordingError`] when the folder cannot be written, when its file is something else, and when another process
    /// records there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Ok(Self(Arc::new(Mutex::new(Writer::open(folder.as_ref())?))))
    }

    /// `model`, whose answers are kept from now on.
    pub fn record(&self, model: Arc<dyn Model>) -> RecordingModel {
        RecordingModel { model, recorder: self.clone() }
    }

    fn add(&self, line: Line) -> Result<(), Failure> {
        let added = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(line);
        added.map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            Failure::new("RECORDING", format!("{error}{source}"))
        })
    }
}

/// A model whose every attempt is written down when it is over, failures and those that were broken off included.
///
/// An attempt that cannot be written fails: a recording with a hole would be found out at its replay only.
#[derive(Clone)]
pub struct RecordingModel {
    model: Arc<dyn Model>,
    recorder: Recorder,
}

impl std::fmt::Debug for RecordingModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingModel").field("provider", &self.model.provider()).finish_non_exhaustive()
    }
}

impl Model for RecordingModel {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        let mut attempt = Attempt::of(&request, self.recorder.clone());
        let answer = self.model.stream(request);
        async move {
            match answer.await {
                Ok(chunks) => Ok(Recorded { chunks, attempt }.boxed()),
                Err(failure) => Err(attempt.fail(failure)),
            }
        }
        .boxed()
    }

    fn is_scripted(&self) -> bool {
        self.model.is_scripted()
    }
}

/// An attempt under way; written down when it ends, or when it is dropped before.
struct Attempt {
    line: Option<Line>,
    recorder: Recorder,
}

impl Attempt {
    fn of(request: &ModelRequest, recorder: Recorder) -> Self {
        let (scope, config) = (&request.scope, &request.header.config);
        let line = Line::new(
            (scope.agent.clone(), scope.path.clone()),
            (scope.turn, scope.step, scope.attempt),
            (&config.provider, &config.model),
            Asked::of(Sight::Whole, &request.header, &request.messages),
        );
        Self { line: Some(line), recorder }
    }

    fn end(&mut self, end: End, failure: Option<Failure>) -> Result<(), Failure> {
        match self.line.take() {
            Some(mut line) => {
                let chunks = std::mem::take(&mut line.chunks);
                self.recorder.add(line.ended(chunks, end, failure))
            }
            None => Ok(()),
        }
    }

    /// The failure, or that it could not be written down.
    fn fail(&mut self, failure: Failure) -> Failure {
        self.end(End::Failed, Some(failure.clone())).err().unwrap_or(failure)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Err(failure) = self.end(End::Dropped, None) {
            tracing::warn!(%failure, "an attempt that was broken off could not be recorded");
        }
    }
}

/// A stream that is written down.
struct Recorded {
    chunks: ChunkStream,
    attempt: Attempt,
}

impl Stream for Recorded {
    type Item = Result<Chunk, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.chunks.poll_next_unpin(context);
        let Poll::Ready(next) = next else { return Poll::Pending };
        // Nobody asks for more behind a finish or a failure, so this is the moment.
        Poll::Ready(match next {
            Some(Ok(chunk)) => {
                let is_last = matches!(chunk, Chunk::Finish { .. });
                if let Some(line) = &mut self.attempt.line {
                    line.chunks.push(chunk.clone());
                }
                let ended = if is_last { self.attempt.end(End::Finished, None) } else { Ok(()) };
                Some(ended.map(|()| chunk))
            }
            Some(Err(failure)) => Some(Err(self.attempt.fail(failure))),
            None => self.attempt.end(End::Finished, None).err().map(Err),
        })
    }
}
