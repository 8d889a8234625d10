//! Which process writes: an OS lock on a file beside the store, which ends with the process, and who it is in that file.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use impresario_kernel::Millis;
use impresario_seams::StoreError;

use crate::file::{io_error, restrict};

/// How often a lock that is taken is tried again, and how long apart: whoever only asks who holds it holds it for an
/// instant.
const TRIES: u32 = 10;
const WAIT: Duration = Duration::from_millis(5);

/// Who has the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) since: Option<Millis>,
}

/// The process that has the lock of the store in `path`, if one has.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    let mut file = File::open(lock_path(path)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(said_in(&mut file)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Takes the lock, as long as the file is kept. By force the file of whoever has it is put aside and another takes its
/// place: that process keeps a lock on what nobody looks at any more.
pub(crate) fn take(store: &Path, by_force: bool) -> Result<File, StoreError> {
    let path = lock_path(store);
    let io = |error: std::io::Error| io_error(store, "locking", &path, &error);
    if by_force && holder(store).is_some() {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            Ok(()) | Err(_) => {}
        }
    }
    loop {
        let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(io)?;
        match patiently(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let (location, Holder { pid, since }) = (store.display().to_string(), said_in(&mut file));
                return Err(StoreError::Locked { location, pid, since });
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        // Somebody may have put the file aside between the two.
        if !is_at(&file, &path) {
            continue;
        }
        restrict(&path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
        let said = format!("{} {now}", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(said.as_bytes())).map_err(io)?;
        return Ok(file);
    }
}

fn patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(WAIT),
            taken_or_failed => return taken_or_failed,
        }
    }
    file.try_lock()
}

/// Whether `file` is what stands at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let there = std::fs::metadata(path).map(place);
        matches!((file.metadata().map(place), there), (Ok(here), Ok(there)) if here == there)
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

fn lock_path(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.lock", path.display()))
}

/// `pid since`; the second is missing in what older versions wrote.
fn said_in(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let mut words = text.split_whitespace();
    let pid = words.next().filter(|_| read.is_ok()).and_then(|word| word.parse().ok()).unwrap_or(0);
    Holder { pid, since: words.next().and_then(|word| word.parse().ok()).map(Millis) }
}
