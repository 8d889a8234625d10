//! The tables, and whose file it is.

use std::path::{Path, PathBuf};

use impresario_seams::StoreError;
use rusqlite::{Connection, TransactionBehavior};

use super::copier::PAGES_MAX;
use super::sqlite_error;
use crate::file::{io_error, restrict};

/// `impr` in ASCII: says that a sqlite file is a store of ours.
const APPLICATION_ID: i64 = 0x696d_7072;

/// The version of the tables below.
pub(super) const VERSION: i64 = 3;

/// What the writer keeps of the file in memory, in KiB.
const CACHE_KIB: i64 = 16 * 1_024;

/// What makes tables of each version into those of the next.
const MIGRATIONS: [&str; 2] = [
    "
    ALTER TABLE sessions ADD COLUMN deleted_at INTEGER;
    CREATE INDEX sessions_fork ON sessions (fork_session) WHERE fork_session IS NOT NULL;
    CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;
    CREATE TABLE artifact_owners (
        name TEXT NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (owner, name)
    ) WITHOUT ROWID;
    CREATE INDEX artifact_owners_name ON artifact_owners (name);
",
    "
    CREATE TABLE heads (session INTEGER PRIMARY KEY, head TEXT NOT NULL, len INTEGER NOT NULL, updated_at INTEGER NOT NULL);
    INSERT INTO heads SELECT key, head, len, updated_at FROM sessions;
    ALTER TABLE sessions DROP COLUMN head;
    ALTER TABLE sessions DROP COLUMN len;
    ALTER TABLE sessions DROP COLUMN updated_at;
    CREATE TABLE checkpoints (session INTEGER PRIMARY KEY, until INTEGER NOT NULL, bytes BLOB NOT NULL);
",
];

const TABLES: &str = "
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        root TEXT NOT NULL,
        parent TEXT,
        path TEXT NOT NULL,
        label TEXT NOT NULL,
        dir TEXT,
        header TEXT NOT NULL,
        fork_session TEXT,
        fork_until INTEGER,
        created_at INTEGER NOT NULL,
        is_tree INTEGER NOT NULL,
        deleted_at INTEGER
    );
    CREATE INDEX sessions_newest ON sessions (is_tree, created_at DESC, id DESC);
    CREATE INDEX sessions_root ON sessions (root);
    CREATE INDEX sessions_parent ON sessions (parent);
    CREATE INDEX sessions_fork ON sessions (fork_session) WHERE fork_session IS NOT NULL;
    CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;
    -- What changes with each commit, apart from what never does: many of these are in a page.
    CREATE TABLE heads (session INTEGER PRIMARY KEY, head TEXT NOT NULL, len INTEGER NOT NULL, updated_at INTEGER NOT NULL);
    -- Caches: without them a session is read from its beginning.
    CREATE TABLE checkpoints (session INTEGER PRIMARY KEY, until INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE TABLE events (
        session INTEGER NOT NULL REFERENCES sessions (key),
        seq INTEGER NOT NULL,
        next INTEGER NOT NULL,
        line TEXT NOT NULL
    );
    CREATE UNIQUE INDEX events_place ON events (session, seq);
    CREATE TABLE artifacts (name TEXT PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE artifact_owners (
        name TEXT NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (owner, name)
    ) WITHOUT ROWID;
    CREATE INDEX artifact_owners_name ON artifact_owners (name);
    CREATE TABLE runtimes (epoch INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started INTEGER NOT NULL);
";

/// Checks the file, and makes the tables when it is new; its version. A file of somebody else is not written to.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<i64, StoreError> {
    let fail = |error: rusqlite::Error| sqlite_error(path, "opening", &error);
    if is_empty(connection).map_err(fail)? {
        create(connection).map_err(fail)?;
    }
    let version = check(connection, path)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(fail)?;
    connection.pragma_update(None, "synchronous", "full").map_err(fail)?;
    connection.pragma_update(None, "wal_autocheckpoint", PAGES_MAX).map_err(fail)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(fail)?;
    Ok(version)
}

/// Makes a file of an older version one of ours, behind a copy of it. Nobody else may have it open.
pub(super) fn migrate(connection: &mut Connection, path: &Path, from: i64) -> Result<PathBuf, StoreError> {
    let copy = copy_path(path, from);
    copy_to(connection, path, &copy)?;
    let fail = |error: rusqlite::Error| sqlite_error(path, "migrating", &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(fail)?;
    let first = usize::try_from(from - 1).unwrap_or(0);
    for step in MIGRATIONS.iter().skip(first) {
        transaction.execute_batch(step).map_err(fail)?;
    }
    transaction.pragma_update(None, "user_version", VERSION).map_err(fail)?;
    transaction.commit().map_err(fail)?;
    Ok(copy)
}

/// A copy of the file as it is now, also while it is written. It is whole or not there.
pub(super) fn copy_to(connection: &Connection, path: &Path, copy: &Path) -> Result<(), StoreError> {
    let doing = |what: &str| StoreError::Io { location: path.display().to_string(), doing: what.into() };
    let shown = copy.display();
    if copy.exists() {
        return Err(doing(&format!("copying to {shown}: it is there already")));
    }
    let half = PathBuf::from(format!("{shown}.half"));
    let text = half.to_str().ok_or_else(|| doing(&format!("copying to {shown}: the name is not UTF-8")))?;
    // What an earlier try has left.
    let _ = std::fs::remove_file(&half);
    let copied = connection.execute("VACUUM INTO ?1", [text]).map_err(|error| sqlite_error(path, "copying", &error));
    let kept = copied.and_then(|_| {
        restrict(&half)?;
        let synced = std::fs::File::open(&half).and_then(|file| file.sync_all());
        let named = synced.and_then(|()| std::fs::hard_link(&half, copy));
        named.map_err(|error| io_error(path, "copying to", copy, &error))
    });
    // Of a copy that failed nothing stays; of one that did not, its name does.
    let _ = std::fs::remove_file(&half);
    kept
}

/// Beside the file, and new: `store.sqlite.v1`.
fn copy_path(path: &Path, version: i64) -> PathBuf {
    let named = |more: &str| PathBuf::from(format!("{}.v{version}{more}", path.display()));
    let names = std::iter::once(named("")).chain((2..).map(|n| named(&format!("-{n}"))));
    names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| named("-copy"))
}

/// Whose file it is, and of which version.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let pragma = |name: &str| {
        let value = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        value.map_err(|error| sqlite_error(path, "opening", &error))
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let location = path.display().to_string();
    if application != APPLICATION_ID {
        let found = "a sqlite file of another program".into();
        return Err(StoreError::Foreign { location, found });
    }
    if version > VERSION {
        return Err(StoreError::Newer { location, found: version, known: VERSION });
    }
    Ok(version)
}

/// A file without a table, an application or a version: nobody's yet.
fn is_empty(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(tables == 0 && application == 0 && version == 0)
}

fn create(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Two processes may come here at once; the second finds the tables of the first.
    if is_empty(&transaction)? {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}
