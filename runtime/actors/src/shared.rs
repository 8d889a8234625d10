//! What every actor of one runtime has in hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use impresario_kernel::{AgentId, Millis};
use impresario_seams::{Approver, Hook, Lease, Model, Store, Tool};

use crate::feed::Feed;
use crate::limits::Limits;
use crate::router::Router;

/// One runtime's seams, limits, addresses and observers. No globals: several runtimes may live in one process.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: Lease,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    /// In the order in which a model is offered them.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    /// In the order in which they are asked, before those of an agent's own.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) limits: Limits,
    pub(crate) router: Router,
    pub(crate) feed: Feed,
}

impl Shared {
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.schema().name == name)
    }
}

/// The wall clock.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A new id: ordered by time, lower case, safe as a file name.
pub(crate) fn mint() -> AgentId {
    AgentId::new(uuid::Uuid::now_v7().simple().to_string())
}

/// Something that differs from agent to agent and from call to call.
pub(crate) fn roll() -> u64 {
    uuid::Uuid::now_v7().as_u64_pair().1
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
