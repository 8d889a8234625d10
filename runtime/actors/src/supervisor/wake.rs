//! Agents that are only stored come back when somebody wants to speak to them: themselves, and those above them, who are
//! told how they end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::AgentId;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::open::read_back;
use super::{SupervisorMessage, SupervisorState};
use crate::error::Error;
use crate::profile::Profile;
use crate::recovery::Stored;
use crate::shared::Shared;

/// Somebody who waits until agents are here.
pub(super) struct Waking {
    missing: BTreeSet<AgentId>,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl SupervisorState {
    pub(super) fn wake(&mut self, id: &AgentId, reply: oneshot::Sender<Result<(), Error>>) {
        let Some(tree) = self.tree_of(id).filter(|tree| tree.agents.contains_key(id)) else {
            let _ = reply.send(Err(Error::UnknownAgent(id.clone())));
            return;
        };
        let is_missing = |id: &&AgentId| tree.agents.get(*id).is_some_and(|entry| !entry.is_live);
        let missing: BTreeSet<AgentId> = tree.tree.lineage(id).filter(is_missing).cloned().collect();
        let specs: Vec<_> = missing
            .iter()
            .filter_map(|id| Some((id.clone(), Arc::clone(&tree.agents.get(id)?.profile.spec))))
            .collect();
        let root = tree.tree.root().clone();
        let root_dir = self.shared.roots().get(&root).map(|root| root.dir.clone()).unwrap_or_default();
        for (id, spec) in specs {
            if self.reviving.contains_key(&id) {
                continue;
            }
            let (shared, myself, woken) = (Arc::clone(&self.shared), self.myself.clone(), id.clone());
            let dir = root_dir.clone();
            let reader = tokio::spawn(async move {
                let stored = Box::new(read_back(&shared, &woken, spec).await);
                if let Ok(stored) = &*stored {
                    reopen_workspace(&shared, stored, dir).await;
                }
                // The runtime may have been shut down meanwhile.
                let _ = myself.cast(SupervisorMessage::Woken { id: woken, stored });
            });
            self.reviving.insert(id, AbortOnDropHandle::new(reader));
        }
        self.wakes.push(Waking { missing, reply });
        self.answer_wakes();
    }

    pub(super) fn woken(&mut self, id: &AgentId, stored: Result<Stored, Error>) {
        let root = self.root_of.get(id).and_then(|root| self.shared.roots().get(root).cloned());
        let shared = Arc::clone(&self.shared);
        let entry = self.tree_of(id).and_then(|tree| tree.agents.get_mut(id));
        let read = match (stored, root, entry) {
            (Ok(stored), Some(root), Some(entry)) => Profile::stored(&shared, &root, &stored).map(|profile| {
                entry.profile = Arc::new(profile);
                let agent = stored.agent.with_spec(Arc::clone(&entry.profile.spec));
                (Stored { agent, ..stored }, entry.is_read)
            }),
            (Err(error), ..) => Err(error),
            (Ok(_), ..) => Err(Error::UnknownAgent(id.clone())),
        };
        match read {
            Ok((stored, is_read)) => {
                self.revived(id.clone(), Ok(stored));
                // What its parent has read it has not said anew.
                let entry = self.tree_of(id).and_then(|tree| tree.agents.get_mut(id));
                entry.into_iter().for_each(|entry| entry.is_read = is_read);
            }
            Err(error) => {
                self.reviving.remove(id);
                for waking in self.wakes.extract_if(.., |waking| waking.missing.contains(id)) {
                    // Who asked may have left.
                    let _ = waking.reply.send(Err(error.clone()));
                }
            }
        }
        self.answer_wakes();
    }

    /// Answers those for whom everybody is here.
    fn answer_wakes(&mut self) {
        let is_here = |id: &AgentId| {
            let tree = self.root_of.get(id).and_then(|root| self.trees.get(root));
            tree.and_then(|tree| tree.agents.get(id)).is_some_and(|entry| entry.is_live)
        };
        let here: Vec<bool> = self.wakes.iter().map(|waking| waking.missing.iter().all(is_here)).collect();
        let mut here = here.into_iter();
        for waking in self.wakes.extract_if(.., |_| here.next().unwrap_or(false)) {
            // Who asked may have left.
            let _ = waking.reply.send(Ok(()));
        }
    }
}

/// A workspace in which nothing was changed was taken away.
async fn reopen_workspace(shared: &Shared, stored: &Stored, dir: PathBuf) {
    let root = stored.agent.birth().and_then(|birth| birth.workspace.as_ref()).map(PathBuf::from);
    let (Some(workspaces), Some(root)) = (&shared.workspaces, root.filter(|root| !root.exists())) else { return };
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Err(why) = workspaces.open(dir, name).await {
        tracing::warn!(agent = %stored.info.id(), why, "its workspace is gone");
    }
}
