//! The ledger of a tree at work: who may spend now, who waits, who gives back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::event::{BudgetSettled, Fact};
use impresario_kernel::ledger::Funding;
use impresario_kernel::wishes::{Round, Wish};
use impresario_kernel::{AgentId, ChargeId, Funds};
use impresario_seams::Observed;

use super::settle::is_settled;
use super::tree::TreeState;
use super::{SupervisorMessage, SupervisorState};
use crate::agent::{AgentMessage, Paid};
use crate::shared::Shared;

impl SupervisorState {
    pub(super) fn reserve(&mut self, agent: AgentId, charge: ChargeId, amount: Funds) {
        let Some(tree) = self.tree_of(&agent) else { return };
        let root = tree.tree.root().clone();
        tree.wishes.push(&tree.tree, Wish { agent: agent.clone(), charge: charge.clone(), amount });
        self.fund(&root);
        let waits = self.tree_of(&agent).is_some_and(|tree| tree.wishes.is_waiting(&agent, &charge));
        if waits {
            // It asked just now.
            let _ = self.shared.router.tell(&agent, AgentMessage::Paid { charge, paid: Paid::Waits });
        }
    }

    /// Something that was paid for is over, or is not wanted any more.
    pub(super) fn settle_charge(&mut self, agent: &AgentId, charge: ChargeId, amount: Funds) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(agent) else { return };
        let root = tree.tree.root().clone();
        tree.wishes.remove(agent, &charge);
        if tree.tree.ledger().is_reserved(agent, &charge) {
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
        tree.wishes.remove_all_but(agent, in_flight);
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
        for id in tree.tree.accounts_above(agent) {
            let Some(refunded) = tree.tree.ledger().refund(&id).filter(|_| !tree.has_unsettled(&id)) else { continue };
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

    /// Lets those spend who may, and tells those who will not.
    pub(super) fn fund(&mut self, root: &AgentId) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.trees.get_mut(root).filter(|tree| tree.announcing.is_none()) else { return };
        let (now, mut round) = (shared.chance.now(), Round::default());
        while let Some((wish, funding)) = tree.wishes.next(&tree.tree, now, &mut round) {
            match funding {
                Funding::Granted(facts) => tree.pay(&shared, wish, facts),
                Funding::Refused(exhausted) => {
                    let paid = Paid::Refused { limit: exhausted.limit, max: exhausted.max };
                    // It waits for this.
                    let _ = shared.router.tell(&wish.agent, AgentMessage::Paid { charge: wish.charge, paid });
                }
                Funding::Waits { .. } => {}
            }
        }
        if let Some(at) = round.again.filter(|at| tree.refill.is_none_or(|known| *at < known || known <= now)) {
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
        for id in tree.tree.accounts_above(agent) {
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

impl TreeState {
    /// Writes down that a wish was met; its agent is told when that is durable.
    fn pay(&mut self, shared: &Shared, wish: Wish, facts: Vec<Fact>) {
        facts.into_iter().for_each(|fact| self.record(shared, fact));
        let Wish { agent, charge, amount } = wish;
        if amount.tool_calls > 0 {
            // It costs what it costs, however it ends.
            let (agent, charge) = (agent.clone(), charge.clone());
            self.record(shared, Fact::BudgetSettled(BudgetSettled { agent, charge, amount }));
        }
        self.funded.push_back((self.next, agent, charge));
    }
}
