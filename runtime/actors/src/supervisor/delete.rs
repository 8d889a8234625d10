//! Taking trees out of the store.

use std::sync::Arc;

use impresario_kernel::AgentId;
use impresario_seams::SessionFilter;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{SupervisorMessage, SupervisorState};
use crate::error::Error;
use crate::shared::Shared;

/// A tree that is being taken out: nobody opens it meanwhile.
pub(super) struct Deleting {
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    _deleter: AbortOnDropHandle<()>,
}

impl SupervisorState {
    pub(super) fn delete(&mut self, root: &AgentId, reply: oneshot::Sender<Result<(), Error>>) {
        if let Some(deleting) = self.deleting.get_mut(root) {
            return deleting.waiting.push(reply);
        }
        self.send_tree_away(root);
        let refused = match &self.lost {
            Some(error) => Some(error.clone().into()),
            None if self.trees.contains_key(root) || self.opening.contains_key(root) => {
                Some(Error::Refused(format!("{root} is at work; stop it first")))
            }
            None => None,
        };
        if let Some(refused) = refused {
            // Who asked may have left.
            return drop(reply.send(Err(refused)));
        }
        let (shared, myself, id) = (Arc::clone(&self.shared), self.myself.clone(), root.clone());
        let deleter = tokio::spawn(async move {
            let deleted = take_out(&shared, &id).await;
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Deleted { root: id, deleted });
        });
        let deleting = Deleting { waiting: vec![reply], _deleter: AbortOnDropHandle::new(deleter) };
        self.deleting.insert(root.clone(), deleting);
    }

    pub(super) fn deleted(&mut self, root: &AgentId, deleted: Result<Vec<AgentId>, Error>) {
        if let Ok(agents) = &deleted {
            agents.iter().for_each(|agent| self.shared.router.forget(agent));
            self.shared.forgotten().remove(root);
        }
        for reply in self.deleting.remove(root).into_iter().flat_map(|deleting| deleting.waiting) {
            // Who asked may have left.
            let _ = reply.send(deleted.as_ref().map(|_| ()).map_err(Clone::clone));
        }
    }
}

/// Deletes the whole tree of a root.
async fn take_out(shared: &Shared, root: &AgentId) -> Result<Vec<AgentId>, Error> {
    let unknown = || Error::UnknownAgent(root.clone());
    shared.journal.catch_up().await;
    let info = shared.store.info(root.clone()).await?.filter(|_| !root.is_tree_log()).ok_or_else(unknown)?;
    if let Some(parent) = &info.new.header.parent_session {
        let top = &info.new.root;
        return Err(Error::Refused(format!("{root} is a subagent (of {parent}) and goes with its root {top}")));
    }
    let filter = SessionFilter { root: Some(root.clone()), ..SessionFilter::default() };
    let agents: Vec<AgentId> = shared.store.list(filter).await?.iter().map(|info| info.id().clone()).collect();
    shared.store.delete(Some(shared.lease), agents.clone()).await?;
    Ok(agents)
}
