//! The writer: one thread, one record and one flush a commit, under a lock that is held no longer.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use impresario_kernel::{AgentId, Millis};
use impresario_seams::{Commit, Lease, StoreError};
use serde::{Deserialize, Serialize};

use super::catalog::Catalog;
use super::journal::{self, Journal, Seen};
use super::plan::{Change, plan};
use super::sidecar::{self, Stamp};
use super::{artifact, delete};
use crate::file::{Flush, create_folder, open_private, replace};
use crate::lock;
use crate::writer::{WriterHandle, Writes};

/// How long a commit waits for that of another process, and how often it asks.
const BUSY: Duration = Duration::from_secs(5);
const WAIT: Duration = Duration::from_millis(2);

/// How bytes get into files.
pub(super) trait Disk: Send {
    /// Writes all of them where the file stands.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Takes away what is behind `len`.
    fn cut(&self, file: &mut File, len: u64) -> io::Result<()>;
}

/// The disk of this computer.
pub(super) struct LocalDisk;

impl Disk for LocalDisk {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn cut(&self, file: &mut File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }
}

/// The newest lease.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Leased {
    epoch: u64,
    pid: u32,
    since: u64,
}

pub(super) struct Writer {
    pub(super) catalog: Arc<Catalog>,
    disk: Box<dyn Disk>,
    journal: Journal,
    /// What the journal was when we last wrote it: if it is not, another process has written.
    seen: Option<Seen>,
    /// What a commit has left that failed, and could not be taken back either.
    left: Vec<Undo>,
    /// How long the journal was before a record that could not be taken back.
    record_left: Option<u64>,
}

/// What a log and its sidecar were.
struct Undo {
    id: AgentId,
    folder: std::path::PathBuf,
    /// How long the log was; `None` if there was none.
    len: Option<u64>,
    sidecar: Option<Vec<u8>>,
}

/// Finishes what others have left, and starts the thread.
pub(super) fn start(catalog: Arc<Catalog>, disk: Box<dyn Disk>) -> Result<WriterHandle, StoreError> {
    let journal = Journal::open(&catalog)?;
    let mut writer =
        Writer { catalog: Arc::clone(&catalog), disk, journal, seen: None, left: vec![], record_left: None };
    drop(writer.hold()?);
    let handle = WriterHandle::start(catalog.location(), writer);
    handle.map_err(|error| catalog.io("starting the writer of", &catalog.root, &error))
}

/// Finishes what a process has left that has ended, if nobody is writing now.
pub(super) fn finish_quietly(catalog: &Arc<Catalog>) {
    let is_needed = fs::metadata(catalog.ours().join("commits")).is_ok_and(|meta| meta.len() > 0);
    let held = is_needed.then(|| open_private(&catalog.ours().join("lock"))).and_then(Result::ok);
    if let Some(held) = held.filter(|held| held.try_lock().is_ok()) {
        let finished = Journal::open(catalog).and_then(|mut journal| journal.finish(catalog));
        if let Err(error) = finished {
            tracing::warn!(%error, "the last commit may show in part");
        }
        drop(held);
    }
}

impl Writes for Writer {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let _held = self.hold()?;
        self.fence(commit.lease)?;
        let changes = plan(&self.catalog, &commit.batches)?;
        self.write(changes, commit.is_buffered)
    }

    fn delete(&mut self, lease: Option<Lease>, doomed: &[AgentId]) -> Result<(), StoreError> {
        let _held = self.hold()?;
        self.fence(lease)?;
        delete::delete(self, doomed)
    }

    fn artifact(&mut self, owner: &AgentId, bytes: &[u8]) -> Result<String, StoreError> {
        let _held = self.hold()?;
        artifact::put(&self.catalog, owner, bytes)
    }

    fn lease(&mut self) -> Result<Lease, StoreError> {
        let _held = self.hold()?;
        let path = self.catalog.ours().join("lease.json");
        let epoch = self.newest_epoch()? + 1;
        let leased = Leased { epoch, pid: std::process::id(), since: now().0 };
        let text = serde_json::to_vec(&leased).unwrap_or_default();
        replace(&path, &text, Flush::Now).map_err(|error| self.catalog.io("leasing in", &path, &error))?;
        Ok(Lease { epoch })
    }

    fn end(&mut self) {
        // The next to open the store would do it.
        let _ = self.hold().and_then(|_held| self.checkpoint());
    }
}

impl Writer {
    /// The right to write, as long as the file is kept. What others have left is finished first.
    pub(super) fn hold(&mut self) -> Result<File, StoreError> {
        let path = self.catalog.ours().join("lock");
        let catalog = Arc::clone(&self.catalog);
        let io = |error: &io::Error| catalog.io("locking", &path, error);
        let file = open_private(&path).map_err(|error| io(&error))?;
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(io(&error)),
                Err(TryLockError::WouldBlock) if waited < BUSY => {
                    std::thread::sleep(WAIT);
                    waited += WAIT;
                }
                // A process that is stopped in the middle of a commit holds it for as long as it is.
                Err(TryLockError::WouldBlock) => {
                    let holder = lock::holder(&self.catalog.ours().join("writer"));
                    let (pid, since) = holder.map_or((0, None), |holder| (holder.pid, holder.since));
                    return Err(StoreError::Locked { location: self.catalog.location(), pid, since });
                }
            }
        }
        self.take_back()?;
        if self.seen.is_none() || self.journal.seen().ok() != self.seen {
            self.journal.finish(&self.catalog)?;
            self.seen = self.journal.seen().ok();
        }
        Ok(file)
    }

    pub(super) fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.journal.checkpoint(&self.catalog)?;
        self.seen = self.journal.seen().ok();
        Ok(())
    }

    fn newest_epoch(&self) -> Result<u64, StoreError> {
        let path = self.catalog.ours().join("lease.json");
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(self.catalog.io("reading", &path, &error)),
            Ok(bytes) => match serde_json::from_slice::<Leased>(&bytes) {
                Ok(leased) => Ok(leased.epoch),
                Err(error) => Err(self.catalog.io("reading", &path, &error.into())),
            },
        }
    }

    /// Refuses to write when somebody has taken a lease behind this one.
    fn fence(&self, lease: Option<Lease>) -> Result<(), StoreError> {
        match lease {
            Some(lease) if lease.epoch < self.newest_epoch()? => {
                Err(StoreError::Fenced { location: self.catalog.location() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// All or nothing; to the disk unless that can wait.
    pub(super) fn write(&mut self, changes: Vec<Change>, is_buffered: bool) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let before = self.journal.len().map_err(|error| self.catalog.io("reading", self.journal.path(), &error))?;
        if let Err(error) = self.journal.append(&*self.disk, &self.catalog, &changes, is_buffered) {
            let failed = self.catalog.io("writing", self.journal.path(), &error);
            self.record_left = Some(before);
            let taken_back = self.take_back();
            return Err(
                taken_back.map_or_else(|error| also(self.catalog.location(), &failed, &error), |()| failed.clone())
            );
        }
        let touched: HashMap<_, _> = changes.iter().map(|change| (change.id.clone(), change.before.clone())).collect();
        self.catalog.begin(touched);
        match self.apply(&changes) {
            Ok(stamps) => {
                let after = changes.into_iter().zip(stamps).map(|(change, stamp)| Arc::new(change.after(stamp)));
                self.catalog.end(after.collect());
                self.seen = self.journal.seen().ok();
                if self.journal.len().is_ok_and(|len| len > journal::BYTES_MAX)
                    && let Err(error) = self.checkpoint()
                {
                    tracing::warn!(%error, "the record of commits was not emptied");
                }
                Ok(())
            }
            Err(failed) => {
                self.record_left = Some(before);
                let taken_back = self.take_back();
                self.catalog.end(vec![]);
                Err(taken_back.map_or_else(|error| also(self.catalog.location(), &failed, &error), |()| failed.clone()))
            }
        }
    }

    /// First the logs, then what says how long they are.
    fn apply(&mut self, changes: &[Change]) -> Result<Vec<Stamp>, StoreError> {
        let catalog = Arc::clone(&self.catalog);
        for change in changes {
            let beside = change.folder.join(sidecar::NAME);
            let len = change.before.as_ref().map(|_| change.offset);
            let sidecar = fs::read(&beside).ok();
            self.left.push(Undo { id: change.id.clone(), folder: change.folder.clone(), len, sidecar });
            let log = catalog.log_in(&change.folder);
            if change.before.is_none() {
                create_folder(&catalog.root, &change.folder)?;
            } else if change.before.as_ref().is_some_and(|entry| entry.bytes > change.offset) {
                tracing::warn!(log = %log.display(), offset = change.offset, "a torn end of a log is cut off");
            }
            if !change.bytes.is_empty() || change.before.as_ref().is_some_and(|entry| entry.bytes > change.offset) {
                let written = self.append(&log, change);
                written.map_err(|error| catalog.io("writing", &log, &error))?;
            }
        }
        let mut stamps = Vec::with_capacity(changes.len());
        for change in changes {
            let beside = change.folder.join(sidecar::NAME);
            let text = serde_json::to_vec(&change.sidecar).unwrap_or_default();
            replace(&beside, &text, Flush::Later).map_err(|error| catalog.io("writing", &beside, &error))?;
            stamps.push(Stamp::of(&beside));
        }
        self.left.clear();
        Ok(stamps)
    }

    fn append(&self, log: &Path, change: &Change) -> io::Result<()> {
        let mut file = open_private(log)?;
        if file.metadata()?.len() != change.offset {
            self.disk.cut(&mut file, change.offset)?;
        }
        file.seek(SeekFrom::Start(change.offset))?;
        self.disk.write(&mut file, &change.bytes)
    }

    /// Makes everything what it was before a commit that failed.
    fn take_back(&mut self) -> Result<(), StoreError> {
        if let Some(len) = self.record_left {
            let is_longer = self.journal.len().is_ok_and(|there| there > len);
            let cut = if is_longer { self.journal.cut(&*self.disk, len) } else { Ok(()) };
            cut.map_err(|error| self.catalog.io("cutting", self.journal.path(), &error))?;
            self.record_left = None;
            self.seen = self.journal.seen().ok();
        }
        while let Some(undo) = self.left.last() {
            let (id, folder) = (undo.id.clone(), undo.folder.clone());
            let undone = self.undo(undo);
            undone.map_err(|error| self.catalog.io("taking back what was written in", &folder, &error))?;
            self.left.pop();
            self.catalog.forget(&id);
        }
        Ok(())
    }

    fn undo(&self, undo: &Undo) -> io::Result<()> {
        let (log, beside) = (self.catalog.log_in(&undo.folder), undo.folder.join(sidecar::NAME));
        match undo.len {
            Some(len) => self.disk.cut(&mut open_private(&log)?, len)?,
            None if log.exists() => fs::remove_file(&log)?,
            None => {}
        }
        match &undo.sidecar {
            Some(there) if fs::read(&beside).ok().as_ref() != Some(there) => replace(&beside, there, Flush::Later)?,
            Some(_) => {}
            None if beside.exists() => fs::remove_file(&beside)?,
            None => {}
        }
        if undo.len.is_none() && undo.folder.exists() {
            // Whatever else is in it is not ours to take.
            let _ = fs::remove_dir(&undo.folder);
        }
        Ok(())
    }
}

/// A failure, and that it could not be taken back.
fn also(location: String, failed: &StoreError, taking_back: &StoreError) -> StoreError {
    StoreError::Io { location, doing: format!("{failed}; and taking it back: {taking_back}") }
}

pub(super) fn now() -> Millis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Millis(u64::try_from(now).unwrap_or(u64::MAX))
}
