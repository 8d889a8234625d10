//! A store that is gone with its process: for tests, benchmarks and `--ephemeral`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{Batch, Checkpoint, Commit, Lease, SessionFilter, SessionInfo, Store, StoreError};

use crate::{matches, within};

/// Sessions in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: Mutex<BTreeMap<AgentId, Session>>,
    artifacts: Mutex<BTreeMap<String, Artifact>>,
    /// The epoch of the newest lease. Changed and looked at under the lock of the sessions.
    epoch: AtomicU64,
}

#[derive(Clone, Debug)]
struct Session {
    info: SessionInfo,
    /// Its own events: a fork's prefix stays with its parent.
    own: Vec<Arc<Event>>,
    checkpoint: Option<Checkpoint>,
    /// Only what was forked from it still needs it.
    is_deleted: bool,
}

#[derive(Debug, Default)]
struct Artifact {
    bytes: Vec<u8>,
    owners: BTreeSet<AgentId>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// All or nothing: everything is looked at before anything is changed.
    fn write(&self, commit: &Commit) -> Result<(), StoreError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence(commit.lease)?;
        let mut lengths = BTreeMap::new();
        for batch in &commit.batches {
            check(&sessions, &mut lengths, batch)?;
        }
        for batch in &commit.batches {
            append(&mut sessions, batch);
        }
        Ok(())
    }

    fn remove(&self, lease: Option<Lease>, doomed: &[AgentId]) -> Result<(), StoreError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence(lease)?;
        for id in doomed.iter().flat_map(|id| [id.clone(), id.tree_log()]) {
            if let Some(session) = sessions.get_mut(&id) {
                session.is_deleted = true;
            }
        }
        let mut artifacts = self.artifacts.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let shared = |session: &Session| session.info.new.fork.as_ref().map(|fork| fork.session.clone());
            let needed: BTreeSet<AgentId> = sessions.values().filter_map(shared).collect();
            let unused = |(id, session): (&AgentId, &Session)| session.is_deleted && !needed.contains(id);
            let unused: Vec<AgentId> =
                sessions.iter().filter(|entry| unused(*entry)).map(|(id, _)| id.clone()).collect();
            if unused.is_empty() {
                return Ok(());
            }
            for id in unused {
                sessions.remove(&id);
                artifacts.retain(|_, artifact| !artifact.owners.remove(&id) || !artifact.owners.is_empty());
            }
        }
    }

    /// Under the lock of the sessions.
    fn fence(&self, lease: Option<Lease>) -> Result<(), StoreError> {
        match lease {
            Some(lease) if lease.epoch < self.epoch.load(Ordering::Relaxed) => {
                Err(StoreError::Fenced { location: self.location() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The events of `from..until`, inherited ones included.
    fn collect(&self, id: &AgentId, from: Seq) -> Result<Vec<Arc<Event>>, StoreError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = vec![];
        let (mut id, mut until) = (id.clone(), Seq(u64::MAX));
        loop {
            let missing = || StoreError::Damaged { session: id.clone(), what: "there is no such session".into() };
            // What was deleted is still there for its forks.
            let is_visible = |session: &&Session| !session.is_deleted || !parts.is_empty();
            let session = sessions.get(&id).filter(is_visible).ok_or_else(missing)?;
            parts.push(
                session.own.iter().filter_map(|event| within(Arc::clone(event), from, until)).collect::<Vec<_>>(),
            );
            match &session.info.new.fork {
                Some(fork) if from < fork.until => (id, until) = (fork.session.clone(), until.min(fork.until)),
                _ => break,
            }
        }
        Ok(parts.into_iter().rev().flatten().collect())
    }
}

/// Whether `batch` may be written when the sessions in `lengths` have already grown that far in this commit.
fn check(
    sessions: &BTreeMap<AgentId, Session>,
    lengths: &mut BTreeMap<AgentId, Seq>,
    batch: &Batch,
) -> Result<(), StoreError> {
    let damaged = |what: &str| StoreError::Damaged { session: batch.session.clone(), what: what.into() };
    let known = sessions.get(&batch.session);
    if known.is_some_and(|session| session.is_deleted) {
        return Err(damaged("it was deleted"));
    }
    let fork = batch.create.as_ref().filter(|_| known.is_none()).and_then(|new| new.fork.as_ref());
    let is_there =
        |id: &AgentId| lengths.contains_key(id) || sessions.get(id).is_some_and(|session| !session.is_deleted);
    if let Some(fork) = fork.filter(|fork| !is_there(&fork.session)) {
        return Err(damaged(&format!("it is a fork of {}, which is not there", fork.session)));
    }
    let mut stored = match (lengths.get(&batch.session), known, &batch.create) {
        (_, Some(session), Some(new)) if session.info.new != **new => {
            return Err(damaged("it exists already and began in another way"));
        }
        (Some(length), ..) => *length,
        (None, Some(session), _) => session.info.len,
        (None, None, Some(new)) => new.fork.as_ref().map_or(Seq(0), |fork| fork.until),
        (None, None, None) => return Err(damaged("there is no such session")),
    };
    for event in &batch.events {
        let again = event.seq < stored && known.is_some_and(|session| session.own.contains(event));
        if event.seq == stored {
            stored = event.next_seq();
        } else if !again {
            return Err(StoreError::Diverged { session: batch.session.clone(), at: event.seq, stored });
        }
    }
    lengths.insert(batch.session.clone(), stored);
    Ok(())
}

/// Writes a batch that was checked.
fn append(sessions: &mut BTreeMap<AgentId, Session>, batch: &Batch) {
    if let Some(new) = &batch.create {
        sessions.entry(batch.session.clone()).or_insert_with(|| {
            let len = new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
            let updated_at = new.header.created_at;
            let info = SessionInfo { new: (**new).clone(), head: batch.head.clone(), len, updated_at };
            Session { info, own: vec![], checkpoint: None, is_deleted: false }
        });
    }
    let Some(session) = sessions.get_mut(&batch.session) else { return };
    for event in batch.events.iter().filter(|event| event.seq >= session.info.len).collect::<Vec<_>>() {
        session.info.len = event.next_seq();
        session.info.updated_at = event.time;
        session.own.push(Arc::clone(event));
    }
    session.info.head = batch.head.clone();
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        let written = self.write(&commit);
        async move { written }.boxed()
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let info = sessions.get(&id).filter(|session| !session.is_deleted).map(|session| session.info.clone());
        async move { Ok(info) }.boxed()
    }

    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
        match self.collect(&id, from) {
            Ok(events) => stream::iter(events.into_iter().map(Ok)).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = |session: &&Session| !session.is_deleted && matches(&filter, &session.info);
        let mut found: Vec<SessionInfo> = sessions.values().filter(asked).map(|session| session.info.clone()).collect();
        let key = |info: &SessionInfo| (info.new.header.created_at, info.id().clone());
        found.sort_by_key(|info| std::cmp::Reverse(key(info)));
        if let Some(behind) = filter.behind.as_ref().and_then(|id| sessions.get(id)) {
            found.retain(|info| key(info) < key(&behind.info));
        }
        found.truncate(filter.limit.unwrap_or(usize::MAX));
        async move { Ok(found) }.boxed()
    }

    fn delete(&self, lease: Option<Lease>, sessions: Vec<AgentId>) -> BoxFuture<'static, Result<(), StoreError>> {
        let removed = self.remove(lease, &sessions);
        async move { removed }.boxed()
    }

    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        let name = crate::artifact::content_name(&bytes);
        let mut artifacts = self.artifacts.lock().unwrap_or_else(PoisonError::into_inner);
        let artifact = artifacts.entry(name.clone()).or_default();
        artifact.bytes = bytes;
        artifact.owners.insert(owner);
        async move { Ok(name) }.boxed()
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let found = self
            .artifacts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&name)
            .map(|artifact| artifact.bytes.clone());
        async move { Ok(found) }.boxed()
    }

    fn put_checkpoint(
        &self,
        lease: Option<Lease>,
        session: AgentId,
        checkpoint: Checkpoint,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.fence(lease);
        if let Some(session) = sessions.get_mut(&session).filter(|_| kept.is_ok()) {
            session.checkpoint = Some(checkpoint);
        }
        async move { kept }.boxed()
    }

    fn checkpoint(&self, session: AgentId) -> BoxFuture<'static, Result<Option<Checkpoint>, StoreError>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get(&session).filter(|session| !session.is_deleted);
        let kept = session.and_then(|session| session.checkpoint.clone());
        async move { Ok(kept) }.boxed()
    }

    fn location(&self) -> String {
        "memory".into()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        let _sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(Lease { epoch }) }.boxed()
    }

    fn take_over(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        self.lease()
    }
}
