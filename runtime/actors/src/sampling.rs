//! One attempt at a model's answer: a task that fills a buffer and says once that there is something in it.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use impresario_kernel::{AgentId, AgentPath, Chunk, Failure, Millis, RunKey};
use impresario_seams::ChunkStream;
use ractor::ActorRef;
use tokio::time::Instant;

use crate::agent::AgentMessage;
use crate::shared::{Shared, panic_text};

/// How often an agent is told of pieces of its answer, at most: as often as a display changes.
const PACE: Duration = Duration::from_millis(25);

/// What arrived and was not taken yet. At most one announcement of it is in the agent's mailbox at a time.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer(Mutex<Vec<(Millis, Chunk)>>);

impl ChunkBuffer {
    /// Adds a chunk; whether it is the first that waits.
    fn push(&self, time: Millis, chunk: Chunk) -> bool {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.push((time, chunk));
        chunks.len() == 1
    }

    /// Takes what is there.
    pub(crate) fn take(&self) -> Vec<(Millis, Chunk)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs one attempt to its end and reports it: `answer` is asked for when nobody has stopped the agent in its place of
/// its tree. Dropping the future closes the stream.
pub(crate) async fn sample(
    shared: Arc<Shared>,
    place: (AgentId, AgentPath),
    answer: impl Future<Output = Result<ChunkStream, Failure>>,
    run: RunKey,
    buffer: Arc<ChunkBuffer>,
    agent: ActorRef<AgentMessage>,
) {
    let attempt = AssertUnwindSafe(receive(&shared, &place, answer, run, &buffer, &agent)).catch_unwind();
    let result = attempt.await.unwrap_or_else(|panic| {
        Err(Failure::new("PANIC", format!("the model adapter panicked: {}", panic_text(&*panic))))
    });
    // The actor may be gone; then nobody waits for this.
    let _ = agent.cast(AgentMessage::ModelEnded { run, result });
}

async fn receive(
    shared: &Shared,
    (root, path): &(AgentId, AgentPath),
    answer: impl Future<Output = Result<ChunkStream, Failure>>,
    run: RunKey,
    buffer: &ChunkBuffer,
    agent: &ActorRef<AgentMessage>,
) -> Result<(), Failure> {
    // Between the decision to ask and this moment somebody may have stopped the agent.
    shared.halts.lifted(root, path).await;
    let mut stream = answer.await?;
    // When the agent was last told, and when it is to be told of what waits.
    let (mut told, mut due) = (None, None);
    loop {
        let next = match due {
            None => stream.next().await,
            Some(at) => match tokio::time::timeout_at(at, stream.next()).await {
                Ok(next) => next,
                Err(_) => {
                    (told, due) = (Some(at), None);
                    // The actor may be gone; the end is told to nobody then, either.
                    let _ = agent.cast(AgentMessage::ChunksReady { run });
                    continue;
                }
            },
        };
        let Some(chunk) = next.transpose()? else { return Ok(()) };
        let is_last = matches!(chunk, Chunk::Finish { .. });
        let is_first = buffer.push(shared.chance.now(), chunk);
        // The end takes what waits.
        if is_last {
            return Ok(());
        }
        if is_first {
            due = Some(told.map_or_else(Instant::now, |told: Instant| told + PACE));
        }
    }
}
