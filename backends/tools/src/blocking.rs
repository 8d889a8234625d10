//! File work off the async threads.

use impresario_seams::ToolError;
use tokio_util::sync::CancellationToken;

/// Runs file work on a thread where it may block. The token that it gets trips when the call is cancelled, and also
/// when nobody waits for the answer any more; the work looks at it between files.
pub(crate) async fn blocking<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    if cancel.is_cancelled() {
        return Err(ToolError::aborted());
    }
    let stop = cancel.child_token();
    let _stopped_when_dropped = stop.clone().drop_guard();
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(answer) => answer,
        Err(ended) => Err(ToolError::new(format!("the tool stopped before it had an answer: {ended}"))),
    }
}

/// Whether to go on: asked between files, and between pieces of large ones.
pub(crate) fn go_on(stop: &CancellationToken) -> Result<(), ToolError> {
    if stop.is_cancelled() { Err(ToolError::aborted()) } else { Ok(()) }
}
