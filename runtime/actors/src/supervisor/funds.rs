//! The ledger of a tree at work: who may spend now, who waits, who gives back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::budget::Funding;
use impresario_kernel::event::{BudgetSettled, Fact};
use impresario_kernel::{AgentId, ChargeId, Funds, Millis, Resource};
use impresario_seams::Observed;

use super::settle::is_settled;
use super::{SupervisorMessage, SupervisorState};
use crate::agent::{AgentMessage, Paid};

/// Somebody asks to spend.
pub(super) struct Wish {
    agent: AgentId,
    charge: ChargeId,
    amount: Funds,
    /// Whether the agent knows that it waits.
    is_told: bool,
}

impl SupervisorState {
    pub(super) fn reserve(&mut self, agent: AgentId, charge: ChargeId, amount: Funds) {
        let Some(tree) = self.tree_of(&agent) else { return };
        let root = tree.tree.root().clone();
        // The same one may be asked for again behind a supervisor that failed.
        tree.wishes.retain(|wish| wish.agent != agent || wish.charge != charge);
        tree.wishes.push(Wish { agent, charge, amount, is_told: false });
        self.fund(&root);
    }

    /// Something that was paid for is over, or is not wanted any more.
    pub(super) fn settle_charge(&mut self, agent: &AgentId, charge: ChargeId, amount: Funds) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(agent) else { return };
        let root = tree.tree.root().clone();
        tree.wishes.retain(|wish| wish.agent != *agent || wish.charge != charge);
        if tree.tree.ledger().charges(agent).any(|open| *open == charge) {
            let settled = BudgetSettled { agent: agent.clone(), charge, amount };
            tree.record(&shared, Fact::BudgetSettled(settled));
            self.warn(agent);
        }
        self.fund(&root);
    }

    /// The calls of an agent that is gone will never be settled: they have cost all that was reserved, apart from those
    /// that it says are in flight.
    pub(super) fn settle_all_but(&mut self, agent: &AgentId, in_flight: &[ChargeId]) {
        let Some(tree) = self.tree_of(agent) else { return };
        tree.wishes.retain(|wish| wish.agent != *agent || in_flight.contains(&wish.charge));
        let ledger = tree.tree.ledger();
        let open = ledger.reservations().filter(|(owner, charge, _)| *owner == agent && !in_flight.contains(charge));
        let open: Vec<(ChargeId, Funds)> = open.map(|(_, charge, amount)| (charge.clone(), *amount)).collect();
        open.into_iter().for_each(|(charge, amount)| self.settle_charge(agent, charge, amount));
    }

    /// Gives what an agent at rest and those above it at rest hold back to those above them.
    pub(super) fn refund(&mut self, agent: &AgentId) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(agent).filter(|tree| !tree.tree.ledger().is_empty()) else { return };
        let root = tree.tree.root().clone();
        for id in tree.tree.accounts_of(agent) {
            let Some(refunded) = tree.tree.ledger().refund(&id) else { continue };
            if tree.tree.subtree(&id).iter().all(|below| is_settled(tree, below)) {
                tree.record(&shared, Fact::BudgetRefunded(refunded));
            }
        }
        self.fund(&root);
    }

    /// As [`SupervisorState::refund`], for all agents of a tree.
    pub(super) fn refund_all(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get(root) else { return };
        tree.tree.budgeted().iter().for_each(|agent| self.refund(agent));
    }

    /// Lets those spend who may, in the order in which they asked; of those that lack the same of the same account, none
    /// passes another.
    pub(super) fn fund(&mut self, root: &AgentId) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.trees.get_mut(root).filter(|tree| tree.announcing.is_none()) else { return };
        let now = shared.chance.now();
        let mut lacked: BTreeSet<(AgentId, Resource)> = BTreeSet::new();
        let mut refill: Option<Millis> = None;
        for mut wish in std::mem::take(&mut tree.wishes) {
            let lineage = tree.tree.accounts_of(&wish.agent);
            let is_behind = tree.tree.ledger().payers(&lineage).iter().any(|payer| lacked.contains(payer));
            let funding = if is_behind {
                Funding::Waits { until: None, lacking: vec![] }
            } else {
                tree.tree.ledger().reserve(&lineage, &wish.charge, wish.amount, now)
            };
            let Wish { agent, charge, amount, is_told } = &wish;
            match funding {
                Funding::Granted(facts) => {
                    facts.into_iter().for_each(|fact| tree.record(&shared, fact));
                    if amount.tool_calls > 0 {
                        // It costs what it costs, however it ends.
                        let (agent, charge, amount) = (agent.clone(), charge.clone(), *amount);
                        tree.record(&shared, Fact::BudgetSettled(BudgetSettled { agent, charge, amount }));
                    }
                    tree.funded.push_back((tree.next, agent.clone(), charge.clone()));
                }
                Funding::Refused(exhausted) => {
                    let (charge, limit, max) = (charge.clone(), exhausted.limit, exhausted.max);
                    let message = AgentMessage::Paid { charge, paid: Paid::Refused { limit, max } };
                    // It waits for this.
                    let _ = shared.router.tell(agent, message);
                }
                Funding::Waits { until, lacking } => {
                    lacked.extend(lacking);
                    refill = [refill, until].into_iter().flatten().min();
                    if !is_told {
                        let message = AgentMessage::Paid { charge: charge.clone(), paid: Paid::Waits };
                        let _ = shared.router.tell(agent, message);
                        wish.is_told = true;
                    }
                    tree.wishes.push(wish);
                }
            }
        }
        if let Some(at) = refill.filter(|at| tree.refill.is_none_or(|known| *at < known || known <= now)) {
            tree.refill = Some(at);
            let root = root.clone();
            let wait = Duration::from_millis(at.0.saturating_sub(now.0).max(1));
            self.myself.send_after(wait, move || SupervisorMessage::Refill { root });
        }
        self.tell_funded(root);
    }

    /// Tells those whose reservations are durable that they may start.
    pub(super) fn tell_funded(&mut self, root: &AgentId) {
        let Some(tree) = self.trees.get_mut(root) else { return };
        while let Some((_, agent, charge)) = tree.funded.pop_front_if(|(at, _, _)| *at <= tree.durable) {
            // An agent that is gone is charged for when its failure is told.
            let _ = self.shared.router.tell(&agent, AgentMessage::Paid { charge, paid: Paid::Made });
        }
    }

    /// Says once of each budget above `agent` that four fifths of it are spent.
    fn warn(&mut self, agent: &AgentId) {
        let Some(tree) = self.tree_of(agent) else { return };
        let mut said = vec![];
        for id in tree.tree.accounts_of(agent) {
            for (resource, used, max) in tree.tree.ledger().nearly_spent(&id) {
                if tree.warned.insert((id.clone(), resource)) {
                    said.push((id.clone(), resource, used, max));
                }
            }
        }
        for (id, resource, used, max) in said {
            self.say(&id, Observed::LimitReached { limit: resource.as_str().into(), used, max });
            let note = format!("{} of a budget of {} are spent.", resource.show(used), resource.show(max));
            for told in BTreeSet::from([&id, agent]) {
                // Who is not here needs no warning.
                let _ = self.shared.router.tell(told, AgentMessage::Note(note.clone()));
            }
        }
    }
}
