//! Caches that spare reading long logs from their beginning. Whatever is wrong with one, the log is read instead.

use std::sync::Arc;

use futures::TryStreamExt;
use impresario_kernel::{Agent, AgentId, Seq, Spec};
use impresario_seams::Checkpoint;

use crate::error::Error;
use crate::shared::Shared;

/// A log has to have grown by this part of itself, too: what is written for all checkpoints of a log is then a few times
/// what is in it, however long it becomes.
const GROWN_BY: u64 = 8;

/// Whether an agent whose log has `len` events, and whose last checkpoint has `kept` of them, is written down anew.
pub(crate) fn is_due(shared: &Shared, kept: Seq, len: Seq) -> bool {
    shared.limits.checkpoint_after.is_some_and(|after| len.0 >= kept.0.saturating_add(after.max(len.0 / GROWN_BY)))
}

/// Writes an agent down that has nothing to do. Nobody waits for it but the runtime's end.
pub(crate) fn keep(shared: &Arc<Shared>, id: &AgentId, agent: Agent) {
    let (id, keeper) = (id.clone(), Arc::clone(shared));
    shared.keeping.spawn(async move {
        let until = agent.log().next_seq();
        let kept = match agent.checkpoint() {
            Ok(None) => return,
            Ok(Some(bytes)) => {
                let checkpoint = Checkpoint { until, bytes };
                let put = keeper.store.put_checkpoint(Some(keeper.lease), id.clone(), checkpoint);
                put.await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = kept {
            tracing::debug!(agent = %id, %error, "a checkpoint was not kept");
        }
    });
}

/// One stored agent, from its last checkpoint on if there is one that fits.
pub(crate) async fn read(shared: &Shared, id: &AgentId, spec: Arc<Spec>) -> Result<Agent, Error> {
    if let Some(agent) = restored(shared, id, &spec).await {
        match fold(shared, id, agent).await {
            // The log says something else than the checkpoint.
            Err(Error::Unreadable { why, .. }) => {
                tracing::warn!(agent = %id, why, "a checkpoint does not fit its log, which is read instead");
            }
            read => return read,
        }
    }
    read_whole(shared, id, spec).await
}

/// One stored agent, from the beginning of its log on.
pub(crate) async fn read_whole(shared: &Shared, id: &AgentId, spec: Arc<Spec>) -> Result<Agent, Error> {
    fold(shared, id, Agent::new(spec)).await
}

/// What was kept of an agent, if it can be used.
async fn restored(shared: &Shared, id: &AgentId, spec: &Arc<Spec>) -> Option<Agent> {
    let kept = shared.store.checkpoint(id.clone()).await;
    let kept = kept.inspect_err(|error| tracing::warn!(agent = %id, %error, "a checkpoint cannot be read")).ok()??;
    let restored = Agent::restore(Arc::clone(spec), &kept.bytes);
    restored.inspect_err(|error| tracing::info!(agent = %id, %error, "a checkpoint is not used")).ok()
}

/// Folds what a log has beyond what the agent has. Its last event, if it has one, must be there.
async fn fold(shared: &Shared, id: &AgentId, mut agent: Agent) -> Result<Agent, Error> {
    let unreadable = |why: String| Error::Unreadable { id: id.clone(), why };
    let mut events = shared.store.read(id.clone(), agent.log().begins_at());
    if let Some(last) = agent.log().last().cloned()
        && events.try_next().await?.as_ref() != Some(&last)
    {
        return Err(unreadable(format!("its event {} is another", last.seq)));
    }
    while let Some(event) = events.try_next().await? {
        agent.apply(&event).map_err(|broken| unreadable(broken.to_string()))?;
    }
    Ok(agent)
}
