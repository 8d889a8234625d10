//! Sessions of dsh: found, read one by one, and written as it writes them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario_kernel::{AgentId, Event, Seq, SessionHeader, wire};
use impresario_seams::{Store, StoreError};

use super::diagnosis::{Diagnostic, DiagnosticKind};
use super::follow::{Follow, NoHeader, header, named};
use super::line::{Lines, Place};
use super::name::{project_folder, session_folder};
use super::{Encoding, frame};
use crate::file::{create_folder, io_error, open_private, sync_folder};

/// How much text goes into one frame.
const FRAME_BYTES: usize = 1 << 20;

/// A session file: its header, its events, and what is wrong with it.
pub type DshSession = (SessionHeader, Vec<Arc<Event>>, Vec<Diagnostic>);

/// The session files below a folder, or the one that `path` is, in order: `session.jsonl` and `session.jsonl.zstd`,
/// also with a number before the ending. Links are followed, and nothing is found twice. What cannot be read is left
/// out, and said.
pub fn find_dsh(path: impl AsRef<Path>) -> Vec<PathBuf> {
    let (mut found, mut seen) = (vec![], BTreeSet::new());
    let mut open = vec![path.as_ref().to_owned()];
    while let Some(path) = open.pop() {
        let Ok(real) = path.canonicalize() else {
            tracing::warn!(path = %path.display(), "this cannot be looked at");
            continue;
        };
        if !seen.insert(real.clone()) {
            continue;
        }
        if !real.is_dir() {
            found.extend(is_session_file(&path).then_some(path));
            continue;
        }
        match fs::read_dir(&path) {
            Ok(entries) => {
                let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                inside.sort_unstable_by(|one, other| other.cmp(one));
                open.extend(inside);
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "this folder cannot be read"),
        }
    }
    found.sort();
    found
}

fn is_session_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".zstd").unwrap_or(&name).strip_suffix(".jsonl");
    let number = stem.and_then(|stem| stem.strip_prefix("session"));
    number.is_some_and(|number| {
        number.is_empty() || number.strip_prefix('.').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Reads one session file, as [`inspect_dsh`] does, for whoever wants to go on with it.
///
/// # Errors
/// As [`inspect_dsh`], and [`StoreError::Damaged`] when it has a type of event that this program must know and does not, by
/// its name.
pub fn read_dsh(path: impl AsRef<Path>) -> Result<DshSession, StoreError> {
    let path = path.as_ref();
    let (header, events, diagnostics) = inspect_dsh(path)?;
    match diagnostics.iter().find(|found| found.kind == DiagnosticKind::UnknownType) {
        Some(unknown) => Err(StoreError::Damaged { session: header.id, what: named(path, unknown) }),
        None => Ok((header, events, diagnostics)),
    }
}

/// Reads what can be read of one session file, raw or zstd, and changes nothing. Records without `seq` and `time` have those that follow
/// from the ones before. The events are those that come without a gap; where two programs wrote different ones to the
/// same place the first is taken, and it ends before one of a type that this program must know and does not. The diagnostics
/// say what is wrong with the rest.
///
/// # Errors
/// [`StoreError::Foreign`] for a file that does not begin as a session does, and for an empty one;
/// [`StoreError::Newer`] for one of a later version; [`StoreError::Io`] for everything that the system says.
pub fn inspect_dsh(path: impl AsRef<Path>) -> Result<DshSession, StoreError> {
    let path = path.as_ref();
    let io = |error: io::Error| io_error(path, "reading", path, &error);
    let location = || path.display().to_string();
    let encoding = match path.extension() {
        Some(ending) if ending == "zstd" => Encoding::Zstd,
        Some(_) | None => Encoding::Raw,
    };
    let end = fs::metadata(path).map_err(io)?.len();
    let mut lines = Lines::open(path, encoding, Place::default(), end).map_err(io)?;
    let header = header(&mut lines).map_err(|no| match no {
        NoHeader::Io(error) => io(error),
        NoHeader::Empty => {
            StoreError::Foreign { location: location(), found: "line 1: it ends before its header does".into() }
        }
        NoHeader::Other(what) => StoreError::Foreign { location: location(), found: format!("line 1: {what}") },
        NoHeader::Newer(version) => {
            let found = i64::try_from(version).unwrap_or(i64::MAX);
            StoreError::Newer { location: location(), found, known: 0 }
        }
    })?;
    let mut follow = Follow::new(Seq(0), None, header.created_at);
    let (mut events, mut diagnostics) = (vec![], vec![]);
    while follow.feed(lines.next().map_err(io)?) {
        events.extend(std::iter::from_fn(|| follow.ready()).map(|(_, event)| event));
        diagnostics.extend(follow.take_diagnostics());
    }
    diagnostics.extend(follow.take_diagnostics());
    Ok((header, events, diagnostics))
}

/// Writes a session of any store as a file of dsh below `root`, whole: what a fork shares with another session is in
/// it, and the header says how many events these are. Returns where it is.
///
/// # Errors
/// [`StoreError::Io`] when there is such a file already, which is left as it is; whatever reading the session says.
pub async fn export_dsh(
    store: &dyn Store,
    id: &AgentId,
    root: impl AsRef<Path> + Send,
    encoding: Encoding,
) -> Result<PathBuf, StoreError> {
    let root = root.as_ref();
    let damaged = |what: String| StoreError::Damaged { session: id.clone(), what };
    let info = store.info(id.clone()).await?.ok_or_else(|| damaged("there is no such session".into()))?;
    let mut header = info.new.header;
    if let Some(fork) = &info.new.fork {
        header.seed_length = Some(fork.until.0);
    }
    let project = root.join(project_folder(header.cwd.as_deref()));
    let folder = project.join(session_folder(id.as_str()));
    create_folder(root, &folder)?;
    let path = folder.join(encoding.file_name());
    let half = folder.join(format!("{}.half", encoding.file_name()));
    let io = |error: io::Error| io_error(root, "writing", &path, &error);
    let _ = fs::remove_file(&half);
    let mut file = open_private(&half).map_err(io)?;
    let mut text = wire::encode_header(&header).map_err(|error| damaged(format!("its header: {error}")))?;
    text.push('\n');
    let mut events = store.read(id.clone(), Seq(0));
    while let Some(event) = events.try_next().await? {
        text.push_str(&wire::encode_row(&event).map_err(|error| damaged(format!("event {}: {error}", event.seq)))?);
        text.push('\n');
        if text.len() >= FRAME_BYTES {
            put(&mut file, &text, encoding).map_err(io)?;
            text.clear();
        }
    }
    put(&mut file, &text, encoding).and_then(|()| file.sync_all()).map_err(io)?;
    // A link, and no move: what is there already stays.
    let linked = fs::hard_link(&half, &path);
    let _ = fs::remove_file(&half);
    linked.and_then(|()| sync_folder(&folder)).and_then(|()| sync_folder(&project)).map_err(io)?;
    Ok(path)
}

fn put(file: &mut fs::File, text: &str, encoding: Encoding) -> io::Result<()> {
    match encoding {
        _ if text.is_empty() => Ok(()),
        Encoding::Raw => file.write_all(text.as_bytes()),
        Encoding::Zstd => file.write_all(&frame::compress(text.as_bytes())),
    }
}
