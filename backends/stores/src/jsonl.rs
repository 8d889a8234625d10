//! A folder of logs in the layout of dsh: one file a session, readable with any editor (or any zstd).
//!
//! ```text
//! <root>/--<cwd>--/<id>/session.jsonl        the log; or session.jsonl.zstd, one of the two in a root
//! <root>/--<cwd>--/<id>/impresario.json      what a log has no place for: root, path, label, fork, head
//! <root>/.impresario/commits                 what is being written, before it is
//! <root>/.impresario/lease.json, lock        who may write
//! <root>/.impresario/artifacts/              large results
//! <root>/.impresario/aside/                  what stood where a commit had to be finished
//! ```
//!
//! Line 1 of a log is the header, then comes one storage row a line. A compressed log is a sequence of frames, one for
//! each append. The folders are named so that no two sessions share one: see `jsonl/name.rs`.
//!
//! The log is the authority. Where `impresario.json` is missing, or is of a log of another length, it is made anew from
//! the log. dsh's own files hold everything that a fork has inherited; ours hold what is the fork's own, and
//! `impresario.json` says whose events are before it. [`export_dsh`] writes whole files, for dsh to read.
//!
//! One thread writes, under a lock that is held for one commit. A commit is on the disk when its record in `commits`
//! is: that is one flush for all its sessions, and whoever finds the record behind a crash finishes it.
//!
//! Readers take no lock. In the process that writes they see a commit as a whole; in another they may see it in parts
//! while it is being written. A root of dsh whose folders are named in another way is not opened in place: [`find_dsh`]
//! and [`read_dsh`] read what is in it.

mod artifact;
mod catalog;
mod delete;
mod diagnosis;
mod dsh;
mod follow;
mod frame;
mod journal;
mod line;
mod name;
mod plan;
mod read;
mod scan;
mod sidecar;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{Commit, Lease, SessionFilter, SessionInfo, Store, StoreError};

pub use diagnosis::{Diagnostic, DiagnosticKind};
pub use dsh::{DshSession, export_dsh, find_dsh, inspect_dsh, read_dsh};

use crate::file::create_folder;
use crate::lock;
use crate::writer::{Request, WriterHandle};
use catalog::Catalog;
use write::{Disk, LocalDisk};

/// How the logs of a root are written. All of one root are written alike.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encoding {
    /// As text.
    #[default]
    Raw,
    /// As zstd frames, one for each append.
    Zstd,
}

impl Encoding {
    /// What a log is called.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Raw => "session.jsonl",
            Self::Zstd => "session.jsonl.zstd",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Raw => Self::Zstd,
            Self::Zstd => Self::Raw,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Zstd => "in zstd",
        })
    }
}

/// A store in a folder of logs.
pub struct JsonlStore {
    catalog: Arc<Catalog>,
    writer: WriterHandle,
    lock: Arc<Mutex<Option<File>>>,
}

impl JsonlStore {
    /// Opens the folder, and creates it when it is missing. A commit that a crash cut off is finished.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when logs of the other encoding are there; [`StoreError::Damaged`] when a session is
    /// there twice; [`StoreError::Locked`] when another process hangs in a commit; [`StoreError::Io`] for everything
    /// that the system says.
    pub fn open(root: impl AsRef<Path>, encoding: Encoding) -> Result<Self, StoreError> {
        Self::open_on(root.as_ref(), encoding, Box::new(LocalDisk))
    }

    fn open_on(root: &Path, encoding: Encoding, disk: Box<dyn Disk>) -> Result<Self, StoreError> {
        let catalog = Arc::new(Catalog::new(root.to_owned(), encoding));
        create_folder(root, &catalog.ours())?;
        catalog.folders()?;
        let writer = write::start(Arc::clone(&catalog), disk)?;
        Ok(Self { catalog, writer, lock: Arc::default() })
    }

    /// Opens an existing folder for reading, also while another process writes. Commits are refused; only one that a
    /// crash cut off is finished, if that can be done.
    ///
    /// # Errors
    /// As [`JsonlStore::open`]; a missing folder is [`StoreError::Io`].
    pub fn open_read_only(root: impl AsRef<Path>, encoding: Encoding) -> Result<Self, StoreError> {
        let catalog = Arc::new(Catalog::new(root.as_ref().to_owned(), encoding));
        write::finish_quietly(&catalog);
        catalog.folders()?;
        let writer = WriterHandle::none(catalog.location());
        Ok(Self { catalog, writer, lock: Arc::default() })
    }

    /// The encoding of the folder's logs, from those that are there; `None` if none are.
    pub fn encoding_of(root: impl AsRef<Path>) -> Option<Encoding> {
        let has = |encoding: Encoding| {
            let catalog = Catalog::new(root.as_ref().to_owned(), encoding);
            // Logs of the other encoding are an error, so they are not these.
            catalog.folders().is_ok_and(|folders| !folders.is_empty())
        };
        [Encoding::Raw, Encoding::Zstd].into_iter().find(|encoding| has(*encoding))
    }

    /// The process that holds the lease of the store in `root`, if one does.
    pub fn holder(root: impl AsRef<Path>) -> Option<u32> {
        lock::holder(&lock_path(root.as_ref())).map(|holder| holder.pid)
    }

    /// The log of a session, if there is one.
    pub fn log_path(&self, id: &AgentId) -> Result<Option<PathBuf>, StoreError> {
        Ok(self.catalog.entry(id)?.map(|entry| self.catalog.log_in(&entry.folder)))
    }

    /// Reads the log of a session through and says what is wrong with it; nothing is when all is well, and `None`
    /// when there is no such session.
    pub fn diagnose(&self, id: &AgentId) -> Result<Option<Vec<Diagnostic>>, StoreError> {
        let Some(entry) = self.catalog.entry(id)? else { return Ok(None) };
        let (_, scan) = self.catalog.scanned(&entry)?;
        Ok(Some(scan.diagnostics.clone()))
    }
}

impl Store for JsonlStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.ask(|reply| Request::Commit(commit, reply))
    }

    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>> {
        let catalog = Arc::clone(&self.catalog);
        read::run(catalog.location(), move || Ok(catalog.visible(&id)?.map(|entry| entry.info.clone())))
    }

    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
        read::stream(Arc::clone(&self.catalog), id, from)
    }

    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>> {
        let catalog = Arc::clone(&self.catalog);
        read::run(catalog.location(), move || read::list(&catalog, &filter))
    }

    fn delete(&self, lease: Option<Lease>, sessions: Vec<AgentId>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.ask(|reply| Request::Delete(lease, sessions, reply))
    }

    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>> {
        self.writer.ask(|reply| Request::Artifact(owner, bytes, reply))
    }

    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let catalog = Arc::clone(&self.catalog);
        read::run(catalog.location(), move || artifact::get(&catalog, &name))
    }

    fn location(&self) -> String {
        self.catalog.location()
    }

    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        if self.writer.is_there()
            && let Err(error) = take_lock(&self.lock, &self.catalog.root, false)
        {
            return async move { Err(error) }.boxed();
        }
        self.writer.ask(Request::Lease)
    }

    fn take_over(&self) -> BoxFuture<'static, Result<Lease, StoreError>> {
        let (leased, lock, catalog) =
            (self.writer.ask(Request::Lease), Arc::clone(&self.lock), Arc::clone(&self.catalog));
        async move {
            // Whoever had the store can write no more from here on. If this fails it still has it, and its lock.
            let lease = leased.await?;
            take_lock(&lock, &catalog.root, true)?;
            Ok(lease)
        }
        .boxed()
    }
}

fn lock_path(root: &Path) -> PathBuf {
    root.join(".impresario").join("writer")
}

fn take_lock(lock: &Mutex<Option<File>>, root: &Path, by_force: bool) -> Result<(), StoreError> {
    let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if lock.is_none() {
        let taken = lock::take(&lock_path(root), by_force).map_err(|error| match error {
            StoreError::Locked { pid, since, .. } => {
                StoreError::Locked { location: root.display().to_string(), pid, since }
            }
            other => other,
        });
        *lock = Some(taken?);
    }
    Ok(())
}
