//! What every actor of one runtime has in hand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use impresario_kernel::AgentId;
use impresario_seams::{Approver, Hook, Lease, Model, Store, Tool, Workspaces};

use tokio_util::task::TaskTracker;

use crate::address::Address;
use crate::capacity::LiveLimits;
use crate::chance::Chance;
use crate::feed::Feed;
use crate::halts::{Halt, Halts};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::prices::PriceTable;
use crate::profile::Profile;
use crate::providers::Providers;
use crate::router::Router;
use crate::supervisor::SupervisorMessage;

/// One runtime's seams, limits, addresses and observers. No globals: several runtimes may live in one process.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: Lease,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) subagents: Providers,
    /// In the order in which a model is offered them.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) workspaces: Option<Arc<dyn Workspaces>>,
    /// In the order in which they are asked, before those of an agent's own.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) limits: Limits,
    pub(crate) prices: PriceTable,
    pub(crate) journal: Journal,
    /// Who has the trees.
    pub(crate) supervisor: Address<SupervisorMessage>,
    pub(crate) router: Router,
    /// The trees that are open here, by their roots.
    pub(crate) roots: Mutex<BTreeMap<AgentId, Arc<Profile>>>,
    /// What roots of this runtime are made of that have gone to the store with their trees, where their logs do not say it.
    pub(crate) forgotten: Mutex<BTreeMap<AgentId, Arc<Profile>>>,
    /// Bounds of single trees, by their roots: they outlive a supervisor.
    pub(crate) live_limits: Mutex<BTreeMap<AgentId, LiveLimits>>,
    pub(crate) halts: Arc<Halts>,
    pub(crate) feed: Feed,
    /// Checkpoints on their way to the store.
    pub(crate) keeping: TaskTracker,
    pub(crate) chance: Chance,
}

impl Shared {
    /// Lets nothing start at and below an agent as long as this is held; `None` if it is gone.
    pub(crate) fn halt(&self, top: &AgentId) -> Option<Arc<Halt>> {
        self.router.standing(top).map(|top| Arc::new(self.halts.halt(top)))
    }

    /// Nobody comes back any more, and nothing more is written.
    pub(crate) fn close(&self) {
        self.router.close();
        self.journal.followers.close();
    }

    pub(crate) fn roots(&self) -> MutexGuard<'_, BTreeMap<AgentId, Arc<Profile>>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forgotten(&self) -> MutexGuard<'_, BTreeMap<AgentId, Arc<Profile>>> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds of a tree.
    pub(crate) fn live_limits(&self, root: &AgentId) -> LiveLimits {
        let limits = self.live_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get(root).copied().unwrap_or_default()
    }

    /// Changes some of them.
    pub(crate) fn set_live_limits(&self, root: &AgentId, limits: LiveLimits) {
        let mut known = self.live_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(root).copied().unwrap_or_default();
        known.insert(root.clone(), limits.over(before));
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.schema().name == name)
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
