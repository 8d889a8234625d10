//! `sessions verify`: stored logs against every rule.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario::kernel::tree::Tree;
use impresario::kernel::{AgentId, Event, Seq, invariant};
use impresario::seams::{SessionFilter, SessionInfo, StoreError, TurnState};
use serde_json::json;

use super::{Archive, find};
use crate::args::{Common, VerifyArgs};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print::{self, Paint, Stream};
use crate::{figures, home};

/// Says what is wrong with the logs of a tree, or of all; exit 1 if anything is.
pub(super) async fn verify(common: &Common, archive: &Archive, args: &VerifyArgs) -> Result<Exit, Failed> {
    let sessions = chosen(common, archive, args).await?;
    let paint = Paint::of(common.color, Stream::Out);
    let mut wrong = Vec::new();
    let mut open = Vec::new();
    let roots: BTreeSet<&AgentId> = sessions.iter().map(|session| &session.new.root).collect();
    let mut trees = BTreeMap::new();
    for root in roots {
        let (tree, found) = check_tree(archive, root).await?;
        wrong.extend(found);
        trees.extend(tree.map(|tree| (root, tree)));
    }
    for session in &sessions {
        wrong.extend(read(archive, session).await?.1);
        // What a log that cannot be read says of places is not known.
        if trees.get(&session.new.root).is_some_and(|tree| tree.node(session.id()).is_none()) {
            wrong.push(Found::new(session.id(), "it has no place in the log of its tree"));
        }
        if session.head.state == TurnState::Open {
            open.push(session.id());
        }
    }
    let exit = if wrong.is_empty() { Exit::Completed } else { Exit::Failed };
    if common.json {
        let violations: Vec<_> =
            wrong.iter().map(|found| json!({ "session": found.session.as_str(), "what": found.what })).collect();
        let open: Vec<&str> = open.iter().map(|id| id.as_str()).collect();
        let object = json!({ "sessions": sessions.len(), "violations": violations, "open": open });
        print::answer(&format!("{object}\n"))?;
        return Ok(exit);
    }
    let mut text = String::new();
    for found in &wrong {
        text.push_str(&format!("{}: {}\n", found.session, print::one_line(&found.what, 400)));
    }
    for id in open {
        let why =
            if archive.is_live { "a turn is running" } else { "a crash left its turn open; the next resume closes it" };
        text.push_str(&format!("{id}: {why}\n"));
    }
    let (count, among) = (figures::plural(wrong.len(), "violation"), figures::plural(sessions.len(), "session"));
    text.push_str(&paint.bold(&format!("{count} in {among}")));
    text.push('\n');
    print::answer(&text)?;
    Ok(exit)
}

/// A rule that a log breaks, or a log that cannot be read.
struct Found {
    session: AgentId,
    what: String,
}

impl Found {
    fn new(session: &AgentId, what: impl Into<String>) -> Self {
        Self { session: session.clone(), what: what.into() }
    }
}

async fn chosen(common: &Common, archive: &Archive, args: &VerifyArgs) -> Result<Vec<SessionInfo>, Failed> {
    if args.all {
        return Ok(archive.store.list(SessionFilter::default()).await?);
    }
    let id = args.id.as_deref().unwrap_or("@last");
    let top = find::session(&archive.store, id, &home::work_dir(common)?).await?;
    archive.tree(&top).await
}

/// A tree as its log says, if that can be read, and what is wrong with the log; the root, and whoever was published, must
/// be there.
async fn check_tree(archive: &Archive, root: &AgentId) -> Result<(Option<Tree>, Vec<Found>), Failed> {
    let log = root.tree_log();
    let mut tree = Tree::new(root.clone());
    let mut found = Vec::new();
    if let Some(info) = archive.store.info(log.clone()).await? {
        let (events, wrong) = read(archive, &info).await?;
        found.extend(wrong);
        let Some(events) = events else { return Ok((None, found)) };
        events.iter().for_each(|event| tree.apply(&event.fact, event.time));
    }
    for id in tree.subtree(root) {
        if archive.store.info(id.clone()).await?.is_none() {
            found.push(Found::new(&id, "it is in the log of its tree, but its own log is not there"));
        }
    }
    Ok((Some(tree), found))
}

/// The events of a log, if it can be read, and what is wrong with it.
async fn read(archive: &Archive, session: &SessionInfo) -> Result<(Option<Vec<Arc<Event>>>, Vec<Found>), Failed> {
    let id = session.id();
    let read: Result<Vec<Arc<Event>>, StoreError> = archive.store.read(id.clone(), Seq(0)).try_collect().await;
    match read {
        Ok(events) => {
            let violations = invariant::check_log(&session.new.header, &events);
            let mut found: Vec<Found> = violations.iter().map(|found| Found::new(id, found.to_string())).collect();
            let end = events.last().map_or(Seq(0), |last| last.next_seq());
            // A log that is being written may be longer by now.
            if end < session.len {
                found.push(Found::new(
                    id,
                    format!("its last events are missing: {} were written, {end} are there", session.len),
                ));
            }
            Ok((Some(events), found))
        }
        Err(error @ StoreError::Damaged { .. }) => Ok((None, vec![Found::new(id, error.to_string())])),
        Err(error) => Err(error.into()),
    }
}
