//! The tree of a root: who spawned whom, what may still be spawned, and whose outcome has arrived.
//!
//! A fold of the tree log, which the supervisor alone writes. It knows places and tombstones; content and outcomes are
//! in the agents' own logs.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::Budget;
use crate::event::{
    BudgetDrawn, BudgetRefunded, BudgetReserved, BudgetSettled, Context, Fact, TreeChild, TreeReserved, TreeTombstoned,
};
use crate::id::{AgentId, AgentPath, CallId, Millis};
use crate::ledger::{Ledger, TooMuch};
use crate::outcome::Cause;

/// The longest segment of a path, in bytes.
const SEGMENT_MAX: usize = 40;

/// The agents of one root.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    root: AgentId,
    nodes: BTreeMap<AgentId, Node>,
    /// Every path in use, with the number that the next sibling of the same label tries first.
    paths: BTreeMap<AgentPath, u32>,
    tombstones: BTreeMap<AgentId, u64>,
    epoch: u64,
    ledger: Ledger,
}

/// One agent's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Who spawned it; none for the root.
    pub parent: Option<AgentId>,
    /// Where it stands.
    pub path: AgentPath,
    /// What it is for.
    pub label: String,
    /// 0 for the root.
    pub depth: u32,
    /// How it started.
    pub context: Context,
    /// Whether its parent goes on meanwhile.
    pub background: bool,
    /// The call that asked for it.
    pub call: Option<CallId>,
    /// How far it is.
    pub state: NodeState,
    /// Its children, in the order in which they were asked for.
    pub children: Vec<AgentId>,
    /// How many descendants it may have; `None` is no limit of its own.
    pub may_spawn: Option<u32>,
    /// How many descendants it has had.
    pub descendants: u32,
    /// As in [`Ask::prompt`].
    pub prompt: Option<u64>,
    /// How many of its children had no label.
    unlabelled: u32,
    delivered: BTreeSet<u32>,
}

/// How far a place is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeState {
    /// Taken; the child is not there yet.
    Reserved,
    /// The child is there and has its first prompt.
    Published,
    /// Given back; the child never was.
    Refused,
}

/// A wish for a child.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The id that it will have.
    pub child: AgentId,
    /// Who asks.
    pub parent: AgentId,
    /// What it is for, if the parent says so.
    pub label: Option<String>,
    /// How it starts.
    pub context: Context,
    /// Whether the parent goes on meanwhile.
    pub background: bool,
    /// The asking call.
    pub call: Option<CallId>,
    /// How many descendants it may have.
    pub may_spawn: u32,
    /// A number for its prompt: equal prompts have equal ones.
    pub prompt: Option<u64>,
}

/// How large a tree may grow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TreeLimits {
    /// Depth; the root is at 0.
    pub depth: u32,
    /// Descendants of the root, all that ever were.
    pub descendants: u32,
    /// How many agents above a child may have been given the very prompt that it is given.
    pub same_prompt: u32,
}

/// Why there will be no such child.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpawnRefused {
    /// Too deep.
    #[error("the tree may be {limit} deep and a child would be at depth {depth}; do the work yourself")]
    Depth {
        /// How deep the child would be.
        depth: u32,
        /// The limit.
        limit: u32,
    },
    /// Too many.
    #[error("the tree has had {limit} subagents, which is its limit; do the rest yourself")]
    Descendants {
        /// The limit.
        limit: u32,
    },
    /// The asker, or an agent above it, has no right left to spawn.
    #[error("you may have {limit} subagents and have had them; do the work yourself")]
    NotGranted {
        /// How many were granted.
        limit: u32,
    },
    /// The asker has less left to spend than it wants to give away.
    #[error("{0}; ask for less, or leave the budget out and let it spend from yours")]
    Budget(TooMuch),
    /// The work goes round in circles.
    #[error("{times} agents above have been given this very task; say what is left of it, or do it yourself")]
    Loop {
        /// How many of them.
        times: u32,
    },
    /// The subtree is being stopped.
    #[error("this part of the tree is being stopped")]
    Stopped,
    /// The asker is not part of the tree.
    #[error("the asking agent is not part of this tree")]
    UnknownParent,
}

impl SpawnRefused {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Depth { .. } => "DEPTH_LIMIT",
            Self::Descendants { .. } => "DESCENDANTS_LIMIT",
            Self::NotGranted { .. } => "SPAWN_NOT_GRANTED",
            Self::Budget(_) => "BUDGET",
            Self::Loop { .. } => "DELEGATION_LOOP",
            Self::Stopped => "STOPPED",
            Self::UnknownParent => "UNKNOWN_PARENT",
        }
    }
}

impl Tree {
    /// A root without children.
    pub fn new(root: AgentId) -> Self {
        let node = Node {
            parent: None,
            path: AgentPath::root(),
            label: "root".into(),
            depth: 0,
            context: Context::Fresh,
            background: false,
            call: None,
            state: NodeState::Published,
            children: vec![],
            may_spawn: None,
            descendants: 0,
            prompt: None,
            unlabelled: 0,
            delivered: BTreeSet::new(),
        };
        let paths = BTreeMap::from([(AgentPath::root(), 2)]);
        let nodes = BTreeMap::from([(root.clone(), node)]);
        Self { root, nodes, paths, tombstones: BTreeMap::new(), epoch: 0, ledger: Ledger::default() }
    }

    /// The root.
    pub fn root(&self) -> &AgentId {
        &self.root
    }

    /// One agent's place.
    pub fn node(&self, id: &AgentId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// What may be spent, and what was.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The agent and those above it, nearest first, as the ledger takes them.
    pub fn line_of(&self, agent: &AgentId) -> Vec<AgentId> {
        self.lineage(agent).cloned().collect()
    }

    /// Those of `agent` and the agents above it that have an account, nearest first.
    pub fn accounts_above(&self, agent: &AgentId) -> Vec<AgentId> {
        self.lineage(agent).filter(|id| self.ledger.budget(id).is_some()).cloned().collect()
    }

    /// Who has a budget, the deepest first.
    pub fn budgeted(&self) -> Vec<AgentId> {
        let mut owners: Vec<AgentId> = self.ledger.owners().cloned().collect();
        owners.sort_by_key(|id| std::cmp::Reverse(self.lineage(id).count()));
        owners
    }

    /// Decides whether a new child of `parent` may have `budget`.
    ///
    /// # Errors
    /// When it asks for more than `parent` has left.
    pub fn grant(&self, child: &AgentId, parent: &AgentId, budget: &Budget) -> Result<BudgetDrawn, TooMuch> {
        let lineage: Vec<AgentId> = std::iter::once(child).chain(self.lineage(parent)).cloned().collect();
        self.ledger.grant(&lineage, budget)
    }

    /// Folds a fact of the time `at` in; facts that are not about trees change nothing.
    pub fn apply(&mut self, fact: &Fact, at: Millis) {
        match fact {
            Fact::BudgetDrawn(BudgetDrawn { agent, .. })
            | Fact::BudgetReserved(BudgetReserved { agent, .. })
            | Fact::BudgetSettled(BudgetSettled { agent, .. })
            | Fact::BudgetRefunded(BudgetRefunded { agent, .. }) => {
                let lineage = self.line_of(agent);
                self.ledger.apply(fact, &lineage, at);
            }
            Fact::TreeReserved(reserved) => self.fold_reserved(reserved),
            Fact::TreePublished(child) => self.set_state(&child.child, NodeState::Published),
            Fact::TreeRefused(refused) => self.set_state(&refused.child, NodeState::Refused),
            Fact::TreeDelivered(delivered) => {
                if let Some(node) = self.nodes.get_mut(&delivered.child) {
                    node.delivered.insert(delivered.turn);
                }
            }
            Fact::TreeTombstoned(tombstone) => {
                self.epoch = self.epoch.max(tombstone.epoch);
                self.tombstones.insert(tombstone.agent.clone(), tombstone.epoch);
            }
            Fact::TreeLifted(lifted) => {
                self.tombstones.retain(|agent, epoch| *agent != lifted.agent || *epoch != lifted.epoch);
            }
            _ => {}
        }
    }

    fn fold_reserved(&mut self, reserved: &TreeReserved) {
        let Some(parent) = self.nodes.get_mut(&reserved.parent) else { return };
        parent.children.push(reserved.child.clone());
        if reserved.path.segment() == format!("a{}", parent.unlabelled + 1) {
            parent.unlabelled += 1;
        }
        let depth = parent.depth + 1;
        let base = reserved.path.as_str().rsplit_once('-').filter(|(_, tail)| tail.parse::<u32>().is_ok());
        if let Some((base, tail)) = base
            && let Some(next) = self.paths.get_mut(&AgentPath::new(base))
        {
            *next = tail.parse().map_or(*next, |number: u32| number.saturating_add(1));
        }
        self.paths.insert(reserved.path.clone(), 2);
        let node = Node {
            parent: Some(reserved.parent.clone()),
            path: reserved.path.clone(),
            label: reserved.label.clone(),
            depth,
            context: reserved.context,
            background: reserved.background,
            call: reserved.call.clone(),
            state: NodeState::Reserved,
            children: vec![],
            may_spawn: Some(reserved.may_spawn),
            prompt: reserved.prompt,
            descendants: 0,
            unlabelled: 0,
            delivered: BTreeSet::new(),
        };
        let lineage: Vec<AgentId> = self.lineage(&reserved.parent).cloned().collect();
        for id in lineage {
            self.nodes.entry(id).and_modify(|node| node.descendants += 1);
        }
        self.nodes.insert(reserved.child.clone(), node);
    }

    fn set_state(&mut self, child: &AgentId, state: NodeState) {
        if let Some(node) = self.nodes.get_mut(child) {
            node.state = state;
        }
    }

    /// Decides whether `ask` gets a place, and which.
    pub fn reserve(&self, ask: Ask, limits: TreeLimits) -> Result<TreeReserved, SpawnRefused> {
        let parent = self.nodes.get(&ask.parent).ok_or(SpawnRefused::UnknownParent)?;
        if self.is_stopped(&ask.parent) {
            return Err(SpawnRefused::Stopped);
        }
        let depth = parent.depth + 1;
        if depth > limits.depth {
            return Err(SpawnRefused::Depth { depth, limit: limits.depth });
        }
        let spent = |id: &&AgentId| {
            self.nodes.get(*id).and_then(|node| node.may_spawn.map(|most| node.descendants >= most)).unwrap_or(false)
        };
        if let Some(agent) = self.lineage(&ask.parent).find(spent) {
            let limit = self.nodes.get(agent).and_then(|node| node.may_spawn).unwrap_or(0);
            return Err(SpawnRefused::NotGranted { limit });
        }
        if self.nodes.get(&self.root).is_some_and(|root| root.descendants >= limits.descendants) {
            return Err(SpawnRefused::Descendants { limit: limits.descendants });
        }
        let times = self.repeats(&ask.parent, ask.prompt);
        if times > limits.same_prompt {
            return Err(SpawnRefused::Loop { times });
        }
        let path = self.free_path(parent, ask.label.as_deref());
        let label = ask.label.unwrap_or_else(|| path.segment().to_owned());
        let Ask { child, parent, context, background, call, may_spawn, prompt, .. } = ask;
        Ok(TreeReserved { child, parent, path, label, context, background, call, may_spawn, prompt })
    }

    /// How many of `agent` and those above it were given this prompt.
    pub fn repeats(&self, agent: &AgentId, prompt: Option<u64>) -> u32 {
        let is_same = |id: &&AgentId| prompt.is_some() && self.nodes.get(*id).is_some_and(|node| node.prompt == prompt);
        u32::try_from(self.lineage(agent).filter(is_same).count()).unwrap_or(u32::MAX)
    }

    /// Decides whether a reserved child may start.
    pub fn publish(&self, child: &AgentId) -> Result<TreeChild, SpawnRefused> {
        let node = self.nodes.get(child).ok_or(SpawnRefused::UnknownParent)?;
        if self.is_stopped(child) || node.state == NodeState::Refused {
            return Err(SpawnRefused::Stopped);
        }
        Ok(TreeChild { child: child.clone() })
    }

    fn free_path(&self, parent: &Node, label: Option<&str>) -> AgentPath {
        let segment = label.map(segment).filter(|segment| !segment.is_empty());
        let Some(segment) = segment else {
            let mut number = parent.unlabelled + 1;
            while self.paths.contains_key(&parent.path.child(&format!("a{number}"))) {
                number += 1;
            }
            return parent.path.child(&format!("a{number}"));
        };
        let plain = parent.path.child(&segment);
        let Some(&next) = self.paths.get(&plain) else { return plain };
        let mut number = next;
        loop {
            let path = parent.path.child(&format!("{segment}-{number}"));
            if !self.paths.contains_key(&path) {
                return path;
            }
            number = number.checked_add(1).unwrap_or(2);
        }
    }

    /// The fact that nothing new may start in the subtree of `agent`.
    pub fn tombstone(&self, agent: AgentId, cause: Cause) -> TreeTombstoned {
        TreeTombstoned { agent, epoch: self.epoch + 1, cause }
    }

    /// Whether `agent` or an agent above it is being stopped.
    pub fn is_stopped(&self, agent: &AgentId) -> bool {
        self.lineage(agent).any(|id| self.tombstones.contains_key(id))
    }

    /// The tombstones that stand, with their epochs.
    pub fn tombstones(&self) -> &BTreeMap<AgentId, u64> {
        &self.tombstones
    }

    /// The agent and those above it, nearest first.
    pub fn lineage<'a>(&'a self, agent: &'a AgentId) -> impl Iterator<Item = &'a AgentId> {
        std::iter::successors(Some(agent), |id| self.nodes.get(*id).and_then(|node| node.parent.as_ref()))
    }

    /// The agent and everything below it that was published, parents before children, siblings in order.
    pub fn subtree(&self, top: &AgentId) -> Vec<AgentId> {
        let mut found = vec![];
        let mut open = vec![top];
        while let Some(id) = open.pop() {
            let Some(node) = self.nodes.get(id) else { continue };
            if node.state == NodeState::Published {
                found.push(id.clone());
            }
            open.extend(node.children.iter().rev());
        }
        found
    }

    /// Whether the parent has the outcome of this turn.
    pub fn is_delivered(&self, child: &AgentId, turn: u32) -> bool {
        self.nodes.get(child).is_some_and(|node| node.delivered.contains(&turn))
    }
}

/// A label as a path segment: lower case, safe as a file name.
fn segment(label: &str) -> String {
    let mut segment = String::new();
    for char in label.chars().flat_map(char::to_lowercase) {
        if segment.len() >= SEGMENT_MAX {
            break;
        }
        if char.is_ascii_alphanumeric() || char == '_' || char == '.' {
            segment.push(char);
        } else if !segment.is_empty() && !segment.ends_with('-') {
            segment.push('-');
        }
    }
    segment.trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TreeLimits = TreeLimits { depth: 2, descendants: 5, same_prompt: 1 };

    fn ask(child: &str, parent: &str, label: Option<&str>) -> Ask {
        Ask {
            child: child.into(),
            parent: parent.into(),
            label: label.map(Into::into),
            context: Context::Fresh,
            background: false,
            call: None,
            may_spawn: 9,
            prompt: None,
        }
    }

    fn grow(tree: &mut Tree, child: &str, parent: &str, label: Option<&str>) -> String {
        let reserved = tree.reserve(ask(child, parent, label), LIMITS).unwrap();
        let path = reserved.path.to_string();
        tree.apply(&Fact::TreeReserved(reserved), Millis(0));
        tree.apply(&Fact::TreePublished(TreeChild { child: child.into() }), Millis(0));
        path
    }

    #[test]
    fn paths_are_unique_and_follow_the_order_of_the_calls() {
        let mut tree = Tree::new("r".into());
        assert_eq!(grow(&mut tree, "1", "r", None), "root/a1");
        assert_eq!(grow(&mut tree, "2", "r", Some("Audit: src/x")), "root/audit-src-x");
        assert_eq!(grow(&mut tree, "3", "r", Some("audit src x")), "root/audit-src-x-2");
        assert_eq!(grow(&mut tree, "4", "r", Some("audit-src-x")), "root/audit-src-x-3");
        assert_eq!(grow(&mut tree, "5", "r", None), "root/a2");
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let mut tree = Tree::new("r".into());
        grow(&mut tree, "1", "r", None);
        grow(&mut tree, "2", "1", None);
        assert_eq!(tree.reserve(ask("3", "2", None), LIMITS), Err(SpawnRefused::Depth { depth: 3, limit: 2 }));
        for child in ["3", "4", "5"] {
            grow(&mut tree, child, "r", None);
        }
        assert_eq!(tree.reserve(ask("6", "r", None), LIMITS), Err(SpawnRefused::Descendants { limit: 5 }));
    }

    #[test]
    fn nobody_spawns_more_than_it_and_those_above_it_were_granted() {
        let mut tree = Tree::new("r".into());
        let granted = tree.reserve(Ask { may_spawn: 1, ..ask("1", "r", None) }, LIMITS).unwrap();
        tree.apply(&Fact::TreeReserved(granted), Millis(0));
        grow(&mut tree, "2", "1", None);
        assert_eq!(tree.reserve(ask("3", "1", None), LIMITS), Err(SpawnRefused::NotGranted { limit: 1 }));
        let deep = TreeLimits { depth: 9, ..LIMITS };
        assert_eq!(tree.reserve(ask("3", "2", None), deep), Err(SpawnRefused::NotGranted { limit: 1 }));
        assert!(tree.reserve(ask("3", "r", None), LIMITS).is_ok());
    }

    #[test]
    fn the_same_task_down_a_lineage_is_a_loop_and_beside_it_is_not() {
        let mut tree = Tree::new("r".into());
        let limits = TreeLimits { depth: 9, ..LIMITS };
        for (child, parent) in [("1", "r"), ("2", "1")] {
            let same = Ask { prompt: Some(7), ..ask(child, parent, None) };
            let reserved = tree.reserve(same, limits).unwrap();
            tree.apply(&Fact::TreeReserved(reserved), Millis(0));
        }
        let again = |parent, prompt| tree.reserve(Ask { prompt: Some(prompt), ..ask("3", parent, None) }, limits);
        assert_eq!(again("2", 7), Err(SpawnRefused::Loop { times: 2 }));
        assert!(again("2", 8).is_ok() && again("r", 7).is_ok() && again("1", 7).is_ok());
    }

    #[test]
    fn a_tombstone_refuses_what_is_under_it_until_it_is_lifted() {
        let mut tree = Tree::new("r".into());
        grow(&mut tree, "1", "r", None);
        let stone = tree.tombstone("r".into(), Cause::user("SIGINT"));
        let epoch = stone.epoch;
        tree.apply(&Fact::TreeTombstoned(stone), Millis(0));
        assert_eq!(tree.reserve(ask("2", "1", None), LIMITS), Err(SpawnRefused::Stopped));
        assert_eq!(tree.publish(&"1".into()), Err(SpawnRefused::Stopped));
        tree.apply(&Fact::TreeLifted(crate::event::TreeLifted { agent: "r".into(), epoch: epoch + 1 }), Millis(0));
        assert!(tree.is_stopped(&"1".into()), "another epoch's lift changes nothing");
        tree.apply(&Fact::TreeLifted(crate::event::TreeLifted { agent: "r".into(), epoch }), Millis(0));
        assert!(tree.reserve(ask("2", "1", None), LIMITS).is_ok());
    }

    #[test]
    fn a_subtree_lists_parents_before_children() {
        let mut tree = Tree::new("r".into());
        grow(&mut tree, "1", "r", None);
        grow(&mut tree, "2", "1", None);
        grow(&mut tree, "3", "r", None);
        let ids: Vec<String> = tree.subtree(&"r".into()).iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["r", "1", "2", "3"]);
    }
}
