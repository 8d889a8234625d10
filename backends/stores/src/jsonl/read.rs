//! Readers: a page of events at a time, out of files that nobody has to lock.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::{SessionFilter, SessionInfo, StoreError};

use super::catalog::{Catalog, Entry};
use super::follow::{Follow, header, named};
use super::line::{Lines, Place};
use crate::{matches, within};

/// How many events a reader takes at once.
const PAGE: usize = 512;

/// Runs `work` on a thread that may block.
pub(super) fn run<T: Send + 'static>(
    location: String,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> BoxFuture<'static, Result<T, StoreError>> {
    let task = tokio::task::spawn_blocking(work);
    async move { task.await.map_err(|error| StoreError::Io { location, doing: format!("reading: {error}") })? }.boxed()
}

pub(super) fn list(catalog: &Catalog, filter: &SessionFilter) -> Result<Vec<SessionInfo>, StoreError> {
    let all = catalog.all()?;
    let key = |info: &SessionInfo| (info.new.header.created_at, info.id().clone());
    let behind = filter.behind.as_ref().and_then(|id| all.iter().find(|entry| entry.info.id() == id));
    let behind = behind.map(|entry| key(&entry.info));
    let asked = |entry: &&Arc<Entry>| {
        let is_behind = behind.as_ref().is_none_or(|behind| key(&entry.info) < *behind);
        !entry.is_deleted && matches(filter, &entry.info) && is_behind
    };
    let mut found: Vec<SessionInfo> = all.iter().filter(asked).map(|entry| entry.info.clone()).collect();
    found.sort_by_key(|info| std::cmp::Reverse(key(info)));
    found.truncate(filter.limit.unwrap_or(usize::MAX));
    Ok(found)
}

/// The events of one session's own log in `from..until`.
pub(super) fn own_events(
    catalog: &Catalog,
    entry: &Arc<Entry>,
    from: Seq,
    until: Seq,
) -> Result<Vec<Arc<Event>>, StoreError> {
    let Some(mut part) = Part::of(catalog, entry, from, until)? else { return Ok(vec![]) };
    let mut events = vec![];
    loop {
        let page = part.page();
        events.extend(page.events);
        match page.error {
            Some(error) => return Err(error),
            None if page.is_last => return Ok(events),
            None => {}
        }
    }
}

/// The events of a session from `from` on, those of its prefix included.
pub(super) fn stream(
    catalog: Arc<Catalog>,
    id: AgentId,
    from: Seq,
) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
    let location = catalog.location();
    let parts = run(location.clone(), move || parts(&catalog, &id, from));
    stream::once(parts)
        .map_ok(move |parts| {
            let location = location.clone();
            stream::iter(parts).flat_map(move |part| pages(location.clone(), part))
        })
        .try_flatten()
        .boxed()
}

/// Which logs hold the events of `id` from `from` on, oldest first.
fn parts(catalog: &Catalog, id: &AgentId, from: Seq) -> Result<Vec<Part>, StoreError> {
    let (mut id, mut until) = (id.clone(), Seq(u64::MAX >> 1));
    let mut parts = vec![];
    let mut is_first = true;
    loop {
        // What was deleted is still there for its forks.
        let entry = if is_first { catalog.visible(&id)? } else { catalog.entry(&id)? };
        is_first = false;
        let missing = || StoreError::Damaged { session: id.clone(), what: "there is no such session".into() };
        let entry = entry.ok_or_else(missing)?;
        let fork = entry.info.new.fork.clone();
        let begins = fork.as_ref().map_or(Seq(0), |fork| fork.until);
        parts.extend(Part::of(catalog, &entry, from.max(begins), until)?);
        match fork {
            Some(fork) if from < fork.until => (id, until) = (fork.session, until.min(fork.until)),
            Some(_) | None => break,
        }
    }
    parts.reverse();
    Ok(parts)
}

fn pages(location: String, part: Part) -> BoxStream<'static, Result<Arc<Event>, StoreError>> {
    stream::try_unfold(Some(part), move |part| {
        let location = location.clone();
        async move {
            let Some(mut part) = part else { return Ok::<_, StoreError>(None) };
            let read = run(location, move || {
                let page = part.page();
                Ok((page, part))
            });
            let (page, part) = read.await?;
            let rest = (!page.is_last && page.error.is_none()).then_some(part);
            let events = page.events.into_iter().map(Ok).chain(page.error.map(Err));
            Ok(Some((stream::iter(events), rest)))
        }
    })
    .try_flatten()
    .boxed()
}

/// A part of a log that is being read: the events of one file in `from..until`.
struct Part {
    session: AgentId,
    path: PathBuf,
    lines: Lines,
    follow: Follow,
    from: Seq,
    until: Seq,
}

struct Page {
    events: Vec<Arc<Event>>,
    error: Option<StoreError>,
    is_last: bool,
}

impl Part {
    /// `None` if the log has no event there.
    fn of(catalog: &Catalog, entry: &Arc<Entry>, from: Seq, until: Seq) -> Result<Option<Self>, StoreError> {
        let begins = entry.info.new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
        if from >= until || from >= entry.info.len {
            return Ok(None);
        }
        let (path, session) = (catalog.log_in(&entry.folder), entry.info.id().clone());
        let io = |error: std::io::Error| catalog.io("reading", &path, &error);
        // Whoever begins late does so again: the places are worth finding.
        let mark = match from > begins {
            true => catalog.scanned(entry)?.1.marks.before(from),
            false => None,
        };
        let place = mark.map_or(Place::default(), |(_, place)| place);
        let mut lines = Lines::open(&path, catalog.encoding, place, entry.bytes).map_err(io)?;
        if mark.is_none() && header(&mut lines).is_err() {
            return Err(StoreError::Damaged { session, what: format!("{}: line 1: no header", path.display()) });
        }
        let time = entry.info.new.header.created_at;
        let follow = match mark {
            Some((seq, _)) => Follow::behind(seq, time),
            None => Follow::new(begins, None, time),
        };
        Ok(Some(Self { session, path, lines, follow, from, until }))
    }

    fn page(&mut self) -> Page {
        let mut page = Page { events: Vec::with_capacity(PAGE), error: None, is_last: false };
        while page.events.len() < PAGE && !page.is_last && page.error.is_none() {
            let next = match self.lines.next() {
                Ok(next) => next,
                Err(error) => {
                    let (location, doing) = (self.path.display().to_string(), format!("reading: {error}"));
                    page.error = Some(StoreError::Io { location, doing });
                    break;
                }
            };
            page.is_last = !self.follow.feed(next);
            while let Some((_, event)) = self.follow.ready() {
                page.events.extend(within(event, self.from, self.until));
            }
            if self.follow.next() >= self.until {
                page.is_last = true;
                break;
            }
            for found in self.follow.take_diagnostics() {
                let what = named(&self.path, &found);
                if found.kind.loses_events() {
                    page.error = Some(StoreError::Damaged { session: self.session.clone(), what });
                    break;
                }
                tracing::warn!(session = %self.session, "{what}");
            }
        }
        page
    }
}
