//! `sessions export`: a log in its wire form, what it inherited included.

use futures::StreamExt as _;
use impresario::kernel::{Seq, wire};

use super::{Archive, find};
use crate::args::{Common, ExportArgs, ExportFormat};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::{home, print};

/// How much is written at once.
const CHUNK: usize = 64 * 1024;

/// Writes the header, then one event a line.
pub(super) async fn export(common: &Common, archive: &Archive, args: &ExportArgs) -> Result<Exit, Failed> {
    let ExportFormat::Jsonl = args.format;
    let session = find::session(&archive.store, &args.id, &home::work_dir(common)?).await?;
    let mut text = wire::encode_header(&session.new.header).map_err(written)?;
    text.push('\n');
    let mut events = archive.store.read(session.id().clone(), Seq(0));
    while let Some(event) = events.next().await {
        for line in wire::encode_wire(&*event?).map_err(written)? {
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
