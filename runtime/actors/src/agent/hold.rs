//! Pieces of an answer on their way to the log: held until some have come together. A row of a store for each word would be
//! many times what is said.

use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::{Event, Fact, wire};
use impresario_seams::Batch;
use tokio_util::task::AbortOnDropHandle;

use super::{AgentMessage, AgentState};

/// How long pieces wait for others. A crash takes no more of an answer that nobody has yet.
const WAIT: Duration = Duration::from_millis(500);

/// After so many bytes of pieces they are written.
const BYTES_MAX: usize = 16 * 1024;

/// What is held.
#[derive(Default)]
pub(super) struct Held {
    events: Vec<Arc<Event>>,
    bytes: usize,
    due: Option<AbortOnDropHandle<()>>,
}

impl AgentState {
    /// Hands events to the journal, and what was held with them; pieces alone may wait when nobody waits for them.
    pub(super) fn submit(&mut self, events: Vec<Arc<Event>>) {
        let bytes = events.iter().map(|event| piece_bytes(event)).sum::<Option<usize>>();
        let (is_hurried, held) = (!self.gates.is_empty() || !self.effects.is_empty(), &mut self.held);
        held.bytes += bytes.unwrap_or(0);
        held.events.extend(events);
        if bytes.is_none() || is_hurried || held.bytes >= BYTES_MAX {
            return self.write_held();
        }
        if self.held.due.is_none() {
            let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
            let due = tokio::spawn(async move {
                tokio::time::sleep(WAIT).await;
                // An agent that is gone holds nothing.
                let _ = shared.router.tell(&id, AgentMessage::HeldLong);
            });
            self.held.due = Some(AbortOnDropHandle::new(due));
        }
    }

    /// Hands what is held to the journal.
    pub(super) fn write_held(&mut self) {
        let Held { events, .. } = std::mem::take(&mut self.held);
        if events.is_empty() {
            return;
        }
        let is_run = |event: &Arc<Event>| matches!(event.fact, Fact::Chunks(_));
        let events = match events.iter().filter(|event| is_run(event)).count() {
            0 | 1 => events,
            _ => wire::pack(events.iter().map(|event| Event::clone(event))).into_iter().map(Arc::new).collect(),
        };
        let batch = Batch { session: self.id.clone(), create: None, events, head: self.head() };
        self.shared.append(batch, self.profile.durability);
    }
}

/// The size of a piece of an answer; `None` for anything else.
fn piece_bytes(event: &Event) -> Option<usize> {
    match &event.fact {
        Fact::Chunks(run) => Some(run.deltas.iter().map(String::len).sum()),
        _ => None,
    }
}
