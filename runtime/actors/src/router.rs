//! Addresses: an agent keeps its address while its actor comes and goes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::{DashMap, DashSet};
use impresario_kernel::AgentId;
use ractor::{ActorRef, ActorStatus};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::agent::AgentMessage;
use crate::halts::Standing;
use crate::profile::Profile;

/// Who is where. Lock-free for readers.
#[derive(Default)]
pub(crate) struct Router {
    slots: DashMap<AgentId, Slot>,
    /// Agents of this runtime that have gone to the store until somebody wants something of them.
    passive: DashSet<AgentId>,
    /// The workspaces of agents that have gone there.
    left: Mutex<BTreeSet<String>>,
    is_closed: AtomicBool,
    changed: Notify,
}

struct Slot {
    actor: ActorRef<AgentMessage>,
    profile: Arc<Profile>,
    sent: AtomicU64,
}

/// Whether there is somebody at an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    /// An actor takes messages.
    Here,
    /// The actor is gone, and another one is on its way.
    Coming,
    /// The actor is gone for good.
    Gone,
}

/// There is nobody at this address now.
#[derive(Debug)]
pub(crate) struct Unreachable;

impl Router {
    /// Makes an actor reachable. It has been sent nothing yet: what was on its way to an earlier one went with that.
    pub(crate) fn connect(&self, id: &AgentId, profile: Arc<Profile>, actor: ActorRef<AgentMessage>) {
        self.slots.insert(id.clone(), Slot { actor, profile, sent: AtomicU64::new(0) });
        self.passive.remove(id);
        self.changed.notify_waiters();
    }

    /// Takes an actor away that has handled all that it was sent, `handled` messages: whoever sends from now on finds
    /// nobody, and asks for it. `None` when something more is on its way to it.
    pub(crate) fn retire(&self, id: &AgentId, handled: u64) -> Option<ActorRef<AgentMessage>> {
        // Whoever sends holds the slot meanwhile, so nothing comes in between.
        let is_rested = |_: &AgentId, slot: &Slot| slot.sent.load(Ordering::SeqCst) == handled;
        let (_, slot) = self.slots.remove_if(id, is_rested)?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(slot.profile.birth.workspace.clone());
        self.passive.insert(id.clone());
        Some(slot.actor)
    }

    /// Whether an agent has gone to the store until somebody wants something of it.
    pub(crate) fn is_passive(&self, id: &AgentId) -> bool {
        self.passive.contains(id)
    }

    /// Forgets an agent that was deleted.
    pub(crate) fn forget(&self, id: &AgentId) {
        self.passive.remove(id);
    }

    pub(crate) fn disconnect(&self, id: &AgentId) {
        self.slots.remove(id);
        self.changed.notify_waiters();
    }

    /// Nobody who is gone comes back any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Wakes whoever waits for somebody: there is a supervisor again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// What an agent is made of and its actor, which may be gone; `None` when the agent is gone for good.
    pub(crate) fn resident(&self, id: &AgentId) -> Option<(Arc<Profile>, ActorRef<AgentMessage>)> {
        self.slots.get(id).map(|slot| (Arc::clone(&slot.profile), slot.actor.clone()))
    }

    /// Whether nobody who is gone comes back.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The next time that somebody comes or goes; counts from this call on.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether somebody is at this address now, or will be.
    pub(crate) fn presence(&self, id: &AgentId) -> Presence {
        match self.slots.get(id).filter(|_| !self.is_closed()) {
            None => Presence::Gone,
            Some(slot) if slot.actor.get_status() < ActorStatus::Stopping => Presence::Here,
            Some(_) => Presence::Coming,
        }
    }

    /// Sends something that may give the agent work. It is counted before it is sent, so that nobody can believe the
    /// agent at rest while it is on its way.
    pub(crate) fn send(&self, id: &AgentId, message: AgentMessage) -> Result<(), Unreachable> {
        let slot = self.slots.get(id).ok_or(Unreachable)?;
        slot.sent.fetch_add(1, Ordering::SeqCst);
        slot.actor.cast(message).map_err(|_| {
            slot.sent.fetch_sub(1, Ordering::SeqCst);
            Unreachable
        })
    }

    /// Tells the agent something that it waits for: it is not at rest, so this needs no count.
    pub(crate) fn tell(&self, id: &AgentId, message: AgentMessage) -> Result<(), Unreachable> {
        let slot = self.slots.get(id).ok_or(Unreachable)?;
        slot.actor.cast(message).map_err(|_| Unreachable)
    }

    /// How much was sent to the agent so far; `None` if it is not here.
    pub(crate) fn sent(&self, id: &AgentId) -> Option<u64> {
        self.slots.get(id).map(|slot| slot.sent.load(Ordering::SeqCst))
    }

    /// As [`Router::sent`], and `None` too while its actor is gone.
    pub(crate) fn sent_if_here(&self, id: &AgentId) -> Option<u64> {
        let slot = self.slots.get(id)?;
        (slot.actor.get_status() < ActorStatus::Stopping).then(|| slot.sent.load(Ordering::SeqCst))
    }

    /// Where the agent stands, if it is here.
    pub(crate) fn standing(&self, id: &AgentId) -> Option<Standing> {
        self.slots.get(id).map(|slot| (slot.profile.birth.root.clone(), slot.profile.birth.path.clone()))
    }

    /// Ends an actor without a word, as a failure would.
    pub(crate) fn kill(&self, id: &AgentId) {
        if let Some(slot) = self.slots.get(id) {
            // Its end is on its way to it: until the one after it is here, nobody may take it for at rest.
            slot.sent.fetch_add(1, Ordering::SeqCst);
            slot.actor.kill();
        }
    }

    /// The workspaces of those who are here, and of those who were.
    pub(crate) fn workspaces(&self) -> BTreeSet<String> {
        let here = self.slots.iter().filter_map(|slot| slot.profile.birth.workspace.clone());
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).clone();
        here.chain(left).collect()
    }

    /// How many have an actor.
    pub(crate) fn resident_count(&self) -> usize {
        self.slots.len()
    }

    /// Everybody who has an actor.
    pub(crate) fn actors(&self) -> Vec<ActorRef<AgentMessage>> {
        self.slots.iter().map(|slot| slot.actor.clone()).collect()
    }
}
