//! `sessions show`

use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario::kernel::{Event, Seq};
use impresario::seams::SessionInfo;
use serde_json::{Value, json};

use super::transcript::{Entry, Transcript};
use super::{Archive, find};
use crate::args::{Common, ShowArgs, ToolDetail};
use crate::display::json::usage;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print::{self, Paint, Stream};
use crate::{figures, home};

/// Prints what was said and done in a session.
pub(super) async fn show(common: &Common, archive: &Archive, args: &ShowArgs) -> Result<Exit, Failed> {
    let session = find::session(&archive.store, &args.id, &home::work_dir(common)?).await?;
    let events: Vec<Arc<Event>> = archive.store.read(session.id().clone(), Seq(0)).try_collect().await?;
    let inherited = session.new.header.seed_length.unwrap_or(0);
    let transcript = Transcript::of(&events, inherited);
    if common.json {
        return print::answer(&format!("{}\n", object(archive, &session, &transcript, args)));
    }
    if args.last {
        let last = transcript.last().ok_or_else(|| Failed::usage(format!("{} has not answered yet", session.id())))?;
        let last = if Stream::Out.is_terminal() { print::printable(last) } else { last.to_owned() };
        return print::answer(&format!("{last}\n"));
    }
    print::answer(&text(archive, &session, &transcript, args.tools, Paint::of(common.color, Stream::Out)))
}

fn text(archive: &Archive, session: &SessionInfo, told: &Transcript, tools: ToolDetail, paint: Paint) -> String {
    let header = &session.new.header;
    let mut text = paint.bold(&format!("session {}  {}", session.id(), session.new.path));
    text.push('\n');
    let model = told.model.as_deref().unwrap_or("no model yet");
    let dir = header.cwd.as_deref().unwrap_or("no folder");
    text.push_str(&format!("{model} · {dir} · {}\n", figures::rfc3339(header.created_at)));
    if let Some(inherited) = header.seed_length.filter(|inherited| *inherited > 0) {
        let parent = header.parent_session.as_ref().map_or("its parent", |parent| parent.as_str());
        text.push_str(&format!("… {inherited} events inherited from {parent}\n"));
    }
    text.push_str(&conversation(told, tools, paint));
    if let Some(turn) = told.open {
        text.push_str(&format!("\n-- turn {turn}: {}\n", paint.word(archive.state(session))));
    }
    text
}

/// What was said and done.
pub(super) fn conversation(told: &Transcript, tools: ToolDetail, paint: Paint) -> String {
    told.entries.iter().map(|entry| shown(entry, tools, paint)).collect()
}

/// The same for machines.
pub(super) fn entries(told: &Transcript) -> Value {
    told.entries.iter().map(entry).collect()
}

fn shown(entry: &Entry, tools: ToolDetail, paint: Paint) -> String {
    match (entry, tools) {
        (Entry::Said { by, text }, _) => {
            format!("\n{}\n{}\n", paint.bold(&format!("{}:", print::one_line(by, 40))), print::printable(text))
        }
        (Entry::Answered(text), _) => format!("\n{}\n{}\n", paint.bold("assistant:"), print::printable(text)),
        (Entry::Called { .. } | Entry::Resulted { .. }, ToolDetail::None) => String::new(),
        (Entry::Called { tool, arguments }, ToolDetail::Brief) => {
            format!("  → {} {}\n", print::one_line(tool, 60), paint.dim(&print::one_line(arguments, 100)))
        }
        (Entry::Called { tool, arguments }, ToolDetail::Full) => {
            format!("  → {} {}\n", print::one_line(tool, 60), print::printable(arguments))
        }
        (Entry::Resulted { text, is_error }, ToolDetail::Brief) => {
            let mark = if *is_error { paint.word("failed") + " " } else { String::new() };
            let lines = text.lines().count();
            let more = if lines > 1 { format!(" (+{} lines)", lines - 1) } else { String::new() };
            format!("  ← {mark}{}{}\n", print::first_line(text, 100), paint.dim(&more))
        }
        (Entry::Resulted { text, is_error }, ToolDetail::Full) => {
            let mark = if *is_error { paint.word("failed") + " " } else { String::new() };
            format!("  ← {mark}{}\n", print::printable(text).replace('\n', "\n    "))
        }
        (Entry::Retried(what), _) => format!("  ~ {}\n", print::one_line(what, 200)),
        (Entry::Ended { turn, kind, why }, _) => {
            let why = if why.is_empty() { String::new() } else { format!(": {}", print::one_line(why, 200)) };
            format!("\n-- turn {turn} {}{why}\n", paint.word(kind.as_str()))
        }
    }
}

fn object(archive: &Archive, session: &SessionInfo, told: &Transcript, args: &ShowArgs) -> Value {
    let new = &session.new;
    let mut object = json!({
        "id": session.id().as_str(),
        "root": new.root.as_str(),
        "path": new.path.as_str(),
        "parent": new.header.parent_session.as_ref().map(|parent| parent.as_str()),
        "label": new.label,
        "title": session.head.title,
        "dir": new.header.cwd,
        "model": told.model,
        "state": archive.state(session),
        "outcome": session.head.outcome.map(|outcome| outcome.as_str()),
        "turns": session.head.turns,
        "usage": usage(&session.head.spent, None),
        "created_at": figures::rfc3339(new.header.created_at),
        "updated_at": figures::rfc3339(session.updated_at),
        "text": told.last(),
    });
    if !args.last {
        let shown = |entry: &&Entry| {
            args.tools != ToolDetail::None || !matches!(entry, Entry::Called { .. } | Entry::Resulted { .. })
        };
        object["entries"] = told.entries.iter().filter(shown).map(entry).collect();
    }
    object
}

fn entry(entry: &Entry) -> Value {
    match entry {
        Entry::Said { by, text } => json!({ "type": "said", "by": by, "text": text }),
        Entry::Answered(text) => json!({ "type": "answered", "text": text }),
        Entry::Called { tool, arguments } => json!({ "type": "called", "tool": tool, "arguments": arguments }),
        Entry::Resulted { text, is_error } => json!({ "type": "resulted", "text": text, "is_error": is_error }),
        Entry::Retried(what) => json!({ "type": "retried", "what": what }),
        Entry::Ended { turn, kind, why } => json!({ "type": "ended", "turn": turn, "kind": kind.as_str(), "why": why }),
    }
}
