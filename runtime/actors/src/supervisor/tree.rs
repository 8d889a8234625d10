//! One live tree: its log, its slots, who is at rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use impresario_kernel::admission::Admission;
use impresario_kernel::event::Fact;
use impresario_kernel::tree::Tree;
use impresario_kernel::wishes::Wishes;
use impresario_kernel::{AgentId, AgentPath, CallKey, ChargeId, Event, Millis, Outcome, Resource, Seq, SessionHeader};
use impresario_seams::{Batch, Head, NewSession};
use tokio::sync::oneshot;

use super::Wait;
use crate::delegation::Settled;
use crate::durability::Durability;
use crate::error::Error;
use crate::halts::Halt;
use crate::profile::Profile;
use crate::receipt::{AgentEnd, Receipt};
use crate::router::Router;
use crate::shared::Shared;

pub(crate) struct TreeState {
    pub(super) tree: Tree,
    /// Where the next fact of the tree log goes.
    pub(super) next: Seq,
    pub(super) durable: Seq,
    /// What a crash may take of it.
    durability: Durability,
    pub(super) admission: Admission,
    pub(super) agents: BTreeMap<AgentId, Entry>,
    /// Children whose outcome answers a call of their parent.
    foreground: HashMap<AgentId, (AgentId, CallKey)>,
    /// The same, by parent and call.
    asked: HashMap<(AgentId, CallKey), AgentId>,
    /// By parent, the live children that have not come to an end.
    unsettled: HashMap<AgentId, BTreeSet<AgentId>>,
    pub(super) waits: Vec<Wait>,
    /// Outcomes on their way to a parent.
    pub(super) undelivered: BTreeSet<(AgentId, u32)>,
    /// Who asks to spend and may not yet.
    pub(super) wishes: Wishes,
    /// Who may spend as soon as the tree log is durable up to a place.
    pub(super) funded: VecDeque<(Seq, AgentId, ChargeId)>,
    /// When windows are looked at again.
    pub(super) refill: Option<Millis>,
    /// Of which budgets it was said that they are nearly spent.
    pub(super) warned: BTreeSet<(AgentId, Resource)>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) refused: u32,
    /// How many live agents are not at rest.
    pub(super) busy: usize,
    /// How many agents are only stored.
    stored: usize,
    /// Who could have gone there while somebody waited for rest, with how many messages it had handled.
    pub(super) kept: Vec<(AgentId, u64)>,
    /// Behind a supervisor that failed, who has not told yet how it stands. Until all have, no turn is let run and no
    /// outcome is handed on.
    pub(super) announcing: Option<BTreeSet<AgentId>>,
    /// How often in a row the actor of an agent panicked.
    panics: HashMap<AgentId, u32>,
}

/// What is known of one agent.
pub(super) struct Entry {
    pub(super) profile: Arc<Profile>,
    /// How many messages it had handled when it said that it was at rest; `None` while it is not.
    pub(super) rests: Option<u64>,
    pub(super) place: Place,
    /// Which of its asks for a slot was the last.
    pub(super) ask: u64,
    pub(super) unread: usize,
    pub(super) outcome: Option<Arc<Outcome>>,
    /// What it has left in a workspace of its own.
    pub(super) left: Option<Arc<str>>,
    /// Whether it has begun another turn behind its outcome.
    pub(super) is_at_it_again: bool,
    /// Whether its parent has been given the outcome as the result of a call.
    pub(super) is_read: bool,
}

/// Where an agent is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// It has an actor, or will have one again in a moment.
    Live,
    /// It is only stored, until somebody wants something of it.
    Stored,
    /// Its actor failed too often: it comes back when another runtime opens its tree.
    Failed,
}

impl Entry {
    pub(super) fn is_live(&self) -> bool {
        self.place == Place::Live
    }
}

/// Somebody who waits for rest.
pub(super) struct Waiter {
    /// Of whom: this agent and everything below it.
    pub(super) top: AgentId,
    pub(super) reply: oneshot::Sender<Result<Receipt, Error>>,
    /// Set for stops.
    pub(super) stop: Option<Stopped>,
    /// Who was in the way when rest was asked about last: the first to be looked at again.
    suspect: AgentId,
}

/// What a stop keeps until there is rest.
pub(super) struct Stopped {
    /// Of the tombstone that is to be lifted.
    pub(super) epoch: u64,
    /// The number of the stop.
    pub(super) stop: u64,
    /// To be dropped when it is.
    pub(super) halt: Option<Arc<Halt>>,
}

impl Waiter {
    pub(super) fn new(top: &AgentId, reply: oneshot::Sender<Result<Receipt, Error>>, stop: Option<Stopped>) -> Self {
        Self { top: top.clone(), reply, stop, suspect: top.clone() }
    }
}

impl TreeState {
    pub(super) fn new(shared: &Shared, tree: Tree, next: Seq) -> Self {
        Self {
            announcing: None,
            panics: HashMap::new(),
            next,
            durable: next,
            durability: shared.roots().get(tree.root()).map(|profile| profile.durability).unwrap_or_default(),
            admission: Admission::new(shared.live_limits(tree.root()).running_max.unwrap_or(shared.limits.running_max)),
            tree,
            agents: BTreeMap::new(),
            foreground: HashMap::new(),
            asked: HashMap::new(),
            unsettled: HashMap::new(),
            waits: vec![],
            undelivered: BTreeSet::new(),
            wishes: Wishes::default(),
            funded: VecDeque::new(),
            refill: None,
            warned: BTreeSet::new(),
            waiters: vec![],
            refused: 0,
            busy: 0,
            stored: 0,
            kept: vec![],
        }
    }

    /// Folds a fact in and hands it to the journal.
    pub(super) fn record(&mut self, shared: &Shared, fact: Fact) {
        let event = Event::new(self.next, shared.chance.now(), fact);
        self.tree.apply(&event.fact, event.time);
        let create = (self.next == Seq(0)).then(|| tree_session(self.tree.root(), event.time));
        self.next = event.next_seq();
        let session = self.tree.root().tree_log();
        let batch = Batch { session, create, events: vec![Arc::new(event)], head: Head::default() };
        shared.append(batch, self.durability);
    }

    /// Adds an agent; a live one is busy until it says otherwise.
    pub(super) fn add(&mut self, id: AgentId, profile: Arc<Profile>, outcome: Option<Arc<Outcome>>, place: Place) {
        let is_live = place == Place::Live;
        self.busy += usize::from(is_live);
        self.stored += usize::from(place == Place::Stored);
        if let Some(parent) = profile.birth.parent.clone().filter(|_| is_live && outcome.is_none()) {
            self.unsettled.entry(parent).or_default().insert(id.clone());
        }
        let entry = Entry {
            profile,
            rests: None,
            place,
            ask: 0,
            unread: 0,
            outcome,
            left: None,
            is_at_it_again: false,
            is_read: !is_live,
        };
        self.agents.insert(id, entry);
    }

    /// The outcome of `child` will answer a call of its parent.
    pub(super) fn answers(&mut self, child: &AgentId, parent: &AgentId, call: CallKey) {
        self.foreground.insert(child.clone(), (parent.clone(), call));
        self.asked.insert((parent.clone(), call), child.clone());
    }

    /// The call that the outcome of `child` will answer.
    pub(super) fn answered_by(&self, child: &AgentId) -> Option<CallKey> {
        self.foreground.get(child).map(|(_, call)| *call)
    }

    /// As [`TreeState::answered_by`]; from here on it is answered.
    pub(super) fn take_answered_by(&mut self, child: &AgentId) -> Option<CallKey> {
        let answered = self.foreground.remove(child)?;
        self.asked.remove(&answered);
        Some(answered.1)
    }

    /// The child whose outcome will answer a call of `parent`.
    pub(super) fn child_of_call(&self, parent: &AgentId, call: CallKey) -> Option<AgentId> {
        self.asked.get(&(parent.clone(), call)).cloned()
    }

    /// An agent that rests has gone to the store. What it is made of is read back with it.
    pub(super) fn passivated(&mut self, agent: &AgentId, root: &Arc<Profile>) {
        let Some(entry) = self.agents.get_mut(agent).filter(|entry| entry.is_live()) else { return };
        entry.place = Place::Stored;
        entry.profile = Arc::clone(root);
        self.stored += 1;
    }

    /// Takes out what is known of an agent that begins another life.
    pub(super) fn take(&mut self, agent: &AgentId) -> Option<Entry> {
        let entry = self.agents.remove(agent)?;
        self.busy -= usize::from(entry.is_live() && entry.rests.is_none());
        self.stored -= usize::from(entry.place == Place::Stored);
        Some(entry)
    }

    /// Whether the tree can be forgotten: all of it is stored, nobody is on the way and nobody waits.
    pub(super) fn is_forgettable(&self) -> bool {
        self.durable == self.next
            && self.announcing.is_none()
            && self.undelivered.is_empty()
            && self.waiters.is_empty()
            && self.waits.is_empty()
            && self.busy == 0
            && self.agents.len() == self.stored
    }

    /// An agent came to an end of a turn.
    pub(super) fn settle(&mut self, agent: &AgentId, outcome: Arc<Outcome>) {
        let Some(entry) = self.agents.get_mut(agent) else { return };
        entry.outcome = Some(outcome);
        entry.is_at_it_again = false;
        let parent = entry.profile.birth.parent.as_ref();
        if let Some(siblings) = parent.and_then(|parent| self.unsettled.get_mut(parent)) {
            siblings.remove(agent);
        }
    }

    /// A turn of `agent` is about to begin. If it is not its first, another outcome will come, which nobody has read.
    pub(super) fn begins_again(&mut self, agent: &AgentId) {
        let Some(entry) = self.agents.get_mut(agent).filter(|entry| entry.outcome.is_some()) else { return };
        entry.is_at_it_again = true;
        entry.is_read = false;
        if let Some(parent) = entry.profile.birth.parent.clone() {
            self.unsettled.entry(parent).or_default().insert(agent.clone());
        }
    }

    /// `agent` is at rest: what was about to begin did not. Whether something was.
    pub(super) fn begins_nothing(&mut self, agent: &AgentId) -> bool {
        let Some(entry) = self.agents.get_mut(agent).filter(|entry| entry.is_at_it_again) else { return false };
        entry.is_at_it_again = false;
        let parent = entry.profile.birth.parent.as_ref();
        if let Some(siblings) = parent.and_then(|parent| self.unsettled.get_mut(parent)) {
            siblings.remove(agent);
        }
        true
    }

    /// Counts a panic of the actor of `agent`: how many that makes in a row.
    pub(super) fn count_panic(&mut self, agent: &AgentId) -> u32 {
        let panics = self.panics.entry(agent.clone()).or_default();
        *panics += 1;
        *panics
    }

    /// How often in a row the actor of `agent` has panicked.
    pub(super) fn panics(&self, agent: &AgentId) -> u32 {
        self.panics.get(agent).copied().unwrap_or_default()
    }

    /// A turn of `agent` came to an end of its own: the next panic begins a new row.
    pub(super) fn forget_panics(&mut self, agent: &AgentId) {
        self.panics.remove(agent);
    }

    /// Who waits for children, perhaps more than once.
    pub(super) fn waiting(&self) -> impl Iterator<Item = AgentId> {
        self.waits.iter().map(|wait| wait.parent.clone())
    }

    /// Whether a live child of `parent` has not come to an end yet.
    pub(super) fn has_unsettled(&self, parent: &AgentId) -> bool {
        self.unsettled.get(parent).is_some_and(|children| !children.is_empty())
    }

    /// Whether an outcome of `child` is on its way to its parent.
    pub(super) fn is_undelivered(&self, child: &AgentId) -> bool {
        self.undelivered.range((child.clone(), 0)..=(child.clone(), u32::MAX)).next().is_some()
    }

    pub(super) fn set_rest(&mut self, agent: &AgentId, rests: Option<u64>) {
        let Some(entry) = self.agents.get_mut(agent).filter(|entry| entry.is_live()) else { return };
        match (entry.rests, rests) {
            (None, Some(_)) => self.busy -= 1,
            (Some(_), None) => self.busy += 1,
            (None, None) | (Some(_), Some(_)) => {}
        }
        entry.rests = rests;
    }

    /// Nothing that the waiter asks about runs, waits to run, is on its way, or is still to be written.
    pub(super) fn is_at_rest(&self, waiter: &mut Waiter, router: &Router) -> bool {
        if self.durable < self.next || self.announcing.is_some() {
            return false;
        }
        let restless = |id: &AgentId| {
            let entry = self.agents.get(id).filter(|entry| entry.is_live());
            // An actor that failed at rest comes back, and closes its log first.
            entry.is_some_and(|entry| entry.rests.is_none() || router.sent_if_here(id) != entry.rests)
        };
        // Asked again and again while ten thousand come to rest, this looks at each of them about once.
        if restless(&waiter.suspect) {
            return false;
        }
        let found = if waiter.top == *self.tree.root() {
            if self.busy > 0 || !self.undelivered.is_empty() {
                return false;
            }
            let from_suspect = self.agents.range::<AgentId, _>(&waiter.suspect..);
            let all = from_suspect.chain(self.agents.range::<AgentId, _>(..&waiter.suspect));
            all.map(|(id, _)| id).find(|id| restless(id)).cloned()
        } else {
            // What the top itself has to say is for those above it.
            let is_within =
                |child: &AgentId| *child != waiter.top && self.tree.lineage(child).any(|id| *id == waiter.top);
            if self.undelivered.iter().any(|(child, _)| is_within(child)) {
                return false;
            }
            self.tree.subtree(&waiter.top).into_iter().find(restless)
        };
        let Some(found) = found else { return true };
        waiter.suspect = found;
        false
    }

    /// How the agents at and below `top` are.
    pub(super) fn receipt(&self, top: &AgentId) -> Receipt {
        let below = self.tree.subtree(top);
        let parked = below.iter().filter_map(|id| self.agents.get(id)).map(|entry| entry.unread).sum::<usize>();
        let agents = below.into_iter().map(|id| {
            let entry = self.agents.get(&id);
            AgentEnd {
                path: self.tree.node(&id).map_or_else(AgentPath::root, |node| node.path.clone()),
                outcome: entry.and_then(|entry| entry.outcome.as_ref()).map(|outcome| outcome.kind),
                at_rest: entry.is_none_or(|entry| !entry.is_live() || entry.rests.is_some()),
                id,
            }
        });
        Receipt { agents: agents.collect(), refused: self.refused, parked: u32::try_from(parked).unwrap_or(u32::MAX) }
    }

    /// How `child` came out, if it has.
    pub(super) fn settled(&self, child: &AgentId) -> Option<Settled> {
        let outcome = self.agents.get(child)?.outcome.clone()?;
        let path = self.tree.node(child)?.path.clone();
        let left = self.agents.get(child)?.left.clone();
        Some(Settled { child: child.clone(), path, outcome, left })
    }
}

/// The session of a tree's log.
pub(crate) fn tree_session(root: &AgentId, created_at: Millis) -> Arc<NewSession> {
    let header = SessionHeader::new(root.tree_log(), created_at);
    let path = AgentPath::root();
    Arc::new(NewSession { header, root: root.clone(), path, label: "tree".into(), fork: None })
}
