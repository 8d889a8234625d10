//! The one thread of a store that writes, and how it is asked. It ends when nobody can ask it any more.

use std::io;
use std::sync::mpsc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use impresario_kernel::AgentId;
use impresario_seams::{Checkpoint, Commit, Lease, StoreError};
use tokio::sync::oneshot;

/// What a store does on that thread.
pub(crate) trait Writes: Send + 'static {
    fn commit(&mut self, commit: &Commit) -> Result<(), StoreError>;
    fn delete(&mut self, lease: Option<Lease>, doomed: &[AgentId]) -> Result<(), StoreError>;
    fn artifact(&mut self, owner: &AgentId, bytes: &[u8]) -> Result<String, StoreError>;
    fn lease(&mut self) -> Result<Lease, StoreError>;

    /// A store that keeps none is as good.
    fn checkpoint(&mut self, _: Option<Lease>, _: &AgentId, _: &Checkpoint) -> Result<(), StoreError> {
        Ok(())
    }

    /// Nobody can ask any more.
    fn end(&mut self) {}
}

/// What the thread is asked.
pub(crate) enum Request {
    Commit(Commit, oneshot::Sender<Result<(), StoreError>>),
    Delete(Option<Lease>, Vec<AgentId>, oneshot::Sender<Result<(), StoreError>>),
    Artifact(AgentId, Vec<u8>, oneshot::Sender<Result<String, StoreError>>),
    Lease(oneshot::Sender<Result<Lease, StoreError>>),
    /// Stores in files keep none.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    Checkpoint(Option<Lease>, AgentId, Checkpoint, oneshot::Sender<Result<(), StoreError>>),
}

/// Asks the thread; a store that is only read has none.
pub(crate) struct WriterHandle {
    location: String,
    requests: Option<mpsc::Sender<Request>>,
}

impl WriterHandle {
    /// Starts the thread of the store at `location`.
    pub(crate) fn start(location: String, mut store: impl Writes) -> io::Result<Self> {
        let (sender, requests) = mpsc::channel();
        std::thread::Builder::new().name("impresario-store".into()).spawn(move || {
            // Whoever asked may have left; what is done is done.
            for request in requests {
                match request {
                    Request::Commit(commit, reply) => drop(reply.send(store.commit(&commit))),
                    Request::Delete(lease, doomed, reply) => drop(reply.send(store.delete(lease, &doomed))),
                    Request::Artifact(owner, bytes, reply) => drop(reply.send(store.artifact(&owner, &bytes))),
                    Request::Checkpoint(lease, session, checkpoint, reply) => {
                        drop(reply.send(store.checkpoint(lease, &session, &checkpoint)));
                    }
                    Request::Lease(reply) => drop(reply.send(store.lease())),
                }
            }
            store.end();
        })?;
        Ok(Self { location, requests: Some(sender) })
    }

    /// Of a store that is only read.
    pub(crate) fn none(location: String) -> Self {
        Self { location, requests: None }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.requests.is_some()
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let location = self.location.clone();
        let refused = move |doing: &str| StoreError::Io { location: location.clone(), doing: doing.into() };
        let Some(requests) = &self.requests else {
            let error = refused("it was opened for reading only");
            return async move { Err(error) }.boxed();
        };
        let (reply, answer) = oneshot::channel();
        let sent = requests.send(request(reply));
        async move {
            sent.map_err(|_| refused("its writer has ended"))?;
            answer.await.map_err(|_| refused("its writer has ended"))?
        }
        .boxed()
    }
}
