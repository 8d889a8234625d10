//! `sessions tree`: every agent of a tree, how it came out, what it took.

use impresario::kernel::ledger::Ledger;
use impresario::kernel::{AgentId, Resource, Spent};
use impresario::seams::SessionInfo;
use serde_json::{Value, json};

use super::{Archive, find};
use crate::args::{Common, TreeArgs};
use crate::display::json::usage;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print::{self, Paint, Stream};
use crate::{figures, home};

/// Prints the tree, or the part of it that is below the session which was named.
pub(super) async fn tree(common: &Common, archive: &Archive, args: &TreeArgs) -> Result<Exit, Failed> {
    let top = find::session(&archive.store, &args.id, &home::work_dir(common)?).await?;
    let sessions = archive.tree(&top).await?;
    let mut rows = Vec::new();
    collect(&sessions, &top, 0, &mut rows);
    let ledger = archive.ledger(&top.new.root).await?;
    if common.json {
        let lines: String = rows.iter().map(|(_, session)| format!("{}\n", line(archive, session, &ledger))).collect();
        return print::answer(&lines);
    }
    print::answer(&text(archive, &rows, &ledger, Paint::of(common.color, Stream::Out)))
}

/// `top` and what is below it, each child behind its parent.
fn collect<'a>(all: &'a [SessionInfo], top: &'a SessionInfo, depth: usize, rows: &mut Vec<(usize, &'a SessionInfo)>) {
    rows.push((depth, top));
    // A damaged store may hold a circle; a path grows with each level of a tree.
    let is_child = |other: &&SessionInfo| {
        let path = other.new.path.as_str();
        other.new.header.parent_session.as_ref() == Some(top.id()) && path.len() > top.new.path.as_str().len()
    };
    all.iter().filter(is_child).for_each(|child| collect(all, child, depth + 1, rows));
}

fn text(archive: &Archive, rows: &[(usize, &SessionInfo)], ledger: &Ledger, paint: Paint) -> String {
    let name = |(depth, session): &(usize, &SessionInfo)| {
        format!("{}{}", "  ".repeat(*depth), print::one_line(session.new.path.segment(), 60))
    };
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let states = rows.iter().map(|(_, session)| archive.state(session).len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut total = Spent::default();
    for row in rows {
        let session = row.1;
        total.add(&session.head.spent);
        let state = archive.state(session);
        let pad = " ".repeat(states - state.len());
        let name = name(row);
        let gap = " ".repeat(width - name.chars().count());
        let (took, tokens) = (figures::span(took(session)), figures::tokens(&session.head.spent));
        let id = paint.dim(session.id().as_str());
        text.push_str(&format!("{name}{gap}  {}{pad}  {took:>11}  {tokens:>14}  {id}\n", paint.word(state)));
    }
    let (agents, tokens) = (figures::plural(rows.len(), "agent"), figures::tokens(&total));
    let budgets = rows.first().map(|(_, top)| budgets(ledger, top.id())).unwrap_or_default();
    text.push_str(&format!("{}\n", paint.dim(&format!("{agents}, {tokens}{budgets}"))));
    text
}

/// What is spent of what the agent and all below it may spend.
fn budgets(ledger: &Ledger, agent: &AgentId) -> String {
    let spent = ledger.spent(agent);
    let limits =
        Resource::ALL.into_iter().filter_map(|resource| Some((resource, ledger.budget(agent)?.limit(resource)?)));
    let told = limits.map(|(resource, max)| {
        let (spent, max) = (resource.show(spent.of(resource)), resource.show(max));
        format!("; {spent} of a budget of {max} spent")
    });
    told.collect()
}

/// From its birth to the last that is known of it.
fn took(session: &SessionInfo) -> u64 {
    session.updated_at.0.saturating_sub(session.new.header.created_at.0)
}

fn line(archive: &Archive, session: &SessionInfo, ledger: &Ledger) -> Value {
    json!({
        "id": session.id().as_str(),
        "path": session.new.path.as_str(),
        "parent": session.new.header.parent_session.as_ref().map(|parent| parent.as_str()),
        "label": session.new.label,
        "state": archive.state(session),
        "outcome": session.head.outcome.map(|outcome| outcome.as_str()),
        "turns": session.head.turns,
        "duration_ms": took(session),
        "usage": usage(&session.head.spent, None),
        "budget": ledger.budget(session.id()).map(|budget| json!({"limit": budget, "spent": ledger.spent(session.id())})),
    })
}
