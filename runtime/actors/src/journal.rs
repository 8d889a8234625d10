//! The journal: one group commit for all sessions of the runtime.
//!
//! While one commit is on its way everything that arrives waits for the next, so that one flush to disk serves many
//! agents and an idle journal adds no delay. A store that fails keeps the batches here and is asked again, with
//! back-off, for ever: no agent fails because a disk is full.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use impresario_kernel::{AgentId, Seq};
use impresario_seams::{Batch, Commit, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::AgentMessage;
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

pub(crate) struct Journal;

pub(crate) enum JournalMessage {
    /// Write this, in the order of arrival.
    Append(Batch),
    /// Say when all that was appended before is durable.
    Flush(oneshot::Sender<Result<(), StoreError>>),
    /// The commit on its way is over.
    Committed(Result<(), StoreError>),
    /// The wait is over.
    Retry,
    /// Who hears of tree logs and of trouble.
    Report(ActorRef<SupervisorMessage>),
}

pub(crate) struct JournalState {
    shared: Arc<Shared>,
    supervisor: Option<ActorRef<SupervisorMessage>>,
    waiting: VecDeque<Batch>,
    /// On its way, or waiting for the store to recover.
    sent: Option<Arc<Commit>>,
    /// The task that has it; it ends with the journal, so that nothing is written behind a runtime's end.
    committing: Option<AbortOnDropHandle<()>>,
    failures: usize,
    lost: Option<StoreError>,
    /// How many batches have come, and how many of them are durable.
    appended: u64,
    durable: u64,
    /// Who waits until so many are durable.
    flushes: Vec<(u64, oneshot::Sender<Result<(), StoreError>>)>,
}

impl Actor for Journal {
    type Msg = JournalMessage;
    type State = JournalState;
    type Arguments = Arc<Shared>;

    async fn pre_start(&self, _: ActorRef<Self::Msg>, shared: Arc<Shared>) -> Result<Self::State, ActorProcessingErr> {
        Ok(JournalState {
            shared,
            supervisor: None,
            waiting: VecDeque::new(),
            sent: None,
            committing: None,
            failures: 0,
            lost: None,
            appended: 0,
            durable: 0,
            flushes: vec![],
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: JournalMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.chance.linger().await;
        match message {
            // Behind a lost store nothing is kept: nobody could be told that it is durable.
            JournalMessage::Append(_) if state.lost.is_some() => {}
            JournalMessage::Append(batch) => {
                state.appended += 1;
                state.waiting.push_back(batch);
                state.send_next(&myself);
            }
            JournalMessage::Flush(reply) => {
                state.flushes.push((state.appended, reply));
                state.answer_flushes();
            }
            JournalMessage::Committed(Ok(())) => {
                state.committed();
                state.send_next(&myself);
                state.answer_flushes();
            }
            JournalMessage::Committed(Err(error)) => state.failed(&myself, error),
            JournalMessage::Retry => state.send(&myself),
            JournalMessage::Report(supervisor) => state.supervisor = Some(supervisor),
        }
        Ok(())
    }
}

impl JournalState {
    fn send_next(&mut self, myself: &ActorRef<JournalMessage>) {
        if self.sent.is_some() || self.waiting.is_empty() || self.lost.is_some() {
            return;
        }
        let count = self.waiting.len().min(COMMIT_MAX);
        let batches = self.waiting.drain(..count).collect();
        self.sent = Some(Arc::new(Commit { lease: Some(self.shared.lease), batches }));
        self.send(myself);
    }

    fn send(&mut self, myself: &ActorRef<JournalMessage>) {
        let Some(commit) = self.sent.clone() else { return };
        let (store, myself) = (Arc::clone(&self.shared.store), myself.clone());
        let task = tokio::spawn(async move {
            let location = store.location();
            let committed = AssertUnwindSafe(async { store.commit(Commit::clone(&commit)).await }).catch_unwind().await;
            let result = committed.unwrap_or_else(|panic| {
                Err(StoreError::Io { location, doing: format!("the store panicked: {}", panic_text(&*panic)) })
            });
            // The journal may have been stopped; then nobody waits for this.
            let _ = myself.cast(JournalMessage::Committed(result));
        });
        self.committing = Some(AbortOnDropHandle::new(task));
    }

    /// Tells each session how far it is durable.
    fn committed(&mut self) {
        let Some(commit) = self.sent.take() else { return };
        self.durable += commit.batches.len() as u64;
        if self.failures > 0 {
            tracing::warn!(store = self.shared.store.location(), "the store works again");
        }
        self.failures = 0;
        let mut watermarks = BTreeMap::<&AgentId, Seq>::new();
        for batch in &commit.batches {
            if let Some(last) = batch.events.last() {
                watermarks.insert(&batch.session, last.next_seq());
            }
        }
        for (session, until) in watermarks {
            if session.is_tree_log() {
                self.report(SupervisorMessage::TreeDurable { log: session.clone(), until });
            } else {
                // An agent that is gone has nothing to release.
                let _ = self.shared.router.tell(session, AgentMessage::Durable(until));
            }
        }
    }

    fn failed(&mut self, myself: &ActorRef<JournalMessage>, error: StoreError) {
        if !error.is_retryable() {
            tracing::error!(%error, "the store refuses to go on");
            self.lost = Some(error.clone());
            self.report(SupervisorMessage::StoreLost(error));
            self.answer_flushes();
            return;
        }
        if self.failures == 0 {
            tracing::warn!(%error, "the store fails; work waits for it");
            self.report(SupervisorMessage::StoreStalled(error.to_string()));
        }
        let wait = BACKOFF[self.failures.min(BACKOFF.len() - 1)];
        self.failures += 1;
        // A timer of the actor; it goes when the actor goes.
        myself.send_after(wait, || JournalMessage::Retry);
    }

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

    fn report(&self, message: SupervisorMessage) {
        if let Some(supervisor) = &self.supervisor {
            let _ = supervisor.cast(message);
        }
    }
}
