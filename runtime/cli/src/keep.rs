//! What is done to the store as a whole: sessions taken out, a copy, room given back.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use impresario::kernel::AgentId;
use impresario::seams::{SessionFilter, SessionInfo, Store};
use impresario::stores::SqliteStore;
use impresario::{Error, Runtime};

use crate::args::{BackupArgs, Common, GcArgs, RemoveArgs};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::home::{self, Home};
use crate::print::{self, Stream};
use crate::sessions::find;
use crate::{approver, backend, figures};

/// `impresario sessions rm`
pub(crate) async fn remove(common: &Common, args: &RemoveArgs) -> Result<Exit, Failed> {
    let (home, folder) = (Home::of(common)?, home::work_dir(common)?);
    let store = backend::store(&home)?;
    let mut roots = Vec::with_capacity(args.ids.len());
    for id in &args.ids {
        roots.push(find::session(&store, id, &folder).await?);
    }
    if !args.yes && !may_delete(roots.len())? {
        return Ok(Exit::Refused);
    }
    delete(common, store, &roots).await
}

/// Asks whoever is there.
fn may_delete(roots: usize) -> Result<bool, Failed> {
    let question = format!("delete {} and all below?", figures::plural(roots, "root"));
    if !Stream::In.is_terminal() || !Stream::Err.is_terminal() {
        return Err(Failed::usage(format!("{question} say -y: there is nobody to ask")));
    }
    Ok(approver::yes(&question))
}

/// Deletes the trees of these roots, and says each.
async fn delete(common: &Common, store: Arc<dyn Store>, roots: &[SessionInfo]) -> Result<Exit, Failed> {
    let runtime: Runtime = backend::builder(common, store).build().await?;
    let mut removed = Ok(());
    for root in roots {
        removed = runtime.delete(root.id()).await;
        if removed.is_err() {
            break;
        }
        if !common.quiet {
            print::say(&format!("deleted {} {}", root.id(), print::one_line(&root.head.title, 60)));
        }
    }
    runtime.shutdown().await?;
    match removed {
        Err(error @ Error::Refused(_)) => Err(Failed::usage(error.to_string())),
        other => other.map(|()| Exit::Completed).map_err(Failed::from),
    }
}

/// `impresario backup`
pub(crate) fn backup(common: &Common, args: &BackupArgs) -> Result<Exit, Failed> {
    let home = Home::of(common)?;
    let copy: PathBuf = home::work_dir(common)?.join(&args.file);
    SqliteStore::open_read_only(home.store())?.backup(&copy)?;
    if !common.quiet {
        let size = std::fs::metadata(&copy).map_or(0, |file| file.len());
        print::say(&format!("{} in {}", figures::bytes(size), home::quoted(&copy)));
    }
    Ok(Exit::Completed)
}

/// The roots in whose trees nothing has happened for `age`.
async fn untouched(store: &dyn Store, age: Duration) -> Result<Vec<SessionInfo>, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = u64::try_from(now.saturating_sub(age).as_millis()).unwrap_or(u64::MAX);
    let all = store.list(SessionFilter::default()).await?;
    let touched: BTreeSet<&AgentId> =
        all.iter().filter(|info| info.updated_at.0 > before).map(|info| &info.new.root).collect();
    let is_old = |info: &&SessionInfo| *info.id() == info.new.root && !touched.contains(info.id());
    Ok(all.iter().filter(is_old).cloned().collect())
}

/// `impresario gc`
pub(crate) async fn gc(common: &Common, args: &GcArgs) -> Result<Exit, Failed> {
    let home = Home::of(common)?;
    if backend::stored(&home)?.is_none() {
        return Ok(Exit::Completed);
    }
    if let Some(age) = args.older_than {
        let store = backend::store(&home)?;
        let roots = untouched(&*store, age).await?;
        if !roots.is_empty() && !args.yes && !may_delete(roots.len())? {
            return Ok(Exit::Refused);
        }
        let deleted = delete(common, store, &roots).await?;
        if deleted != Exit::Completed {
            return Ok(deleted);
        }
    }
    let store = backend::file(&home)?;
    let before = store.size_bytes();
    let (store, compacted) = tokio::task::spawn_blocking(move || {
        let compacted = store.compact();
        (store, compacted)
    })
    .await
    .map_err(|error| Failed::io("write the store anew", &std::io::Error::other(error)))?;
    compacted?;
    if !common.quiet {
        print::say(&format!("{} before, {} now", figures::bytes(before), figures::bytes(store.size_bytes())));
    }
    Ok(Exit::Completed)
}
