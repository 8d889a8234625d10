//! Files that hold what people said to models: nobody's but their owner's, and errors that name them.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::path::Path;

use impresario_seams::StoreError;

/// Makes a folder of the store in `store`, and those above it, for their owner only.
pub(crate) fn create_folder(store: &Path, folder: &Path) -> Result<(), StoreError> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| io_error(store, "creating", folder, &error))
}

/// Prompts and answers are nobody else's business.
pub(crate) fn restrict(path: &Path) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(|error| io_error(path, "restricting", path, &error))?;
    }
    Ok(())
}

/// What the system said of a file of the store in `store`.
pub(crate) fn io_error(store: &Path, doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
    let location = store.display().to_string();
    if error.kind() == ErrorKind::StorageFull {
        return StoreError::Full { location };
    }
    StoreError::Io { location, doing: format!("{doing} {}: {error}", path.display()) }
}

/// Makes the names in a folder durable. Where a folder cannot be opened as a file there is nothing to do.
#[cfg(feature = "jsonl")]
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        std::fs::File::open(folder)?.sync_all()
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        Ok(())
    }
}

/// Opens a file for reading and writing, and makes one for its owner only where there is none.
#[cfg(feature = "jsonl")]
pub(crate) fn open_private(path: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Puts `text` in place of the file in `path`: whoever looks finds the old or the new, never a half.
#[cfg(feature = "jsonl")]
pub(crate) fn replace(path: &Path, bytes: &[u8], flush: Flush) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut half = path.as_os_str().to_owned();
    half.push(".half");
    let half = Path::new(&half);
    let mut file = open_private(half)?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    if flush == Flush::Now {
        file.sync_all()?;
    }
    drop(file);
    std::fs::rename(half, path)?;
    match (flush, path.parent()) {
        (Flush::Now, Some(folder)) => sync_folder(folder),
        (Flush::Now | Flush::Later, _) => Ok(()),
    }
}

/// Whether a file is to be on the disk before the call returns.
#[cfg(feature = "jsonl")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flush {
    /// It is.
    Now,
    /// Somebody else sees to it.
    Later,
}
