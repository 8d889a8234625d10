//! What a runtime is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use impresario_seams::{Approver, Hook, Model, Store, Subagents, Tool, Workspaces};

use tokio_util::task::TaskTracker;

use crate::address::Address;
use crate::chance::Chance;
use crate::delegation;
use crate::error::Error;
use crate::feed::Feed;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::prices::PriceTable;
use crate::providers::Providers;
use crate::router::Router;
use crate::runtime::Runtime;
use crate::shared::Shared;

/// Collects what a runtime is made of; see [`Runtime::builder`].
#[derive(Clone)]
#[must_use]
pub struct RuntimeBuilder {
    store: Arc<dyn Store>,
    models: Vec<Arc<dyn Model>>,
    subagents: Vec<Arc<dyn Subagents>>,
    tools: Vec<Arc<dyn Tool>>,
    approver: Option<Arc<dyn Approver>>,
    workspaces: Option<Arc<dyn Workspaces>>,
    hooks: Vec<Arc<dyn Hook>>,
    limits: Limits,
    prices: PriceTable,
    seed: Option<u64>,
    takes_over: bool,
}

impl RuntimeBuilder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let (models, subagents, tools, hooks) = (vec![], vec![], vec![], vec![]);
        let (limits, prices) = (Limits::default(), PriceTable::default());
        let (approver, workspaces) = (None, None);
        Self {
            store,
            models,
            subagents,
            tools,
            approver,
            workspaces,
            hooks,
            limits,
            prices,
            seed: None,
            takes_over: false,
        }
    }

    /// Adds a provider.
    pub fn model(self, model: impl Model) -> Self {
        self.models([Arc::new(model) as _])
    }

    /// Adds providers.
    pub fn models(mut self, models: impl IntoIterator<Item = Arc<dyn Model>>) -> Self {
        self.models.extend(models);
        self
    }

    /// Adds a provider of subagents: `subagent {provider}` asks for it by its name.
    pub fn subagents(mut self, provider: impl Subagents) -> Self {
        self.subagents.push(Arc::new(provider));
        self
    }

    /// Adds a tool. Those for delegation are the runtime's own.
    pub fn tool(self, tool: Arc<dyn Tool>) -> Self {
        self.tools([tool])
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Says who answers questions; without anybody they are answered no.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Says how subagents that ask for a workspace of their own get one; without it they are refused.
    pub fn workspaces(mut self, workspaces: impl Workspaces) -> Self {
        self.workspaces = Some(Arc::new(workspaces));
        self
    }

    /// Adds a hook behind those that are there.
    pub fn hook(self, hook: impl Hook) -> Self {
        self.hooks([Arc::new(hook) as _])
    }

    /// Adds hooks behind those that are there.
    pub fn hooks(mut self, hooks: impl IntoIterator<Item = Arc<dyn Hook>>) -> Self {
        self.hooks.extend(hooks);
        self
    }

    /// Sets the bounds.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Says what models cost: what budgets of money take.
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Takes the store from the process that has it, if one does: for one that hangs. It writes nothing from then on, and its
    /// agents stop where they are ([`impresario_seams::StoreError::Fenced`]).
    pub fn take_over(mut self) -> Self {
        self.takes_over = true;
        self
    }

    /// Takes time from tokio's clock, ids and jitter from `seed`, and lets it say in which order actors handle their
    /// messages: each seed is another run of the same work. On one thread, with tokio's clock paused and a store in
    /// memory, the same seed gives the same logs, byte by byte.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Takes the store's lease and starts the actors.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be had, [`Error::Refused`] when two tools or two providers have one name.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn build(self) -> Result<Runtime, Error> {
        let own = delegation::schemas();
        let tools: Vec<_> = self.tools.iter().map(|tool| tool.schema()).chain(own).collect();
        check_names("tools", tools.iter().map(|schema| schema.name.as_str()))?;
        check_names("providers", self.models.iter().map(|model| model.provider()))?;
        let subagents = Providers::default();
        for provider in self.subagents {
            subagents.add(provider, self.models.iter().map(|model| model.provider()))?;
        }
        let lease = if self.takes_over { self.store.take_over().await? } else { self.store.lease().await? };
        let models: BTreeMap<_, _> =
            self.models.into_iter().map(|model| (model.provider().to_owned(), model)).collect();
        Runtime::start(Shared {
            store: self.store,
            lease,
            models,
            subagents,
            tools: self.tools,
            approver: self.approver,
            workspaces: self.workspaces,
            hooks: self.hooks,
            limits: self.limits,
            prices: self.prices,
            journal: Journal::default(),
            supervisor: Address::default(),
            router: Router::default(),
            roots: Mutex::default(),
            forgotten: Mutex::default(),
            live_limits: Mutex::default(),
            halts: Arc::default(),
            feed: Feed::new(),
            keeping: TaskTracker::new(),
            chance: Chance::new(self.seed),
        })
        .await
    }
}

/// A name must say which one is meant.
fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut known = BTreeSet::new();
    match names.into_iter().find(|name| !known.insert(*name)) {
        Some(name) => Err(Error::Refused(format!("two {what} are called {name:?}; give each a name of its own"))),
        None => Ok(()),
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<&str> = self.models.iter().map(|model| model.provider()).collect();
        f.debug_struct("RuntimeBuilder")
            .field("store", &self.store.location())
            .field("models", &models)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
