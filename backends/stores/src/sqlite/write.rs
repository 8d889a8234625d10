//! The writer: one thread, one transaction a commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use impresario_kernel::{AgentId, Event, Seq, wire};
use impresario_seams::{Batch, Checkpoint, Commit, Head, Lease, NewSession, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::Shared;
use super::copier::Copier;
use crate::artifact::content_name;
use crate::writer::Writes;

/// How many sessions' places are remembered.
const KNOWN_MAX: usize = 16_384;

/// The writing connection.
pub(super) struct Connected {
    connection: Connection,
    shared: Arc<Shared>,
    known: Known,
    copier: Copier,
    /// Whether commits are flushed to the disk.
    flushes: bool,
}

impl Connected {
    pub(super) fn new(connection: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let copier = Copier::start(&shared.path)?;
        Ok(Self { connection, shared, known: Known::default(), copier, flushes: true })
    }

    /// With a flush for each commit, or without: then a flushed one that comes later takes it along.
    fn flush(&mut self, flushes: bool) -> Result<(), StoreError> {
        if self.flushes != flushes {
            let level = if flushes { "full" } else { "normal" };
            let set = self.connection.pragma_update(None, "synchronous", level);
            set.map_err(|error| self.shared.error("writing", &error))?;
            self.flushes = flushes;
        }
        Ok(())
    }

    fn transact(&mut self, commit: &Commit, encoded: &[Vec<String>]) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let fail = |error: rusqlite::Error| shared.error("writing", &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        fence(&shared, &transaction, commit.lease)?;
        self.known.refresh(&transaction).map_err(fail)?;
        let mut open: BTreeMap<&AgentId, Open<'_>> = BTreeMap::new();
        for (batch, lines) in commit.batches.iter().zip(encoded) {
            let known = open.get(&batch.session).map(|open| open.place).or_else(|| self.known.get(batch));
            let place = known.map_or_else(|| session(&shared, &transaction, batch), Ok)?;
            let place = append(&shared, &transaction, batch, lines, place)?;
            let updated = batch.events.last().map(|event| event.time.0 as i64);
            let before = open.insert(&batch.session, Open { place, head: &batch.head, updated });
            if let (Some(before), Some(open)) = (before, open.get_mut(&batch.session)) {
                open.updated = open.updated.or(before.updated);
            }
        }
        for open in open.values() {
            open.write(&transaction).map_err(fail)?;
        }
        transaction.commit().map_err(fail)?;
        self.known.extend(open.into_iter().map(|(id, open)| (id.clone(), open.place)));
        Ok(())
    }
}

/// The row of a session, and how many events it has.
#[derive(Clone, Copy)]
struct Place {
    key: i64,
    len: Seq,
}

/// A session that a commit writes to.
struct Open<'a> {
    place: Place,
    head: &'a Head,
    updated: Option<i64>,
}

impl Open<'_> {
    fn write(&self, transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
        let head =
            serde_json::to_string(self.head).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction
            .prepare_cached(
                "UPDATE heads SET head = ?2, len = ?3, updated_at = coalesce(?4, updated_at) WHERE session = ?1",
            )?
            .execute(params![self.place.key, head, self.place.len.0 as i64, self.updated])?;
        Ok(())
    }
}

/// Where the sessions are that this connection has written to: spares looking them up as long as nobody else writes.
#[derive(Default)]
struct Known {
    places: HashMap<AgentId, Place>,
    /// What sqlite says of the last change that somebody else made.
    version: i64,
}

impl Known {
    /// Forgets everything when somebody else has written.
    fn refresh(&mut self, transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
        let version = transaction.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version != self.version || self.places.len() > KNOWN_MAX {
            self.places.clear();
        }
        self.version = version;
        Ok(())
    }

    /// What begins is looked up: it may be there and have begun in another way.
    fn get(&self, batch: &Batch) -> Option<Place> {
        if batch.create.is_some() { None } else { self.places.get(&batch.session).copied() }
    }

    fn extend(&mut self, places: impl Iterator<Item = (AgentId, Place)>) {
        self.places.extend(places);
    }

    fn clear(&mut self) {
        self.places.clear();
    }
}

impl Writes for Connected {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        // Encoded before the transaction opens, so that it is as short as it can be.
        let encoded = commit.batches.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        self.flush(!commit.is_buffered)?;
        let written = self.transact(commit, &encoded);
        if written.is_err() {
            self.known.clear();
        }
        self.copier.wrote(encoded.iter().flatten().map(String::len).sum());
        written
    }

    fn delete(&mut self, lease: Option<Lease>, doomed: &[AgentId]) -> Result<(), StoreError> {
        self.known.clear();
        self.flush(true)?;
        let shared = Arc::clone(&self.shared);
        let fail = |error: rusqlite::Error| shared.error("deleting", &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        fence(&shared, &transaction, lease)?;
        for id in doomed.iter().flat_map(|id| [id.clone(), id.tree_log()]) {
            transaction
                .prepare_cached("UPDATE sessions SET deleted_at = ?2 WHERE id = ?1 AND deleted_at IS NULL")
                .and_then(|mut hide| hide.execute(params![id.as_str(), now_ms()]))
                .map_err(fail)?;
        }
        free(&transaction).and_then(|()| transaction.commit()).map_err(fail)
    }

    fn artifact(&mut self, owner: &AgentId, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        self.flush(true)?;
        let shared = Arc::clone(&self.shared);
        let fail = |error: rusqlite::Error| shared.error("writing an artifact", &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        transaction.execute("INSERT OR IGNORE INTO artifacts VALUES (?1, ?2)", params![name, bytes]).map_err(fail)?;
        transaction
            .execute("INSERT OR IGNORE INTO artifact_owners VALUES (?1, ?2)", params![name, owner.as_str()])
            .map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(name)
    }

    fn lease(&mut self) -> Result<Lease, StoreError> {
        self.flush(true)?;
        let taken = self.connection.execute(
            "INSERT INTO runtimes (pid, started) VALUES (?1, ?2)",
            params![std::process::id(), now_ms() / 1000],
        );
        taken.map_err(|error| self.shared.error("taking the lease", &error))?;
        let epoch = self.connection.last_insert_rowid().unsigned_abs();
        Ok(Lease { epoch })
    }

    fn checkpoint(&mut self, lease: Option<Lease>, id: &AgentId, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        self.flush(false)?;
        let shared = Arc::clone(&self.shared);
        let fail = |error: rusqlite::Error| shared.error("writing a checkpoint", &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        fence(&shared, &transaction, lease)?;
        transaction
            .execute(
                "INSERT OR REPLACE INTO checkpoints SELECT key, ?2, ?3 FROM sessions WHERE id = ?1 AND deleted_at IS NULL",
                params![id.as_str(), checkpoint.until.0 as i64, checkpoint.bytes],
            )
            .and_then(|_| transaction.commit())
            .map_err(fail)
    }
}

/// Refuses to write when somebody has taken a lease behind this one.
fn fence(shared: &Shared, transaction: &Transaction<'_>, lease: Option<Lease>) -> Result<(), StoreError> {
    let Some(Lease { epoch }) = lease else { return Ok(()) };
    let newest = transaction
        .prepare_cached("SELECT max(epoch) FROM runtimes")
        .and_then(|mut select| select.query_row([], |row| row.get::<_, Option<i64>>(0)));
    let newest = newest.map_err(|error| shared.error("writing", &error))?;
    match newest {
        Some(newest) if newest.unsigned_abs() > epoch => Err(StoreError::Fenced { location: shared.location() }),
        Some(_) | None => Ok(()),
    }
}

/// Takes away what was deleted and no fork shares, and then what only that has shared.
fn free(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    const UNUSED: &str = "SELECT key, id FROM sessions WHERE deleted_at IS NOT NULL AND NOT EXISTS \
                          (SELECT 1 FROM sessions AS fork WHERE fork.fork_session = sessions.id)";
    loop {
        let unused: Vec<(i64, String)> = transaction
            .prepare_cached(UNUSED)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        if unused.is_empty() {
            return Ok(());
        }
        for (key, id) in unused {
            for table in ["events", "heads", "checkpoints"] {
                transaction.prepare_cached(&format!("DELETE FROM {table} WHERE session = ?1"))?.execute([key])?;
            }
            transaction.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([key])?;
            transaction
                .prepare_cached(
                    "DELETE FROM artifacts WHERE name IN (SELECT name FROM artifact_owners WHERE owner = ?1) AND NOT \
                     EXISTS (SELECT 1 FROM artifact_owners AS other WHERE other.name = artifacts.name AND other.owner <> ?1)",
                )?
                .execute([&id])?;
            transaction.prepare_cached("DELETE FROM artifact_owners WHERE owner = ?1")?.execute([&id])?;
        }
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(now).unwrap_or(i64::MAX)
}

fn encode(batch: &Batch) -> Result<Vec<String>, StoreError> {
    let encode = |event: &Arc<Event>| {
        wire::encode_row(event).map_err(|error| StoreError::Damaged {
            session: batch.session.clone(),
            what: format!("event {} cannot be written: {error}", event.seq),
        })
    };
    batch.events.iter().map(encode).collect()
}

/// Writes the rows of a batch; where its session ends then.
fn append(
    shared: &Shared,
    transaction: &Transaction<'_>,
    batch: &Batch,
    lines: &[String],
    place: Place,
) -> Result<Place, StoreError> {
    let fail = |error: rusqlite::Error| shared.error("writing", &error);
    let Place { key, len: stored } = place;
    let mut insert = transaction
        .prepare_cached("INSERT INTO events (session, seq, next, line) VALUES (?1, ?2, ?3, ?4)")
        .map_err(fail)?;
    let mut len = stored;
    for (event, line) in batch.events.iter().zip(lines) {
        let at = event.seq;
        if at < stored && is_same(transaction, key, at, line).map_err(fail)? {
            continue;
        }
        if at != len {
            return Err(StoreError::Diverged { session: batch.session.clone(), at, stored: len });
        }
        len = event.next_seq();
        insert.execute(params![key, at.0 as i64, len.0 as i64, line]).map_err(fail)?;
    }
    Ok(Place { key, len })
}

fn is_same(transaction: &Transaction<'_>, key: i64, at: Seq, line: &str) -> Result<bool, rusqlite::Error> {
    let stored = transaction
        .prepare_cached("SELECT line FROM events WHERE session = ?1 AND seq = ?2")?
        .query_row(params![key, at.0 as i64], |row| row.get::<_, String>(0))
        .optional()?;
    Ok(stored.as_deref() == Some(line))
}

fn is_there(transaction: &Transaction<'_>, id: &AgentId) -> Result<bool, rusqlite::Error> {
    let mut select = transaction.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND deleted_at IS NULL")?;
    select.exists([id.as_str()])
}

/// The row of a session and its length; makes the session when the batch says how it begins.
fn session(shared: &Shared, transaction: &Transaction<'_>, batch: &Batch) -> Result<Place, StoreError> {
    let fail = |error: rusqlite::Error| shared.error("writing", &error);
    let id = batch.session.as_str();
    let known = transaction
        .prepare_cached(
            "SELECT key, len, header, fork_session, fork_until, deleted_at FROM sessions \
                         JOIN heads ON session = key WHERE id = ?1",
        )
        .and_then(|mut select| {
            let row = select.query_row([id], |row| {
                let fork: (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
                let is_deleted = row.get::<_, Option<i64>>(5)?.is_some();
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?, fork, is_deleted))
            });
            row.optional()
        })
        .map_err(fail)?;
    let damaged = |what: String| Err(StoreError::Damaged { session: batch.session.clone(), what });
    match (known, &batch.create) {
        (Some((.., true)), _) => damaged("it was deleted".into()),
        (Some((key, len, header, fork, false)), Some(new)) => {
            let same = header == header_text(new)? && fork == fork_columns(new);
            if !same {
                return damaged("it exists already and began in another way".into());
            }
            Ok(Place { key, len: Seq(len.unsigned_abs()) })
        }
        (Some((key, len, ..)), None) => Ok(Place { key, len: Seq(len.unsigned_abs()) }),
        (None, Some(new)) => match new.fork.as_ref() {
            Some(fork) if !is_there(transaction, &fork.session).map_err(fail)? => {
                damaged(format!("it is a fork of {}, which is not there", fork.session))
            }
            Some(_) | None => create(transaction, batch, new, &header_text(new)?).map_err(fail),
        },
        (None, None) => damaged("there is no such session".into()),
    }
}

fn create(
    transaction: &Transaction<'_>,
    batch: &Batch,
    new: &NewSession,
    header: &str,
) -> Result<Place, rusqlite::Error> {
    let (fork_session, fork_until) = fork_columns(new);
    let len = fork_until.unwrap_or(0);
    let (id, created) = (&new.header.id, new.header.created_at.0 as i64);
    transaction
        .prepare_cached(
            "INSERT INTO sessions (id, root, parent, path, label, dir, header, fork_session, fork_until, created_at, \
             is_tree) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
        )?
        .execute(params![
            batch.session.as_str(),
            new.root.as_str(),
            new.header.parent_session.as_ref().map(AgentId::as_str),
            new.path.as_str(),
            new.label,
            new.header.cwd,
            header,
            fork_session,
            fork_until,
            created,
            id.is_tree_log(),
        ])?;
    let key = transaction.last_insert_rowid();
    transaction.prepare_cached("INSERT INTO heads VALUES (?1, '{}', ?2, ?3)")?.execute([key, len, created])?;
    Ok(Place { key, len: Seq(len.unsigned_abs()) })
}

fn header_text(new: &NewSession) -> Result<String, StoreError> {
    serde_json::to_string(&new.header).map_err(|error| damaged(&new.header.id, &error))
}

fn fork_columns(new: &NewSession) -> (Option<String>, Option<i64>) {
    let fork = new.fork.as_ref();
    (fork.map(|fork| fork.session.to_string()), fork.map(|fork| fork.until.0 as i64))
}

fn damaged(session: &AgentId, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged { session: session.clone(), what: format!("it cannot be written: {error}") }
}
