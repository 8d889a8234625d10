//! A store that is gone with its process: for tests, benchmarks and `--ephemeral`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{Batch, Commit, Lease, SessionFilter, SessionInfo, Store, StoreError};

use crate::{matches, within};

/// Sessions in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: Mutex<BTreeMap<AgentId, Session>>,
    artifacts: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The epoch of the newest lease. Changed and looked at under the lock of the sessions.
    epoch: AtomicU64,
}

#[derive(Clone, Debug)]
struct Session {
    info: SessionInfo,
    /// Its own events: a fork's prefix stays with its parent.
    own: Vec<Arc<Event>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// All or nothing: everything is looked at before anything is changed.
    fn write(&self, commit: &Commit) -> Result<(), StoreError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if commit.lease.is_some_and(|lease| lease.epoch < self.epoch.load(Ordering::Relaxed)) {
            return Err(StoreError::Fenced { location: self.location() });
        }
        let mut lengths = BTreeMap::new();
        for batch in &commit.batches {
            check(&sessions, &mut lengths, batch)?;
        }
        for batch in &commit.batches {
            append(&mut sessions, batch);
        }
        Ok(())
    }

    /// The events of `from..until`, inherited ones included.
    fn collect(&self, id: &AgentId, from: Seq) -> Result<Vec<Arc<Event>>, StoreError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = vec![];
        let (mut id, mut until) = (id.clone(), Seq(u64::MAX));
        loop {
            let missing = || StoreError::Damaged { session: id.clone(), what: "there is no such session".into() };
            let session = sessions.get(&id).ok_or_else(missing)?;
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
            Session { info, own: vec![] }
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
        let info = sessions.get(&id).map(|session| session.info.clone());
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
        let mut found: Vec<SessionInfo> =
            sessions.values().filter(|session| matches(&filter, &session.info)).map(|s| s.info.clone()).collect();
        let key = |info: &SessionInfo| (info.new.header.created_at, info.id().clone());
        found.sort_by_key(|info| std::cmp::Reverse(key(info)));
        found.truncate(filter.limit.unwrap_or(usize::MAX));
        async move { Ok(found) }.boxed()
    }

    fn put_artifact(&self, _: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        let name = crate::artifact::content_name(&bytes);
        self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), bytes);
        async move { Ok(name) }.boxed()
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let found = self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        async move { Ok(found) }.boxed()
    }

    fn location(&self) -> String {
        "memory".into()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        let _sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(Lease { epoch }) }.boxed()
    }
}
