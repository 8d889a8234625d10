//! The folder that an agent works in: owns what a path given by a model means, and every way to a file in it.
//!
//! A path is followed part by part with links resolved, and refused when it ends outside. What was found is then
//! opened part by part without following links, so that nothing swapped in between leads out.

use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use impresario_seams::ToolError;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The folder: absolute, links resolved.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: PathBuf,
}

/// Where a path leads: inside the folder, no link on the way.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// From the root of the machine.
    pub(crate) absolute: PathBuf,
    /// From the folder; empty for the folder itself.
    inside: PathBuf,
    /// As models see it.
    pub(crate) shown: String,
    /// What is there.
    pub(crate) kind: Kind,
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Nothing yet.
    Missing,
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link. Places are never one, entries of a folder may be.
    Link,
    /// A pipe, a socket, a device: never opened, since that may wait for ever.
    Special,
}

impl From<FileType> for Kind {
    fn from(found: FileType) -> Self {
        if found.is_file() {
            Self::File
        } else if found.is_dir() {
            Self::Folder
        } else if found.is_symlink() {
            Self::Link
        } else {
            debug_assert!(found.is_fifo() || found.is_socket() || found.is_block_device() || found.is_char_device());
            Self::Special
        }
    }
}

impl Folder {
    /// Takes the folder of a call.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Where `given` leads, which need not exist. `field` is the argument that it came from.
    pub(crate) fn locate(&self, field: &str, given: &str) -> Result<Place, ToolError> {
        if given.trim().is_empty() {
            return Err(ToolError::invalid(format!("`{field}` is empty; give a path in the working folder")));
        }
        if given.contains('\0') {
            return Err(ToolError::invalid(format!("`{field}` has a zero byte in it")));
        }
        let path = Path::new(given);
        let (start, rest) = match path.strip_prefix(&self.root) {
            Ok(rest) => (self.root.clone(), rest),
            Err(_) if path.is_absolute() => (PathBuf::from("/"), path),
            Err(_) => (self.root.clone(), path),
        };
        let (absolute, exists) = self.follow(given, start, rest)?;
        let Ok(inside) = absolute.strip_prefix(&self.root) else { return Err(self.outside(given)) };
        let inside = inside.to_path_buf();
        let kind = if exists {
            fs::symlink_metadata(&absolute).map_err(|cause| fault("look at", given, &cause))?.file_type().into()
        } else {
            Kind::Missing
        };
        Ok(Place { shown: self.shown(&absolute), absolute, inside, kind })
    }

    /// The same, for something that must exist.
    pub(crate) fn locate_existing(&self, field: &str, given: &str) -> Result<Place, ToolError> {
        let place = self.locate(field, given)?;
        match place.kind {
            Kind::Missing => {
                Err(ToolError::new(format!("{} does not exist; look with list_dir for what does", escaped(given))))
            }
            Kind::File | Kind::Folder | Kind::Link | Kind::Special => Ok(place),
        }
    }

    /// Follows `rest` from `at`: where it ends, and whether that exists. Wandering out on the way is fine, `x/../y`
    /// may do so through a link; telling anything about what is there is not, so errors out there are all the same.
    fn follow(&self, given: &str, mut at: PathBuf, rest: &Path) -> Result<(PathBuf, bool), ToolError> {
        let mut exists = true;
        for component in rest.components() {
            let next = match component {
                Component::Prefix(_) | Component::RootDir | Component::CurDir => continue,
                Component::ParentDir if exists => {
                    at.pop();
                    continue;
                }
                Component::ParentDir => {
                    let at = escaped(given);
                    return Err(ToolError::new(format!(
                        "{at} goes up from a folder that does not exist; leave out `..`"
                    )));
                }
                Component::Normal(name) => at.join(name),
            };
            at = match fs::symlink_metadata(&next) {
                _ if !exists => next,
                Ok(found) if found.is_symlink() => fs::canonicalize(&next).map_err(|_| self.outside(given))?,
                Ok(_) => next,
                Err(_) if !next.starts_with(&self.root) => return Err(self.outside(given)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    exists = false;
                    next
                }
                Err(cause) => return Err(fault("look at", given, &cause)),
            };
        }
        Ok((at, exists))
    }

    fn outside(&self, given: &str) -> ToolError {
        ToolError::new(format!(
            "{} leads out of the working folder, or through a link to nothing; give a path inside {}",
            escaped(given),
            self.root.display()
        ))
    }

    /// A path as models see it: from the folder, one line, `.` for the folder itself.
    pub(crate) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".into(),
            Ok(inside) => escaped(&inside.to_string_lossy()),
            Err(_) => escaped(&path.to_string_lossy()),
        }
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, place: &Place) -> Result<File, ToolError> {
        match place.kind {
            Kind::File => {}
            Kind::Folder => return Err(ToolError::new(format!("{} is a folder; use list_dir", place.shown))),
            Kind::Missing => return Err(ToolError::new(format!("{} does not exist", place.shown))),
            Kind::Link | Kind::Special => {
                return Err(ToolError::new(format!("{} is not a regular file", place.shown)));
            }
        }
        let opened = self.parent(place, Parents::MustExist).and_then(|(parent, name)| {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            fcntl::openat(&parent, name, flags, Mode::empty())
        });
        opened.map(File::from).map_err(|errno| fault("open", &place.shown, &errno.into()))
    }

    /// Puts a whole file at the place, at once: readers see the old one or the new one. Returns whether there was an
    /// old one; its permissions are kept.
    pub(crate) fn write(&self, place: &Place, content: &[u8]) -> Result<bool, ToolError> {
        match place.kind {
            Kind::File | Kind::Missing => {}
            Kind::Folder => return Err(ToolError::new(format!("{} is a folder, not a file", place.shown))),
            Kind::Link | Kind::Special => {
                return Err(ToolError::new(format!("{} is not a regular file", place.shown)));
            }
        }
        let failed = |errno: Errno| fault("write", &place.shown, &errno.into());
        let (parent, name) = self.parent(place, Parents::Create).map_err(failed)?;
        let old = match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(old) => Some(replaceable(old, &place.shown)?),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let (temporary, file) = create_beside(&parent).map_err(failed)?;
        let written = fill(file, content, old.as_ref())
            .and_then(|()| Ok(fcntl::renameat(&parent, temporary.as_str(), &parent, name)?));
        if let Err(cause) = written {
            // A leftover harms nobody, and the cause is what the model has to know.
            let _ = unlinkat(&parent, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
            return Err(fault("write", &place.shown, &cause));
        }
        Ok(old.is_some())
    }

    /// The open folder that holds the place, and the last part of its path.
    fn parent<'a>(&self, place: &'a Place, parents: Parents) -> nix::Result<(OwnedFd, &'a OsStr)> {
        let name = place.inside.file_name().ok_or(Errno::EISDIR)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut at = fcntl::open(&self.root, flags, Mode::empty())?;
        for part in place.inside.parent().into_iter().flat_map(Path::components) {
            let part = part.as_os_str();
            at = match (fcntl::openat(&at, part, flags, Mode::empty()), parents) {
                (Err(Errno::ENOENT), Parents::Create) => {
                    match mkdirat(&at, part, Mode::from_bits_truncate(0o777)) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    fcntl::openat(&at, part, flags, Mode::empty())?
                }
                (opened, _) => opened?,
            };
        }
        Ok((at, name))
    }
}

/// What to do about folders on the way that do not exist.
#[derive(Clone, Copy)]
enum Parents {
    MustExist,
    Create,
}

/// Opens a file that a walk came by, if it still is one.
pub(crate) fn open_found(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(File::from(fcntl::open(path, flags, Mode::empty())?))
}

/// What could not be done, to what, and why.
pub(crate) fn fault(doing: &str, shown: &str, cause: &io::Error) -> ToolError {
    let shown = escaped(shown);
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => ToolError::new(format!("cannot {doing} {shown}: it became a link meanwhile; try again")),
        Some(Errno::ENOTDIR) => ToolError::new(format!("cannot {doing} {shown}: a part of the path is not a folder")),
        Some(Errno::EISDIR) => ToolError::new(format!("cannot {doing} {shown}: it is a folder")),
        Some(Errno::EACCES | Errno::EPERM) => ToolError::new(format!("cannot {doing} {shown}: permission denied")),
        _ => ToolError::new(format!("cannot {doing} {shown}: {cause}")),
    }
}

/// A text on one line: names of files may hold line breaks.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, char| {
        if char.is_control() {
            line.extend(char.escape_default())
        } else {
            line.push(char)
        }
        line
    })
}

/// Whether the file that stands there may be replaced.
fn replaceable(old: FileStat, shown: &str) -> Result<FileStat, ToolError> {
    if SFlag::from_bits_truncate(old.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(ToolError::new(format!("cannot write {shown}: it stopped being a regular file; try again")));
    }
    if old.st_mode & 0o222 == 0 {
        return Err(ToolError::new(format!(
            "cannot write {shown}: it is read-only; make it writable first if it should be"
        )));
    }
    Ok(old)
}

/// A new file in the same folder, under a name that nobody has.
fn create_beside(parent: &OwnedFd) -> nix::Result<(String, OwnedFd)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".impresario-{}-{number}.tmp", std::process::id());
        match fcntl::openat(parent, name.as_str(), flags, Mode::from_bits_truncate(0o666)) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn fill(file: OwnedFd, content: &[u8], old: Option<&FileStat>) -> io::Result<()> {
    let mut file = File::from(file);
    file.write_all(content)?;
    if let Some(old) = old {
        fchmod(&file, Mode::from_bits_truncate(old.st_mode & 0o7777))?;
    }
    Ok(())
}
