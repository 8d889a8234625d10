//! `sessions verify`: stored logs against every rule.

use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario::kernel::{AgentId, Event, Seq, SessionHeader, invariant};
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
    for session in &sessions {
        wrong.extend(check(archive, session.id(), &session.new.header).await?);
        if session.new.root == *session.id() {
            let log = session.id().tree_log();
            if let Some(info) = archive.store.info(log.clone()).await? {
                wrong.extend(check(archive, &log, &info.new.header).await?);
            }
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

async fn chosen(common: &Common, archive: &Archive, args: &VerifyArgs) -> Result<Vec<SessionInfo>, Failed> {
    if args.all {
        return Ok(archive.store.list(SessionFilter::default()).await?);
    }
    let id = args.id.as_deref().unwrap_or("@last");
    let top = find::session(&archive.store, id, &home::work_dir(common)?).await?;
    archive.tree(&top).await
}

async fn check(archive: &Archive, id: &AgentId, header: &SessionHeader) -> Result<Vec<Found>, Failed> {
    let read: Result<Vec<Arc<Event>>, StoreError> = archive.store.read(id.clone(), Seq(0)).try_collect().await;
    let found = |what| Found { session: id.clone(), what };
    match read {
        Ok(events) => {
            Ok(invariant::check_log(header, &events).iter().map(|violation| found(violation.to_string())).collect())
        }
        Err(error @ StoreError::Damaged { .. }) => Ok(vec![found(error.to_string())]),
        Err(error) => Err(error.into()),
    }
}
