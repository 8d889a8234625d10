//! Stores for Impresario: memory, sqlite as the embedded default, and jsonl in the layout of dsh.

mod artifact;
#[cfg(any(feature = "sqlite", feature = "jsonl"))]
mod file;
#[cfg(feature = "jsonl")]
pub mod jsonl;
#[cfg(any(feature = "sqlite", feature = "jsonl"))]
mod lock;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlite", feature = "jsonl"))]
mod writer;

#[cfg(feature = "jsonl")]
pub use jsonl::JsonlStore;
pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;

use std::sync::Arc;

use impresario_kernel::chunk::ChunkRun;
use impresario_kernel::event::{Event, Fact};
use impresario_kernel::log::cut_before;
use impresario_kernel::{Millis, Seq};
use impresario_seams::{SessionFilter, SessionInfo};

/// The part of a record in `from..until`; `None` if it has none. Only a run of chunks can be cut.
fn within(event: Arc<Event>, from: Seq, until: Seq) -> Option<Arc<Event>> {
    if event.next_seq() <= from || event.seq >= until {
        return None;
    }
    let event = if event.next_seq() > until { Arc::new(cut_before(&event, until)) } else { event };
    Some(if event.seq < from { Arc::new(cut_behind(&event, from)) } else { event })
}

/// The part of a run at and behind `from`.
fn cut_behind(event: &Event, from: Seq) -> Event {
    let Fact::Chunks(run) = &event.fact else { return event.clone() };
    let skip = usize::try_from(from.0 - event.seq.0).unwrap_or(usize::MAX).min(run.deltas.len());
    let passed: i64 = run.gaps.iter().take(skip).sum();
    let (deltas, gaps) = (run.deltas[skip..].to_vec(), run.gaps.iter().skip(skip).copied().collect());
    let rest = ChunkRun { deltas, gaps, ..run.clone() };
    Event {
        seq: from,
        time: Millis(event.time.0.saturating_add_signed(passed)),
        fact: Fact::Chunks(rest),
        ..event.clone()
    }
}

/// Whether a session is one that the filter asks for.
fn matches(filter: &SessionFilter, info: &SessionInfo) -> bool {
    let (header, id) = (&info.new.header, info.id());
    !id.is_tree_log()
        && (!filter.roots_only || header.parent_session.is_none())
        && filter.root.as_ref().is_none_or(|root| info.new.root == *root)
        && filter.parent.as_ref().is_none_or(|parent| header.parent_session.as_ref() == Some(parent))
        && filter.id_prefix.as_ref().is_none_or(|prefix| id.as_str().starts_with(prefix.as_str()))
        && filter.dir.as_ref().is_none_or(|dir| header.cwd.as_ref() == Some(dir))
}
