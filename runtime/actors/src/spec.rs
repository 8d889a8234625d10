//! What to make an agent of.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::{Access, Budget, RestartPolicy};
use impresario_seams::{Approver, Hook};
use serde_json::{Map, Value};

use crate::durability::Durability;
use crate::output::OutputSchema;

/// An [`Approver`] that is shared.
#[derive(Clone)]
pub struct Answerer(pub Arc<dyn Approver>);

impl fmt::Debug for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answerer")
    }
}

/// What a root agent is made of. Its children get the same, narrowed by what spawned them.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// Which of the runtime's models serves it: the part of `provider:model` before the colon.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    /// The most output tokens of one answer; `None` leaves it to the provider.
    pub max_tokens: Option<u64>,
    /// Sampling settings by their wire names: `temperature`, `topP`, `seed`, `reasoningEffort`.
    pub sampling: Map<String, Value>,
    /// The system text; `None` is the built-in one.
    pub system: Option<String>,
    /// The folder it works in. Its paths stay inside.
    pub dir: PathBuf,
    /// What it may do there.
    pub access: Access,
    /// The tools it is offered, by name; `None` is all that its access allows.
    pub tools: Option<Vec<String>>,
    /// What it is for, in a few words.
    pub label: String,
    /// How often it is started again when its actor panics, and its descendants when theirs do; `None` is the runtime's
    /// [`crate::Limits::restarts`], [`RestartPolicy::NEVER`] leaves it crashed.
    pub restarts: Option<RestartPolicy>,
    /// What each of its turns is to come out with; `None` is just what it says.
    pub output: Option<OutputSchema>,
    /// What it and all below it may spend; `None` is no limit of its own. When a stored root is opened, what this says
    /// replaces what was said before, and the rest stays; what was spent before counts.
    pub budget: Option<Budget>,
    /// Who answers questions about its calls and those of its descendants; `None` is who answers the runtime's.
    pub approver: Option<Answerer>,
    /// What a crash may take of what it and its descendants do.
    pub durability: Durability,
    /// Hooks of its own, asked behind the runtime's; its descendants have them too.
    pub hooks: Vec<Arc<dyn Hook>>,
}

impl AgentSpec {
    /// An agent on `provider`'s `model` that may read the folder `dir`.
    pub fn new(provider: &str, model: &str, dir: impl Into<PathBuf>) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            max_tokens: None,
            sampling: Map::new(),
            system: None,
            dir: dir.into(),
            access: Access::Read,
            tools: None,
            label: "root".into(),
            restarts: None,
            output: None,
            budget: None,
            approver: None,
            durability: Durability::default(),
            hooks: vec![],
        }
    }

    /// Says who answers questions about its calls and those of its descendants.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver) -> Self {
        self.approver = Some(Answerer(Arc::new(approver)));
        self
    }

    /// Says what a crash may take of what it does.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Adds a hook of its own.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }
}
