//! What ended, by name.

use impresario_kernel::{AgentId, AgentPath, OutcomeKind};

/// The answer to a stop or to the question whether a tree is at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    /// Every agent of the tree, parents before children.
    pub agents: Vec<AgentEnd>,
    /// Children that were asked for and refused because the tree was being stopped.
    pub refused: u32,
    /// Messages that wait unread, now parked.
    pub parked: u32,
}

impl Receipt {
    /// Whether nothing of the tree runs any more.
    pub fn at_rest(&self) -> bool {
        self.agents.iter().all(|agent| agent.at_rest)
    }
}

/// One agent of a receipt.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentEnd {
    /// Which.
    pub id: AgentId,
    /// Where it stands.
    pub path: AgentPath,
    /// How its last turn came out; none if it never ended one.
    pub outcome: Option<OutcomeKind>,
    /// Whether it is at rest. `false` only when a deadline ran out first.
    pub at_rest: bool,
}
