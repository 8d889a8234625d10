//! The embedded default: one sqlite file.
//!
//! One thread owns the writing connection and makes each commit one transaction with one flush (WAL, synchronous
//! full). Readers use connections of their own, page by page, and never hold the writer up.

mod copier;
mod read;
mod schema;
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{Checkpoint, Commit, Lease, SessionFilter, SessionInfo, Store, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use tokio::sync::Semaphore;

use crate::file::{create_folder, io_error, restrict};
use crate::lock;
use crate::writer::{Request, WriterHandle};
use write::Connected;

/// How long a connection waits for another process's transaction, in milliseconds.
const BUSY_MS: u64 = 5_000;

/// How many readers read at once; the others wait for their turn.
const READERS: usize = 8;

/// A store in one sqlite file.
pub struct SqliteStore {
    shared: Arc<Shared>,
    writer: WriterHandle,
    lock: Arc<Mutex<Option<File>>>,
    migrated: Option<Migrated>,
}

/// A file of an older version that was made one of this.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Migrated {
    /// The version that it had.
    pub from: i64,
    /// The version that it has.
    pub to: i64,
    /// The file as it was.
    pub copy: PathBuf,
}

/// What readers and the writer have in common.
struct Shared {
    path: PathBuf,
    /// Which version of the tables it has.
    version: i64,
    /// Connections that no reader uses now.
    idle: Mutex<Vec<Connection>>,
    /// How many may read at once: each has a thread and a connection, which are not small.
    readers: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens the file, and creates it and its folder when they are missing. A file of an older version is copied and then
    /// made one of this version ([`SqliteStore::migrated`]).
    ///
    /// # Errors
    /// [`StoreError::Foreign`] for a file that is not a store of ours, which is left as it is; [`StoreError::Newer`]
    /// for one of a later version; [`StoreError::Locked`] for one of an older version that another process has open;
    /// [`StoreError::Io`] for everything that the system says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        create_folder(&path, path.parent().unwrap_or(Path::new("")))?;
        let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let from = schema::prepare(&mut connection, &path)?;
        restrict(&path)?;
        let shared = Arc::new(Shared { path, version: schema::VERSION, idle: Mutex::new(vec![]), readers: readers() });
        let (lock, mut migrated) = (Arc::default(), None);
        if from < schema::VERSION {
            take_lock(&lock, &shared.path, false)?;
            // The process that had the lock may have done it meanwhile.
            let from = schema::check(&connection, &shared.path)?;
            let copy = (from < schema::VERSION).then(|| schema::migrate(&mut connection, &shared.path, from));
            migrated = copy.transpose()?.map(|copy| Migrated { from, to: schema::VERSION, copy });
        }
        let connected = Connected::new(connection, Arc::clone(&shared))?;
        let writer = WriterHandle::start(shared.location(), connected);
        let writer = writer.map_err(|error| io_error(&shared.path, "starting the writer of", &shared.path, &error))?;
        Ok(Self { shared, writer, lock, migrated })
    }

    /// What opening the file has done to one of an older version.
    pub fn migrated(&self) -> Option<&Migrated> {
        self.migrated.as_ref()
    }

    /// Writes a copy of the store as it is now to `copy`, also while a process writes to it. It is whole, or not there.
    ///
    /// # Errors
    /// [`StoreError::Io`] when there is such a file already, or the system says so.
    pub fn backup(&self, copy: impl AsRef<Path>) -> Result<(), StoreError> {
        let connection = connect(&self.shared.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::copy_to(&connection, &self.shared.path, copy.as_ref())
    }

    /// Opens an existing file for reading, also while another process writes it. Commits are refused.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; a missing file is [`StoreError::Io`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        if !path.exists() {
            let doing = "there is no such file; nothing has been run with this home yet".into();
            return Err(StoreError::Io { location: path.display().to_string(), doing });
        }
        let mut shared = Shared { path, version: schema::VERSION, idle: Mutex::new(vec![]), readers: readers() };
        let connection = shared.connection()?;
        shared.version = schema::check(&connection, &shared.path)?;
        shared.give_back(connection);
        let writer = WriterHandle::none(shared.location());
        Ok(Self { shared: Arc::new(shared), writer, lock: Arc::default(), migrated: None })
    }

    /// Gives the room of what was deleted back to the file system: writes the file anew, which takes as much room again
    /// meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has the store, [`StoreError::Full`] when there is no room.
    pub fn compact(&self) -> Result<(), StoreError> {
        take_lock(&self.lock, &self.shared.path, false)?;
        let connection = connect(&self.shared.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let compacted = connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);");
        compacted.map_err(|error| self.shared.error("writing anew", &error))
    }

    /// The size of the file and its write-ahead log, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let wal = PathBuf::from(format!("{}-wal", self.shared.path.display()));
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        size(&self.shared.path) + size(&wal)
    }

    /// What sqlite's own quick check finds; empty when all is well.
    pub fn integrity(&self) -> Result<Vec<String>, StoreError> {
        let connection = self.shared.connection()?;
        let found = connection
            .prepare("PRAGMA quick_check")
            .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>());
        let found = found.map_err(|error| self.shared.error("checking the file", &error))?;
        self.shared.give_back(connection);
        Ok(found.into_iter().filter(|line| line != "ok").collect())
    }

    /// The process that holds the lease of the store in `path`, if one does.
    pub fn holder(path: impl AsRef<Path>) -> Option<u32> {
        lock::holder(path.as_ref()).map(|holder| holder.pid)
    }
}

impl Store for SqliteStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.ask(|reply| Request::Commit(commit, reply))
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        self.shared.run(move |shared, connection| read::info(shared, connection, &id))
    }

    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
        read::stream(Arc::clone(&self.shared), id, from)
    }

    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>> {
        self.shared.run(move |shared, connection| read::list(shared, connection, &filter))
    }

    fn delete(&self, lease: Option<Lease>, sessions: Vec<AgentId>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.ask(|reply| Request::Delete(lease, sessions, reply))
    }

    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        self.writer.ask(|reply| Request::Artifact(owner, bytes, reply))
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        self.shared.run(move |shared, connection| {
            let found = connection
                .query_row("SELECT bytes FROM artifacts WHERE name = ?1", [&name], |row| row.get(0))
                .optional();
            found.map_err(|error| shared.error("reading an artifact", &error))
        })
    }

    fn put_checkpoint(
        &self,
        lease: Option<Lease>,
        session: AgentId,
        checkpoint: Checkpoint,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.ask(|reply| Request::Checkpoint(lease, session, checkpoint, reply))
    }

    fn checkpoint(&self, session: AgentId) -> BoxFuture<'static, Result<Option<Checkpoint>, StoreError>> {
        self.shared.run(move |shared, connection| read::checkpoint(shared, connection, &session))
    }

    fn location(&self) -> String {
        self.shared.location()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        if self.writer.is_there()
            && let Err(error) = take_lock(&self.lock, &self.shared.path, false)
        {
            return async move { Err(error) }.boxed();
        }
        self.writer.ask(Request::Lease)
    }

    fn take_over(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        let (leased, lock, shared) =
            (self.writer.ask(Request::Lease), Arc::clone(&self.lock), Arc::clone(&self.shared));
        async move {
            // Whoever had the store can write no more from here on. If this fails it still has it, and its lock.
            let lease = leased.await?;
            take_lock(&lock, &shared.path, true)?;
            Ok(lease)
        }
        .boxed()
    }
}

fn readers() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(READERS))
}

fn take_lock(lock: &Mutex<Option<File>>, path: &Path, by_force: bool) -> Result<(), StoreError> {
    let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if lock.is_none() {
        *lock = Some(lock::take(path, by_force)?);
    }
    Ok(())
}

impl Shared {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    /// The condition that a session was not deleted. In a file of an older version none was.
    fn is_visible(&self) -> &'static str {
        if self.version >= 2 { " AND deleted_at IS NULL" } else { "" }
    }

    /// The table of the sessions, with what changes in them.
    fn sessions(&self) -> &'static str {
        if self.version >= 3 { "sessions CROSS JOIN heads ON session = key" } else { "sessions" }
    }

    /// A connection for reading.
    fn connection(&self) -> Result<Connection, StoreError> {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(idle);
        }
        // A reader of a file in WAL mode may have to create its shared memory beside it, so the connection may write
        // but is told not to.
        let connection = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .or_else(|_| connect(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY))?;
        let set = connection.pragma_update(None, "query_only", true);
        set.map_err(|error| self.error("opening", &error))?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// Runs `query` on a thread that may block.
    fn run<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Self, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let (shared, location) = (Arc::clone(self), self.location());
        async move {
            let failed =
                |error: &dyn std::fmt::Display| StoreError::Io { location, doing: format!("reading: {error}") };
            let turn = match Arc::clone(&shared.readers).acquire_owned().await {
                Ok(turn) => turn,
                Err(closed) => return Err(failed(&closed)),
            };
            let task = tokio::task::spawn_blocking(move || {
                // Until it is done, also when nobody waits for it any more.
                let _turn = turn;
                let connection = shared.connection()?;
                let result = query(&shared, &connection);
                shared.give_back(connection);
                result
            });
            task.await.map_err(|error| failed(&error))?
        }
        .boxed()
    }

    fn error(&self, doing: &str, error: &rusqlite::Error) -> StoreError {
        sqlite_error(&self.path, doing, error)
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags);
    let connection = connection.map_err(|error| sqlite_error(path, "opening", &error))?;
    let busy = connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS));
    busy.map_err(|error| sqlite_error(path, "opening", &error))?;
    Ok(connection)
}

fn sqlite_error(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    let location = path.display().to_string();
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { location },
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Foreign { location, found: "a file of another kind".into() }
        }
        // A process that is stopped in the middle of a transaction holds it for as long as it is.
        Some(rusqlite::ErrorCode::DatabaseBusy) => {
            let holder = lock::holder(path);
            let (pid, since) = holder.map_or((0, None), |holder| (holder.pid, holder.since));
            StoreError::Locked { location, pid, since }
        }
        _ => StoreError::Io { location, doing: format!("{doing}: {error}") },
    }
}
