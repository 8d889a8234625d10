//! Where things are kept.

use std::fs::{self, DirBuilder, File};
use std::path::{Path, PathBuf};

use crate::args::Common;
use crate::failed::Failed;

/// The folder of the store.
#[derive(Clone, Debug)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// The one that the flags, the environment or the platform name.
    pub(crate) fn of(common: &Common) -> Result<Self, Failed> {
        let chosen = common.home.clone().filter(|dir| !dir.as_os_str().is_empty());
        let dir =
            chosen.or_else(|| directories::ProjectDirs::from("", "", "impresario").map(|dirs| dirs.data_dir().into()));
        let dir = dir.ok_or_else(|| Failed::usage("no home folder is known: give --home DIR or IMPRESARIO_HOME"))?;
        let dir = std::path::absolute(&dir).map_err(|error| Failed::io(format!("home {}", dir.display()), &error))?;
        Ok(Self(dir))
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// The store's file.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store.sqlite")
    }

    /// Makes the folder, readable by its owner only.
    pub(crate) fn create(&self) -> Result<(), Failed> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder.create(&self.0).map_err(|error| {
            Failed::usage(format!("cannot make the home folder {}: {error}; give another --home", self.0.display()))
        })
    }

    /// Whether a file can be made in it, or it could be made itself; the system's answer if not.
    pub(crate) fn probe(&self) -> Result<(), std::io::Error> {
        let existing = self.0.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        let probe = existing.join(format!(".impresario-{}", std::process::id()));
        File::create_new(&probe)?;
        fs::remove_file(&probe)
    }
}

/// The folder to work in: absolute, symlinks resolved.
pub(crate) fn work_dir(common: &Common) -> Result<PathBuf, Failed> {
    let dir = common.dir.as_deref().unwrap_or(Path::new("."));
    let resolved =
        dir.canonicalize().map_err(|error| Failed::usage(format!("cannot work in {}: {error}", dir.display())))?;
    if !resolved.is_dir() {
        return Err(Failed::usage(format!("cannot work in {}: it is not a folder", dir.display())));
    }
    Ok(resolved)
}

/// `dir` as people write it: `~` for their home.
pub(crate) fn short(dir: &Path) -> String {
    let base = directories::BaseDirs::new();
    match base.as_ref().and_then(|base| dir.strip_prefix(base.home_dir()).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".into(),
        Some(rest) => format!("~/{}", rest.display()),
        None => dir.display().to_string(),
    }
}

/// `path` so that a shell reads it as one word.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_space_is_one_word_for_the_shell() {
        assert_eq!(quoted(Path::new("/a/b-c")), "/a/b-c");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
