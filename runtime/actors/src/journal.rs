//! The journal: one group commit for all sessions of the runtime.
//!
//! While one commit is on its way everything that arrives waits for the next, so that one flush to disk serves many
//! agents and an idle journal adds no delay. A store that fails keeps the batches here and is asked again, with
//! back-off, for ever: no agent fails because a disk is full.
//!
//! What is to be written is kept beside the actor that writes it. When that actor fails, the next one goes on where it
//! was: a commit that may have been written is written again, which a store takes for what it is.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use impresario_kernel::{AgentId, Seq};
use impresario_seams::{Batch, Commit, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::address::Address;
use crate::agent::AgentMessage;
use crate::durability::Durability;
use crate::follow::Followers;
use crate::shared::{Shared, panic_text};
use crate::supervisor::SupervisorMessage;

/// The waits between attempts on a store that fails.
const BACKOFF: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// The most batches of one commit: bounds the length of a transaction.
const COMMIT_MAX: usize = 4096;

/// The most batches that are said to be written before they are: bounds what a slow disk lets pile up.
const PROMISED_MAX: usize = 65_536;

/// What is to be written, and who writes it.
#[derive(Default)]
pub(crate) struct Journal {
    /// Who reads logs while they grow.
    pub(crate) followers: Followers,
    book: Mutex<Book>,
    pub(crate) writer: Address<JournalMessage>,
}

/// What is to be written.
#[derive(Debug)]
struct Written {
    batch: Batch,
    /// Whether its writer was told already that it is.
    is_promised: bool,
}

/// A commit on its way, and which of its batches somebody waits for.
#[derive(Debug)]
struct Sent {
    commit: Commit,
    promised: Vec<bool>,
}

#[derive(Debug, Default)]
struct Book {
    waiting: VecDeque<Written>,
    /// On its way, or waiting for the store to recover.
    sent: Option<Arc<Sent>>,
    /// Whether the writer has been called and has not looked yet.
    is_called: bool,
    /// How often in a row the store failed.
    failures: usize,
    lost: Option<StoreError>,
    /// How many batches have come, and how many of them are durable.
    appended: u64,
    durable: u64,
    /// How many of those that are not durable were said to be.
    promised: usize,
    /// Who waits until so many are durable.
    flushes: Vec<(u64, oneshot::Sender<Result<(), StoreError>>)>,
}

impl Journal {
    /// Writes this, in the order of arrival. Says whether its writer may go on as if that had been done; if not, it is told
    /// when it has been.
    fn append(&self, batch: Batch, durability: Durability) -> bool {
        let mut book = self.book();
        // Behind a lost store nothing is kept: nobody could be told that it is durable.
        if book.lost.is_some() {
            return false;
        }
        let is_promised = durability == Durability::Buffered && book.failures == 0 && book.promised < PROMISED_MAX;
        book.appended += 1;
        book.promised += usize::from(is_promised);
        book.waiting.push_back(Written { batch, is_promised });
        self.call(book);
        is_promised
    }

    /// Waits until the store has what was promised to be in it: before a reader looks there.
    pub(crate) async fn catch_up(&self) {
        if self.book().promised > 0 {
            // A store that is lost says so to the reader.
            let _ = self.flush().await;
        }
    }

    /// Answers when all that was appended before is durable.
    pub(crate) fn flush(&self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (reply, flushed) = oneshot::channel();
        let mut book = self.book();
        let mark = book.appended;
        book.flushes.push((mark, reply));
        self.call(book);
        flushed
    }

    fn call(&self, mut book: MutexGuard<'_, Book>) {
        if !std::mem::replace(&mut book.is_called, true) {
            drop(book);
            self.writer.cast(JournalMessage::Work);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Hands events to the journal, which says to whoever wrote them how far they are durable, or count as that.
    pub(crate) fn append(&self, batch: Batch, durability: Durability) {
        let until = batch.events.last().map(|last| last.next_seq());
        let session = batch.session.clone();
        if self.journal.append(batch, durability)
            && let Some(until) = until
        {
            self.tell_durable(&session, until);
        }
    }

    fn tell_durable(&self, session: &AgentId, until: Seq) {
        if session.is_tree_log() {
            self.supervisor.cast(SupervisorMessage::TreeDurable { log: session.clone(), until });
        } else {
            // An agent that is gone has nothing to release.
            let _ = self.router.tell(session, AgentMessage::Durable(until));
        }
    }
}

/// Writes what is in the journal.
pub(crate) struct Writer;

pub(crate) enum JournalMessage {
    /// There is something to do.
    Work,
    /// The commit on its way is over.
    Committed(Result<(), StoreError>),
    /// The wait is over.
    Retry,
}

pub(crate) struct WriterState {
    shared: Arc<Shared>,
    phase: Phase,
}

/// What the writer does.
enum Phase {
    Idle,
    /// A commit is on its way in a task that ends with the writer.
    Committing {
        _task: AbortOnDropHandle<()>,
    },
    /// The store failed; it is asked again in a while.
    Waiting,
}

impl Actor for Writer {
    type Msg = JournalMessage;
    type State = WriterState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        shared: Arc<Shared>,
    ) -> Result<Self::State, ActorProcessingErr> {
        // The one before it may have left something.
        let _ = myself.cast(JournalMessage::Work);
        Ok(WriterState { shared, phase: Phase::Idle })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: JournalMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.chance.linger().await;
        match message {
            JournalMessage::Work => state.work(&myself),
            JournalMessage::Committed(Ok(())) => {
                state.phase = Phase::Idle;
                state.committed();
                state.work(&myself);
            }
            JournalMessage::Committed(Err(error)) => state.failed(&myself, error),
            JournalMessage::Retry => {
                state.phase = Phase::Idle;
                state.work(&myself);
            }
        }
        Ok(())
    }
}

impl WriterState {
    /// Answers whoever can be answered, and sends the next commit if none is on its way.
    fn work(&mut self, myself: &ActorRef<JournalMessage>) {
        let mut book = self.shared.journal.book();
        book.is_called = false;
        book.answer_flushes();
        if book.lost.is_some() || !matches!(self.phase, Phase::Idle) {
            return;
        }
        if book.sent.is_none() && !book.waiting.is_empty() {
            let count = book.waiting.len().min(COMMIT_MAX);
            let written: Vec<Written> = book.waiting.drain(..count).collect();
            let promised: Vec<bool> = written.iter().map(|written| written.is_promised).collect();
            let is_buffered = promised.iter().all(|is_promised| *is_promised);
            let batches = written.into_iter().map(|written| written.batch).collect();
            let commit = Commit { lease: Some(self.shared.lease), batches, is_buffered };
            book.sent = Some(Arc::new(Sent { commit, promised }));
        }
        let sent = book.sent.clone();
        drop(book);
        if let Some(sent) = sent {
            self.send(myself, sent);
        }
    }

    fn send(&mut self, myself: &ActorRef<JournalMessage>, sent: Arc<Sent>) {
        let (store, myself) = (Arc::clone(&self.shared.store), myself.clone());
        // Asked for here and not in the task, which begins later.
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| store.commit(sent.commit.clone())));
        let task = tokio::spawn(async move {
            let location = store.location();
            let committed = match asked {
                Ok(committing) => AssertUnwindSafe(committing).catch_unwind().await,
                Err(panic) => Err(panic),
            };
            let result = committed.unwrap_or_else(|panic| {
                Err(StoreError::Io { location, doing: format!("the store panicked: {}", panic_text(&*panic)) })
            });
            // The writer may have failed meanwhile; the next one sends the commit again.
            let _ = myself.cast(JournalMessage::Committed(result));
        });
        self.phase = Phase::Committing { _task: AbortOnDropHandle::new(task) };
    }

    /// Tells each session how far it is durable.
    fn committed(&self) {
        let mut book = self.shared.journal.book();
        let Some(sent) = book.sent.take() else { return };
        let Sent { commit, promised } = &*sent;
        book.durable += commit.batches.len() as u64;
        book.promised -= promised.iter().filter(|is_promised| **is_promised).count();
        let failures = std::mem::take(&mut book.failures);
        drop(book);
        if failures > 0 {
            tracing::warn!(store = self.shared.store.location(), "the store works again");
        }
        let mut watermarks = BTreeMap::<&AgentId, (Seq, bool)>::new();
        for (batch, is_promised) in commit.batches.iter().zip(promised) {
            if let Some(last) = batch.events.last() {
                watermarks.insert(&batch.session, (last.next_seq(), *is_promised));
            }
        }
        for (session, (until, is_promised)) in watermarks {
            self.shared.journal.followers.grew(session);
            if !is_promised {
                self.shared.tell_durable(session, until);
            }
        }
    }

    fn failed(&mut self, myself: &ActorRef<JournalMessage>, error: StoreError) {
        let mut book = self.shared.journal.book();
        if !error.is_retryable() {
            tracing::error!(%error, "the store refuses to go on");
            book.lost = Some(error.clone());
            book.answer_flushes();
            drop(book);
            self.shared.supervisor.cast(SupervisorMessage::StoreLost(error));
            return;
        }
        let failures = book.failures;
        book.failures += 1;
        drop(book);
        if failures == 0 {
            tracing::warn!(%error, "the store fails; work waits for it");
            self.shared.supervisor.cast(SupervisorMessage::StoreStalled(error.to_string()));
        }
        self.phase = Phase::Waiting;
        // A timer of the actor; it goes when the actor goes.
        myself.send_after(BACKOFF[failures.min(BACKOFF.len() - 1)], || JournalMessage::Retry);
    }
}

impl Book {
    fn answer_flushes(&mut self) {
        for (mark, reply) in std::mem::take(&mut self.flushes) {
            // The asker may have given up.
            match &self.lost {
                Some(error) => drop(reply.send(Err(error.clone()))),
                None if mark <= self.durable => drop(reply.send(Ok(()))),
                None => self.flushes.push((mark, reply)),
            }
        }
    }
}
