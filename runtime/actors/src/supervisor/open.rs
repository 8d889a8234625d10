//! Coming back: stored trees, and agents whose actor failed.

use std::sync::Arc;

use impresario_kernel::{Agent, AgentId, Seq};
use ractor::ActorId;
use tokio::sync::oneshot;

use super::spawn::Start;
use super::tree::TreeState;
use super::{SupervisorMessage, SupervisorState};
use crate::agent::AgentMessage;
use crate::error::Error;
use crate::journal::JournalMessage;
use crate::recovery::{self, Loaded};
use crate::spec::AgentSpec;

impl SupervisorState {
    pub(super) fn open(&mut self, id: AgentId, spec: AgentSpec, reply: oneshot::Sender<Result<AgentId, Error>>) {
        if let Some(error) = &self.lost {
            let _ = reply.send(Err(error.clone().into()));
            return;
        }
        if self.trees.contains_key(&id) {
            let _ = reply.send(Ok(id));
            return;
        }
        let (shared, myself) = (Arc::clone(&self.shared), self.myself.clone());
        tokio::spawn(async move {
            let loaded = Box::new(recovery::load(&shared, &id, spec).await);
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Opened { loaded, reply });
        });
    }

    pub(super) fn opened(&mut self, loaded: Loaded) -> Result<AgentId, Error> {
        let Loaded { tree, tree_next, root, title, profile, others } = loaded;
        let id = tree.root().clone();
        if self.trees.contains_key(&id) {
            return Ok(id);
        }
        let mut state = TreeState::new(tree, tree_next, self.shared.limits.running_max);
        for (other, profile, outcome) in others {
            self.root_of.insert(other.clone(), id.clone());
            state.add(other, profile, outcome, false);
        }
        self.trees.insert(id.clone(), state);
        self.root_of.insert(id.clone(), id.clone());
        let durable = root.log().next_seq();
        let start = Start { durable, title, inherited_turns: 0, message: AgentMessage::Start };
        self.start_actor(&id, profile, root, start);
        Ok(id)
    }

    /// An agent's actor failed: what it had handed to the journal is its log, and its life goes on from there.
    pub(super) fn actor_failed(&mut self, actor: ActorId) {
        let Some(id) = self.actors.remove(&actor) else { return };
        self.return_slot(&id);
        let Some(tree) = self.tree_of(&id) else { return };
        tree.set_rest(&id, None);
        tree.waits.retain(|wait| wait.parent != id);
        let Some(profile) = tree.agents.get(&id).map(|entry| entry.profile.clone()) else { return };
        let (shared, journal, myself) = (Arc::clone(&self.shared), self.journal.clone(), self.myself.clone());
        tokio::spawn(async move {
            let (reply, flushed) = oneshot::channel();
            let _ = journal.cast(JournalMessage::Flush(reply));
            let agent = match flushed.await {
                Ok(Ok(())) => recovery::read(&shared, &id, profile.spec).await,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Error::Closed),
            };
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Revived { id, agent: Box::new(agent) });
        });
    }

    pub(super) fn revived(&mut self, id: AgentId, agent: Result<Agent, Error>) {
        let Some(tree) = self.tree_of(&id) else { return };
        let Some(mut entry) = tree.agents.remove(&id) else { return };
        tree.busy -= usize::from(entry.is_live && entry.rests.is_none());
        match agent {
            Ok(agent) => {
                let durable: Seq = agent.log().next_seq();
                let outcome = agent.outcome().cloned();
                let start = Start { durable, title: String::new(), inherited_turns: 0, message: AgentMessage::Recover };
                self.start_actor(&id, entry.profile, agent, start);
                // An outcome that was durable when the actor failed may not have been told.
                if let Some(outcome) = outcome {
                    self.turn_ended(&id, outcome);
                }
            }
            Err(error) => {
                tracing::error!(agent = %id, %error, "a failed agent cannot be read back");
                entry.is_live = false;
                tree.agents.insert(id.clone(), entry);
                let root = tree.tree.root().clone();
                self.shared.router.disconnect(&id);
                self.check_rest(&root);
            }
        }
    }
}
