//! Births: of roots by people, of children by agents.

use std::sync::Arc;

use impresario_kernel::event::{Context, Fact, SubagentDescribed};
use impresario_kernel::tree::{Ask, SpawnRefused, Tree, TreeLimits};
use impresario_kernel::{
    Agent, AgentId, AgentPath, Block, Budget, CallKey, CallReport, Fork, Input, Lane, Message, Seq,
};
use impresario_seams::{Batch, ForkRef, Head, Observed, Workspace};
use ractor::ActorRuntime;
use serde_json::{Map, json};
use uuid::Uuid;

use super::tree::{Place, TreeState};
use super::{Spawn, SupervisorState};
use crate::agent::{AgentActor, AgentInit, AgentMessage, new_session};
use crate::delegation;
use crate::error::Error;
use crate::profile::Profile;
use crate::providers::{FORK, SPAWN};
use crate::spec::AgentSpec;

/// How many characters of the first prompt are a session's title.
const TITLE_CHARS: usize = 80;

impl SupervisorState {
    pub(super) fn spawn_root(&mut self, id: AgentId, spec: AgentSpec) -> Result<AgentId, Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone().into());
        }
        // Asked again behind a supervisor that failed.
        if self.shared.router.sent(&id).is_some() {
            return Ok(id);
        }
        let budget = spec.budget.clone();
        let profile = Arc::new(Profile::root(&self.shared, &id, spec)?);
        let agent = Agent::new(Arc::clone(&profile.spec));
        self.plant(&id, &profile, budget, Newborn { agent, fork: None, last_turns: None, first: None });
        Ok(id)
    }

    pub(super) fn fork_root(
        &mut self,
        id: AgentId,
        from: AgentId,
        spec: Option<AgentSpec>,
        fork: Fork,
    ) -> Result<AgentId, Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone().into());
        }
        // Asked again behind a supervisor that failed.
        if self.shared.router.sent(&id).is_some() {
            return Ok(id);
        }
        let budget = spec.as_ref().and_then(|spec| spec.budget.clone());
        let profile = match spec {
            Some(spec) => {
                let mut profile = Profile::root(&self.shared, &id, spec)?;
                profile.birth.context = Context::Fork;
                Arc::new(profile)
            }
            None => {
                let original = self.shared.router.resident(&from).ok_or_else(|| Error::UnknownAgent(from.clone()))?;
                Arc::new(original.0.forked(&self.shared, &id))
            }
        };
        let Fork { agent, until, last_turns } = fork;
        let agent = agent.with_spec(Arc::clone(&profile.spec));
        let fork = Some(ForkRef { session: from, until });
        self.plant(&id, &profile, budget, Newborn { agent, fork, last_turns, first: None });
        Ok(id)
    }

    /// Begins a tree with its root.
    fn plant(&mut self, id: &AgentId, profile: &Arc<Profile>, budget: Option<Budget>, root: Newborn) {
        self.shared.roots().insert(id.clone(), Arc::clone(profile));
        let mut tree = TreeState::new(&self.shared, Tree::new(id.clone()), Seq(0));
        // There is nobody above a root who could have too little.
        let drawn = budget.and_then(|budget| tree.tree.ledger().grant(std::slice::from_ref(id), &budget).ok());
        drawn.into_iter().for_each(|drawn| tree.record(&self.shared, Fact::BudgetDrawn(drawn)));
        self.trees.insert(id.clone(), tree);
        self.be_born(id, profile, root);
    }

    pub(super) fn spawn(&mut self, spawn: Spawn) {
        let Spawn { parent, call, call_id, args, chosen, profile, prefix, is_again } = spawn;
        if is_again && let Some(child) = self.child_asked_for(&parent, &call_id) {
            return self.asked_again(&child, &parent, call, args.background);
        }
        let limits = self.tree_limits(&profile.birth.root);
        let child = self.shared.chance.mint();
        let ask = Ask {
            child: child.clone(),
            parent: parent.clone(),
            label: args.label.clone(),
            context: args.context(),
            background: args.background,
            call: Some(call_id),
            may_spawn: args.may_spawn(),
            prompt: Some(fingerprint(&args.prompt)),
        };
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(&parent) else { return };
        let drawn = args.budget().map(|budget| tree.tree.grant(&child, &parent, &budget)).transpose();
        let place = tree.tree.reserve(ask, limits);
        let (reserved, drawn) = match place.and_then(|place| Ok((place, drawn.map_err(SpawnRefused::Budget)?))) {
            Ok(reserved) => reserved,
            Err(refused) => {
                tree.refused += u32::from(refused == SpawnRefused::Stopped);
                self.close_workspace(chosen.workspace);
                return self.refuse(&parent, call, &refused);
            }
        };
        let times = tree.tree.repeats(&parent, reserved.prompt);
        let path = reserved.path.clone();
        // In one order for the journal: the place, the child with its first prompt, the word that it is there.
        tree.record(&shared, Fact::TreeReserved(reserved));
        drawn.into_iter().for_each(|drawn| tree.record(&shared, Fact::BudgetDrawn(drawn)));
        if !args.background {
            tree.answers(&child, &parent, call);
        }
        let profile = Arc::new(profile.child(&self.shared, path.clone(), parent.clone(), &args, chosen));
        let (agent, fork) = match args.context() {
            Context::Fresh => (Agent::new(Arc::clone(&profile.spec)), None),
            // Its call is being run, so the asking agent can be forked.
            Context::Fork => match prefix.fork(Arc::clone(&profile.spec)) {
                Some((agent, until)) => (agent, Some(ForkRef { session: parent.clone(), until })),
                None => (Agent::new(Arc::clone(&profile.spec)), None),
            },
        };
        let first = Some(delegation::prompt(&child, &parent, &args.prompt));
        self.be_born(&child, &profile, Newborn { agent, fork, last_turns: None, first });
        if let Some(tree) = self.tree_of(&child)
            && let Ok(published) = tree.tree.publish(&child)
        {
            tree.record(&shared, Fact::TreePublished(published));
        }
        if times > 0 {
            let (used, max) = (u64::from(times), u64::from(limits.same_prompt));
            self.say(&child, Observed::LimitReached { limit: "same_prompt".into(), used, max });
        }
        if args.background {
            self.tell_started(&child, &path, &parent, call);
        }
    }

    /// Nobody will work there.
    fn close_workspace(&self, workspace: Option<Workspace>) {
        if let (Some(workspaces), Some(workspace)) = (&self.shared.workspaces, workspace) {
            let closing = workspaces.close(workspace.root);
            tokio::spawn(async move {
                if let Err(why) = closing.await {
                    tracing::warn!(why, "a workspace is left");
                }
            });
        }
    }

    /// The bounds of a tree.
    pub(super) fn tree_limits(&self, root: &AgentId) -> TreeLimits {
        let (limits, live) = (&self.shared.limits, self.shared.live_limits(root));
        TreeLimits {
            depth: live.depth_max.unwrap_or(limits.depth_max),
            descendants: live.descendants_max.unwrap_or(limits.descendants_max),
            same_prompt: limits.same_prompt_max,
        }
    }

    /// Answers the call for a child that runs in the background.
    pub(super) fn tell_started(&self, child: &AgentId, path: &AgentPath, parent: &AgentId, call: CallKey) {
        let text = format!("[{path} started · agent {child}]\nIt runs in the background; its answer will come.");
        let meta = Some(json!({"agent": child, "path": path}));
        let report = CallReport { content: vec![Block::text(text)], meta, ..CallReport::default() };
        // The parent waits for this call.
        let _ = self.shared.router.tell(parent, AgentMessage::CallEnded { call, report });
    }

    fn refuse(&self, parent: &AgentId, call: CallKey, refused: &SpawnRefused) {
        if let SpawnRefused::Depth { limit, .. } | SpawnRefused::Descendants { limit } = refused {
            let name = if matches!(refused, SpawnRefused::Depth { .. }) { "depth" } else { "descendants" };
            let max = u64::from(*limit);
            self.say(parent, Observed::LimitReached { limit: name.into(), used: max, max });
        }
        let report = CallReport::failed("SpawnRefusedError", refused.code(), &format!("refused: {refused}"));
        // The parent waits for this call.
        let _ = self.shared.router.tell(parent, AgentMessage::CallEnded { call, report });
    }

    /// Writes the beginning of a session and starts its actor.
    fn be_born(&mut self, id: &AgentId, profile: &Arc<Profile>, newborn: Newborn) {
        let Newborn { mut agent, fork, last_turns, first } = newborn;
        let at = self.shared.chance.now();
        let first_text = first.as_ref().map(|message| message.text()).unwrap_or_default();
        let born = Input::Born { birth: profile.birth.clone(), descriptor: descriptor(profile), last_turns };
        // The first inputs of a life are not refused.
        let mut events = agent.tell(born, at).unwrap_or_default();
        if let Some(message) = first {
            let prompt = Input::Deliver { lane: Lane::NextTurn, wakes: true, message };
            events.extend(agent.tell(prompt, at).unwrap_or_default());
        }
        let title = title(&first_text);
        let create = Some(new_session(id, profile, fork, at));
        let head = Head { title: title.clone(), ..Head::default() };
        self.root_of.insert(id.clone(), profile.birth.root.clone());
        let start = Start { durable: Seq(0), title, message: AgentMessage::Start };
        self.start_actor(id, Arc::clone(profile), agent, start);
        // Behind the actor's start, so that it hears when this is durable.
        let batch = Batch { session: id.clone(), create, events, head };
        self.shared.append(batch, profile.durability);
    }

    /// Starts the actor of an agent that is not live.
    pub(super) fn start_actor(&mut self, id: &AgentId, profile: Arc<Profile>, agent: Agent, start: Start) {
        let context = profile.birth.context;
        let started = Observed::Started { label: profile.label.clone(), context, model: profile.model() };
        let outcome = agent.outcome().cloned();
        let init = AgentInit {
            shared: Arc::clone(&self.shared),
            id: id.clone(),
            profile: Arc::clone(&profile),
            agent,
            durable: start.durable,
            title: start.title,
        };
        let spawned = ActorRuntime::<AgentActor>::spawn_linked_instant(None, AgentActor, init, self.root.clone());
        let Ok((actor, _)) = spawned else {
            // Only a taken name can fail here, and agents have none.
            tracing::error!(agent = %id, "the actor of an agent could not be started");
            return;
        };
        self.actors.insert(actor.get_id(), id.clone());
        self.shared.router.connect(id, Arc::clone(&profile), actor);
        if let Some(tree) = self.tree_of(id) {
            tree.add(id.clone(), profile, outcome, Place::Live);
        }
        self.say(id, started);
        let _ = self.shared.router.send(id, start.message);
        self.keep_within_ceiling();
    }
}

/// Equal prompts have equal numbers, also in other versions of this program.
fn fingerprint(prompt: &str) -> u64 {
    let words: Vec<&str> = prompt.split_whitespace().collect();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, words.join(" ").as_bytes()).as_u64_pair().0
}

/// What an actor starts from.
pub(super) struct Start {
    pub(super) durable: Seq,
    pub(super) title: String,
    pub(super) message: AgentMessage,
}

struct Newborn {
    agent: Agent,
    fork: Option<ForkRef>,
    last_turns: Option<u32>,
    first: Option<Arc<Message>>,
}

fn descriptor(profile: &Profile) -> Option<SubagentDescribed> {
    profile.birth.parent.as_ref()?;
    let provider = match (&profile.is_outside, profile.birth.context) {
        (true, _) => &*profile.spec.header.config.provider,
        (false, Context::Fresh) => SPAWN,
        (false, Context::Fork) => FORK,
    };
    Some(SubagentDescribed {
        version: 2,
        mode: "one-shot".into(),
        provider: provider.into(),
        label: Some(profile.label.clone()),
        rest: Map::new(),
    })
}

/// The first words of a prompt, on one line.
pub(crate) fn title(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TITLE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
