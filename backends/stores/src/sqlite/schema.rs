//! The tables, and whose file it is.

use std::path::Path;

use impresario_seams::StoreError;
use rusqlite::{Connection, TransactionBehavior};

use super::sqlite_error;

/// `impr` in ASCII: says that a sqlite file is a store of ours.
const APPLICATION_ID: i64 = 0x696d_7072;

/// The version of the tables below.
const VERSION: i64 = 1;

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
        head TEXT NOT NULL,
        len INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        is_tree INTEGER NOT NULL
    );
    CREATE INDEX sessions_newest ON sessions (is_tree, created_at DESC, id DESC);
    CREATE INDEX sessions_root ON sessions (root);
    CREATE INDEX sessions_parent ON sessions (parent);
    CREATE TABLE events (
        session INTEGER NOT NULL REFERENCES sessions (key),
        seq INTEGER NOT NULL,
        next INTEGER NOT NULL,
        line TEXT NOT NULL
    );
    CREATE UNIQUE INDEX events_place ON events (session, seq);
    CREATE TABLE artifacts (name TEXT PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE runtimes (epoch INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started INTEGER NOT NULL);
";

/// Checks the file, and makes the tables when it is new. A file of somebody else is not written to.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| sqlite_error(path, "opening", &error);
    if is_empty(connection).map_err(fail)? {
        create(connection).map_err(fail)?;
    }
    check(connection, path)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(fail)?;
    connection.pragma_update(None, "synchronous", "full").map_err(fail)
}

/// Whose file it is, and of which version.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
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
    Ok(())
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
