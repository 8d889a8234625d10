//! Reading a log while it grows. A reader has no queue that could fill up: it is told that there is more, and reads that
//! from the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dashmap::DashMap;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use impresario_kernel::{AgentId, Event, Seq};
use impresario_seams::StoreError;
use tokio::sync::watch;

use crate::error::Error;
use crate::shared::Shared;

/// Who follows which log.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    logs: DashMap<AgentId, watch::Sender<()>>,
    is_closed: AtomicBool,
}

impl Followers {
    /// Tells when the log of `id` grows; closed when it will not any more.
    fn follow(&self, id: &AgentId) -> watch::Receiver<()> {
        let grows = self.logs.entry(id.clone()).or_insert_with(|| watch::channel(()).0).subscribe();
        if self.is_closed.load(Ordering::SeqCst) {
            self.logs.remove(id);
        }
        grows
    }

    /// A log has grown, durably.
    pub(crate) fn grew(&self, id: &AgentId) {
        // One look-up for the many that nobody follows; to ask whether the map is empty would lock all of it.
        self.logs.remove_if(id, |_, grows| grows.send(()).is_err());
    }

    /// No log grows any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.logs.clear();
    }
}

/// A reader of one log.
struct Follower {
    shared: Arc<Shared>,
    id: AgentId,
    next: Seq,
    grows: watch::Receiver<()>,
    /// What is being read of the store.
    page: Option<BoxStream<'static, Result<Arc<Event>, StoreError>>>,
    is_over: bool,
}

/// The durable events of a log from `from` on, those that are there and then those that come. Ends with its runtime.
pub(crate) fn follow(
    shared: &Arc<Shared>,
    id: &AgentId,
    from: Seq,
) -> impl Stream<Item = Result<Arc<Event>, Error>> + Send + Unpin + 'static {
    let (shared, id) = (Arc::clone(shared), id.clone());
    let grows = shared.journal.followers.follow(&id);
    let follower = Follower { shared, id, next: from, grows, page: None, is_over: false };
    stream::unfold(follower, |mut follower| async { Some((follower.next().await?, follower)) }).boxed()
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Arc<Event>, Error>> {
        loop {
            if let Some(page) = &mut self.page {
                match page.next().await {
                    Some(Ok(event)) => {
                        self.next = event.next_seq();
                        return Some(Ok(event));
                    }
                    Some(Err(error)) => {
                        // The next call asks the store again.
                        self.page = None;
                        return Some(Err(error.into()));
                    }
                    None => {
                        self.page = None;
                        if self.is_over {
                            return None;
                        }
                        // What was written before the end is still read.
                        self.is_over = self.grows.changed().await.is_err();
                    }
                }
            }
            self.grows.mark_unchanged();
            self.page = Some(self.shared.store.read(self.id.clone(), self.next));
        }
    }
}
