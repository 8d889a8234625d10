//! A number that stands for all that a tree has written.

use futures::TryStreamExt as _;
use impresario::kernel::{AgentId, Seq, wire};
use impresario::seams::{SessionFilter, SessionInfo, Store};

use crate::failed::Failed;

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Fnv {
    fn take(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    }
}

/// FNV-1a (64 bits) of the log of a tree and of those of its agents in the order of their paths: the rows of each, a line
/// each.
pub(crate) async fn logs(store: &dyn Store, root: &AgentId) -> Result<u64, Failed> {
    let filter = SessionFilter { root: Some(root.clone()), ..SessionFilter::default() };
    let mut sessions: Vec<SessionInfo> = store.list(filter).await?;
    sessions.sort_by(|one, other| one.new.path.as_str().cmp(other.new.path.as_str()));
    let tree = store.info(root.tree_log()).await?.map(|_| root.tree_log());
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for id in tree.into_iter().chain(sessions.into_iter().map(|session| session.id().clone())) {
        let mut events = store.read(id, Seq(0));
        while let Some(event) = events.try_next().await? {
            let row =
                wire::encode_row(&event).map_err(|error| Failed::usage(format!("event {}: {error}", event.seq)))?;
            hash.take(row.as_bytes());
            hash.take(b"\n");
        }
    }
    Ok(hash.0)
}
