//! Artifacts: a file each, named by its content, and a folder beside it with an empty file for each owner.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use impresario_kernel::AgentId;
use impresario_seams::StoreError;

use super::catalog::Catalog;
use super::name::session_folder;
use crate::artifact::content_name;
use crate::file::{Flush, create_folder, open_private, replace, sync_folder};

fn folder(catalog: &Catalog) -> PathBuf {
    catalog.ours().join("artifacts")
}

/// Keeps `bytes` for `owner`.
pub(super) fn put(catalog: &Catalog, owner: &AgentId, bytes: &[u8]) -> Result<String, StoreError> {
    let name = content_name(bytes);
    let path = folder(catalog).join(&name);
    let owners = folder(catalog).join(format!("{name}.owners"));
    create_folder(&catalog.root, &owners)?;
    let mark = owners.join(session_folder(owner.as_str()));
    let owned = open_private(&mark).and_then(|_| sync_folder(&owners));
    owned.map_err(|error| catalog.io("writing", &mark, &error))?;
    if !path.exists() {
        replace(&path, bytes, Flush::Now).map_err(|error| catalog.io("writing", &path, &error))?;
    }
    Ok(name)
}

/// The bytes of an artifact.
pub(super) fn get(catalog: &Catalog, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !is_name || name.is_empty() {
        return Ok(None);
    }
    let path = folder(catalog).join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(catalog.io("reading", &path, &error)),
    }
}

/// Takes away what only `owner` had.
pub(super) fn free(catalog: &Catalog, owner: &AgentId) -> Result<(), StoreError> {
    let Ok(entries) = fs::read_dir(folder(catalog)) else { return Ok(()) };
    let mark = session_folder(owner.as_str());
    for owners in entries.flatten().map(|entry| entry.path()) {
        let Some(name) = owners.file_name().and_then(|name| name.to_str()?.strip_suffix(".owners")) else { continue };
        if fs::remove_file(owners.join(&mark)).is_err() {
            continue;
        }
        // Fails as long as there is another owner.
        if fs::remove_dir(&owners).is_ok() {
            let path = folder(catalog).join(name);
            fs::remove_file(&path).map_err(|error| catalog.io("deleting", &path, &error))?;
        }
    }
    Ok(())
}
