//! What an agent is made of: frame of its requests, authority, place. A child's is its parent's, narrowed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::event::{Authority, Birth, Context, RequestConfig, RequestHeader, Route, ToolSchema, Tools};
use impresario_kernel::{
    Access, Agent, AgentId, AgentPath, Budget, Overlap, RestartPolicy, RetryPolicy, Spec, TurnLimits,
};
use impresario_seams::{SubagentRequest, Workspace};
use serde_json::Map;

use crate::delegation::{self, FINAL_OUTPUT, READ_ARTIFACT, SUBAGENT, SubagentArgs};
use crate::durability::Durability;
use crate::error::Error;
use crate::hooks::Hooks;
use crate::output::OutputSchema;
use crate::recovery::Stored;
use crate::shared::Shared;
use crate::spec::{AgentSpec, Answerer};

/// The built-in system text: the same bytes for every agent of a tree, so that providers can cache it.
const SYSTEM: &str = "You are an agent of Impresario. You work in one folder with the tools you are given. \
Work in small steps, look before you change anything, and say in your last message what the one who asked needs to \
know: it is all that they will see. Independent parts of a task can be given to subagents; ask for several in one \
message and they run in parallel.";

/// What an agent is made of.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) spec: Arc<Spec>,
    pub(crate) birth: Birth,
    pub(crate) label: String,
    pub(crate) dir: PathBuf,
    pub(crate) restarts: RestartPolicy,
    /// What each of its turns is to come out with.
    pub(crate) output: Option<OutputSchema>,
    /// Whether its turns are run by a provider of subagents.
    pub(crate) is_outside: bool,
    /// Whether it is what the agent was born with: nobody has said anything else since.
    pub(crate) is_as_born: bool,
    /// Whether it or an agent above it has a budget.
    pub(crate) is_budgeted: bool,
    /// Who answers questions about its calls: that of the nearest agent above it that has one.
    pub(crate) approver: Option<Answerer>,
    pub(crate) durability: Durability,
    pub(crate) hooks: Hooks,
    /// Those of them that look at calls.
    pub(crate) call_hooks: Hooks,
}

/// What was chosen for a child, beside what its call says.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) output: Option<OutputSchema>,
    /// Who answers it, if not who answers its parent.
    pub(crate) route: Option<Route>,
    /// A folder of its own.
    pub(crate) workspace: Option<Workspace>,
}

impl Profile {
    /// A root's.
    pub(crate) fn root(shared: &Shared, id: &AgentId, spec: AgentSpec) -> Result<Self, Error> {
        if !shared.models.contains_key(&spec.provider) {
            let known = shared.models.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownProvider { wanted: spec.provider, known });
        }
        let shown = spec.dir.display().to_string();
        let dir = spec.dir.canonicalize().map_err(|error| Error::Dir { dir: shown.clone(), why: error.to_string() })?;
        if !dir.is_dir() {
            return Err(Error::Dir { dir: shown, why: "it is not a folder".into() });
        }
        let tools = offered(shared, spec.access, spec.tools.as_deref(), spec.output.is_some())?;
        let config = RequestConfig {
            provider: spec.provider,
            model: spec.model,
            max_tokens: spec.max_tokens,
            rest: spec.sampling,
        };
        let system = Some(spec.system.map_or_else(|| SYSTEM.into(), Into::into));
        let birth = Birth {
            root: id.clone(),
            parent: None,
            path: AgentPath::root(),
            depth: 0,
            context: Context::Fresh,
            authority: Authority {
                dir: dir.display().to_string(),
                access: spec.access,
                tools: tools.iter().map(|schema| schema.name.clone()).collect(),
                may_spawn: None,
            },
            workspace: None,
            output_schema: spec.output.as_ref().map(OutputSchema::schema),
            route: None,
        };
        let header = RequestHeader { config, system, tools: Some(Tools::Schemas(tools)), rest: Map::new() };
        let hooks: Hooks = shared.hooks.iter().chain(&spec.hooks).cloned().collect();
        let call_hooks = hooks.iter().filter(|hook| hook.judges_calls()).cloned().collect();
        let kernel_spec = kernel_spec(shared, Arc::new(header), &birth, &hooks, spec.output.as_ref());
        let restarts = spec.restarts.unwrap_or(shared.limits.restarts);
        let is_budgeted = spec.budget.is_some();
        let profile = Self {
            spec: kernel_spec,
            birth,
            label: spec.label,
            dir,
            restarts,
            output: spec.output,
            is_outside: false,
            is_as_born: true,
            is_budgeted,
            approver: spec.approver.or_else(|| shared.approver.clone().map(Answerer)),
            durability: spec.durability,
            hooks,
            call_hooks,
        };
        profile.check_price(shared, spec.budget.as_ref())?;
        Ok(profile)
    }

    /// A child's. Nothing in it is wider than its parent's.
    pub(crate) fn child(
        &self,
        shared: &Shared,
        path: AgentPath,
        parent: AgentId,
        args: &SubagentArgs,
        chosen: Chosen,
    ) -> Self {
        let Chosen { output, route, workspace } = chosen;
        let route = route.or_else(|| self.birth.route.clone());
        let is_outside = route.as_ref().is_some_and(|route| shared.subagents.get(&route.provider).is_some());
        let depth = self.birth.depth + 1;
        let may_spawn = args.may_spawn().min(self.birth.authority.may_spawn.unwrap_or(u32::MAX));
        let allowed = |name: &str| {
            if delegation::is_of_children(name, output.is_some()) {
                return true;
            }
            let granted = may_spawn > 0 || !delegation::is_delegation(name);
            granted && args.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == name))
        };
        let tools: Vec<String> = self.birth.authority.tools.iter().filter(|name| allowed(name)).cloned().collect();
        let header = match (&route, args.context()) {
            (Some(route), _) if is_outside => Arc::new(outside(route, output.is_some())),
            (Some(route), Context::Fork) => Arc::new(routed(RequestHeader::clone(&self.spec.header), route)),
            (Some(route), Context::Fresh) => Arc::new(routed(narrowed(&self.spec.header, &tools), route)),
            // The same bytes as its parent's, so that the provider's cache hits; the pipeline refuses the rest.
            (None, Context::Fork) => Arc::clone(&self.spec.header),
            (None, Context::Fresh) => Arc::new(narrowed(&self.spec.header, &tools)),
        };
        let dir = workspace.as_ref().map_or_else(|| self.dir.clone(), |workspace| workspace.dir.clone());
        let birth = Birth {
            root: self.birth.root.clone(),
            parent: Some(parent),
            path: path.clone(),
            depth,
            context: args.context(),
            authority: Authority {
                tools,
                may_spawn: Some(may_spawn),
                dir: dir.display().to_string(),
                ..self.birth.authority.clone()
            },
            workspace: workspace.as_ref().map(|workspace| workspace.root.display().to_string()),
            output_schema: output.as_ref().map(OutputSchema::schema),
            route,
        };
        let label = args.purpose().unwrap_or(path.segment()).to_owned();
        let context = Some(context(shared, &birth, output.as_ref()).into());
        // Everything else is its parent's.
        let spec = Spec { header, context, requires_output: output.is_some(), ..Spec::clone(&self.spec) };
        let spec = Arc::new(spec);
        let is_budgeted = self.is_budgeted || args.budget().is_some();
        Self { spec, birth, label, dir, output, is_outside, is_budgeted, ..self.clone() }
    }

    /// That of a root as its log says.
    pub(crate) fn logged(shared: &Shared, stored: &Stored) -> Result<Self, Error> {
        let id = stored.info.id().clone();
        let unreadable = |why: &str| Error::Unreadable { id: id.clone(), why: why.into() };
        let birth = stored.agent.birth().cloned().ok_or_else(|| unreadable("it was never born"))?;
        let why = "it never asked a model, so its log does not say which; say what it is made of";
        let header = Arc::clone(stored.agent.header().ok_or_else(|| unreadable(why))?);
        let provider = &header.config.provider;
        if !shared.models.contains_key(provider) {
            let known = shared.models.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownProvider { wanted: provider.clone(), known });
        }
        let schema = birth.output_schema.as_deref().cloned();
        let output = schema.map(OutputSchema::json).transpose()?;
        let hooks: Hooks = shared.hooks.iter().cloned().collect();
        Ok(Self {
            spec: kernel_spec(shared, header, &birth, &hooks, output.as_ref()),
            label: stored.info.new.label.clone(),
            dir: PathBuf::from(&birth.authority.dir),
            restarts: shared.limits.restarts,
            output,
            is_outside: false,
            is_as_born: true,
            is_budgeted: false,
            approver: shared.approver.clone().map(Answerer),
            durability: Durability::default(),
            call_hooks: hooks.iter().filter(|hook| hook.judges_calls()).cloned().collect(),
            hooks,
            birth,
        })
    }

    /// Whether the log of this root, and the runtime, say all of it.
    pub(crate) fn is_plain(&self, shared: &Shared) -> bool {
        let approver = self.approver.as_ref().map(|Answerer(approver)| Arc::as_ptr(approver).cast::<()>());
        self.is_as_born
            && self.output.is_none()
            && self.durability == Durability::default()
            && self.restarts == shared.limits.restarts
            && self.hooks.len() == shared.hooks.len()
            && approver == shared.approver.as_ref().map(|approver| Arc::as_ptr(approver).cast())
    }

    /// That of an agent which comes back into a tree whose root is made of `root`.
    pub(crate) fn woken(
        shared: &Shared,
        root: &Arc<Self>,
        stored: &Stored,
        is_budgeted: bool,
    ) -> Result<Arc<Self>, Error> {
        if *stored.info.id() == root.birth.root {
            return Ok(Arc::clone(root));
        }
        let profile = Self::stored(shared, root, stored)?;
        Ok(Arc::new(Self { is_budgeted: profile.is_budgeted || is_budgeted, ..profile }))
    }

    /// That of an agent which is only stored, in a tree whose root is made of `root`: what it was born with, on the root's
    /// route.
    fn stored(shared: &Shared, root: &Self, stored: &Stored) -> Result<Self, Error> {
        let id = stored.info.id().clone();
        let unreadable = |why: &str| Error::Unreadable { id: id.clone(), why: why.into() };
        let birth = stored.agent.birth().cloned().ok_or_else(|| unreadable("it was never born"))?;
        let is_outside = birth.route.as_ref().is_some_and(|route| shared.subagents.get(&route.provider).is_some());
        let config = root.spec.header.config.clone();
        let header = match stored.agent.header() {
            Some(header) => RequestHeader { config, ..RequestHeader::clone(header) },
            // It never asked a model: it has the tools that it may use.
            None => narrowed(&root.spec.header, &birth.authority.tools),
        };
        let header = match &birth.route {
            Some(route) if is_outside => outside(route, birth.output_schema.is_some()),
            Some(route) => routed(header, route),
            None => header,
        };
        let schema = birth.output_schema.as_deref().cloned();
        let output = schema.map(OutputSchema::json).transpose()?;
        let context = stored.agent.snapshot().cloned();
        let requires_output = output.is_some();
        let spec = Spec { header: Arc::new(header), context, requires_output, ..Spec::clone(&root.spec) };
        let (label, dir) = (stored.info.new.label.clone(), PathBuf::from(&birth.authority.dir));
        Ok(Self { spec: Arc::new(spec), birth, label, dir, output, is_outside, ..root.clone() })
    }

    /// That of a root which goes on from a copy of this agent, with the same rights.
    pub(crate) fn forked(&self, shared: &Shared, id: &AgentId) -> Self {
        let (root, path) = (id.clone(), AgentPath::root());
        let birth = Birth { root, parent: None, path, depth: 0, context: Context::Fork, ..self.birth.clone() };
        let context = Some(context(shared, &birth, self.output.as_ref()).into());
        let spec = Arc::new(Spec { context, ..Spec::clone(&self.spec) });
        // A budget is its tree's: the copy has none until it is given one.
        Self { spec, birth, is_budgeted: false, ..self.clone() }
    }

    /// Who answers it.
    pub(crate) fn route(&self) -> Route {
        let RequestConfig { provider, model, .. } = &self.spec.header.config;
        Route { provider: provider.clone(), model: model.clone() }
    }

    /// What a provider of subagents is told of a turn.
    pub(crate) fn turn_of(&self, id: &AgentId, agent: &Agent, turn: u32) -> SubagentRequest {
        let authority = &self.birth.authority;
        SubagentRequest {
            agent: id.clone(),
            path: self.birth.path.clone(),
            turn,
            model: self.route().model,
            dir: self.dir.clone(),
            access: authority.access,
            tools: authority.tools.iter().filter(|name| !delegation::is_delegation(name)).cloned().collect(),
            may_spawn: authority.may_spawn.unwrap_or(0),
            output_schema: self.birth.output_schema.clone(),
            messages: agent.messages(),
        }
    }

    /// A budget of money takes a price.
    pub(crate) fn check_price(&self, shared: &Shared, budget: Option<&Budget>) -> Result<(), Error> {
        let config = &self.spec.header.config;
        let is_priced = shared.prices.price(&config.provider, &config.model).is_some();
        if is_priced || !budget.is_some_and(Budget::has_money) {
            return Ok(());
        }
        let model = self.model();
        Err(Error::Refused(format!("a budget of money takes a price, and the price table has none for {model}")))
    }

    /// `provider:model`.
    pub(crate) fn model(&self) -> String {
        let config = &self.spec.header.config;
        format!("{}:{}", config.provider, config.model)
    }
}

/// The tools that an agent is offered, in the runtime's order.
fn offered(
    shared: &Shared,
    access: Access,
    wanted: Option<&[String]>,
    has_output: bool,
) -> Result<Vec<Arc<ToolSchema>>, Error> {
    let mut all: Vec<(Arc<ToolSchema>, Access)> =
        shared.tools.iter().map(|tool| (tool.schema(), tool.access())).collect();
    let may_spawn = shared.limits.depth_max > 0;
    let own = delegation::schemas().into_iter();
    let is_own = |name: &str| may_spawn || name == READ_ARTIFACT || (has_output && name == FINAL_OUTPUT);
    all.extend(own.filter(|own| is_own(&own.name)).map(|own| (own, Access::Read)));
    for name in wanted.unwrap_or_default() {
        if !all.iter().any(|(schema, _)| schema.name == *name) {
            let known = all.iter().map(|(schema, _)| schema.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownTool { wanted: name.clone(), known });
        }
    }
    // Who may spawn has what its children need, so that its forks have the same bytes.
    let spawns = may_spawn && wanted.is_none_or(|wanted| wanted.iter().any(|name| name == SUBAGENT));
    let is_wanted = |name: &String| {
        let is_asked_for = wanted.is_none_or(|wanted| wanted.contains(name));
        let is_of_children = spawns && delegation::is_of_children(name, true);
        is_asked_for || is_of_children || (has_output && name == FINAL_OUTPUT)
    };
    all.retain(|(schema, needs)| *needs <= access && is_wanted(&schema.name));
    Ok(all.into_iter().map(|(schema, _)| schema).collect())
}

fn narrowed(header: &RequestHeader, tools: &[String]) -> RequestHeader {
    let narrowed = match &header.tools {
        Some(Tools::Schemas(schemas)) => {
            Some(Tools::Schemas(schemas.iter().filter(|schema| tools.contains(&schema.name)).cloned().collect()))
        }
        other => other.clone(),
    };
    RequestHeader { tools: narrowed, ..header.clone() }
}

/// That of who has a system text and tools of its own.
fn outside(route: &Route, has_output: bool) -> RequestHeader {
    let config = RequestConfig {
        provider: route.provider.clone(),
        model: route.model.clone(),
        max_tokens: None,
        rest: Map::new(),
    };
    let output = delegation::schemas().into_iter().filter(|schema| has_output && schema.name == FINAL_OUTPUT);
    RequestHeader { config, system: None, tools: Some(Tools::Schemas(output.collect())), rest: Map::new() }
}

fn routed(header: RequestHeader, route: &Route) -> RequestHeader {
    let (provider, model) = (route.provider.clone(), route.model.clone());
    RequestHeader { config: RequestConfig { provider, model, ..header.config }, ..header }
}

fn kernel_spec(
    shared: &Shared,
    header: Arc<RequestHeader>,
    birth: &Birth,
    hooks: &Hooks,
    output: Option<&OutputSchema>,
) -> Arc<Spec> {
    let limits = &shared.limits;
    let mut overlap: BTreeMap<String, Overlap> =
        shared.tools.iter().map(|tool| (tool.schema().name.clone(), tool.overlap())).collect();
    overlap.extend(
        delegation::schemas().into_iter().map(|schema| (schema.name.clone(), delegation::overlap(&schema.name))),
    );
    Arc::new(Spec {
        header,
        overlap: Arc::new(overlap),
        context: Some(context(shared, birth, output).into()),
        requires_output: output.is_some(),
        limits: TurnLimits {
            steps: limits.steps_max,
            parallel_calls: limits.parallel_calls_max,
            answer_calls: limits.answer_calls_max,
            tokens: limits.tokens_max,
            calls: limits.calls_max,
            wall_ms: limits.wall_ms_max,
            ..TurnLimits::default()
        },
        retry: RetryPolicy::default(),
        asked_at: Arc::new(hooks.iter().flat_map(|hook| hook.points().iter().copied()).collect()),
    })
}

/// What the runtime tells the model about where it stands. Never part of schemas or the system text.
fn context(shared: &Shared, birth: &Birth, output: Option<&OutputSchema>) -> String {
    let (limits, authority) = (&shared.limits, &birth.authority);
    let may_spawn = match authority.may_spawn {
        None => format!("at most {} subagents in all", limits.descendants_max),
        Some(0) => "no subagents".into(),
        Some(most) => format!("at most {most} subagents"),
    };
    let others = shared.subagents.names();
    let is_told = !others.is_empty() && authority.may_spawn != Some(0);
    let others = if is_told { format!(" Providers of subagents: {}.", others.join(", ")) } else { String::new() };
    let output = output.map(|output| format!(" {}", output.told())).unwrap_or_default();
    format!(
        "Your place: {} (depth {} of at most {}). Folder: {}. Access: {}. You may have {may_spawn}; at most {} turns \
         run at once, others wait for their turn.{others}{output}",
        birth.path,
        birth.depth,
        limits.depth_max,
        authority.dir,
        authority.access.as_str(),
        limits.running_max,
    )
}
