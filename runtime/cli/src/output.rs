//! The file that a final text goes to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failed::Failed;

/// Where the final text goes: a file that is there whole or not at all, or a pipe or device that is written to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputFile(PathBuf);

impl OutputFile {
    /// Looks at the place before any work is done for it. `-` is stdout, and no file.
    pub(crate) fn at(path: Option<&Path>) -> Result<Option<Self>, Failed> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else { return Ok(None) };
        let refuse = |why: &str| Err(Failed::usage(format!("cannot write to {}: {why}", path.display())));
        if path.file_name().is_none() || path.is_dir() {
            return refuse("it is a folder; name a file");
        }
        match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            Some(dir) if !dir.is_dir() => refuse(&format!("{} is not a folder", dir.display())),
            _ => Ok(Some(Self(path.to_owned()))),
        }
    }

    /// Writes `text`. A file keeps its mode, and a link goes on pointing to it.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failed> {
        let path = &self.0;
        let written = match fs::metadata(path) {
            Ok(there) if there.is_file() => path.canonicalize().and_then(|real| replace(&real, Some(&there), text)),
            // A link to nowhere makes its target; a pipe or a device takes what it is given.
            Ok(_) => write_into(path, text),
            Err(_) if path.is_symlink() => write_into(path, text),
            Err(_) => replace(path, None, text),
        };
        written.map_err(|error| Failed::io(format!("write {}", path.display()), &error))
    }
}

fn write_into(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

/// Writes a file beside `path` and moves it there; where no file can be made beside it, writes into it.
fn replace(path: &Path, there: Option<&fs::Metadata>, text: &str) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::IsADirectory)?);
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let file = match File::create_new(&beside) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && there.is_some() => {
            return write_into(path, text);
        }
        made => made?,
    };
    let fill = |mut file: File| {
        if let Some(there) = there {
            file.set_permissions(there.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    fill(file).inspect_err(|_| {
        // The file that could not be moved is of no use to anybody.
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn write(path: &Path, text: &str) {
        OutputFile::at(Some(path)).unwrap().unwrap().write(text).unwrap();
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.txt"), dir.path().join("link"));
        write(&file, "one");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "two");
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside them");
    }

    #[test]
    fn a_link_to_nowhere_makes_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.txt"), dir.path().join("link"));
        symlink(&file, &link).unwrap();
        write(&link, "one");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    }

    #[test]
    fn a_pipe_is_written_to_and_stays_a_pipe() {
        use std::os::unix::fs::FileTypeExt as _;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "said");
        assert_eq!(reader.join().unwrap(), "said");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_folder_is_refused_before_any_work_and_a_dash_is_stdout() {
        for folder in [".", "/", "..", "/dev/null/x/y"] {
            assert!(OutputFile::at(Some(Path::new(folder))).is_err(), "{folder}");
        }
        assert_eq!(OutputFile::at(Some(Path::new("-"))).unwrap(), None);
    }
}
