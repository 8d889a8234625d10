//! The root of all actors. It decides nothing: agents go on while the supervisor is replaced, and the other way round.

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::supervisor::SupervisorMessage;

/// What ractor gives as the reason of an actor that was killed.
const KILLED: &str = "killed";

/// Linked above every actor of one runtime.
pub(crate) struct Root;

/// What the root is told.
pub(crate) enum RootMessage {
    /// Who wants to know of agents that fail.
    Report(ActorRef<SupervisorMessage>),
}

impl Actor for Root {
    type Msg = RootMessage;
    type State = Option<ActorRef<SupervisorMessage>>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Self::Msg>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok(None)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: RootMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let RootMessage::Report(supervisor) = message;
        *state = Some(supervisor);
        Ok(())
    }

    /// Passes failures of agents on. The default would end this actor, and with it everybody.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let actor = match event {
            SupervisionEvent::ActorFailed(actor, error) => {
                tracing::error!(actor = %actor.get_id(), %error, "an actor failed");
                actor
            }
            SupervisionEvent::ActorTerminated(actor, _, Some(reason)) if reason == KILLED => {
                tracing::error!(actor = %actor.get_id(), "an actor was killed");
                actor
            }
            SupervisionEvent::ActorTerminated(..)
            | SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if let Some(supervisor) = state {
            // Without a supervisor there is nobody left to care.
            let _ = supervisor.cast(SupervisorMessage::ActorFailed { actor: actor.get_id() });
        }
        Ok(())
    }
}
