//! The embedded default: one sqlite file.
//!
//! One thread owns the writing connection and makes each commit one transaction with one flush (WAL, synchronous
//! full). Readers use connections of their own, page by page, and never hold the writer up.

mod read;
mod schema;
mod write;

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{Commit, Lease, SessionFilter, SessionInfo, Store, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use std::time::Duration;
use tokio::sync::oneshot;

use write::Request;

/// How long a connection waits for another process's transaction, in milliseconds.
const BUSY_MS: u64 = 5_000;

/// How often a lock that is taken is tried again, and how long apart.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(5);

/// A store in one sqlite file.
pub struct SqliteStore {
    shared: Arc<Shared>,
    writer: Option<mpsc::Sender<Request>>,
    lock: Mutex<Option<File>>,
}

/// What readers and the writer have in common.
struct Shared {
    path: PathBuf,
    /// Connections that no reader uses now.
    idle: Mutex<Vec<Connection>>,
}

impl SqliteStore {
    /// Opens the file, and creates it and its folder when they are missing.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] for a file that is not a store of ours, which is left as it is; [`StoreError::Newer`]
    /// for one of a later version; [`StoreError::Io`] for everything that the system says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        create_folder(&path)?;
        let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        schema::prepare(&mut connection, &path)?;
        restrict(&path)?;
        let shared = Arc::new(Shared { path, idle: Mutex::new(vec![]) });
        let writer = write::start(connection, Arc::clone(&shared))?;
        Ok(Self { shared, writer: Some(writer), lock: Mutex::new(None) })
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
        let shared = Arc::new(Shared { path, idle: Mutex::new(vec![]) });
        let connection = shared.connection()?;
        schema::check(&connection, &shared.path)?;
        shared.give_back(connection);
        Ok(Self { shared, writer: None, lock: Mutex::new(None) })
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
        let mut file = File::open(lock_path(path.as_ref())).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(pid_in(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    fn take_lock(&self) -> Result<(), StoreError> {
        let path = lock_path(&self.shared.path);
        let io = |error: std::io::Error| self.shared.io("locking", &path, &error);
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(());
        }
        let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(io)?;
        restrict(&path)?;
        match lock_patiently(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let location = self.shared.location();
                return Err(StoreError::Locked { location, pid: pid_in(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes())).map_err(io)?;
        *lock = Some(file);
        Ok(())
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let location = self.shared.location();
        let refused = move |doing: &str| StoreError::Io { location: location.clone(), doing: doing.into() };
        let Some(writer) = &self.writer else {
            let error = refused("it was opened for reading only");
            return async move { Err(error) }.boxed();
        };
        let (reply, answer) = oneshot::channel();
        let sent = writer.send(request(reply));
        async move {
            sent.map_err(|_| refused("its writer has ended"))?;
            answer.await.map_err(|_| refused("its writer has ended"))?
        }
        .boxed()
    }
}

impl Store for SqliteStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        self.ask(|reply| Request::Commit(commit, reply))
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

    fn put_artifact(&self, _: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        self.ask(|reply| Request::Artifact(bytes, reply))
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        self.shared.run(move |shared, connection| {
            let found = connection
                .query_row("SELECT bytes FROM artifacts WHERE name = ?1", [&name], |row| row.get(0))
                .optional();
            found.map_err(|error| shared.error("reading an artifact", &error))
        })
    }

    fn location(&self) -> String {
        self.shared.location()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        if self.writer.is_some()
            && let Err(error) = self.take_lock()
        {
            return async move { Err(error) }.boxed();
        }
        self.ask(Request::Lease)
    }
}

impl Shared {
    fn location(&self) -> String {
        self.path.display().to_string()
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
        let task = tokio::task::spawn_blocking(move || {
            let connection = shared.connection()?;
            let result = query(&shared, &connection);
            shared.give_back(connection);
            result
        });
        async move { task.await.map_err(|error| StoreError::Io { location, doing: format!("reading: {error}") })? }
            .boxed()
    }

    fn error(&self, doing: &str, error: &rusqlite::Error) -> StoreError {
        sqlite_error(&self.path, doing, error)
    }

    fn io(&self, doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
        io_error(&self.path, doing, path, error)
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

/// The folder of the file, for its owner only.
fn create_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| io_error(path, "creating", folder, &error))
}

/// Prompts and answers are nobody else's business.
fn restrict(path: &Path) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(|error| io_error(path, "restricting", path, &error))?;
    }
    Ok(())
}

/// Takes the lock. Whoever only asks who holds it holds it for an instant, so that a taken lock is tried again.
fn lock_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
            taken_or_failed => return taken_or_failed,
        }
    }
    file.try_lock()
}

fn lock_path(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.lock", path.display()))
}

fn pid_in(file: &mut File) -> u32 {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)
}

fn io_error(store: &Path, doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
    let location = store.display().to_string();
    if error.kind() == std::io::ErrorKind::StorageFull {
        return StoreError::Full { location };
    }
    StoreError::Io { location, doing: format!("{doing} {}: {error}", path.display()) }
}

fn sqlite_error(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    let location = path.display().to_string();
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { location },
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Foreign { location, found: "a file of another kind".into() }
        }
        _ => StoreError::Io { location, doing: format!("{doing}: {error}") },
    }
}
