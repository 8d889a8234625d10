//! What a commit will change: everything is looked at before anything is written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::{AgentId, Event, Millis, Seq, wire};
use impresario_seams::{Batch, Head, NewSession, SessionInfo, StoreError};

use super::Encoding;
use super::catalog::{Catalog, Entry};
use super::diagnosis::DiagnosticKind;
use super::frame;
use super::line::Place;
use super::name::{project_folder, session_folder};
use super::read;
use super::scan::Scan;
use super::sidecar::Sidecar;

/// How many records apart the places in one commit are that a reader may begin at.
const MARK_EVERY: usize = 256;

/// What happens to one session.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) id: AgentId,
    pub(super) folder: PathBuf,
    /// What there was.
    pub(super) before: Option<Arc<Entry>>,
    pub(super) scan: Option<Arc<Scan>>,
    /// Where the bytes go. What is there already is a fragment.
    pub(super) offset: u64,
    /// What is added to the log.
    pub(super) bytes: Vec<u8>,
    /// How many lines the log has then.
    lines: u64,
    /// Places in these that reading may begin at.
    marks: Vec<(Seq, Place)>,
    pub(super) info: SessionInfo,
    pub(super) sidecar: Sidecar,
}

/// A session while the batches of a commit are looked at.
struct Draft {
    before: Option<(Arc<Entry>, Arc<Scan>)>,
    info: SessionInfo,
    /// Where its own events begin.
    fork: Seq,
    /// The new events.
    lines: Vec<(Seq, String)>,
}

/// Looks at a commit.
pub(super) fn plan(catalog: &Catalog, batches: &[Batch]) -> Result<Vec<Change>, StoreError> {
    let mut drafts: BTreeMap<AgentId, Draft> = BTreeMap::new();
    for batch in batches {
        let draft = match drafts.remove(&batch.session) {
            Some(draft) => draft,
            None => begin(catalog, &drafts, batch)?,
        };
        check_beginning(&draft, batch)?;
        let draft = extend(catalog, draft, batch)?;
        drafts.insert(batch.session.clone(), draft);
    }
    let changes = drafts.into_values().map(|draft| change(catalog, draft));
    changes.filter_map(Result::transpose).collect()
}

fn damaged(session: &AgentId, what: impl Into<String>) -> StoreError {
    StoreError::Damaged { session: session.clone(), what: what.into() }
}

fn begin(catalog: &Catalog, drafts: &BTreeMap<AgentId, Draft>, batch: &Batch) -> Result<Draft, StoreError> {
    let id = &batch.session;
    if let Some(entry) = catalog.entry(id)? {
        if entry.is_deleted {
            return Err(damaged(id, "it was deleted"));
        }
        let (entry, scan) = catalog.scanned(&entry)?;
        if let Some(refusal) = scan.refusal(&catalog.log_in(&entry.folder)) {
            return Err(damaged(id, format!("{refusal}; nothing is appended behind damage")));
        }
        let fork = entry.info.new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
        // A fragment at the end is no event, whatever the sidecar said.
        let info = SessionInfo { len: scan.next.max(fork), ..entry.info.clone() };
        return Ok(Draft { before: Some((entry, scan)), info, fork, lines: vec![] });
    }
    let new = batch.create.as_ref().ok_or_else(|| damaged(id, "there is no such session"))?;
    if new.header.id != *id {
        return Err(damaged(id, format!("its header is that of {}", new.header.id)));
    }
    new.header.check().map_err(|error| damaged(id, error.to_string()))?;
    if let Some(fork) = &new.fork {
        let is_there = drafts.contains_key(&fork.session) || catalog.visible(&fork.session)?.is_some();
        if !is_there {
            return Err(damaged(id, format!("it is a fork of {}, which is not there", fork.session)));
        }
    }
    let fork = new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
    let (new, head) = (NewSession::clone(new), Head::default());
    let info = SessionInfo { updated_at: new.header.created_at, new, head, len: fork };
    Ok(Draft { before: None, info, fork, lines: vec![] })
}

fn check_beginning(draft: &Draft, batch: &Batch) -> Result<(), StoreError> {
    let (Some(new), known) = (&batch.create, &draft.info.new) else { return Ok(()) };
    if new.header != known.header || new.fork != known.fork {
        return Err(damaged(&batch.session, "it exists already and began in another way"));
    }
    Ok(())
}

fn extend(catalog: &Catalog, mut draft: Draft, batch: &Batch) -> Result<Draft, StoreError> {
    let stored = draft.info.len;
    let mut again = Stored::of(catalog, &draft, batch.events.iter().filter(|event| event.seq < stored))?;
    for event in &batch.events {
        let line = encode(&batch.session, event)?;
        let (at, len) = (event.seq, draft.info.len);
        if at < stored && again.is_same(at, &line) {
            continue;
        }
        if at != len {
            return Err(StoreError::Diverged { session: batch.session.clone(), at, stored: len });
        }
        draft.info.len = event.next_seq();
        draft.info.updated_at = event.time;
        draft.lines.push((at, line));
    }
    draft.info.head = batch.head.clone();
    Ok(draft)
}

fn encode(session: &AgentId, event: &Event) -> Result<String, StoreError> {
    let line = wire::encode_row(event);
    line.map_err(|error| damaged(session, format!("event {} cannot be written: {error}", event.seq)))
}

/// The lines of a session that a batch brings again.
struct Stored(BTreeMap<Seq, String>);

impl Stored {
    fn of<'a>(
        catalog: &Catalog,
        draft: &Draft,
        events: impl Iterator<Item = &'a Arc<Event>>,
    ) -> Result<Self, StoreError> {
        let mut lines = BTreeMap::new();
        let mut range: Option<(Seq, Seq)> = None;
        for event in events {
            let (from, until) = range.unwrap_or((event.seq, event.next_seq()));
            range = Some((from.min(event.seq), until.max(event.next_seq())));
        }
        let Some((from, until)) = range else { return Ok(Self(lines)) };
        lines.extend(draft.lines.iter().filter(|(at, _)| (from..until).contains(at)).cloned());
        if let Some((entry, _)) = &draft.before {
            let own = from.max(draft.fork);
            for event in read::own_events(catalog, entry, own, until)? {
                lines.insert(event.seq, encode(entry.info.id(), &event)?);
            }
        }
        Ok(Self(lines))
    }

    fn is_same(&mut self, at: Seq, line: &str) -> bool {
        self.0.get(&at).is_some_and(|stored| stored == line)
    }
}

/// The bytes of a draft; `None` if nothing changes.
fn change(catalog: &Catalog, draft: Draft) -> Result<Option<Change>, StoreError> {
    let Draft { before, info, lines, .. } = draft;
    let id = info.id().clone();
    let mut text = String::new();
    let (folder, offset) = match &before {
        Some((entry, scan)) => {
            if lines.is_empty() && entry.info.head == info.head && scan.end == entry.bytes {
                return Ok(None);
            }
            if scan.lacks_newline && !lines.is_empty() {
                text.push('\n');
            }
            (entry.folder.clone(), scan.end)
        }
        None => {
            let header = wire::encode_header(&info.new.header);
            text.push_str(&header.map_err(|error| damaged(&id, format!("its header cannot be written: {error}")))?);
            text.push('\n');
            let project = catalog.root.join(project_folder(info.new.header.cwd.as_deref()));
            (project.join(session_folder(id.as_str())), 0)
        }
    };
    let mut count = before.as_ref().map_or(1, |(_, scan)| scan.lines);
    let mut marks = vec![];
    for (at, (seq, line)) in lines.iter().enumerate() {
        let is_marked = match catalog.encoding {
            Encoding::Raw => at % MARK_EVERY == 0,
            // With a frame, if its first line is an event.
            Encoding::Zstd => text.is_empty(),
        };
        if is_marked {
            let within = if catalog.encoding == Encoding::Raw { text.len() as u64 } else { 0 };
            marks.push((*seq, Place { offset: offset + within, lines: count }));
        }
        count += 1;
        text.push_str(line);
        text.push('\n');
    }
    let bytes = match catalog.encoding {
        _ if text.is_empty() => vec![],
        Encoding::Raw => text.into_bytes(),
        Encoding::Zstd => frame::compress(text.as_bytes()),
    };
    let sidecar = Sidecar::new(&info, offset + bytes.len() as u64, None);
    let (before, scan) = before.unzip();
    Ok(Some(Change { id, folder, before, scan, offset, bytes, lines: count, marks, info, sidecar }))
}

impl Change {
    /// Marks a session as deleted.
    pub(super) fn deletion(entry: &Arc<Entry>, now: Millis) -> Self {
        let info = entry.info.clone();
        Self {
            id: info.id().clone(),
            folder: entry.folder.clone(),
            sidecar: Sidecar::new(&info, entry.bytes, Some(now)),
            before: Some(Arc::clone(entry)),
            scan: entry.scan.clone(),
            offset: entry.bytes,
            bytes: vec![],
            lines: 0,
            marks: vec![],
            info,
        }
    }

    /// What there is when it is written.
    pub(super) fn after(self, stamp: super::sidecar::Stamp) -> Entry {
        let bytes = self.offset + self.bytes.len() as u64;
        let scan = self.scan.map(|scan| {
            let mut scan = Scan::clone(&scan);
            if !self.bytes.is_empty() {
                self.marks.into_iter().for_each(|(seq, place)| scan.marks.add(seq, place));
                scan.lacks_newline = false;
                scan.next = self.info.len;
                scan.lines = self.lines;
            }
            scan.diagnostics.retain(|found| found.kind != DiagnosticKind::TornTail);
            scan.end = bytes;
            Arc::new(scan)
        });
        let (info, folder, is_deleted) = (self.info, self.folder, self.sidecar.deleted_at.is_some());
        Entry { info, folder, is_deleted, bytes, stamp, scan }
    }
}
