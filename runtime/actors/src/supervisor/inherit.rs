//! A supervisor behind one that failed. What was written it reads; all else it is told by the agents, who went on
//! meanwhile: each asks again for what it waits for, and says then how it stands. Until all have, no turn is let run and
//! no outcome is handed on, for it may be the answer to a call that is still to be told of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::event::{Fact, QueueRule, TreeRefused};
use impresario_kernel::tree::{NodeState, Tree};
use impresario_kernel::{AgentId, CallId, CallKey, Cause, ChargeId, Outcome, Seq};
use impresario_seams::StoreError;
use ractor::{ActorRef, ActorStatus};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::tree::{Place, Stopped, TreeState, Waiter};
use super::{SupervisorMessage, SupervisorState};
use crate::agent::AgentMessage;
use crate::error::Error;
use crate::recovery;
use crate::shared::Shared;

/// What the supervisor before this one has written is being read.
pub(super) struct Reading {
    /// What people asked, and failures, in order.
    held: Vec<SupervisorMessage>,
    _reader: AbortOnDropHandle<()>,
}

/// What a supervisor leaves to the next one.
pub(crate) enum Inheritance {
    Trees(Vec<InheritedTree>),
    /// Nothing can be written any more.
    Lost(StoreError),
    Unreadable(Error),
}

/// A tree as it was written.
pub(crate) struct InheritedTree {
    pub(crate) tree: Tree,
    pub(crate) next: Seq,
    pub(crate) members: Vec<(AgentId, Member)>,
}

/// An agent that has a place in a tree.
pub(crate) enum Member {
    /// It has an actor, or will have one again.
    Resident,
    /// It is only stored.
    Stored(Option<Arc<Outcome>>),
    /// Its actor failed too often.
    Failed(Arc<Outcome>),
    /// It has a place and was never written.
    Unborn,
}

impl Reading {
    pub(super) fn begin(shared: &Arc<Shared>, myself: &ActorRef<SupervisorMessage>) -> Self {
        let (shared, myself) = (Arc::clone(shared), myself.clone());
        let reader = tokio::spawn(async move {
            let inheritance = match shared.journal.flush().await {
                Ok(Ok(())) => recovery::inherit(&shared).await.map_or_else(Inheritance::Unreadable, Inheritance::Trees),
                Ok(Err(lost)) => Inheritance::Lost(lost),
                Err(_) => Inheritance::Unreadable(Error::Closed),
            };
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Inherited(Box::new(inheritance)));
        });
        Self { held: vec![], _reader: AbortOnDropHandle::new(reader) }
    }
}

impl SupervisorState {
    /// Gives the message back if it may be handled now. While the trees are being read, what people ask is kept for
    /// later, and what agents ask is not: they ask it again.
    pub(super) fn unless_reading(&mut self, message: SupervisorMessage) -> Option<SupervisorMessage> {
        let Some(reading) = &mut self.reading else { return Some(message) };
        match message {
            SupervisorMessage::Inherited(_) => return Some(message),
            SupervisorMessage::SpawnRoot { .. }
            | SupervisorMessage::ForkRoot(_)
            | SupervisorMessage::Open { .. }
            | SupervisorMessage::Stop(_)
            | SupervisorMessage::Quiesce { .. }
            | SupervisorMessage::Wake { .. }
            | SupervisorMessage::SetLimits { .. }
            | SupervisorMessage::Capacity { .. }
            | SupervisorMessage::ActorFailed { .. }
            | SupervisorMessage::Settle { .. }
            | SupervisorMessage::Delete { .. }
            | SupervisorMessage::StoreStalled(_)
            | SupervisorMessage::StoreLost(_) => reading.held.push(message),
            SupervisorMessage::Opened { .. }
            | SupervisorMessage::Spawn(_)
            | SupervisorMessage::AskSlot { .. }
            | SupervisorMessage::Reserve { .. }
            | SupervisorMessage::Refill { .. }
            | SupervisorMessage::BeginsAgain { .. }
            | SupervisorMessage::ReturnSlot { .. }
            | SupervisorMessage::AgentRests { .. }
            | SupervisorMessage::TurnEnded { .. }
            | SupervisorMessage::Delivered { .. }
            | SupervisorMessage::Wait(_)
            | SupervisorMessage::Manage { .. }
            | SupervisorMessage::Managed { .. }
            | SupervisorMessage::WaitTimedOut { .. }
            | SupervisorMessage::StopCall { .. }
            | SupervisorMessage::StopTimedOut { .. }
            | SupervisorMessage::Announced { .. }
            | SupervisorMessage::TreeDurable { .. }
            | SupervisorMessage::Woken { .. }
            | SupervisorMessage::Found { .. }
            | SupervisorMessage::IdleDue
            | SupervisorMessage::Deleted { .. }
            | SupervisorMessage::Revived { .. } => {}
        }
        None
    }

    /// # Errors
    /// When the trees cannot be read: what people asked goes to the next one with this one's end.
    pub(super) fn inherited(&mut self, inheritance: Inheritance) -> Result<(), Error> {
        let held = self.reading.take().map(|reading| reading.held).unwrap_or_default();
        match inheritance {
            Inheritance::Trees(trees) => trees.into_iter().for_each(|tree| self.inherit(tree)),
            Inheritance::Lost(error) => self.store_lost(error),
            Inheritance::Unreadable(error) => return Err(error),
        }
        held.into_iter().try_for_each(|message| self.take(message))
    }

    fn inherit(&mut self, inherited: InheritedTree) {
        let InheritedTree { tree, next, members } = inherited;
        let (shared, root) = (Arc::clone(&self.shared), tree.root().clone());
        let Some(root_profile) = shared.roots().get(&root).cloned() else { return };
        let mut state = TreeState::new(&shared, tree, next);
        let mut residents = vec![];
        for (id, member) in members {
            if !matches!(member, Member::Unborn) {
                self.root_of.insert(id.clone(), root.clone());
            }
            match member {
                Member::Resident => {
                    // It was started and is there; that may not have been written.
                    let is_new = state.tree.node(&id).is_some_and(|node| node.state == NodeState::Reserved);
                    if let Some(published) = is_new.then(|| state.tree.publish(&id).ok()).flatten() {
                        state.record(&shared, Fact::TreePublished(published));
                    }
                    residents.push(id);
                }
                Member::Stored(outcome) => state.add(id, Arc::clone(&root_profile), outcome, Place::Stored),
                Member::Failed(outcome) => state.add(id, Arc::clone(&root_profile), Some(outcome), Place::Failed),
                Member::Unborn => {
                    let reason = "the supervisor failed first".into();
                    state.record(&shared, Fact::TreeRefused(TreeRefused { child: id, reason }));
                }
            }
        }
        state.announcing = Some(BTreeSet::new());
        self.trees.insert(root.clone(), state);
        self.meet(&root, residents);
    }

    /// Takes over the actors of a tree.
    fn meet(&mut self, root: &AgentId, residents: Vec<AgentId>) {
        let mut failed = vec![];
        for id in residents {
            let Some((profile, actor)) = self.shared.router.resident(&id) else { continue };
            let Some(tree) = self.trees.get_mut(root) else { return };
            tree.add(id.clone(), profile, None, Place::Live);
            if let Some(announcing) = &mut tree.announcing {
                announcing.insert(id.clone());
            }
            self.actors.insert(actor.get_id(), id.clone());
            let is_told = self.shared.router.send(&id, AgentMessage::Announce).is_ok();
            // Of an actor that fails only now, its failure tells.
            if !is_told || actor.get_status() >= ActorStatus::Stopping {
                failed.push(actor.get_id());
            }
        }
        failed.into_iter().for_each(|actor| self.actor_failed(actor));
        self.go_on(root);
    }

    pub(super) fn announced(
        &mut self,
        agent: &AgentId,
        outcome: Option<Arc<Outcome>>,
        has_slot: bool,
        in_flight: &[ChargeId],
    ) {
        let Some(tree) = self.tree_of(agent) else { return };
        // The actor failed behind this.
        if !tree.announcing.as_ref().is_some_and(|announcing| announcing.contains(agent)) {
            return;
        }
        if has_slot {
            tree.admission.adopt(agent);
        }
        if let Some(outcome) = outcome {
            let is_read = tree.tree.is_delivered(agent, outcome.turn);
            tree.settle(agent, outcome);
            if let Some(entry) = tree.agents.get_mut(agent) {
                entry.is_read = is_read;
            }
        }
        if has_slot && let Some(tree) = self.tree_of(agent) {
            tree.begins_again(agent);
        }
        self.settle_all_but(agent, in_flight);
        self.has_announced(agent);
    }

    /// An agent has said how it stands, or has failed and will not.
    pub(super) fn has_announced(&mut self, agent: &AgentId) {
        let Some(tree) = self.tree_of(agent) else { return };
        let root = tree.tree.root().clone();
        let Some(announcing) = &mut tree.announcing else { return };
        announcing.remove(agent);
        self.go_on(&root);
    }

    /// Once all have announced themselves, does what was to wait for that.
    fn go_on(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get_mut(root) else { return };
        if !tree.announcing.as_ref().is_some_and(BTreeSet::is_empty) {
            return;
        }
        let outcome = |(id, entry): (&AgentId, &super::tree::Entry)| Some((id.clone(), entry.outcome.clone()?));
        let ended: Vec<_> = tree.agents.iter().filter_map(outcome).collect();
        ended.iter().for_each(|(agent, outcome)| self.answer_call(agent, outcome.turn));
        // From here on waits are answered: they list what no call brings.
        if let Some(tree) = self.trees.get_mut(root) {
            tree.announcing = None;
        }
        ended.into_iter().for_each(|(agent, outcome)| self.turn_ended(&agent, outcome));
        self.inherit_stops(root);
        self.grant_slots(root);
        self.refund_all(root);
        let waiting: BTreeSet<AgentId> = self.trees.get(root).into_iter().flat_map(TreeState::waiting).collect();
        waiting.iter().for_each(|parent| self.end_waits(parent));
        self.check_rest(root);
    }

    /// Answers the call that asked for a child which has ended. A parent that has the outcome and still waits for the
    /// call is told again: another word does no harm, silence would.
    fn answer_call(&mut self, child: &AgentId, turn: u32) {
        let Some(tree) = self.tree_of(child) else { return };
        let Some(parent) = tree.tree.node(child).and_then(|node| node.parent.clone()) else { return };
        let Some(call) = tree.take_answered_by(child) else { return };
        if !tree.tree.is_delivered(child, turn) {
            tree.undelivered.insert((child.clone(), turn));
        }
        if let Some(entry) = tree.agents.get_mut(child) {
            entry.is_read = true;
        }
        self.send_settled(&parent, child, Some(call));
    }

    /// Brings the stops to their end that nobody asks about any more; who still waits for one has asked for it again.
    fn inherit_stops(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get_mut(root) else { return };
        for (top, epoch) in tree.tree.tombstones().clone() {
            let is_kept = |waiter: &Waiter| waiter.stop.as_ref().is_some_and(|stop| stop.epoch == epoch);
            if tree.waiters.iter().any(is_kept) {
                continue;
            }
            self.stops += 1;
            let halt = self.shared.halt(&top);
            let (nobody, _) = oneshot::channel();
            tree.waiters.push(Waiter::new(&top, nobody, Some(Stopped { epoch, stop: self.stops, halt })));
            for agent in tree.tree.subtree(&top) {
                let (cause, queue, deadline) = (Cause::Disposed, QueueRule::Park, Duration::ZERO);
                // An agent without an actor has nothing to cancel.
                let _ = self.shared.router.send(&agent, AgentMessage::Cancel { cause, queue, deadline });
            }
        }
    }

    /// The child that the supervisor before this one made for a call.
    pub(super) fn child_asked_for(&mut self, parent: &AgentId, call: &CallId) -> Option<AgentId> {
        let tree = &self.tree_of(parent)?.tree;
        let is_asked = |child: &&AgentId| {
            let node = tree.node(child).filter(|node| node.state != NodeState::Refused);
            node.is_some_and(|node| node.call.as_ref() == Some(call))
        };
        // A provider that gives ids twice means the later one.
        tree.node(parent)?.children.iter().rev().find(is_asked).cloned()
    }

    /// A child that is there was asked for again: its answer will find the call.
    pub(super) fn asked_again(&mut self, child: &AgentId, parent: &AgentId, call: CallKey, background: bool) {
        let Some(tree) = self.tree_of(child) else { return };
        if !background {
            return tree.answers(child, parent, call);
        }
        if let Some(path) = tree.tree.node(child).map(|node| node.path.clone()) {
            self.tell_started(child, &path, parent, call);
        }
    }
}
