//! Whether a run did what it is measured for: figures of one that did not say nothing.

use std::sync::Arc;

use impresario::Receipt;
use impresario::kernel::{AgentPath, Outcome, OutcomeKind};

use crate::failed::Failed;

/// The root has completed, everything rests, and there were as many agents as there should have been.
pub(crate) fn tree(receipt: &Receipt, agents: Option<usize>) -> Result<(), Failed> {
    let root = receipt.agents.iter().find(|agent| agent.path == AgentPath::root()).and_then(|agent| agent.outcome);
    if root != Some(OutcomeKind::Completed) {
        return Err(not(format!("its root {}", root.map_or("never ended a turn", OutcomeKind::as_str))));
    }
    if let Some(busy) = receipt.agents.iter().find(|agent| !agent.at_rest) {
        return Err(not(format!("{} is not at rest", busy.path)));
    }
    let seen = receipt.agents.len();
    match agents {
        Some(agents) if agents != seen => Err(not(format!("{seen} agents took part where there should be {agents}"))),
        _ => Ok(()),
    }
}

/// A turn has completed.
pub(crate) fn turn(outcome: Option<&Arc<Outcome>>) -> Result<(), Failed> {
    match outcome {
        Some(outcome) if outcome.kind == OutcomeKind::Completed => Ok(()),
        Some(outcome) => Err(not(format!("an agent {}: {}", outcome.kind.as_str(), outcome.why()))),
        None => Err(not("an agent never ended a turn".into())),
    }
}

fn not(why: String) -> Failed {
    Failed::usage(format!("the scenario did not go as it should, so there is nothing to measure: {why}"))
}

#[cfg(test)]
mod tests {
    use impresario::AgentEnd;
    use impresario::kernel::AgentId;

    use super::*;

    fn receipt(outcome: Option<OutcomeKind>, at_rest: bool) -> Receipt {
        let root = AgentEnd { id: AgentId::new("a"), path: AgentPath::root(), outcome, at_rest };
        Receipt { agents: vec![root], refused: 0, parked: 0 }
    }

    #[test]
    fn what_did_not_go_as_it_should_is_not_measured() {
        let completed = Some(OutcomeKind::Completed);
        assert!(tree(&receipt(completed, true), Some(1)).is_ok());
        assert!(tree(&receipt(completed, true), None).is_ok());
        let why = |receipt, agents| tree(&receipt, agents).expect_err("it went wrong").to_string();
        assert!(why(receipt(completed, true), Some(65)).contains("1 agents took part where there should be 65"));
        assert!(why(receipt(Some(OutcomeKind::Failed), true), Some(1)).contains("its root failed"));
        assert!(why(receipt(None, true), Some(1)).contains("never ended a turn"));
        assert!(why(receipt(completed, false), Some(1)).contains("not at rest"));
        assert!(turn(None).is_err());
    }
}
