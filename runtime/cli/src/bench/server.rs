//! The model of a scenario over loopback HTTP, in this process.

use std::sync::Arc;

use impresario::seams::Model;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::backend;
use crate::failed::Failed;

/// A server that ends when this is dropped.
pub(crate) struct Server {
    pub(crate) base_url: String,
    _end: oneshot::Sender<()>,
}

impl Server {
    pub(crate) async fn start(model: impl Model) -> Result<Self, Failed> {
        let failed = |error: std::io::Error| Failed::io("listen on 127.0.0.1", &error);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let base_url = format!("http://{}/v1", listener.local_addr().map_err(failed)?);
        let (end, ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let ended = async move {
                // It comes to an end in one way only.
                let _ = ended.await;
            };
            if let Err(error) = backend::serve(listener, Arc::new(model), None, ended).await {
                tracing::warn!(%error, "the model is not served any more");
            }
        });
        Ok(Self { base_url, _end: end })
    }
}
