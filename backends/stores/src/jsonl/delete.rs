//! What is deleted is marked so first, in one commit; what no fork shares is then taken off the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use impresario_kernel::AgentId;
use impresario_seams::StoreError;

use super::artifact;
use super::catalog::{Catalog, Entry};
use super::plan::Change;
use super::sidecar;
use super::write::{Writer, now};

/// Takes sessions away with the logs of their trees.
pub(super) fn delete(writer: &mut Writer, doomed: &[AgentId]) -> Result<(), StoreError> {
    let mut changes = BTreeMap::new();
    for id in doomed.iter().flat_map(|id| [id.clone(), id.tree_log()]) {
        if let Some(entry) = writer.catalog.visible(&id)? {
            changes.insert(id, Change::deletion(&entry, now()));
        }
    }
    writer.write(changes.into_values().collect(), false)?;
    // No record may name what is about to go.
    writer.checkpoint()?;
    free(&writer.catalog)
}

/// Takes off the disk what was deleted and no fork shares, and then what only that has shared.
fn free(catalog: &Catalog) -> Result<(), StoreError> {
    let mut all = catalog.all()?;
    loop {
        let shared = |entry: &Arc<Entry>| entry.info.new.fork.as_ref().map(|fork| fork.session.clone());
        let needed: BTreeSet<AgentId> = all.iter().filter_map(shared).collect();
        let is_unused = |entry: &Arc<Entry>| entry.is_deleted && !needed.contains(entry.info.id());
        let (unused, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_unused);
        if unused.is_empty() {
            return Ok(());
        }
        for entry in unused {
            artifact::free(catalog, entry.info.id())?;
            take_away(catalog, &entry.folder).map_err(|error| catalog.io("deleting", &entry.folder, &error))?;
            catalog.forget(entry.info.id());
        }
        all = rest;
    }
}

/// The log first: without it there is no session, whatever else is left.
fn take_away(catalog: &Catalog, folder: &Path) -> io::Result<()> {
    for path in [catalog.log_in(folder), folder.join(sidecar::NAME)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    // What others have put there is theirs, and then the folder stays.
    let _ = fs::remove_dir(folder);
    Ok(())
}
