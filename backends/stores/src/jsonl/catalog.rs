//! Which sessions there are and what is known of them: looked up on the disk, kept while nothing there changes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use impresario_kernel::{AgentId, Seq, SessionHeader};
use impresario_seams::{SessionInfo, StoreError};

use super::Encoding;
use super::follow::{NoHeader, header};
use super::line::{Lines, Place};
use super::name::{is_project_folder, project_folder, session_folder};
use super::scan::Scan;
use super::sidecar::{self, Sidecar, Stamp, rebuilt};
use crate::file::io_error;

/// How far up a lost root is looked for.
const DEPTH_MAX: usize = 64;

/// One session on the disk.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) info: SessionInfo,
    /// Its folder.
    pub(super) folder: PathBuf,
    pub(super) is_deleted: bool,
    /// How long the log is.
    pub(super) bytes: u64,
    pub(super) stamp: Stamp,
    /// What reading all of it has shown, if that was done.
    pub(super) scan: Option<Arc<Scan>>,
}

/// Why a folder is no session that can be shown.
pub(super) enum Unreadable {
    /// It says nothing about the others.
    Alone(StoreError),
    /// The store is not what it should be.
    Store(StoreError),
}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Alone(error) | Unreadable::Store(error) => error,
        }
    }
}

/// The sessions of one root. Shared by readers and the writer.
pub(super) struct Catalog {
    pub(super) root: PathBuf,
    pub(super) encoding: Encoding,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<AgentId, Arc<Entry>>,
    /// What the commit that is being written has found: that is what there is until it is whole.
    before: HashMap<AgentId, Option<Arc<Entry>>>,
}

impl Catalog {
    pub(super) fn new(root: PathBuf, encoding: Encoding) -> Self {
        Self { root, encoding, state: Mutex::default() }
    }

    pub(super) fn location(&self) -> String {
        self.root.display().to_string()
    }

    pub(super) fn io(&self, doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
        io_error(&self.root, doing, path, error)
    }

    /// Where our own files are.
    pub(super) fn ours(&self) -> PathBuf {
        self.root.join(".impresario")
    }

    pub(super) fn log_in(&self, folder: &Path) -> PathBuf {
        folder.join(self.encoding.file_name())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session, deleted ones included; `None` if there is none.
    pub(super) fn entry(&self, id: &AgentId) -> Result<Option<Arc<Entry>>, StoreError> {
        let mut state = self.state();
        self.look_up(&mut state, id)
    }

    /// A session that was not deleted.
    pub(super) fn visible(&self, id: &AgentId) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(self.entry(id)?.filter(|entry| !entry.is_deleted))
    }

    /// The same, read through.
    pub(super) fn scanned(&self, entry: &Arc<Entry>) -> Result<(Arc<Entry>, Arc<Scan>), StoreError> {
        if let Some(scan) = &entry.scan {
            return Ok((Arc::clone(entry), Arc::clone(scan)));
        }
        let id = entry.info.id();
        let fork = entry.info.new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
        let log = self.log_in(&entry.folder);
        let scan = Scan::read(&log, self.encoding, entry.bytes, Some(fork));
        let scan = Arc::new(scan.map_err(|no| StoreError::from(self.no_header(id, &log, no)))?);
        let entry = Arc::new(Entry { scan: Some(Arc::clone(&scan)), ..(**entry).clone() });
        let mut state = self.state();
        let is_current = |known: &Arc<Entry>| known.bytes == entry.bytes && known.stamp == entry.stamp;
        if !state.before.contains_key(id) && state.entries.get(id).is_some_and(is_current) {
            state.entries.insert(id.clone(), Arc::clone(&entry));
        }
        Ok((entry, scan))
    }

    /// Says that the sessions in `before` are being written.
    pub(super) fn begin(&self, before: HashMap<AgentId, Option<Arc<Entry>>>) {
        self.state().before = before;
    }

    /// Says that they are written, and what they are now; without anything, that they are what they were.
    pub(super) fn end(&self, after: Vec<Arc<Entry>>) {
        let mut state = self.state();
        state.before.clear();
        for entry in after {
            state.entries.insert(entry.info.id().clone(), entry);
        }
    }

    /// Forgets what is known of a session.
    pub(super) fn forget(&self, id: &AgentId) {
        self.state().entries.remove(id);
    }

    fn look_up(&self, state: &mut State, id: &AgentId) -> Result<Option<Arc<Entry>>, StoreError> {
        if let Some(before) = state.before.get(id) {
            return Ok(before.clone());
        }
        if let Some(known) = state.entries.get(id)
            && self.is_current(known)
        {
            return Ok(Some(Arc::clone(known)));
        }
        state.entries.remove(id);
        let Some(folder) = self.find(id)? else { return Ok(None) };
        self.keep(state, &folder).map_err(Into::into)
    }

    fn is_current(&self, entry: &Entry) -> bool {
        let bytes = fs::metadata(self.log_in(&entry.folder)).map(|meta| meta.len());
        bytes.is_ok_and(|bytes| bytes == entry.bytes) && Stamp::of(&entry.folder.join(sidecar::NAME)) == entry.stamp
    }

    fn keep(&self, state: &mut State, folder: &Path) -> Result<Option<Arc<Entry>>, Unreadable> {
        let Some(entry) = self.load(folder)?.map(Arc::new) else { return Ok(None) };
        state.entries.insert(entry.info.id().clone(), Arc::clone(&entry));
        Ok(Some(entry))
    }

    /// The folder of a session, whatever project it is in.
    fn find(&self, id: &AgentId) -> Result<Option<PathBuf>, StoreError> {
        let name = session_folder(id.as_str());
        let mut found = None;
        for project in self.projects()? {
            let folder = project.join(&name);
            if self.log_in(&folder).exists()
                && let Some(other) = found.replace(folder.clone())
            {
                return Err(twice(id, &other, &folder));
            }
        }
        Ok(found)
    }

    fn projects(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = fs::read_dir(&self.root).map_err(|error| self.io("reading", &self.root, &error))?;
        let folders = entries.flatten().filter(|entry| is_project_folder(&entry.file_name().to_string_lossy()));
        Ok(folders.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
    }

    /// The folders of all sessions by their names.
    pub(super) fn folders(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut found: BTreeMap<_, PathBuf> = BTreeMap::new();
        for project in self.projects()? {
            for entry in fs::read_dir(&project).map_err(|error| self.io("reading", &project, &error))?.flatten() {
                let folder = entry.path();
                let other = folder.join(self.encoding.other().file_name());
                if other.exists() {
                    let found = format!("{} is there, and this root is kept {}", other.display(), self.encoding);
                    return Err(StoreError::Foreign { location: self.location(), found });
                }
                if !self.log_in(&folder).exists() {
                    continue;
                }
                if let Some(other) = found.insert(entry.file_name(), folder.clone()) {
                    let id = AgentId::new(entry.file_name().to_string_lossy().into_owned());
                    return Err(twice(&id, &other, &folder));
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// All sessions, deleted ones included. What cannot be read is left out, and said.
    pub(super) fn all(&self) -> Result<Vec<Arc<Entry>>, StoreError> {
        let folders = self.folders()?;
        let mut state = self.state();
        let by_folder: HashMap<PathBuf, AgentId> =
            state.entries.iter().map(|(id, entry)| (entry.folder.clone(), id.clone())).collect();
        let writing: Vec<Arc<Entry>> = state.before.values().flatten().map(Arc::clone).collect();
        let new: Vec<String> = state.before.keys().map(|id| session_folder(id.as_str())).collect();
        let mut found = vec![];
        for folder in folders {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if new.iter().any(|new| *new == name) {
                continue;
            }
            let known = by_folder.get(&folder).and_then(|id| state.entries.get(id)).map(Arc::clone);
            match known.filter(|known| self.is_current(known)) {
                Some(known) => found.push(known),
                None => match self.keep(&mut state, &folder) {
                    Ok(entry) => found.extend(entry),
                    Err(Unreadable::Alone(error)) => tracing::warn!(%error, "a session is left out of the list"),
                    Err(Unreadable::Store(error)) => return Err(error),
                },
            }
        }
        found.extend(writing);
        Ok(found)
    }

    /// Reads what there is in a folder.
    fn load(&self, folder: &Path) -> Result<Option<Entry>, Unreadable> {
        let log = self.log_in(folder);
        let io = |path: &Path, error: &std::io::Error| Unreadable::Store(self.io("reading", path, error));
        let bytes = match fs::metadata(&log) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(&log, &error)),
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let unnamed = AgentId::new(name.as_ref());
        let mut lines = Lines::open(&log, self.encoding, Place::default(), bytes).map_err(|error| io(&log, &error))?;
        let header = header(&mut lines).map_err(|no| self.no_header(&unnamed, &log, no))?;
        check_place(folder, &header).map_err(Unreadable::Store)?;
        let beside = folder.join(sidecar::NAME);
        let stamp = Stamp::of(&beside);
        let known = Sidecar::read(&beside).map_err(|error| io(&beside, &error))?;
        let known = known.filter(|known| known.id == header.id);
        if let Some(newer) = known.as_ref().filter(|known| known.version > sidecar::VERSION) {
            return Err(Unreadable::Alone(self.newer(&beside, newer.version.into())));
        }
        let is_deleted = known.as_ref().is_some_and(|known| known.deleted_at.is_some());
        let folder = folder.to_owned();
        if let Some(known) = known.as_ref().filter(|known| known.bytes == bytes) {
            let info = known.info(header);
            return Ok(Some(Entry { info, folder, is_deleted, bytes, stamp, scan: None }));
        }
        let until = known.as_ref().map(|known| known.until().unwrap_or(Seq(0)));
        let scan = Scan::read(&log, self.encoding, bytes, until);
        let scan = scan.map_err(|no| self.no_header(&header.id, &log, no))?;
        let root = self.root_of(&header);
        let info = rebuilt(&scan, known.as_ref(), root);
        if info.new.fork.is_none() && scan.begins.is_some_and(|begins| begins > Seq(0)) {
            let what = format!("{}: its first events are not there, and nothing says whose they are", log.display());
            return Err(Unreadable::Alone(StoreError::Damaged { session: header.id, what }));
        }
        Ok(Some(Entry { info, folder, is_deleted, bytes, stamp, scan: Some(Arc::new(scan)) }))
    }

    /// The topmost session above one, as the headers say.
    fn root_of(&self, header: &SessionHeader) -> AgentId {
        let mut root = header.id.clone();
        let mut parent = header.parent_session.clone();
        for _ in 0..DEPTH_MAX {
            let Some(above) = parent else { break };
            root = above;
            parent = self.find(&root).ok().flatten().and_then(|folder| {
                let log = self.log_in(&folder);
                let mut lines = Lines::open(&log, self.encoding, Place::default(), u64::MAX >> 1).ok()?;
                super::follow::header(&mut lines).ok()?.parent_session
            });
        }
        root
    }

    fn newer(&self, path: &Path, version: u64) -> StoreError {
        let found = i64::try_from(version).unwrap_or(i64::MAX);
        StoreError::Newer { location: path.display().to_string(), found, known: 0 }
    }

    fn no_header(&self, id: &AgentId, log: &Path, no: NoHeader) -> Unreadable {
        let damaged = |what: &str| {
            let what = format!("{}: {what}", log.display());
            Unreadable::Alone(StoreError::Damaged { session: id.clone(), what })
        };
        match no {
            NoHeader::Empty => damaged("line 1: the log ends before its header does"),
            NoHeader::Other(what) => damaged(&format!("line 1: {what}")),
            NoHeader::Newer(version) => Unreadable::Alone(self.newer(log, version)),
            NoHeader::Io(error) => Unreadable::Store(self.io("reading", log, &error)),
        }
    }
}

/// A log that was moved or copied is not taken for another session.
fn check_place(folder: &Path, header: &SessionHeader) -> Result<(), StoreError> {
    let is_named = |path: Option<&Path>, name: String| {
        path.and_then(Path::file_name).is_some_and(|there| there.to_string_lossy() == name.as_str())
    };
    let wrong = |what: &str| {
        let what = format!("{}: the header's {what} does not match the path", folder.display());
        Err(StoreError::Damaged { session: header.id.clone(), what })
    };
    if !is_named(Some(folder), session_folder(header.id.as_str())) {
        return wrong(&format!("id, {},", header.id));
    }
    if !is_named(folder.parent(), project_folder(header.cwd.as_deref())) {
        return wrong(&format!("cwd, {},", header.cwd.as_deref().unwrap_or("which is missing")));
    }
    Ok(())
}

fn twice(id: &AgentId, one: &Path, other: &Path) -> StoreError {
    let what = format!("it is there twice: {} and {}", one.display(), other.display());
    StoreError::Damaged { session: id.clone(), what }
}
