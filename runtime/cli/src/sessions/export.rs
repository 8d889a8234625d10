//! `sessions export`: a log in its wire form or for people, what it inherited included.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use impresario::kernel::{Event, Seq, wire};
use impresario::seams::SessionInfo;

use super::transcript::{Entry, Transcript};
use super::{Archive, find};
use crate::args::{Common, ExportArgs, ExportFormat};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::{home, print};

/// How much is written at once.
const CHUNK: usize = 64 * 1024;

/// Writes the header, then one event a line.
pub(super) async fn export(common: &Common, archive: &Archive, args: &ExportArgs) -> Result<Exit, Failed> {
    let session = find::session(&archive.store, &args.id, &home::work_dir(common)?).await?;
    let encode: fn(&Event) -> serde_json::Result<Vec<String>> = match args.format {
        ExportFormat::Jsonl => wire::encode_wire,
        ExportFormat::Dsh => |event| wire::encode_row(event).map(|row| vec![row]),
        ExportFormat::Markdown => return page(archive, &session, markdown).await,
        ExportFormat::Html => return page(archive, &session, html).await,
    };
    let mut text = wire::encode_header(&session.new.header).map_err(written)?;
    text.push('\n');
    let mut events = archive.store.read(session.id().clone(), Seq(0));
    while let Some(event) = events.next().await {
        for line in encode(&*event?).map_err(written)? {
            text.push_str(&line);
            text.push('\n');
        }
        if text.len() >= CHUNK && !handed_out(&mut text)? {
            return Ok(Exit::Completed);
        }
    }
    handed_out(&mut text)?;
    Ok(Exit::Completed)
}

/// Writes what was said and done, what was inherited included.
async fn page(
    archive: &Archive,
    session: &SessionInfo,
    form: fn(&SessionInfo, &[Entry]) -> String,
) -> Result<Exit, Failed> {
    let events: Vec<Arc<Event>> = archive.store.read(session.id().clone(), Seq(0)).try_collect().await?;
    print::answer(&form(session, &Transcript::of(&events, 0).entries))
}

fn title(session: &SessionInfo) -> &str {
    if session.head.title.is_empty() { session.id().as_str() } else { &session.head.title }
}

fn markdown(session: &SessionInfo, entries: &[Entry]) -> String {
    let mut text = format!("# {}\n\nSession {}\n", title(session), session.id());
    for entry in entries {
        text.push_str(&match entry {
            Entry::Said { by, text } => format!("\n## {by}\n\n{text}\n"),
            Entry::Answered(said) => format!("\n## assistant\n\n{said}\n"),
            Entry::Called { tool, arguments } => format!("\n`{tool}`\n\n{}\n", fenced(arguments)),
            Entry::Resulted { text, is_error } => {
                let mark = if *is_error { "failed:\n\n" } else { "" };
                format!("\n{mark}{}\n", fenced(text))
            }
            Entry::Retried(what) => format!("\n*{what}*\n"),
            Entry::Ended { turn, kind, why } => format!("\n*turn {turn} {kind} {why}*\n").replace(" *\n", "*\n"),
        });
    }
    text
}

/// In a fence that nothing in the text ends.
fn fenced(text: &str) -> String {
    let longest = text.lines().map(|line| line.chars().take_while(|&c| c == '`').count()).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

const STYLE: &str = "body{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem}\
                     pre{background:#8881;padding:.6rem;overflow:auto;white-space:pre-wrap}.bad{border-left:4px solid #c33}\
                     .by{color:#777;margin:1.5rem 0 .2rem}";

fn html(session: &SessionInfo, entries: &[Entry]) -> String {
    let title = escaped(title(session));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p class=\"by\">session {}</p>\n",
        escaped(session.id().as_str())
    );
    let said = |by: &str, text: &str| format!("<p class=\"by\">{}</p><pre>{}</pre>\n", escaped(by), escaped(text));
    for entry in entries {
        text.push_str(&match entry {
            Entry::Said { by, text } => said(by, text),
            Entry::Answered(text) => said("assistant", text),
            Entry::Called { tool, arguments } => said(&format!("calls {tool}"), arguments),
            Entry::Resulted { text, is_error: false } => format!("<pre>{}</pre>\n", escaped(text)),
            Entry::Resulted { text, is_error: true } => format!("<pre class=\"bad\">{}</pre>\n", escaped(text)),
            Entry::Retried(what) => format!("<p><em>{}</em></p>\n", escaped(what)),
            Entry::Ended { turn, kind, why } => format!("<hr><p><em>turn {turn} {kind} {}</em></p>\n", escaped(why)),
        });
    }
    text.push_str("</body></html>\n");
    text
}

/// As text of a page, whatever it holds.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes what has gathered; `false` when nobody reads any more.
fn handed_out(text: &mut String) -> Result<bool, Failed> {
    let chunk = std::mem::take(text);
    match print::out(&chunk) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failed::io("stdout", &error)),
    }
}

fn written(error: serde_json::Error) -> Failed {
    Failed::io("write an event", &error.into())
}
