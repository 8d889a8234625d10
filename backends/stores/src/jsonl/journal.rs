//! The write-ahead record of commits: what is appended where, on the disk before any log is touched.
//!
//! A record is one line of JSON (what changes, and a hash of everything) and the bytes that are appended. A commit is
//! durable when its record is whole, so it needs one flush however many sessions it is of. The logs are flushed when
//! the record is emptied, which is when it has grown, when a store is opened, and when the writer ends. Whoever finds
//! records that another process has left finishes what they say first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use impresario_seams::StoreError;
use serde::{Deserialize, Serialize};

use super::catalog::Catalog;
use super::plan::Change;
use super::sidecar;
use super::write::Disk;
use crate::artifact::content_name;
use crate::file::{Flush, create_folder, open_private, replace, sync_folder};

/// How large the record grows before it is emptied.
pub(super) const BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    changes: Vec<Written>,
    /// The name of the content of the changes and the bytes behind this line.
    check: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// In the root.
    folder: PathBuf,
    offset: u64,
    bytes: u64,
    sidecar: String,
}

/// The file of the records.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

/// By what a change of the file is seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Seen {
    bytes: u64,
    modified: SystemTime,
}

/// What a record says, and its bytes.
type Found = (Record, Vec<u8>);

impl Journal {
    pub(super) fn open(catalog: &Catalog) -> Result<Self, StoreError> {
        let path = catalog.ours().join("commits");
        let file = open_private(&path).and_then(|file| sync_folder(&catalog.ours()).map(|()| file));
        file.map(|file| Self { path: path.clone(), file }).map_err(|error| catalog.io("opening", &path, &error))
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|meta| meta.len())
    }

    /// What the file is now.
    pub(super) fn seen(&self) -> io::Result<Seen> {
        let meta = self.file.metadata()?;
        Ok(Seen { bytes: meta.len(), modified: meta.modified()? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record of a commit, to the disk unless that can wait.
    pub(super) fn append(
        &mut self,
        disk: &dyn Disk,
        catalog: &Catalog,
        changes: &[Change],
        is_buffered: bool,
    ) -> io::Result<()> {
        let record = encode(catalog, changes)?;
        self.file.seek(SeekFrom::End(0))?;
        disk.write(&mut self.file, &record)?;
        if is_buffered { Ok(()) } else { self.file.sync_data() }
    }

    /// Takes the records behind `len` back.
    pub(super) fn cut(&mut self, disk: &dyn Disk, len: u64) -> io::Result<()> {
        disk.cut(&mut self.file, len)?;
        self.file.sync_data()
    }

    /// Finishes what the records say: a process may have ended in the middle of it.
    pub(super) fn finish(&mut self, catalog: &Catalog) -> Result<(), StoreError> {
        let found = self.read().map_err(|error| catalog.io("reading", &self.path, &error))?;
        let mut sidecars = BTreeMap::new();
        for (record, bytes) in &found {
            let mut at = 0_usize;
            for change in &record.changes {
                let length = usize::try_from(change.bytes).unwrap_or(usize::MAX);
                let Some(bytes) = bytes.get(at..at.saturating_add(length)) else { break };
                at += length;
                if redo(catalog, change, bytes)? {
                    sidecars.insert(&change.folder, &change.sidecar);
                }
            }
        }
        for (folder, text) in sidecars {
            let path = catalog.root.join(folder).join(sidecar::NAME);
            if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
                continue;
            }
            let replaced = replace(&path, text.as_bytes(), Flush::Later);
            replaced.map_err(|error| catalog.io("writing", &path, &error))?;
        }
        self.empty(catalog, &found)
    }

    /// Flushes everything that the records name, and empties them.
    pub(super) fn checkpoint(&mut self, catalog: &Catalog) -> Result<(), StoreError> {
        let found = self.read().map_err(|error| catalog.io("reading", &self.path, &error))?;
        self.empty(catalog, &found)
    }

    fn empty(&mut self, catalog: &Catalog, found: &[Found]) -> Result<(), StoreError> {
        if self.len().is_ok_and(|len| len == 0) {
            return Ok(());
        }
        let folders: BTreeSet<PathBuf> = found
            .iter()
            .flat_map(|(record, _)| &record.changes)
            .map(|change| catalog.root.join(&change.folder))
            .collect();
        for folder in &folders {
            flush(catalog, folder).map_err(|error| catalog.io("flushing", folder, &error))?;
        }
        let projects: BTreeSet<&Path> = folders.iter().filter_map(|folder| folder.parent()).collect();
        for folder in projects.into_iter().chain([catalog.root.as_path()]) {
            ignore_missing(sync_folder(folder)).map_err(|error| catalog.io("flushing", folder, &error))?;
        }
        let emptied = self.file.set_len(0).and_then(|()| self.file.sync_data());
        emptied.map_err(|error| catalog.io("emptying", &self.path, &error))
    }

    /// All whole records. Behind the first that is not, there is nothing that anybody was told of.
    fn read(&mut self) -> io::Result<Vec<Found>> {
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut text)?;
        let mut found = vec![];
        let mut rest = text.as_slice();
        while let Some((record, bytes, behind)) = decode(rest) {
            found.push((record, bytes.to_vec()));
            rest = behind;
        }
        Ok(found)
    }
}

fn encode(catalog: &Catalog, changes: &[Change]) -> io::Result<Vec<u8>> {
    let mut written = Vec::with_capacity(changes.len());
    let mut bytes = Vec::new();
    for change in changes {
        let folder = change.folder.strip_prefix(&catalog.root).map_err(io::Error::other)?.to_owned();
        let sidecar = serde_json::to_string(&change.sidecar)?;
        written.push(Written { folder, offset: change.offset, bytes: change.bytes.len() as u64, sidecar });
        bytes.extend_from_slice(&change.bytes);
    }
    let check = hash(&written, &bytes)?;
    let mut record = serde_json::to_vec(&Record { changes: written, check })?;
    record.push(b'\n');
    record.append(&mut bytes);
    record.push(b'\n');
    Ok(record)
}

fn hash(changes: &[Written], bytes: &[u8]) -> io::Result<String> {
    let mut all = serde_json::to_vec(changes)?;
    all.extend_from_slice(bytes);
    Ok(content_name(&all))
}

/// The first record, its bytes, and what is behind them.
fn decode(text: &[u8]) -> Option<(Record, &[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let record: Record = serde_json::from_slice(text.get(..end)?).ok()?;
    let length = record.changes.iter().try_fold(0_u64, |sum, change| sum.checked_add(change.bytes))?;
    let until = (end + 1).checked_add(usize::try_from(length).ok()?)?;
    let bytes = text.get(end + 1..until)?;
    let behind = text.get(until..)?.strip_prefix(b"\n")?;
    (hash(&record.changes, bytes).ok()? == record.check).then_some((record, bytes, behind))
}

/// Sees to it that a log has the bytes that it should; `false` if there is no such log any more.
fn redo(catalog: &Catalog, change: &Written, bytes: &[u8]) -> Result<bool, StoreError> {
    let is_inside = change.folder.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let folder = catalog.root.join(&change.folder);
    let log = catalog.log_in(&folder);
    let fail = |error: &io::Error| catalog.io("finishing a commit in", &log, error);
    if !is_inside || (change.offset > 0 && !log.exists()) {
        return Ok(false);
    }
    create_folder(&catalog.root, &folder)?;
    let mut file = open_private(&log).map_err(|error| fail(&error))?;
    let len = file.metadata().map_err(|error| fail(&error))?.len();
    if len < change.offset {
        tracing::warn!(log = %log.display(), "a log is shorter than it was; it is left as it is");
        return Ok(false);
    }
    let mut there = vec![];
    let read = file.seek(SeekFrom::Start(change.offset));
    let read = read.and_then(|_| (&mut file).take(bytes.len() as u64).read_to_end(&mut there));
    read.map_err(|error| fail(&error))?;
    if there == bytes {
        return Ok(true);
    }
    if !bytes.starts_with(&there) {
        put_aside(catalog, &log, &mut file, change.offset).map_err(|error| fail(&error))?;
    }
    let written = file.set_len(change.offset).and_then(|()| file.seek(SeekFrom::Start(change.offset)));
    written.and_then(|_| file.write_all(bytes)).map_err(|error| fail(&error))?;
    tracing::info!(log = %log.display(), "a commit that was cut off is finished");
    Ok(true)
}

/// Keeps what stands in the place of a commit, whoever wrote it.
fn put_aside(catalog: &Catalog, log: &Path, file: &mut File, from: u64) -> io::Result<()> {
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut bytes)?;
    let folder = catalog.ours().join("aside");
    fs::create_dir_all(&folder)?;
    let copy = folder.join(content_name(&bytes));
    replace(&copy, &bytes, Flush::Now)?;
    tracing::warn!(log = %log.display(), copy = %copy.display(), "what stood where a commit is was put aside");
    Ok(())
}

fn flush(catalog: &Catalog, folder: &Path) -> io::Result<()> {
    for path in [catalog.log_in(folder), folder.join(sidecar::NAME)] {
        ignore_missing(File::open(&path).and_then(|file| file.sync_all()))?;
    }
    ignore_missing(sync_folder(folder))
}

/// What was deleted meanwhile needs no flush.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
