//! Agents that are only stored come back when somebody wants to speak to them: themselves, and those above them, who are
//! told how they end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::AgentId;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::open::{Opener, read_back};
use super::tree::Place;
use super::{SupervisorMessage, SupervisorState};
use crate::error::Error;
use crate::profile::Profile;
use crate::recovery::{Stored, patiently};
use crate::shared::Shared;

/// Somebody who waits until agents have come back.
pub(super) struct Waking {
    /// Who has not yet. Who has may have gone again meanwhile: more are wanted than may be in memory.
    missing: BTreeSet<AgentId>,
    reply: oneshot::Sender<Result<(), Error>>,
}

/// Agents whose tree is being looked for.
pub(super) struct Finding {
    waiting: Vec<Opener>,
    _reader: AbortOnDropHandle<()>,
}

impl SupervisorState {
    /// Brings an agent back, with its tree if that is not open.
    pub(super) fn wake(&mut self, id: &AgentId, reply: oneshot::Sender<Result<(), Error>>) {
        match &self.lost {
            // Who asked may have left.
            Some(error) => drop(reply.send(Err(error.clone().into()))),
            None if self.root_of.contains_key(id) => self.wake_here(id, reply),
            None => self.find(id, Opener::Waker(id.clone(), reply)),
        }
    }

    pub(super) fn wake_here(&mut self, id: &AgentId, reply: oneshot::Sender<Result<(), Error>>) {
        let Some(tree) = self.tree_of(id).filter(|tree| tree.agents.contains_key(id)) else {
            let _ = reply.send(Err(Error::UnknownAgent(id.clone())));
            return;
        };
        let place = |id: &AgentId| tree.agents.get(id).map(|entry| entry.place);
        if let Some(failed) = tree.tree.lineage(id).find(|id| place(id) == Some(Place::Failed)).cloned() {
            let panics = tree.panics(&failed);
            let _ = reply.send(Err(Error::GaveUp { agent: failed, panics }));
            return;
        }
        let is_missing = |id: &&AgentId| place(id) == Some(Place::Stored);
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
        let tree = self.tree_of(id);
        let is_budgeted = tree.as_ref().is_some_and(|tree| !tree.tree.ledger().is_empty());
        let entry = tree.and_then(|tree| tree.agents.get_mut(id));
        let read = match (stored, root, entry) {
            (Ok(stored), Some(root), Some(entry)) => {
                Profile::woken(&shared, &root, &stored, is_budgeted).map(|profile| {
                    entry.profile = profile;
                    let agent = stored.agent.with_spec(Arc::clone(&entry.profile.spec));
                    (Stored { agent, ..stored }, entry.is_read)
                })
            }
            (Err(error), ..) => Err(error),
            (Ok(_), ..) => Err(Error::UnknownAgent(id.clone())),
        };
        match read {
            Ok((stored, is_read)) => {
                for waking in &mut self.wakes {
                    waking.missing.remove(id);
                }
                self.revived(id.clone(), Ok(stored));
                // What its parent has read it has not said anew.
                let entry = self.tree_of(id).and_then(|tree| tree.agents.get_mut(id));
                entry.into_iter().for_each(|entry| entry.is_read = is_read);
            }
            Err(error) => {
                self.reviving.remove(id);
                self.not_told(id);
                if let Some(root) = self.root_of.get(id).cloned() {
                    self.check_rest(&root);
                }
                for waking in self.wakes.extract_if(.., |waking| waking.missing.contains(id)) {
                    // Who asked may have left.
                    let _ = waking.reply.send(Err(error.clone()));
                }
            }
        }
        self.answer_wakes();
    }

    /// Answers those for whom everybody has come back.
    fn answer_wakes(&mut self) {
        for waking in self.wakes.extract_if(.., |waking| waking.missing.is_empty()) {
            // Who asked may have left.
            let _ = waking.reply.send(Ok(()));
        }
    }

    /// Brings a parent back that a child has an outcome for.
    pub(super) fn fetch(&mut self, parent: &AgentId) {
        let (reply, mut refused) = oneshot::channel();
        self.wake_here(parent, reply);
        if let Ok(Err(_)) = refused.try_recv() {
            self.not_told(parent);
        }
    }

    /// Finds the tree of an agent that no open tree has, and opens it.
    pub(super) fn find(&mut self, agent: &AgentId, opener: Opener) {
        if let Some(finding) = self.finding.get_mut(agent) {
            return finding.waiting.push(opener);
        }
        let (shared, myself, id) = (Arc::clone(&self.shared), self.myself.clone(), agent.clone());
        let reader = tokio::spawn(async move {
            shared.journal.catch_up().await;
            let info = patiently(|| async { Ok(shared.store.info(id.clone()).await?) }).await;
            let unknown = || Error::UnknownAgent(id.clone());
            let root = info.and_then(|info| info.filter(|_| !id.is_tree_log()).ok_or_else(unknown));
            let root = root.map(|info| info.new.root);
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Found { id, root });
        });
        let finding = Finding { waiting: vec![opener], _reader: AbortOnDropHandle::new(reader) };
        self.finding.insert(agent.clone(), finding);
    }

    pub(super) fn found(&mut self, agent: &AgentId, root: &Result<AgentId, Error>) {
        for opener in self.finding.remove(agent).into_iter().flat_map(|finding| finding.waiting) {
            match root {
                Ok(root) => self.open(root.clone(), None, opener),
                Err(error) => opener.refuse(error.clone()),
            }
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
