//! The root of all actors. It decides nothing about agents: they go on while the journal's writer is replaced, and all
//! others go on when an agent fails.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, ActorRuntime, SupervisionEvent};
use tokio::time::Instant;

use crate::journal::Writer;
use crate::shared::Shared;
use crate::supervisor::{Supervisor, SupervisorInit, SupervisorMessage};

/// What ractor gives as the reason of an actor that was killed.
const KILLED: &str = "killed";

/// How long a writer that fails is left alone. It is replaced without limit: what it has to write waits beside it.
const WRITER_WAIT: Duration = Duration::from_millis(50);

/// A supervisor that lived this long was sound: the next failure begins a new row.
const SOUND: Duration = Duration::from_secs(60);

/// Linked above every actor of one runtime.
pub(crate) struct Root;

/// What the root tells itself.
pub(crate) enum RootMessage {
    /// Start another writer in the place of one that failed.
    ReplaceWriter,
    /// Start another supervisor in the place of one that failed.
    ReplaceSupervisor,
}

pub(crate) struct RootState {
    shared: Arc<Shared>,
    /// How many supervisors failed in a row.
    failures: u32,
    supervised_since: Instant,
}

impl Actor for Root {
    type Msg = RootMessage;
    type State = RootState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        shared: Arc<Shared>,
    ) -> Result<Self::State, ActorProcessingErr> {
        let state = RootState { shared, failures: 0, supervised_since: Instant::now() };
        state.start_writer(&myself)?;
        state.start_supervisor(&myself, false)?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: RootMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMessage::ReplaceWriter => state.start_writer(&myself),
            RootMessage::ReplaceSupervisor => {
                state.supervised_since = Instant::now();
                state.start_supervisor(&myself, true)
            }
        }
    }

    /// Passes failures of agents on. The default would end this actor, and with it everybody.
    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(actor, error) => {
                tracing::error!(actor = %actor.get_id(), %error, "an actor failed");
                state.actor_failed(&myself, actor.get_id());
            }
            SupervisionEvent::ActorTerminated(actor, _, Some(reason)) if reason == KILLED => {
                tracing::error!(actor = %actor.get_id(), "an actor was killed");
                state.actor_failed(&myself, actor.get_id());
            }
            SupervisionEvent::ActorTerminated(..)
            | SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl RootState {
    fn start_writer(&self, myself: &ActorRef<RootMessage>) -> Result<(), ActorProcessingErr> {
        let shared = Arc::clone(&self.shared);
        let (writer, _) = ActorRuntime::<Writer>::spawn_linked_instant(None, Writer, shared, myself.get_cell())?;
        self.shared.journal.writer.set(writer);
        Ok(())
    }

    fn start_supervisor(&self, myself: &ActorRef<RootMessage>, inherits: bool) -> Result<(), ActorProcessingErr> {
        let init = SupervisorInit { shared: Arc::clone(&self.shared), root: myself.get_cell(), inherits };
        let started = ActorRuntime::<Supervisor>::spawn_linked_instant(None, Supervisor, init, myself.get_cell());
        let (supervisor, _) = started?;
        self.shared.supervisor.set(supervisor);
        self.shared.router.wake();
        Ok(())
    }

    fn actor_failed(&mut self, myself: &ActorRef<RootMessage>, actor: ActorId) {
        if self.shared.journal.writer.is(actor) {
            myself.send_after(WRITER_WAIT, || RootMessage::ReplaceWriter);
        } else if self.shared.supervisor.is(actor) {
            self.supervisor_failed(myself);
        } else {
            self.shared.supervisor.cast(SupervisorMessage::ActorFailed { actor });
        }
    }

    /// Another one takes the trees over, as often as an agent would be started again. Then the runtime ends as in a crash:
    /// what was accepted is in the logs, and whoever waits for something hears that it is closed.
    fn supervisor_failed(&mut self, myself: &ActorRef<RootMessage>) {
        self.failures = if self.supervised_since.elapsed() > SOUND { 1 } else { self.failures + 1 };
        if let Some(delay) = self.shared.limits.restarts.delay(self.failures) {
            myself.send_after(Duration::from_millis(delay), || RootMessage::ReplaceSupervisor);
            return;
        }
        tracing::error!("the supervisor failed again and again; the runtime ends, its sessions can be opened again");
        self.shared.close();
        myself.stop(Some("the supervisor failed".into()));
    }
}
