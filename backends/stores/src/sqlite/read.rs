//! Readers: page by page, no transaction between pages.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use impresario_kernel::{AgentId, AgentPath, Event, Millis, Seq, wire};
use impresario_seams::{Checkpoint, ForkRef, NewSession, SessionFilter, SessionInfo, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use super::Shared;
use crate::within;

/// How many rows a reader takes at once.
const PAGE: usize = 512;

const COLUMNS: &str = "id, header, root, path, label, fork_session, fork_until, head, len, updated_at";

pub(super) fn info(shared: &Shared, connection: &Connection, id: &AgentId) -> Result<Option<SessionInfo>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM {} WHERE id = ?1{}", shared.sessions(), shared.is_visible());
    let row = connection.prepare_cached(&sql).and_then(|mut select| select.query_row([id.as_str()], raw).optional());
    row.map_err(|error| shared.error("reading", &error))?.map(session_info).transpose()
}

/// In a file of an older version there is none.
pub(super) fn checkpoint(
    shared: &Shared,
    connection: &Connection,
    id: &AgentId,
) -> Result<Option<Checkpoint>, StoreError> {
    if shared.version < 3 {
        return Ok(None);
    }
    let sql =
        "SELECT until, bytes FROM checkpoints JOIN sessions ON key = session WHERE id = ?1 AND deleted_at IS NULL";
    let kept = connection.prepare_cached(sql).and_then(|mut select| {
        let kept =
            |row: &Row<'_>| Ok(Checkpoint { until: Seq(row.get::<_, i64>(0)?.unsigned_abs()), bytes: row.get(1)? });
        select.query_row([id.as_str()], kept).optional()
    });
    kept.map_err(|error| shared.error("reading a checkpoint", &error))
}

pub(super) fn list(
    shared: &Shared,
    connection: &Connection,
    filter: &SessionFilter,
) -> Result<Vec<SessionInfo>, StoreError> {
    // Where few are asked for they are found by what they have in common and sorted then; the sign keeps sqlite from going
    // through all sessions in their order instead.
    let is_narrow = filter.root.is_some() || filter.parent.is_some() || filter.id_prefix.is_some();
    let not_tree = if is_narrow { "+is_tree = 0" } else { "is_tree = 0" };
    let mut sql = format!("SELECT {COLUMNS} FROM {} WHERE {not_tree}{}", shared.sessions(), shared.is_visible());
    let mut values: Vec<String> = vec![];
    let mut equals = |column: &str, value: Option<String>| {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {column} ?{}", values.len()));
        }
    };
    equals("root =", filter.root.as_ref().map(ToString::to_string));
    equals("parent =", filter.parent.as_ref().map(ToString::to_string));
    equals("dir =", filter.dir.clone());
    equals("id >=", filter.id_prefix.clone());
    // Ids are ASCII, so nothing that begins with the prefix is behind this.
    equals("id <", filter.id_prefix.as_ref().map(|prefix| format!("{prefix}\u{10ffff}")));
    if let Some(behind) = &filter.behind {
        values.push(behind.to_string());
        let at = values.len();
        sql.push_str(&format!(" AND (created_at, id) < (SELECT created_at, id FROM sessions WHERE id = ?{at})"));
    }
    if filter.roots_only {
        sql.push_str(" AND parent IS NULL");
    }
    sql.push_str(" ORDER BY created_at DESC, id DESC");
    if let Some(limit) = filter.limit {
        sql.push_str(&format!(" LIMIT {limit}"));
    }
    let rows = connection
        .prepare_cached(&sql)
        .and_then(|mut select| select.query_map(params_from_iter(values), raw)?.collect::<Result<Vec<_>, _>>());
    let rows = rows.map_err(|error| shared.error("listing", &error))?;
    // One that does not read hides itself and nobody else.
    let readable =
        |row: Raw| session_info(row).inspect_err(|error| tracing::warn!(%error, "a session is not listed")).ok();
    Ok(rows.into_iter().filter_map(readable).collect())
}

struct Raw {
    id: String,
    header: String,
    root: String,
    path: String,
    label: String,
    fork: (Option<String>, Option<i64>),
    head: String,
    len: i64,
    updated_at: i64,
}

fn raw(row: &Row<'_>) -> Result<Raw, rusqlite::Error> {
    Ok(Raw {
        id: row.get(0)?,
        header: row.get(1)?,
        root: row.get(2)?,
        path: row.get(3)?,
        label: row.get(4)?,
        fork: (row.get(5)?, row.get(6)?),
        head: row.get(7)?,
        len: row.get(8)?,
        updated_at: row.get(9)?,
    })
}

fn session_info(raw: Raw) -> Result<SessionInfo, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged {
        session: raw.id.as_str().into(),
        what: format!("its row does not read: {error}"),
    };
    let header = serde_json::from_str(&raw.header).map_err(damaged)?;
    let head = serde_json::from_str(&raw.head).map_err(damaged)?;
    let fork = match raw.fork {
        (Some(session), Some(until)) => {
            Some(ForkRef { session: AgentId::new(session), until: Seq(until.unsigned_abs()) })
        }
        _ => None,
    };
    let (root, path) = (AgentId::new(raw.root), AgentPath::new(raw.path));
    let new = NewSession { header, root, path, label: raw.label, fork };
    Ok(SessionInfo { new, head, len: Seq(raw.len.unsigned_abs()), updated_at: Millis(raw.updated_at.unsigned_abs()) })
}

/// A part of a log: the events of one session in `from..until`.
struct Part {
    key: i64,
    from: Seq,
    until: Seq,
}

pub(super) fn stream(
    shared: Arc<Shared>,
    id: AgentId,
    from: Seq,
) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
    let of = id.clone();
    let parts = shared.run(move |shared, connection| parts(shared, connection, &of, from));
    stream::once(parts)
        .map_ok(move |parts| {
            let (shared, id) = (Arc::clone(&shared), id.clone());
            stream::iter(parts).flat_map(move |part| pages(Arc::clone(&shared), id.clone(), part))
        })
        .try_flatten()
        .boxed()
}

/// Which sessions hold the events of `id` from `from` on, oldest first.
fn parts(shared: &Shared, connection: &Connection, id: &AgentId, from: Seq) -> Result<Vec<Part>, StoreError> {
    let (mut id, mut until) = (id.to_string(), Seq(u64::MAX >> 1));
    let mut parts = vec![];
    loop {
        // What was deleted is still there for its forks.
        let is_visible = if parts.is_empty() { shared.is_visible() } else { "" };
        let row = connection
            .prepare_cached(&format!("SELECT key, fork_session, fork_until FROM sessions WHERE id = ?1{is_visible}"))
            .and_then(|mut select| {
                let row = select.query_row([&id], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, Option<i64>>(2)?))
                });
                row.optional()
            });
        let row = row.map_err(|error| shared.error("reading", &error))?;
        let missing = || StoreError::Damaged { session: id.as_str().into(), what: "there is no such session".into() };
        let (key, fork, fork_until) = row.ok_or_else(missing)?;
        let start = Seq(fork_until.unwrap_or(0).unsigned_abs());
        parts.push(Part { key, from: from.max(start), until });
        match fork {
            Some(parent) if from < start => (id, until) = (parent, until.min(start)),
            _ => break,
        }
    }
    parts.reverse();
    Ok(parts)
}

/// The events of one part, a page at a time.
fn pages(shared: Arc<Shared>, id: AgentId, part: Part) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
    let first = part.from;
    stream::try_unfold(Some(first), move |at| {
        let (shared, id) = (Arc::clone(&shared), id.clone());
        let (key, from, until) = (part.key, part.from, part.until);
        async move {
            let Some(at) = at else { return Ok(None) };
            let read = shared.run(move |shared, connection| page(shared, connection, key, at, until)).await?;
            let next = (read.len() == PAGE).then(|| read.last().map(|(_, next, _)| *next)).flatten();
            let mut events = Vec::with_capacity(read.len());
            for (seq, _, line) in read {
                let event = wire::decode(&line, seq, Millis(0));
                let event = event.map_err(|error| StoreError::Damaged {
                    session: id.clone(),
                    what: format!("event {seq} does not read: {error}"),
                })?;
                events.extend(within(Arc::new(event), from, until));
            }
            Ok::<_, StoreError>(Some((stream::iter(events.into_iter().map(Ok)), next)))
        }
    })
    .try_flatten()
    .boxed()
}

type Line = (Seq, Seq, String);

fn page(shared: &Shared, connection: &Connection, key: i64, at: Seq, until: Seq) -> Result<Vec<Line>, StoreError> {
    // The first row may begin before `at`: a run of chunks covers many places. At the end of a log no row does.
    let sql = "SELECT seq, next, line FROM events WHERE session = ?1 AND seq < ?3 AND next > ?2 AND seq >= \
               coalesce((SELECT max(seq) FROM events WHERE session = ?1 AND seq <= ?2), ?2) ORDER BY seq LIMIT ?4";
    let rows = connection.prepare_cached(sql).and_then(|mut select| {
        let line = |row: &Row<'_>| {
            let (seq, next): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((Seq(seq.unsigned_abs()), Seq(next.unsigned_abs()), row.get(2)?))
        };
        select.query_map(params![key, at.0 as i64, until.0 as i64, PAGE as i64], line)?.collect()
    });
    rows.map_err(|error| shared.error("reading", &error))
}
