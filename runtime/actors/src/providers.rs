//! Who may run a subagent: this runtime, and whoever was registered with it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use impresario_kernel::event::{Context, Route};
use impresario_kernel::{CallReport, Failure};
use impresario_seams::{Capabilities, ChunkStream, SubagentRequest, Subagents};

use crate::delegation::{SUBAGENT, SubagentArgs};
use crate::error::Error;
use crate::shared::Shared;

/// The providers that every runtime has: a fresh agent, and a copy of the asking one.
pub(crate) const SPAWN: &str = "spawn";
pub(crate) const FORK: &str = "fork";

/// Who was registered, by name. Who is taken away keeps what it runs.
#[derive(Default)]
pub(crate) struct Providers(RwLock<BTreeMap<String, Arc<dyn Subagents>>>);

impl Providers {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Subagents>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    /// # Errors
    /// [`Error::Refused`] when somebody has the name: here, or among `models`.
    pub(crate) fn add<'a>(
        &self,
        provider: Arc<dyn Subagents>,
        mut models: impl Iterator<Item = &'a str>,
    ) -> Result<(), Error> {
        let name = provider.name().to_owned();
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.contains_key(&name) || [SPAWN, FORK].contains(&&*name) || models.any(|model| model == name) {
            let why = format!("two providers are called {name:?}; give each a name of its own (DUPLICATE_PROVIDER)");
            return Err(Error::Refused(why));
        }
        known.insert(name, provider);
        Ok(())
    }
}

/// Who is to answer the child that `args` ask for, if not who answers its parent.
///
/// # Errors
/// For the model: there is nobody of that name, or he cannot do what is asked.
pub(crate) fn route(shared: &Shared, args: &SubagentArgs, parents: &Route) -> Result<Option<Route>, Box<CallReport>> {
    let refused = |code: &str, why: String| {
        let message = format!("{SUBAGENT}: {why}");
        Err(Box::new(CallReport::failed("SpawnRefusedError", code, &message)))
    };
    let Some(name) = args.provider.as_deref().filter(|name| ![SPAWN, FORK].contains(name)) else {
        let Some(wanted) = &args.model else { return Ok(None) };
        let (provider, model) = match wanted.split_once(':') {
            Some((provider, model)) => (provider, model),
            None => (&*parents.provider, &**wanted),
        };
        let is_known = shared.models.contains_key(provider) && !model.is_empty();
        if is_known {
            return Ok(Some(Route { provider: provider.into(), model: model.into() }));
        }
        let known = shared.models.keys().cloned().collect::<Vec<_>>().join(", ");
        return refused(
            "NO_PROVIDER",
            format!("{wanted:?} is no model here; it is `provider:model` with one of {known}"),
        );
    };
    let Some(provider) = shared.subagents.get(name) else {
        let known = [SPAWN, FORK].map(str::to_owned).into_iter().chain(shared.subagents.names());
        let known = known.collect::<Vec<_>>().join(", ");
        return refused("NO_PROVIDER", format!("there is no provider {name:?}; there are {known}"));
    };
    if let Some(lacking) = lacking(provider.capabilities(), args) {
        return refused("UNSUPPORTED_CAPABILITY", format!("{name} does not know `{lacking}`; leave it out"));
    }
    let model = args.model.clone().unwrap_or_else(|| name.to_owned());
    Ok(Some(Route { provider: name.into(), model }))
}

/// What is asked for and cannot be done.
fn lacking(can: Capabilities, args: &SubagentArgs) -> Option<&'static str> {
    let asked = [
        ("context", args.context() == Context::Fork, can.fork),
        ("model", args.model.is_some(), can.model),
        ("output_schema", args.output_schema.is_some(), can.output_schema),
        ("tools", args.tools.is_some(), can.tool_filter),
        ("may_spawn", args.may_spawn() > 0, can.depth_limit),
    ];
    asked.into_iter().find(|(_, is_asked, can)| *is_asked && !can).map(|(name, ..)| name)
}

/// Lets a provider run one turn.
///
/// # Errors
/// What the provider says, or that it has only one turn and this is a later one.
pub(crate) async fn run(provider: Arc<dyn Subagents>, request: SubagentRequest) -> Result<ChunkStream, Failure> {
    if request.turn > 1 && !provider.capabilities().continuable {
        let message = format!("{} runs one turn a subagent; start another one", provider.name());
        return Err(Failure::new("NOT_RESUMABLE", message));
    }
    provider.run(request).await
}
