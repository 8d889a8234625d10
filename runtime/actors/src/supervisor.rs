//! The supervisor: places in trees, slots, settlements, stops. It writes the tree logs and nothing else, holds no
//! content, and awaits nothing in its handler.

mod delete;
mod funds;
mod idle;
mod inherit;
mod manage;
mod open;
mod settle;
mod spawn;
mod stop;
mod tree;
mod wake;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::admission::Applicant;
use impresario_kernel::{
    Agent, AgentId, AgentPath, CallId, CallKey, CallReport, Cause, ChargeId, Fork, Funds, Outcome, OutcomeKind, Seq,
};
use impresario_seams::{Observed, StoreError};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::AgentMessage;
use crate::capacity::{Capacity, LiveLimits};
use crate::delegation::{Manage, Settled, SubagentArgs, WaitArgs};
use crate::error::Error;
use crate::halts::Halt;
use crate::profile::{Chosen, Profile};
use crate::receipt::Receipt;
use crate::recovery::{Loaded, Stored};
use crate::shared::Shared;
use crate::spec::AgentSpec;

use delete::Deleting;
use idle::Idle;
use inherit::Reading;
pub(crate) use inherit::{Inheritance, InheritedTree, Member};
pub(crate) use open::Frame;
use open::{Opener, Opening};
pub(crate) use spawn::title;
use tree::TreeState;
pub(crate) use tree::tree_session;
use wake::{Finding, Waking};

pub(crate) struct Supervisor;

pub(crate) enum SupervisorMessage {
    /// A person makes a root.
    SpawnRoot { id: AgentId, spec: AgentSpec, reply: oneshot::Sender<Result<AgentId, Error>> },
    /// A person makes a root that goes on from a copy of an agent.
    /// With what it is made of, unless that is what the other one is made of.
    ForkRoot(Box<ForkRoot>),
    /// A person opens a stored root again.
    /// Without a spec as it was.
    Open { id: AgentId, spec: Option<AgentSpec>, reply: oneshot::Sender<Result<AgentId, Error>> },
    /// The stored tree was read and repaired.
    Opened { id: AgentId, loaded: Box<Result<Loaded, Error>> },
    /// An agent asks for a child.
    Spawn(Box<Spawn>),
    /// An agent asks to run a turn.
    AskSlot { agent: AgentId, resuming: bool, ask: u64 },
    /// An agent asks to spend.
    Reserve { agent: AgentId, charge: ChargeId, amount: Funds },
    /// What it asked for has cost so much, or is not wanted any more.
    Settle { agent: AgentId, charge: ChargeId, amount: Funds },
    /// A window may have room again.
    Refill { root: AgentId },
    /// A turn begins behind another one: another outcome will come.
    BeginsAgain { agent: AgentId },
    /// An agent's turn does not run now.
    ReturnSlot { agent: AgentId },
    /// An agent has nothing to do, having handled so many messages; or it has (`None`).
    AgentRests { agent: AgentId, handled: Option<u64>, unread: usize },
    /// A turn ended, durably.
    /// With what it has left in a workspace of its own.
    TurnEnded { agent: AgentId, outcome: Arc<Outcome>, left: Option<Arc<str>> },
    /// The outcome of a child is durable in its parent's log.
    Delivered { child: AgentId, turn: u32 },
    /// An agent waits for children.
    Wait(Wait),
    /// An agent does something to one below it.
    Manage { parent: AgentId, call: CallKey, what: Manage },
    /// That was done.
    Managed { parent: AgentId, call: CallKey, report: Box<CallReport> },
    /// A wait took too long.
    WaitTimedOut { parent: AgentId, call: CallKey },
    /// A call that others perform is to end.
    StopCall { parent: AgentId, call: CallKey },
    /// End an agent and everything below it.
    Stop(Stop),
    /// A stop took too long.
    StopTimedOut { root: AgentId, stop: u64 },
    /// Say when an agent and everything below it is at rest.
    Quiesce { top: AgentId, reply: oneshot::Sender<Result<Receipt, Error>> },
    /// Everything that a supervisor which failed had written was read.
    Inherited(Box<Inheritance>),
    /// An agent has asked again for all that it waits for: how its last turn came out, whether it has a slot, and what it
    /// pays for.
    Announced { agent: AgentId, outcome: Option<Arc<Outcome>>, has_slot: bool, in_flight: Vec<ChargeId> },
    /// Other bounds for a tree.
    SetLimits { root: AgentId, limits: LiveLimits, reply: oneshot::Sender<Result<(), Error>> },
    /// How much of its bounds a tree has in use.
    Capacity { root: AgentId, reply: oneshot::Sender<Result<Capacity, Error>> },
    /// A tree log is durable up to here.
    TreeDurable { log: AgentId, until: Seq },
    /// The store fails; it is asked again.
    StoreStalled(String),
    /// The store will not take anything from this process any more.
    StoreLost(StoreError),
    /// An actor failed.
    ActorFailed { actor: ActorId },
    /// The log of a failed agent was read back.
    Revived { id: AgentId, stored: Box<Result<Stored, Error>> },
    /// Somebody wants to speak to an agent that may only be stored.
    Wake { id: AgentId, reply: oneshot::Sender<Result<(), Error>> },
    /// The log of an agent that was only stored was read back.
    Woken { id: AgentId, stored: Box<Result<Stored, Error>> },
    /// The tree of an agent was found in the store.
    Found { id: AgentId, root: Result<AgentId, Error> },
    /// Who rests longest may have rested long enough.
    IdleDue,
    /// Take a tree that rests out of the store.
    Delete { root: AgentId, reply: oneshot::Sender<Result<(), Error>> },
    /// It was taken out, or could not be.
    Deleted { root: AgentId, deleted: Result<Vec<AgentId>, Error> },
}

/// A root that goes on from a copy is asked for.
pub(crate) struct ForkRoot {
    pub(crate) id: AgentId,
    pub(crate) from: AgentId,
    pub(crate) spec: Option<AgentSpec>,
    pub(crate) fork: Fork,
    pub(crate) reply: oneshot::Sender<Result<AgentId, Error>>,
}

/// A child is asked for.
pub(crate) struct Spawn {
    pub(crate) parent: AgentId,
    pub(crate) call: CallKey,
    pub(crate) call_id: CallId,
    pub(crate) args: SubagentArgs,
    pub(crate) chosen: Chosen,
    pub(crate) profile: Arc<Profile>,
    /// The parent as it is: what a fork shares.
    pub(crate) prefix: Agent,
    /// Whether it was asked for before, of a supervisor that failed.
    pub(crate) is_again: bool,
}

/// A wait for children.
pub(crate) struct Wait {
    pub(crate) parent: AgentId,
    pub(crate) call: CallKey,
    pub(crate) args: WaitArgs,
    /// Set when it was met and the rest is being stopped: whom it lists when they have all ended.
    pub(crate) stopping: Option<BTreeSet<AgentId>>,
}

/// The end of a subtree.
pub(crate) struct Stop {
    pub(crate) top: AgentId,
    pub(crate) cause: Cause,
    pub(crate) deadline: Duration,
    /// Nothing starts there as long as the stop lasts.
    pub(crate) halt: Option<Arc<Halt>>,
    pub(crate) reply: oneshot::Sender<Result<Receipt, Error>>,
}

/// How a wait ended.
pub(crate) struct WaitResult {
    pub(crate) done: Vec<Settled>,
    pub(crate) pending: Vec<(AgentId, AgentPath)>,
}

pub(crate) struct SupervisorInit {
    pub(crate) shared: Arc<Shared>,
    pub(crate) root: ActorCell,
    /// Whether it comes after one that failed.
    pub(crate) inherits: bool,
}

pub(crate) struct SupervisorState {
    shared: Arc<Shared>,
    root: ActorCell,
    myself: ActorRef<SupervisorMessage>,
    trees: BTreeMap<AgentId, TreeState>,
    root_of: HashMap<AgentId, AgentId>,
    actors: HashMap<ActorId, AgentId>,
    /// Set while what the one before it has written is being read.
    reading: Option<Reading>,
    /// Who waits for trees that are being read.
    opening: HashMap<AgentId, Opening>,
    /// Agents whose tree is being looked for.
    finding: HashMap<AgentId, Finding>,
    /// Trees that are being taken out of the store.
    deleting: HashMap<AgentId, Deleting>,
    /// Who has nothing to do.
    idle: Idle,
    /// Agents whose log is being read back; each task ends with the supervisor.
    reviving: HashMap<AgentId, AbortOnDropHandle<()>>,
    /// Who waits for agents that are being read back.
    wakes: Vec<Waking>,
    /// What agents do to others, while it takes its time; each task ends with the supervisor.
    managing: HashMap<(AgentId, CallKey), AbortOnDropHandle<()>>,
    lost: Option<StoreError>,
    stops: u64,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = SupervisorInit;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        init: SupervisorInit,
    ) -> Result<Self::State, ActorProcessingErr> {
        let reading = init.inherits.then(|| Reading::begin(&init.shared, &myself));
        Ok(SupervisorState {
            reading,
            shared: init.shared,
            root: init.root,
            myself,
            trees: BTreeMap::new(),
            root_of: HashMap::new(),
            actors: HashMap::new(),
            opening: HashMap::new(),
            finding: HashMap::new(),
            deleting: HashMap::new(),
            idle: Idle::default(),
            reviving: HashMap::new(),
            wakes: vec![],
            managing: HashMap::new(),
            lost: None,
            stops: 0,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: SupervisorMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.chance.linger().await;
        Ok(state.take(message)?)
    }
}

impl SupervisorState {
    /// # Errors
    /// When what a supervisor left behind cannot be read; the next one tries again.
    fn take(&mut self, message: SupervisorMessage) -> Result<(), Error> {
        let Some(message) = self.unless_reading(message) else { return Ok(()) };
        match message {
            SupervisorMessage::SpawnRoot { id, spec, reply } => {
                let _ = reply.send(self.spawn_root(id, spec));
            }
            SupervisorMessage::ForkRoot(fork) => {
                let ForkRoot { id, from, spec, fork, reply } = *fork;
                let _ = reply.send(self.fork_root(id, from, spec, fork));
            }
            SupervisorMessage::Open { id, spec, reply } => self.open(id, spec, Opener::Person(reply)),
            SupervisorMessage::Opened { id, loaded } => self.loaded(&id, *loaded),
            SupervisorMessage::Spawn(spawn) => self.spawn(*spawn),
            SupervisorMessage::AskSlot { agent, resuming, ask } => self.ask_slot(agent, resuming, ask),
            SupervisorMessage::Reserve { agent, charge, amount } => self.reserve(agent, charge, amount),
            SupervisorMessage::Settle { agent, charge, amount } => self.settle_charge(&agent, charge, amount),
            SupervisorMessage::Refill { root } => self.fund(&root),
            SupervisorMessage::BeginsAgain { agent } => {
                self.tree_of(&agent).into_iter().for_each(|tree| tree.begins_again(&agent));
            }
            SupervisorMessage::ReturnSlot { agent } => self.return_slot(&agent),
            SupervisorMessage::AgentRests { agent, handled, unread } => self.agent_rests(&agent, handled, unread),
            SupervisorMessage::TurnEnded { agent, outcome, left } => {
                let entry = self.tree_of(&agent).and_then(|tree| tree.agents.get_mut(&agent));
                entry.into_iter().for_each(|entry| entry.left.clone_from(&left));
                // What a repair closes is not an end of its own.
                let ended = self.tree_of(&agent).filter(|_| outcome.kind != OutcomeKind::Crashed);
                ended.into_iter().for_each(|tree| tree.forget_panics(&agent));
                self.turn_ended(&agent, outcome);
            }
            SupervisorMessage::Delivered { child, turn } => self.delivered(&child, turn),
            SupervisorMessage::Wait(wait) => self.wait(wait),
            SupervisorMessage::Manage { parent, call, what } => self.manage(parent, call, what),
            SupervisorMessage::Managed { parent, call, report } => self.managed(parent, call, *report),
            SupervisorMessage::WaitTimedOut { parent, call } => self.wait_timed_out(&parent, call),
            SupervisorMessage::StopCall { parent, call } => self.stop_call(&parent, call),
            SupervisorMessage::Stop(stop) => self.stop(stop),
            SupervisorMessage::StopTimedOut { root, stop } => self.stop_timed_out(&root, stop),
            SupervisorMessage::Quiesce { top, reply } => self.quiesce(&top, reply),
            SupervisorMessage::Inherited(inheritance) => return self.inherited(*inheritance),
            SupervisorMessage::Announced { agent, outcome, has_slot, in_flight } => {
                self.announced(&agent, outcome, has_slot, &in_flight);
            }
            SupervisorMessage::SetLimits { root, limits, reply } => {
                let _ = reply.send(self.set_limits(&root, limits));
            }
            SupervisorMessage::Capacity { root, reply } => {
                let _ = reply.send(self.capacity(&root));
            }
            SupervisorMessage::TreeDurable { log, until } => self.tree_durable(&log, until),
            SupervisorMessage::StoreStalled(error) => self.store_stalled(&error),
            SupervisorMessage::StoreLost(error) => self.store_lost(error),
            SupervisorMessage::ActorFailed { actor } => self.actor_failed(actor),
            SupervisorMessage::Revived { id, stored } => self.revived(id, *stored),
            SupervisorMessage::Wake { id, reply } => self.wake(&id, reply),
            SupervisorMessage::Woken { id, stored } => self.woken(&id, *stored),
            SupervisorMessage::Found { id, root } => self.found(&id, &root),
            SupervisorMessage::IdleDue => self.idle_due(),
            SupervisorMessage::Delete { root, reply } => self.delete(&root, reply),
            SupervisorMessage::Deleted { root, deleted } => self.deleted(&root, deleted),
        }
        Ok(())
    }

    fn tree_of(&mut self, agent: &AgentId) -> Option<&mut TreeState> {
        let root = self.root_of.get(agent)?;
        self.trees.get_mut(root)
    }

    fn ask_slot(&mut self, agent: AgentId, resuming: bool, ask: u64) {
        let Some(tree) = self.tree_of(&agent) else { return };
        if let Some(entry) = tree.agents.get_mut(&agent) {
            entry.ask = ask;
        }
        let Some(node) = tree.tree.node(&agent) else { return };
        let (parent, depth) = (node.parent.clone(), node.depth);
        tree.admission.ask(Applicant { agent: agent.clone(), parent, depth, resuming });
        self.grant_slots(&agent);
        let Some(tree) = self.tree_of(&agent) else { return };
        if !tree.admission.is_running(&agent) {
            let (limit, position) = (tree.admission.limit(), tree.admission.queued());
            self.say(&agent, Observed::Queued { limit, position });
        }
    }

    fn set_limits(&mut self, root: &AgentId, limits: LiveLimits) -> Result<(), Error> {
        let Some(tree) = self.trees.get_mut(root) else { return Err(Error::UnknownAgent(root.clone())) };
        self.shared.set_live_limits(root, limits);
        if let Some(running_max) = limits.running_max {
            tree.admission.set_limit(running_max);
            self.grant_slots(root);
        }
        Ok(())
    }

    fn capacity(&self, root: &AgentId) -> Result<Capacity, Error> {
        let Some(tree) = self.trees.get(root) else { return Err(Error::UnknownAgent(root.clone())) };
        let (admission, limits) = (&tree.admission, self.tree_limits(root));
        Ok(Capacity {
            running: admission.running(),
            queued: admission.queued(),
            running_max: admission.limit(),
            descendants: tree.tree.node(root).map_or(0, |node| node.descendants),
            descendants_max: limits.descendants,
            depth_max: limits.depth,
        })
    }

    fn return_slot(&mut self, agent: &AgentId) {
        if let Some(tree) = self.tree_of(agent) {
            tree.admission.release(agent);
            self.grant_slots(agent);
        }
    }

    /// Lets waiting turns of the tree of `agent` run, as far as the limit goes.
    fn grant_slots(&mut self, agent: &AgentId) {
        let Some(tree) = self.tree_of(agent).filter(|tree| tree.announcing.is_none()) else { return };
        let asks = |tree: &TreeState, agent: &AgentId| tree.agents.get(agent).map_or(0, |entry| entry.ask);
        let granted: Vec<(AgentId, u64)> =
            tree.admission.grant().into_iter().map(|agent| (agent.clone(), asks(tree, &agent))).collect();
        for (granted, ask) in granted {
            if self.shared.router.tell(&granted, AgentMessage::SlotGranted { ask }).is_err()
                && let Some(tree) = self.tree_of(&granted)
            {
                tree.admission.release(&granted);
            }
        }
    }

    fn tree_durable(&mut self, log: &AgentId, until: Seq) {
        let root = AgentId::from(log.as_str().trim_end_matches(".tree"));
        if let Some(tree) = self.trees.get_mut(&root) {
            tree.durable = tree.durable.max(until);
            self.tell_funded(&root);
            self.check_rest(&root);
            self.forget_rested(&root);
        }
    }

    fn store_stalled(&self, error: &str) {
        for root in self.trees.keys() {
            self.say(root, Observed::Stalled { error: error.to_owned() });
        }
    }

    /// Nothing can be made durable any more: everybody stops where they are, and whoever waits is told why.
    fn store_lost(&mut self, error: StoreError) {
        self.shared.close();
        for actor in self.shared.router.actors() {
            actor.stop(Some("the store is lost".into()));
        }
        for tree in self.trees.values_mut() {
            for waiter in tree.waiters.drain(..) {
                let _ = waiter.reply.send(Err(error.clone().into()));
            }
        }
        self.lost = Some(error);
    }

    /// Tells observers something about an agent.
    fn say(&self, agent: &AgentId, what: Observed) {
        let Some(tree) = self.root_of.get(agent).and_then(|root| self.trees.get(root)) else { return };
        let Some(node) = tree.tree.node(agent) else { return };
        self.shared.feed.say(impresario_seams::ObservedEvent {
            time: self.shared.chance.now(),
            root: tree.tree.root().clone(),
            agent: agent.clone(),
            path: node.path.clone(),
            parent: node.parent.clone(),
            what,
        });
    }
}
