//! `sessions ls`

use impresario::kernel::Spent;
use impresario::seams::{SessionFilter, SessionInfo};
use serde::Serialize;

use super::{Archive, find};
use crate::args::{Common, ListArgs};
use crate::display::json::usage;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print::{self, Paint, Stream};
use crate::{figures, home};

/// A session as a program reads it.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    root: &'a str,
    path: &'a str,
    parent: Option<&'a str>,
    label: &'a str,
    title: &'a str,
    dir: Option<&'a str>,
    state: &'a str,
    outcome: Option<&'a str>,
    turns: u32,
    children: usize,
    usage: serde_json::Value,
    created_at: String,
    updated_at: String,
}

/// Prints the sessions that match.
pub(super) async fn ls(common: &Common, archive: &Archive, args: &ListArgs) -> Result<Exit, Failed> {
    let sessions = archive.store.list(filter(common, archive, args).await?).await?;
    let mut text = String::new();
    let mut rows = Vec::new();
    for session in &sessions {
        let (children, spent) = below(archive, session).await?;
        if common.json {
            text.push_str(&json(archive, session, title(session), children, &spent)?);
        } else {
            rows.push(row(archive, session, title(session), children, &spent));
        }
    }
    if !common.json {
        text = table(&rows, Paint::of(common.color, Stream::Out));
        if rows.is_empty() && !common.quiet {
            let is_filtered = args.here || args.children.is_some();
            print::say(if is_filtered { "no session matches" } else { "nothing is stored yet; try `impresario demo`" });
        }
    }
    print::answer(&text)
}

async fn filter(common: &Common, archive: &Archive, args: &ListArgs) -> Result<SessionFilter, Failed> {
    let dir = home::work_dir(common)?;
    let parent = match &args.children {
        None => None,
        Some(id) => Some(find::session(&archive.store, id, &dir).await?.id().clone()),
    };
    Ok(SessionFilter {
        roots_only: !args.all && parent.is_none(),
        parent,
        dir: args.here.then(|| dir.display().to_string()),
        limit: (args.limit > 0).then_some(args.limit),
        ..SessionFilter::default()
    })
}

/// How many descendants a session has, and what it and they spent.
async fn below(archive: &Archive, session: &SessionInfo) -> Result<(usize, Spent), Failed> {
    let mut spent = session.head.spent;
    let mut children = 0;
    let path = session.new.path.as_str();
    for other in archive.tree(session).await? {
        let is_below = other.new.path.as_str().strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        if is_below {
            children += 1;
            spent.add(&other.head.spent);
        }
    }
    Ok((children, spent))
}

/// The first words of the first prompt, or what the session is for.
fn title(session: &SessionInfo) -> &str {
    let (title, label) = (&session.head.title, &session.new.label);
    if title.is_empty() { label } else { title }
}

fn json(
    archive: &Archive,
    session: &SessionInfo,
    title: &str,
    children: usize,
    spent: &Spent,
) -> Result<String, Failed> {
    let new = &session.new;
    let listed = Listed {
        id: session.id().as_str(),
        root: new.root.as_str(),
        path: new.path.as_str(),
        parent: new.header.parent_session.as_ref().map(|parent| parent.as_str()),
        label: &new.label,
        title,
        dir: new.header.cwd.as_deref(),
        state: archive.state(session),
        outcome: session.head.outcome.map(|outcome| outcome.as_str()),
        turns: session.head.turns,
        children,
        usage: usage(spent, None),
        created_at: figures::rfc3339(new.header.created_at),
        updated_at: figures::rfc3339(session.updated_at),
    };
    let line = serde_json::to_string(&listed).map_err(|error| Failed::io("write JSON", &error.into()))?;
    Ok(format!("{line}\n"))
}

const HEADS: [&str; 7] = ["ID", "AGE", "STATE", "TURNS", "CHILDREN", "TOKENS", "TITLE"];

fn row(archive: &Archive, session: &SessionInfo, title: &str, children: usize, spent: &Spent) -> [String; 7] {
    [
        session.id().to_string(),
        figures::age(session.updated_at, figures::now()),
        archive.state(session).to_owned(),
        session.head.turns.to_string(),
        children.to_string(),
        figures::tokens(spent).trim_end_matches(" tokens").to_owned(),
        print::one_line(title, 60),
    ]
}

fn table(rows: &[[String; 7]], paint: Paint) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([HEADS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |cells: [&str; 7], is_head: bool| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                let cell = if is_head { paint.dim(cell) } else { paint.word(cell) };
                format!("{cell}{pad}")
            })
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = line(HEADS, true);
    rows.iter().fold(head, |text, row| text + &line(row.each_ref().map(String::as_str), false))
}
