//! Admission: whose turn may run, when not all may.
//!
//! Turns that go on come first, in the order in which they asked. New turns are taken fairly over the parents (one of
//! each before a second of any), those nearer to the root first among equals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::AgentId;

/// A limit on running turns and the queue in front of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    limit: usize,
    running: BTreeSet<AgentId>,
    resuming: VecDeque<AgentId>,
    /// By (round of the parent, depth, order of asking).
    fresh: BTreeMap<(u64, u32, u64), AgentId>,
    rounds: BTreeMap<AgentId, u64>,
    round: u64,
    asked: u64,
    waiting: BTreeMap<AgentId, Option<(u64, u32, u64)>>,
}

/// Who asks to run a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Applicant {
    /// The agent.
    pub agent: AgentId,
    /// Its parent; fairness is among parents. None for a root.
    pub parent: Option<AgentId>,
    /// 0 for a root.
    pub depth: u32,
    /// Whether its turn is open and goes on.
    pub resuming: bool,
}

impl Admission {
    /// At most `limit` turns at once, and at least one.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            running: BTreeSet::new(),
            resuming: VecDeque::new(),
            fresh: BTreeMap::new(),
            rounds: BTreeMap::new(),
            round: 0,
            asked: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Queues an agent. One that runs or waits already changes nothing.
    pub fn ask(&mut self, applicant: Applicant) {
        let Applicant { agent, parent, depth, resuming } = applicant;
        if self.running.contains(&agent) || self.waiting.contains_key(&agent) {
            return;
        }
        if resuming {
            self.waiting.insert(agent.clone(), None);
            self.resuming.push_back(agent);
            return;
        }
        let parent = parent.unwrap_or_else(|| agent.clone());
        let last = self.rounds.get(&parent).copied().unwrap_or(0);
        let round = (last + 1).max(self.round);
        self.rounds.insert(parent, round);
        self.asked += 1;
        let place = (round, depth, self.asked);
        self.waiting.insert(agent.clone(), Some(place));
        self.fresh.insert(place, agent);
    }

    /// Gives back what an agent has or waits for.
    pub fn release(&mut self, agent: &AgentId) {
        self.running.remove(agent);
        match self.waiting.remove(agent) {
            Some(Some(place)) => {
                self.fresh.remove(&place);
            }
            Some(None) => self.resuming.retain(|other| other != agent),
            None => {}
        }
    }

    /// Counts an agent that runs already, whoever let it.
    pub fn adopt(&mut self, agent: &AgentId) {
        self.release(agent);
        self.running.insert(agent.clone());
    }

    /// Lets the next ones run, as far as the limit goes.
    #[must_use]
    pub fn grant(&mut self) -> Vec<AgentId> {
        let mut granted = vec![];
        while self.running.len() < self.limit {
            let Some(agent) = self.take_next() else { break };
            self.waiting.remove(&agent);
            self.running.insert(agent.clone());
            granted.push(agent);
        }
        if self.fresh.is_empty() {
            self.rounds.clear();
            self.round = 0;
        }
        granted
    }

    fn take_next(&mut self) -> Option<AgentId> {
        if let Some(agent) = self.resuming.pop_front() {
            return Some(agent);
        }
        let ((round, _, _), agent) = self.fresh.pop_first()?;
        self.round = round;
        Some(agent)
    }

    /// Lets so many turns run at once from here on, and at least one. Those that run go on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// How many turns may run at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many wait.
    pub fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// Whether this agent may run.
    pub fn is_running(&self, agent: &AgentId) -> bool {
        self.running.contains(agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(agent: &str, parent: &str, depth: u32) -> Applicant {
        Applicant { agent: agent.into(), parent: Some(parent.into()), depth, resuming: false }
    }

    fn names(agents: &[AgentId]) -> Vec<&str> {
        agents.iter().map(AgentId::as_str).collect()
    }

    #[test]
    fn parents_take_turns_and_resuming_turns_come_first() {
        let mut admission = Admission::new(1);
        for applicant in [new("a1", "a", 1), new("a2", "a", 1), new("b1", "b", 1), new("a3", "a", 1)] {
            admission.ask(applicant);
        }
        admission.ask(Applicant { resuming: true, ..new("old", "a", 1) });
        let mut order = vec![];
        while let Some(agent) = admission.grant().pop() {
            admission.release(&agent);
            order.push(agent);
        }
        assert_eq!(names(&order), ["old", "a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn the_limit_holds_and_who_leaves_the_queue_is_not_granted() {
        let mut admission = Admission::new(2);
        for agent in ["1", "2", "3", "4"] {
            admission.ask(new(agent, "p", 1));
            admission.ask(new(agent, "p", 1));
        }
        assert_eq!(names(&admission.grant()), ["1", "2"]);
        assert!(admission.grant().is_empty());
        admission.release(&"3".into());
        admission.release(&"1".into());
        assert_eq!(names(&admission.grant()), ["4"]);
        assert_eq!((admission.running(), admission.queued()), (2, 0));
    }
}
