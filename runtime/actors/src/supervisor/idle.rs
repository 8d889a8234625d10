//! Agents that have nothing to do go to the store and keep their addresses: after a while, and sooner where more are in
//! memory than may be. A tree that is wholly there is forgotten, and read back when somebody wants something of it.

use std::collections::VecDeque;

use impresario_kernel::{AgentId, OutcomeKind};
use tokio::time::Instant;

use super::{SupervisorMessage, SupervisorState};

/// Who rests, since when, in the order in which they came to it.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// With how many messages the agent had handled then: more mean that it has worked since.
    resting: VecDeque<(Instant, AgentId, u64)>,
    /// Whether the first of them will be looked at.
    is_armed: bool,
}

impl SupervisorState {
    /// An agent came to rest.
    pub(super) fn rests(&mut self, agent: &AgentId, handled: u64) {
        let limits = &self.shared.limits;
        if limits.idle_after.is_none() && limits.resident_max.is_none() {
            return;
        }
        self.idle.resting.push_back((Instant::now(), agent.clone(), handled));
        self.arm();
        self.keep_within_ceiling();
    }

    /// Looks at who rested first when that is long enough ago.
    fn arm(&mut self) {
        let (Some(idle_after), Some((since, ..))) = (self.shared.limits.idle_after, self.idle.resting.front()) else {
            return;
        };
        if !std::mem::replace(&mut self.idle.is_armed, true) {
            let wait = idle_after.saturating_sub(since.elapsed());
            self.myself.send_after(wait, || SupervisorMessage::IdleDue);
        }
    }

    pub(super) fn idle_due(&mut self) {
        self.idle.is_armed = false;
        let Some(idle_after) = self.shared.limits.idle_after else { return };
        let is_due = |entry: &mut (Instant, AgentId, u64)| entry.0.elapsed() >= idle_after;
        while let Some((_, agent, handled)) = self.idle.resting.pop_front_if(is_due) {
            self.passivate(&agent, handled);
        }
        self.arm();
    }

    /// Sends those to the store that rest longest while there are more in memory than may be.
    pub(super) fn keep_within_ceiling(&mut self) {
        let Some(most) = self.shared.limits.resident_max else { return };
        while self.actors.len() > most {
            let Some((_, agent, handled)) = self.idle.resting.pop_front() else { return };
            self.passivate(&agent, handled);
        }
    }

    /// Sends an agent to the store, if it still rests and nothing is on its way to it.
    fn passivate(&mut self, agent: &AgentId, handled: u64) {
        let Some(root) = self.root_of.get(agent).cloned() else { return };
        let Some(root_profile) = self.shared.roots().get(&root).cloned() else { return };
        let Some(tree) = self.trees.get_mut(&root) else { return };
        if tree.agents.get(agent).is_none_or(|entry| !entry.is_live() || entry.rests != Some(handled)) {
            return;
        }
        // Somebody is about to be told how the tree rests: it goes later.
        if tree.announcing.is_some() || !tree.waiters.is_empty() {
            return tree.kept.push((agent.clone(), handled));
        }
        let Some(actor) = self.shared.router.retire(agent, handled) else { return };
        self.actors.remove(&actor.get_id());
        tree.passivated(agent, &root_profile);
        actor.stop(Some("it rests".into()));
        self.forget_rested(&root);
    }

    /// Nobody waits for rest in a tree any more: who was kept there for that may go.
    pub(super) fn release_kept(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get_mut(root) else { return };
        if tree.kept.is_empty() || tree.announcing.is_some() || !tree.waiters.is_empty() {
            return;
        }
        let now = Instant::now();
        self.idle.resting.extend(tree.kept.drain(..).map(|(agent, handled)| (now, agent, handled)));
        self.arm();
        self.keep_within_ceiling();
    }

    /// Sends all of a tree to the store that rests, whoever is in it and however long it has rested.
    pub(super) fn send_tree_away(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get(root) else { return };
        let resting = tree.agents.iter().filter_map(|(id, entry)| Some((id.clone(), entry.rests?)));
        let resting: Vec<(AgentId, u64)> = resting.collect();
        resting.into_iter().for_each(|(agent, handled)| self.passivate(&agent, handled));
    }

    /// Forgets a tree of which nothing is in memory and nothing on its way.
    pub(super) fn forget_rested(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get(root).filter(|tree| tree.is_forgettable()) else { return };
        if tree.agents.keys().any(|agent| self.reviving.contains_key(agent)) {
            return;
        }
        let Some(tree) = self.trees.remove(root) else { return };
        tree.agents.keys().for_each(|agent| drop(self.root_of.remove(agent)));
        let profile = self.shared.roots().remove(root);
        let has_answered = tree.settled(root).is_some_and(|settled| settled.outcome.kind == OutcomeKind::Completed);
        // What its log says of it is enough, unless somebody has said more.
        let kept = profile.filter(|profile| !(has_answered && profile.is_plain(&self.shared)));
        kept.into_iter().for_each(|profile| drop(self.shared.forgotten().insert(root.clone(), profile)));
    }
}
