//! Stops and rest.

use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::event::{Fact, QueueRule, TreeLifted};
use impresario_kernel::{AgentId, Cause};
use tokio::sync::oneshot;

use super::open::Opener;
use super::tree::{Stopped, TreeState, Waiter};
use super::{Stop, SupervisorMessage, SupervisorState};
use crate::agent::AgentMessage;
use crate::error::Error;
use crate::receipt::Receipt;

/// How much longer than its agents a stop itself waits, so that what they abandon is in its receipt.
const GRACE: Duration = Duration::from_secs(2);

/// How long the real ends of a child's calls are waited for when its parent's turn is cancelled.
pub(super) const CHILD_DEADLINE: Duration = Duration::from_secs(10);

impl SupervisorState {
    pub(super) fn stop(&mut self, stop: Stop) {
        if self.has_gone(&stop.top) {
            return self.find(&stop.top.clone(), Opener::Stopper(stop));
        }
        let Stop { top, cause, deadline, halt, reply } = stop;
        self.stops += 1;
        let stop = self.stops;
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.live_tree_of(&top) else {
            let _ = reply.send(Err(self.no_such(&top)));
            return;
        };
        let stone = tree.tree.tombstone(top.clone(), cause.clone());
        let epoch = stone.epoch;
        tree.record(&shared, Fact::TreeTombstoned(stone));
        tree.waiters.push(Waiter::new(&top, reply, Some(Stopped { epoch, stop, halt })));
        let root = tree.tree.root().clone();
        for agent in tree.tree.subtree(&top) {
            let (cause, queue) = (cause.clone(), QueueRule::Park);
            // An agent without an actor has nothing to cancel.
            let _ = self.shared.router.send(&agent, AgentMessage::Cancel { cause, queue, deadline });
        }
        self.myself.send_after(deadline.saturating_add(GRACE), move || SupervisorMessage::StopTimedOut { root, stop });
    }

    pub(super) fn stop_timed_out(&mut self, root: &AgentId, stop: u64) {
        let Some(tree) = self.trees.get_mut(root) else { return };
        let late =
            tree.waiters.iter().position(|waiter| waiter.stop.as_ref().is_some_and(|stopped| stopped.stop == stop));
        if let Some(waiter) = late.and_then(|at| tree.waiters.get_mut(at)) {
            // The waiter stays without anybody to answer: it lifts the tombstone when there is rest.
            let (nobody, _) = oneshot::channel();
            let reply = std::mem::replace(&mut waiter.reply, nobody);
            // Who asked may have left.
            let top = waiter.top.clone();
            let _ = reply.send(Ok(tree.receipt(&top)));
        }
    }

    pub(super) fn quiesce(&mut self, top: &AgentId, reply: oneshot::Sender<Result<Receipt, Error>>) {
        if self.has_gone(top) {
            return self.find(top, Opener::Quiescer(top.clone(), reply));
        }
        let Some(tree) = self.live_tree_of(top) else {
            let _ = reply.send(Err(self.no_such(top)));
            return;
        };
        tree.waiters.push(Waiter::new(top, reply, None));
        let root = tree.tree.root().clone();
        self.check_rest(&root);
    }

    /// Whether an agent went to the store with its whole tree.
    fn has_gone(&self, agent: &AgentId) -> bool {
        self.lost.is_none() && !self.root_of.contains_key(agent) && self.shared.router.is_passive(agent)
    }

    /// The tree that an agent belongs to, unless nothing can happen in it any more.
    fn live_tree_of(&mut self, agent: &AgentId) -> Option<&mut TreeState> {
        if self.lost.is_some() {
            return None;
        }
        self.tree_of(agent).filter(|tree| tree.tree.node(agent).is_some())
    }

    fn no_such(&self, root: &AgentId) -> Error {
        self.lost.clone().map_or_else(|| Error::UnknownAgent(root.clone()), Error::Store)
    }

    pub(super) fn agent_rests(&mut self, agent: &AgentId, handled: Option<u64>, unread: usize) {
        let Some(tree) = self.tree_of(agent) else { return };
        tree.set_rest(agent, handled);
        let parent = tree.tree.node(agent).and_then(|node| node.parent.clone());
        if handled.is_some()
            && tree.begins_nothing(agent)
            && let Some(parent) = &parent
        {
            // Whoever waits for it waits for nothing more.
            self.end_waits(parent);
        }
        let Some(tree) = self.tree_of(agent) else { return };
        if let Some(entry) = tree.agents.get_mut(agent) {
            entry.unread = unread;
        }
        let root = tree.tree.root().clone();
        handled.into_iter().for_each(|handled| self.rests(agent, handled));
        self.check_rest(&root);
    }

    /// Answers whoever waits for rest that is there now, and lifts the tombstones of the stops among them.
    pub(super) fn check_rest(&mut self, root: &AgentId) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.trees.get_mut(root) else { return };
        let mut waiters = std::mem::take(&mut tree.waiters);
        let rested: Vec<Waiter> =
            waiters.extract_if(.., |waiter| tree.is_at_rest(waiter, &self.shared.router)).collect();
        tree.waiters = waiters;
        for waiter in rested {
            let receipt = tree.receipt(&waiter.top);
            if let Some(Stopped { epoch, halt, .. }) = waiter.stop {
                tree.record(&shared, Fact::TreeLifted(TreeLifted { agent: waiter.top.clone(), epoch }));
                // Before the answer: whoever has it may go on at once.
                drop(halt);
            }
            if waiter.top == *root {
                tree.refused = 0;
            }
            // Who asked may have left.
            let _ = waiter.reply.send(Ok(receipt));
        }
        self.release_kept(root);
    }

    /// Stops a child and everything below it; nobody waits for the receipt.
    pub(super) fn stop_child(&mut self, child: &AgentId) {
        let halt = self.shared.halt(child);
        let (reply, _) = oneshot::channel();
        self.stop(Stop { top: child.clone(), cause: Cause::Parent, deadline: CHILD_DEADLINE, halt, reply });
    }

    pub(super) fn cancel_child(&self, child: &AgentId) {
        let message = AgentMessage::Cancel { cause: Cause::Parent, queue: QueueRule::Park, deadline: CHILD_DEADLINE };
        // A child without an actor has nothing to cancel.
        let _ = self.shared.router.send(child, message);
    }
}
