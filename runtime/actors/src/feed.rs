//! What observers see: one shared ring that no slow reader can hold up.

use std::sync::Arc;

use impresario_seams::ObservedEvent;
use tokio::sync::broadcast;

/// How many events a reader may fall behind before it misses some.
const RING: usize = 16 * 1024;

/// Something a subscriber sees.
#[derive(Clone, Debug)]
pub enum Seen {
    /// The next event.
    Event(Arc<ObservedEvent>),
    /// The reader was too slow for so many events; the log has them.
    Missed(u64),
}

/// A view of all that happens in a runtime from here on.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Arc<ObservedEvent>>);

impl Subscription {
    /// The next event; `None` when the runtime is gone and everything was read. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Seen> {
        match self.0.recv().await {
            Ok(event) => Some(Seen::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Seen::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where actors say what happens.
#[derive(Clone, Debug)]
pub(crate) struct Feed(broadcast::Sender<Arc<ObservedEvent>>);

impl Feed {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(RING))
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        Subscription(self.0.subscribe())
    }

    pub(crate) fn say(&self, event: ObservedEvent) {
        // Nobody listening is fine.
        let _ = self.0.send(Arc::new(event));
    }

    /// Whether anybody listens, so that costly views need not be made in vain.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }
}
