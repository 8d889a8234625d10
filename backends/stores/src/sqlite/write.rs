//! The writer: one thread, one transaction a commit.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use impresario_kernel::{AgentId, Event, Seq, wire};
use impresario_seams::{Batch, Commit, Lease, NewSession, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::Shared;
use crate::artifact::content_name;
use crate::writer::Writes;

/// The writing connection.
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
}

impl Writes for Connected {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        // Encoded before the transaction opens, so that it is as short as it can be.
        let mut encoded = Vec::with_capacity(commit.batches.len());
        for batch in &commit.batches {
            encoded.push(encode(batch)?);
        }
        let shared = Arc::clone(&self.shared);
        let fail = |error: rusqlite::Error| shared.error("writing", &error);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        fence(&shared, &transaction, commit.lease)?;
        for (batch, lines) in commit.batches.iter().zip(&encoded) {
            append(&shared, &transaction, batch, lines)?;
        }
        transaction.commit().map_err(fail)
    }

    fn delete(&mut self, lease: Option<Lease>, doomed: &[AgentId]) -> Result<(), StoreError> {
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
        let taken = self.connection.execute(
            "INSERT INTO runtimes (pid, started) VALUES (?1, ?2)",
            params![std::process::id(), now_ms() / 1000],
        );
        taken.map_err(|error| self.shared.error("taking the lease", &error))?;
        let epoch = self.connection.last_insert_rowid().unsigned_abs();
        Ok(Lease { epoch })
    }
}

/// Refuses to write when somebody has taken a lease behind this one.
fn fence(shared: &Shared, transaction: &Transaction<'_>, lease: Option<Lease>) -> Result<(), StoreError> {
    let Some(Lease { epoch }) = lease else { return Ok(()) };
    let newest = transaction.query_row("SELECT max(epoch) FROM runtimes", [], |row| row.get::<_, Option<i64>>(0));
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
            transaction.prepare_cached("DELETE FROM events WHERE session = ?1")?.execute([key])?;
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

fn append(shared: &Shared, transaction: &Transaction<'_>, batch: &Batch, lines: &[String]) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| shared.error("writing", &error);
    let (key, stored) = session(shared, transaction, batch)?;
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
    let head = serde_json::to_string(&batch.head).map_err(|error| damaged(&batch.session, &error))?;
    let updated = batch.events.last().map(|event| event.time.0 as i64);
    transaction
        .prepare_cached("UPDATE sessions SET head = ?2, len = ?3, updated_at = coalesce(?4, updated_at) WHERE key = ?1")
        .and_then(|mut update| update.execute(params![key, head, len.0 as i64, updated]))
        .map_err(fail)?;
    Ok(())
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
fn session(shared: &Shared, transaction: &Transaction<'_>, batch: &Batch) -> Result<(i64, Seq), StoreError> {
    let fail = |error: rusqlite::Error| shared.error("writing", &error);
    let id = batch.session.as_str();
    let known = transaction
        .prepare_cached("SELECT key, len, header, fork_session, fork_until, deleted_at FROM sessions WHERE id = ?1")
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
            Ok((key, Seq(len.unsigned_abs())))
        }
        (Some((key, len, ..)), None) => Ok((key, Seq(len.unsigned_abs()))),
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
) -> Result<(i64, Seq), rusqlite::Error> {
    let (fork_session, fork_until) = fork_columns(new);
    let len = fork_until.unwrap_or(0);
    let (id, created) = (&new.header.id, new.header.created_at.0 as i64);
    transaction
        .prepare_cached(
            "INSERT INTO sessions (id, root, parent, path, label, dir, header, fork_session, fork_until, head, len, \
             created_at, updated_at, is_tree) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,'{}',?10,?11,?11,?12)",
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
            len,
            created,
            id.is_tree_log(),
        ])?;
    Ok((transaction.last_insert_rowid(), Seq(len.unsigned_abs())))
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
