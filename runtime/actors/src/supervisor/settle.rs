//! Settlements: a child's outcome finds its parent exactly once.

use std::collections::BTreeSet;
use std::sync::Arc;

use impresario_kernel::event::{Fact, TreeDelivered};
use impresario_kernel::{AgentId, CallKey, CallReport, Outcome, OutcomeKind};

use super::tree::{Place, TreeState};
use super::{SupervisorMessage, SupervisorState, Wait, WaitResult};
use crate::agent::AgentMessage;
use crate::delegation::Until;

impl SupervisorState {
    pub(super) fn turn_ended(&mut self, agent: &AgentId, outcome: Arc<Outcome>) {
        let Some(tree) = self.tree_of(agent) else { return };
        let turn = outcome.turn;
        tree.settle(agent, outcome);
        if tree.announcing.is_some() {
            return;
        }
        self.refund(agent);
        let Some(tree) = self.tree_of(agent) else { return };
        let Some(parent) = tree.tree.node(agent).and_then(|node| node.parent.clone()) else { return };
        let place = tree.agents.get(&parent).map_or(Place::Failed, |entry| entry.place);
        if place == Place::Failed {
            // Nobody is there to take it; the next opening hands it on.
            return;
        }
        if tree.tree.is_delivered(agent, turn) || !tree.undelivered.insert((agent.clone(), turn)) {
            return;
        }
        if place == Place::Stored {
            // It is told when it is here. The call that asked for the child is over, or it would not have gone.
            tree.take_answered_by(agent);
            return self.fetch(&parent);
        }
        let call = tree.take_answered_by(agent);
        // A wait brings it.
        if call.is_none() && tree.waits.iter().any(|wait| covers(tree, wait, agent)) {
            self.end_waits(&parent);
            return;
        }
        if let Some(entry) = tree.agents.get_mut(agent).filter(|_| call.is_some()) {
            entry.is_read = true;
        }
        self.send_settled(&parent, agent, call);
        // A wait that was also for this child may be over.
        self.end_waits(&parent);
    }

    /// Hands a child's outcome to its parent, as the result of `call` or as a message.
    pub(super) fn send_settled(&mut self, parent: &AgentId, child: &AgentId, call: Option<CallKey>) {
        let Some(tree) = self.tree_of(child) else { return };
        let Some(settled) = tree.settled(child) else { return };
        let wakes = !tree.tree.is_stopped(parent);
        let message = AgentMessage::ChildSettled { call, settled, wakes };
        if self.shared.router.send(parent, message).is_err() {
            // It comes with the parent's next life.
            tracing::debug!(%parent, %child, "the parent is not here; the outcome waits");
        }
    }

    /// Hands on the outcomes that no call and no wait of `parent` will bring: they were held for a wait that is over, or
    /// they were on their way to an actor that is gone. What arrived before changes nothing when it comes again.
    pub(super) fn send_held(&mut self, parent: &AgentId) {
        let Some(tree) = self.tree_of(parent) else { return };
        let Some(node) = tree.tree.node(parent) else { return };
        let is_held = |child: &&AgentId| {
            tree.is_undelivered(child)
                && tree.answered_by(child).is_none()
                && !tree.waits.iter().any(|wait| covers(tree, wait, child))
        };
        let held: Vec<AgentId> = node.children.iter().filter(is_held).cloned().collect();
        held.iter().for_each(|child| self.send_settled(parent, child, None));
    }

    pub(super) fn delivered(&mut self, child: &AgentId, turn: u32) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(child) else { return };
        // A later outcome of the same child carries what an earlier one had to say.
        let told: Vec<_> = tree.undelivered.range((child.clone(), 0)..=(child.clone(), turn)).cloned().collect();
        for told in &told {
            tree.undelivered.remove(told);
        }
        if !tree.tree.is_delivered(child, turn) {
            tree.record(&shared, Fact::TreeDelivered(TreeDelivered { child: child.clone(), turn }));
        }
        let root = tree.tree.root().clone();
        self.check_rest(&root);
    }

    pub(super) fn wait(&mut self, wait: Wait) {
        let (parent, call, timeout) = (wait.parent.clone(), wait.call, wait.args.timeout());
        let Some(tree) = self.tree_of(&parent) else { return };
        if let Some(report) = in_vain(tree, &wait) {
            let _ = self.shared.router.tell(&parent, AgentMessage::CallEnded { call, report });
            return;
        }
        // The same one may be asked for again behind a supervisor that failed.
        tree.waits.retain(|wait| wait.parent != parent || wait.call != call);
        tree.waits.push(wait);
        self.end_waits(&parent);
        let Some(tree) = self.tree_of(&parent) else { return };
        if tree.waits.iter().any(|wait| wait.parent == parent && wait.call == call) {
            self.myself.send_after(timeout, move || SupervisorMessage::WaitTimedOut { parent, call });
        }
    }

    pub(super) fn wait_timed_out(&mut self, parent: &AgentId, call: CallKey) {
        let Some(tree) = self.tree_of(parent) else { return };
        if let Some(at) = tree.waits.iter().position(|wait| wait.parent == *parent && wait.call == call) {
            let wait = tree.waits.remove(at);
            self.answer_wait(&wait);
        }
    }

    /// Answers the waits of `parent` that are over.
    pub(super) fn end_waits(&mut self, parent: &AgentId) {
        let Some(tree) = self.tree_of(parent).filter(|tree| tree.announcing.is_none()) else { return };
        let waits = std::mem::take(&mut tree.waits);
        let (over, open): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|wait| wait.parent == *parent && is_over(tree, wait));
        tree.waits = open;
        over.into_iter().for_each(|wait| self.wait_is_over(wait));
    }

    /// Answers a wait that is over, or stops the rest first if it says so.
    fn wait_is_over(&mut self, mut wait: Wait) {
        let Some(tree) = self.tree_of(&wait.parent) else { return };
        if wait.stopping.is_none() && wait.args.stop_rest {
            let meant: BTreeSet<AgentId> = targets(tree, &wait).cloned().collect();
            let rest: Vec<AgentId> = meant.iter().filter(|child| !is_settled(tree, child)).cloned().collect();
            if !rest.is_empty() {
                wait.stopping = Some(meant);
                tree.waits.push(wait);
                return rest.iter().for_each(|child| self.stop_child(child));
            }
        }
        self.answer_wait(&wait);
    }

    fn answer_wait(&mut self, wait: &Wait) {
        let Some(tree) = self.tree_of(&wait.parent) else { return };
        let mut result = WaitResult { done: vec![], pending: vec![] };
        for child in targets(tree, wait) {
            match tree.settled(child).filter(|_| is_settled(tree, child)) {
                Some(settled) => result.done.push(settled),
                None => {
                    let path = tree.tree.node(child).map(|node| node.path.clone());
                    result.pending.extend(path.map(|path| (child.clone(), path)));
                }
            }
        }
        for settled in &result.done {
            if let Some(entry) = tree.agents.get_mut(&settled.child) {
                entry.is_read = true;
            }
        }
        let _ = self.shared.router.tell(&wait.parent, AgentMessage::WaitEnded { call: wait.call, result });
    }

    /// A call that waits for other agents is to end.
    pub(super) fn stop_call(&mut self, parent: &AgentId, call: CallKey) {
        if self.stop_managing(parent, call) {
            return;
        }
        let Some(tree) = self.tree_of(parent) else { return };
        if let Some(child) = tree.child_of_call(parent, call) {
            return self.cancel_child(&child);
        }
        let waited = tree.waits.iter().position(|wait| wait.parent == *parent && wait.call == call);
        if let Some(at) = waited {
            tree.waits.remove(at);
            let report = CallReport::failed("AbortError", "ABORTED", "the wait was cancelled; the agents go on");
            let _ = self.shared.router.tell(parent, AgentMessage::CallEnded { call, report });
            self.send_held(parent);
        }
        // Anything else has been answered: the answer is on its way.
    }
}

/// The children that a wait is about.
fn targets<'a>(tree: &'a TreeState, wait: &'a Wait) -> impl Iterator<Item = &'a AgentId> {
    let children = tree.tree.node(&wait.parent).map(|node| node.children.as_slice()).unwrap_or_default();
    children.iter().filter(|child| is_meant(tree, wait, child))
}

/// Whether a wait of its parent is about this child: those that it names, or all whose outcome the parent has not read.
fn is_meant(tree: &TreeState, wait: &Wait, child: &AgentId) -> bool {
    if let Some(meant) = &wait.stopping {
        return meant.contains(child);
    }
    match &wait.args.agents {
        // What answers a call of its own is no business of a wait.
        None => tree.answered_by(child).is_none() && tree.agents.get(child).is_some_and(|entry| !entry.is_read),
        Some(names) => names.iter().any(|name| is_named(tree, child, name)),
    }
}

/// By id, by path, or by the last segment of its path.
fn is_named(tree: &TreeState, child: &AgentId, name: &str) -> bool {
    let path = tree.tree.node(child).map(|node| &node.path);
    name == child.as_str() || path.is_some_and(|path| path.as_str() == name || path.segment() == name)
}

/// A wait for somebody who is not there, or for more than there are, would wait in vain: an error, for the model.
fn in_vain(tree: &TreeState, wait: &Wait) -> Option<CallReport> {
    let children = &tree.tree.node(&wait.parent)?.children;
    let names = wait.args.agents.as_deref().unwrap_or_default();
    let unknown = names.iter().find(|name| !children.iter().any(|child| is_named(tree, child, name)));
    let message = if let Some(unknown) = unknown {
        let known: Vec<&str> = children.iter().filter_map(|child| Some(tree.tree.node(child)?.path.as_str())).collect();
        format!("wait_agents: you have no subagent {unknown:?}; yours are: {}", known.join(", "))
    } else {
        let (wanted, there) = (wait.args.quorum?, targets(tree, wait).count());
        if wanted <= there {
            return None;
        }
        format!("wait_agents: a quorum of {wanted} is more than the {there} agents that this waits for")
    };
    Some(CallReport::failed("ToolArgsError", "INVALID_ARGS", &message))
}

fn covers(tree: &TreeState, wait: &Wait, child: &AgentId) -> bool {
    tree.tree.node(child).is_some_and(|node| node.parent.as_ref() == Some(&wait.parent)) && is_meant(tree, wait, child)
}

pub(super) fn is_settled(tree: &TreeState, child: &AgentId) -> bool {
    tree.agents.get(child).is_none_or(|entry| entry.outcome.is_some() && !entry.is_at_it_again)
}

fn has_completed(tree: &TreeState, child: &AgentId) -> bool {
    let outcome = tree.agents.get(child).filter(|entry| !entry.is_at_it_again).and_then(|entry| entry.outcome.as_ref());
    outcome.is_some_and(|outcome| outcome.kind == OutcomeKind::Completed)
}

fn is_over(tree: &TreeState, wait: &Wait) -> bool {
    let is_settled = |child: &AgentId| is_settled(tree, child);
    if let Some(meant) = &wait.stopping {
        return meant.iter().all(is_settled);
    }
    match wait.args.until {
        // Those that are read have settled, so all are done when no child is on its way.
        Until::All if wait.args.agents.is_none() => !tree.has_unsettled(&wait.parent),
        Until::All => targets(tree, wait).all(is_settled),
        Until::Any => targets(tree, wait).next().is_none() || targets(tree, wait).any(is_settled),
        Until::FirstSuccess | Until::Quorum => {
            let (mut completed, mut open, wanted) = (0, 0, wait.args.wanted());
            for child in targets(tree, wait) {
                completed += usize::from(has_completed(tree, child));
                open += usize::from(!is_settled(child));
            }
            completed >= wanted || completed + open < wanted
        }
    }
}
