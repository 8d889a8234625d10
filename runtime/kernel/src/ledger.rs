//! The ledger of a tree: what its agents hold, have reserved, and have spent.
//!
//! An agent with a limit of its own has an account. What it holds is drawn from the account above it, so that it is there
//! when it is needed and nobody else has it. An agent without a limit of its own spends from the nearest account above.
//! Every model call reserves before it starts and settles when it is over, so all that the agents of an account spend is
//! at most its limit plus, over the calls in flight, what they cost more than was reserved.
//!
//! [`Ledger`] is a fold of the `budget/*` facts of a tree log. It decides nothing about time: `now` enters as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::budget::{Budget, Funds, Resource, Window};
use crate::event::{BudgetDrawn, BudgetRefunded, BudgetReserved, BudgetSettled, Fact};
use crate::id::{AgentId, ChargeId, Millis};

/// A limit of a budget that is in the way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exhausted {
    /// Its name: `budget_tokens`, …
    pub limit: &'static str,
    /// Its value.
    pub max: u64,
}

/// What becomes of a wish for funds.
#[derive(Clone, Debug, PartialEq)]
pub enum Funding {
    /// It is met: what is to be written, in order.
    Granted(Vec<Fact>),
    /// Others may free enough, or time will: the latest by then.
    Waits {
        /// When to look again if nobody settles before; none when only others can free something.
        until: Option<Millis>,
        /// The accounts that lack something, and what.
        lacking: Vec<(AgentId, Resource)>,
    },
    /// Nobody can free enough.
    Refused(Exhausted),
}

/// A budget for a child that is more than its parent has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooMuch {
    /// Of what.
    pub resource: Resource,
    /// How much was asked.
    pub asked: u64,
    /// How much there is.
    pub left: u64,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, asked, left } = *self;
        write!(f, "a budget of {} was asked and {} are left to grant", resource.show(asked), resource.show(left))
    }
}

/// What the agents of a tree hold, have reserved, and have spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    accounts: BTreeMap<AgentId, Account>,
    reserved: BTreeMap<(AgentId, ChargeId), Reservation>,
}

/// One agent's account. In each thing that it limits: `held` is what it has drawn, of which `drawn` is with accounts below,
/// `reserved` for calls in flight, and `spent` gone.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    /// The account above that a thing is drawn from, by thing; none at the top.
    from: [Option<AgentId>; 3],
    limit: Budget,
    deadline: Option<Millis>,
    held: Funds,
    drawn: Funds,
    reserved: Funds,
    spent: Funds,
    /// What is reserved and spent here and in the accounts that draw from this one.
    reserved_in_all: Funds,
    spent_in_all: Funds,
    /// Of all agents at and below, whatever account they spend from: for the windows.
    in_flight: Funds,
    history: VecDeque<(Millis, Funds)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Reservation {
    amount: Funds,
    /// The account that pays, by thing.
    payers: [Option<AgentId>; 3],
    /// Every account at and above the agent.
    above: Vec<AgentId>,
}

impl Account {
    /// What it may still promise. Calls that cost more than was reserved may have made it hold more than its limit; that
    /// is no room for more.
    fn available(&self, resource: Resource) -> u64 {
        let limit = self.limit.limit(resource).unwrap_or(0);
        self.held.of(resource).min(limit).saturating_sub(self.used(resource))
    }

    /// What it holds and nobody uses.
    fn idle(&self, resource: Resource) -> u64 {
        self.held.of(resource).saturating_sub(self.used(resource))
    }

    fn used(&self, resource: Resource) -> u64 {
        [&self.drawn, &self.reserved, &self.spent]
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(part.of(resource)))
    }

    /// What is spent or may be, by calls in flight.
    fn committed(&self, resource: Resource) -> u64 {
        self.reserved_in_all.of(resource).saturating_add(self.spent_in_all.of(resource))
    }

    /// What more it may draw.
    fn room(&self, resource: Resource) -> u64 {
        self.limit.limit(resource).unwrap_or(0).saturating_sub(self.held.of(resource))
    }

    /// What its agents have spent within the last `window.per_ms`.
    fn recent(&self, window: &Window, now: Millis) -> u64 {
        let is_recent = |(at, _): &&(Millis, Funds)| at.0.saturating_add(window.per_ms) > now.0;
        self.history.iter().rev().take_while(is_recent).map(|(_, funds)| funds.of(window.resource)).sum()
    }

    /// When `window` has room for `amount`: none if it has now. What is larger than the window has room when it is empty.
    fn refills(&self, window: &Window, amount: u64, now: Millis) -> Option<Refill> {
        let in_flight = self.in_flight.of(window.resource);
        let mut used = self.recent(window, now).saturating_add(in_flight);
        let fits = |used: u64| used == 0 || used.saturating_add(amount) <= window.most;
        if fits(used) {
            return None;
        }
        for (at, funds) in &self.history {
            let end = at.0.saturating_add(window.per_ms);
            if end > now.0 {
                used = used.saturating_sub(funds.of(window.resource));
                if fits(used) {
                    return Some(Refill::At(Millis(end)));
                }
            }
        }
        Some(Refill::Settled)
    }
}

/// When a window has room again.
enum Refill {
    At(Millis),
    /// When calls in flight have settled, at the earliest.
    Settled,
}

impl Ledger {
    /// Whether nobody's spending is limited.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Who has an account.
    pub fn owners(&self) -> impl Iterator<Item = &AgentId> {
        self.accounts.keys()
    }

    /// The budget of an agent, if it has one of its own.
    pub fn budget(&self, agent: &AgentId) -> Option<&Budget> {
        self.accounts.get(agent).map(|account| &account.limit)
    }

    /// Whether something is reserved for this call.
    pub fn is_reserved(&self, agent: &AgentId, charge: &ChargeId) -> bool {
        self.reserved.contains_key(&(agent.clone(), charge.clone()))
    }

    /// All that is reserved, and for whom.
    pub fn reservations(&self) -> impl Iterator<Item = (&AgentId, &ChargeId, &Funds)> {
        self.reserved.iter().map(|((agent, charge), reservation)| (agent, charge, &reservation.amount))
    }

    /// What the agents that pay from this account and from those drawn from it have spent.
    pub fn spent(&self, agent: &AgentId) -> Funds {
        self.accounts.get(agent).map(|account| account.spent_in_all).unwrap_or_default()
    }

    /// The limits of `agent` of which four fifths or more are spent: which, how much, of how much.
    pub fn nearly_spent(&self, agent: &AgentId) -> Vec<(Resource, u64, u64)> {
        let Some(account) = self.accounts.get(agent) else { return vec![] };
        let spent = self.spent(agent);
        let limits = Resource::ALL.into_iter().filter_map(|resource| {
            let (used, max) = (spent.of(resource), account.limit.limit(resource)?);
            (max > 0 && used >= max - max / 5).then_some((resource, used, max))
        });
        limits.collect()
    }

    /// The accounts and things that a call of the first of `lineage` would be paid from and with.
    pub fn payers(&self, lineage: &[AgentId]) -> Vec<(AgentId, Resource)> {
        Resource::ALL.into_iter().filter_map(|resource| Some((self.payer(lineage, resource)?, resource))).collect()
    }

    /// The nearest account at or above an agent that limits a thing. `lineage` is the agent and those above it.
    fn payer(&self, lineage: &[AgentId], resource: Resource) -> Option<AgentId> {
        let limits = |id: &&AgentId| self.accounts.get(*id).is_some_and(|it| it.limit.limit(resource).is_some());
        lineage.iter().find(limits).cloned()
    }

    /// What `account` has and could draw.
    fn in_hand(&self, account: &AgentId, resource: Resource) -> u64 {
        let Some(it) = self.accounts.get(account) else { return 0 };
        let above = it.from[resource as usize].as_ref();
        let more = above.map_or(0, |above| self.in_hand(above, resource).min(it.room(resource)));
        it.available(resource).saturating_add(more)
    }

    /// `payer` and the accounts that it draws from, nearest first.
    fn chain<'a>(&'a self, payer: &'a AgentId, resource: Resource) -> impl Iterator<Item = &'a Account> {
        let first = self.accounts.get(payer);
        std::iter::successors(first, move |account| self.accounts.get(account.from[resource as usize].as_ref()?))
    }

    /// Decides whether `amount` may be spent by the first of `lineage` (the agent and those above it, nearest first).
    pub fn reserve(&self, lineage: &[AgentId], charge: &ChargeId, amount: Funds, now: Millis) -> Funding {
        let Some(agent) = lineage.first() else { return Funding::Granted(vec![]) };
        if self.reserved.contains_key(&(agent.clone(), charge.clone())) {
            return Funding::Granted(vec![]);
        }
        let accounts = || lineage.iter().filter_map(|id| self.accounts.get(id));
        let is_late = |account: &&Account| account.deadline.is_some_and(|deadline| deadline <= now);
        if let Some(late) = accounts().find(is_late) {
            return Funding::Refused(Exhausted { limit: "budget_wall_ms", max: late.limit.wall_ms.unwrap_or(0) });
        }
        let mut facts = vec![];
        let mut lacking = vec![];
        for resource in Resource::ALL {
            let need = amount.of(resource);
            let Some(payer) = self.payer(lineage, resource).filter(|_| need > 0) else { continue };
            // What is spent for good leaves no room, whatever the calls in flight turn out to cost and whatever others give
            // back.
            let limit = |account: &Account| account.limit.limit(resource).unwrap_or(0);
            let fits = |account: &Account, used: u64| used.saturating_add(need) <= limit(account);
            let spent = |account: &&Account| !fits(account, account.spent_in_all.of(resource));
            if let Some(spent) = self.chain(&payer, resource).find(spent) {
                return Funding::Refused(Exhausted { limit: resource.as_str(), max: limit(spent) });
            }
            let has_room = self.chain(&payer, resource).all(|account| fits(account, account.committed(resource)));
            if has_room && self.in_hand(&payer, resource) >= need {
                self.draw_up(&payer, resource, need, &mut facts);
            } else {
                lacking.push((payer, resource));
            }
        }
        let refills = accounts().flat_map(|account| {
            // What takes nothing of a thing passes a window that is full of it.
            let windows = account.limit.windows.iter().filter(|window| amount.of(window.resource) > 0);
            windows.filter_map(|window| account.refills(window, amount.of(window.resource), now))
        });
        let (mut until, mut is_full) = (None, false);
        for refill in refills {
            is_full = true;
            if let Refill::At(at) = refill {
                until = until.max(Some(at));
            }
        }
        if is_full || !lacking.is_empty() {
            return Funding::Waits { until, lacking };
        }
        let (agent, charge) = (agent.clone(), charge.clone());
        facts.push(Fact::BudgetReserved(BudgetReserved { agent, charge, amount }));
        Funding::Granted(facts)
    }

    /// Draws what `account` lacks to have `need`, from the top down.
    fn draw_up(&self, account: &AgentId, resource: Resource, need: u64, facts: &mut Vec<Fact>) {
        let Some(it) = self.accounts.get(account) else { return };
        let lack = need.saturating_sub(it.available(resource));
        let Some(above) = it.from[resource as usize].as_ref().filter(|_| lack > 0) else { return };
        self.draw_up(above, resource, lack, facts);
        let amount = Funds::only(resource, lack);
        facts.push(Fact::BudgetDrawn(BudgetDrawn { agent: account.clone(), budget: None, amount }));
    }

    /// Decides whether the first of `lineage` may have `budget`: the fact that it has. Asked for one that has a budget, it
    /// is another one from here on.
    ///
    /// # Errors
    /// When those above have less left than is asked for.
    pub fn grant(&self, lineage: &[AgentId], budget: &Budget) -> Result<BudgetDrawn, TooMuch> {
        let (agent, above) = match lineage.split_first() {
            Some((agent, above)) => (agent.clone(), above),
            None => (AgentId::from(""), lineage),
        };
        let mut amount = Funds::default();
        let before = self.accounts.get(&agent).map(|account| account.held).unwrap_or_default();
        for resource in Resource::ALL {
            let Some(asked) = budget.limit(resource) else { continue };
            let more = asked.saturating_sub(before.of(resource));
            if let Some(payer) = self.payer(above, resource) {
                let left = self.in_hand(&payer, resource);
                if more > left {
                    return Err(TooMuch { resource, asked, left });
                }
            }
            amount.add(resource, more);
        }
        Ok(BudgetDrawn { agent, budget: Some(budget.clone()), amount })
    }

    /// What an agent at rest gives back to the accounts above.
    pub fn refund(&self, agent: &AgentId) -> Option<BudgetRefunded> {
        let account = self.accounts.get(agent)?;
        let mut amount = Funds::default();
        for resource in Resource::ALL.into_iter().filter(|resource| account.from[*resource as usize].is_some()) {
            amount.add(resource, account.idle(resource));
        }
        (!amount.is_nothing()).then(|| BudgetRefunded { agent: agent.clone(), amount })
    }

    /// Folds a fact in. `lineage` is its agent and those above it, nearest first.
    pub(crate) fn apply(&mut self, fact: &Fact, lineage: &[AgentId], at: Millis) {
        match fact {
            Fact::BudgetDrawn(drawn) => self.fold_drawn(drawn, lineage, at),
            Fact::BudgetReserved(reserved) => self.fold_reserved(reserved, lineage),
            Fact::BudgetSettled(settled) => self.fold_settled(settled, at),
            Fact::BudgetRefunded(refunded) => self.fold_refunded(refunded),
            _ => {}
        }
    }

    fn fold_drawn(&mut self, drawn: &BudgetDrawn, lineage: &[AgentId], at: Millis) {
        let BudgetDrawn { agent, budget, amount } = drawn;
        let above = lineage.get(1..).unwrap_or_default();
        let from = Resource::ALL.map(|resource| self.payer(above, resource));
        for resource in Resource::ALL {
            let payer = from[resource as usize].as_ref().and_then(|payer| self.accounts.get_mut(payer));
            payer.into_iter().for_each(|payer| payer.drawn.add(resource, amount.of(resource)));
        }
        let account = self.accounts.entry(agent.clone()).or_default();
        if let Some(budget) = budget {
            account.from.clone_from(&from);
            account.limit = budget.clone();
            account.deadline = budget.wall_ms.map(|wall_ms| Millis(at.0.saturating_add(wall_ms)));
        }
        for resource in Resource::ALL {
            let Some(account) = self.accounts.get_mut(agent) else { return };
            account.held.add(resource, amount.of(resource));
            // A smaller budget than before: what it held more is not there any more.
            let limit = account.limit.limit(resource).unwrap_or(u64::MAX);
            let over = if budget.is_some() { account.held.of(resource).saturating_sub(limit) } else { 0 };
            let over = over.min(account.idle(resource));
            account.held.take(resource, over);
            let above = from[resource as usize].as_ref().and_then(|above| self.accounts.get_mut(above));
            above.into_iter().for_each(|above| above.drawn.take(resource, over));
        }
    }

    fn fold_reserved(&mut self, reserved: &BudgetReserved, lineage: &[AgentId]) {
        let BudgetReserved { agent, charge, amount } = reserved;
        let payers = Resource::ALL.map(|resource| self.payer(lineage, resource));
        let above: Vec<AgentId> = lineage.iter().filter(|id| self.accounts.contains_key(*id)).cloned().collect();
        let reservation = Reservation { amount: *amount, payers, above };
        self.count(&reservation, Funds::add);
        self.reserved.insert((agent.clone(), charge.clone()), reservation);
    }

    fn count(&mut self, reservation: &Reservation, count: fn(&mut Funds, Resource, u64)) {
        for resource in Resource::ALL {
            let amount = reservation.amount.of(resource);
            if let Some(payer) = &reservation.payers[resource as usize] {
                self.accounts.get_mut(payer).into_iter().for_each(|it| count(&mut it.reserved, resource, amount));
                self.up(payer, resource, |account| count(&mut account.reserved_in_all, resource, amount));
            }
            for id in &reservation.above {
                self.accounts.get_mut(id).into_iter().for_each(|it| count(&mut it.in_flight, resource, amount));
            }
        }
    }

    fn fold_settled(&mut self, settled: &BudgetSettled, at: Millis) {
        let key = (settled.agent.clone(), settled.charge.clone());
        let Some(reservation) = self.reserved.remove(&key) else { return };
        self.count(&reservation, Funds::take);
        for resource in Resource::ALL {
            let amount = settled.amount.of(resource);
            if let Some(payer) = reservation.payers[resource as usize].clone() {
                self.accounts.get_mut(&payer).into_iter().for_each(|it| it.spent.add(resource, amount));
                self.up(&payer, resource, |account| account.spent_in_all.add(resource, amount));
                self.cover(&payer, resource);
            }
        }
        for id in &reservation.above {
            let Some(account) = self.accounts.get_mut(id) else { continue };
            let longest = account.limit.windows.iter().map(|window| window.per_ms).max();
            let Some(longest) = longest else { continue };
            account.history.push_back((at, settled.amount));
            while account.history.pop_front_if(|(then, _)| then.0.saturating_add(longest) <= at.0).is_some() {}
        }
    }

    /// Does something to `payer` and the accounts that it draws from.
    fn up(&mut self, payer: &AgentId, resource: Resource, mut each: impl FnMut(&mut Account)) {
        let mut next = Some(payer.clone());
        while let Some(account) = next.and_then(|id| self.accounts.get_mut(&id)) {
            each(account);
            next = account.from[resource as usize].clone();
        }
    }

    /// A call cost more than was reserved: those above cover it, as far as up it takes.
    fn cover(&mut self, payer: &AgentId, resource: Resource) {
        let Some(account) = self.accounts.get_mut(payer) else { return };
        let over = account.used(resource).saturating_sub(account.held.of(resource));
        let Some(above) = account.from[resource as usize].clone().filter(|_| over > 0) else { return };
        account.held.add(resource, over);
        self.accounts.get_mut(&above).into_iter().for_each(|above| above.drawn.add(resource, over));
        self.cover(&above, resource);
    }

    fn fold_refunded(&mut self, refunded: &BudgetRefunded) {
        let Some(account) = self.accounts.get_mut(&refunded.agent) else { return };
        let from = account.from.clone();
        for resource in Resource::ALL {
            account.held.take(resource, refunded.amount.of(resource));
        }
        for resource in Resource::ALL {
            let above = from[resource as usize].as_ref().and_then(|above| self.accounts.get_mut(above));
            above.into_iter().for_each(|above| above.drawn.take(resource, refunded.amount.of(resource)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: Resource = Resource::Tokens;

    fn ids(names: &[&str]) -> Vec<AgentId> {
        names.iter().map(|name| AgentId::from(*name)).collect()
    }

    fn grant(ledger: &mut Ledger, lineage: &[&str], budget: Budget) -> Result<(), TooMuch> {
        let drawn = ledger.grant(&ids(lineage), &budget)?;
        ledger.apply(&Fact::BudgetDrawn(drawn), &ids(lineage), Millis(0));
        Ok(())
    }

    /// Reserves `tokens` and spends them; what was said if they may not be.
    fn spend(ledger: &mut Ledger, lineage: &[&str], tokens: u64, now: u64) -> Option<Funding> {
        let (lineage, amount, charge) = (ids(lineage), Funds::only(TOKENS, tokens), ChargeId::from("run_1.1.0"));
        match ledger.reserve(&lineage, &charge, amount, Millis(now)) {
            Funding::Granted(facts) => facts.iter().for_each(|fact| ledger.apply(fact, &lineage, Millis(now))),
            other => return Some(other),
        }
        let settled = BudgetSettled { agent: lineage[0].clone(), charge, amount };
        ledger.apply(&Fact::BudgetSettled(settled), &lineage, Millis(now));
        None
    }

    fn tokens(most: u64) -> Budget {
        Budget { tokens: Some(most), ..Budget::default() }
    }

    #[test]
    fn zero_is_none_and_what_is_absent_is_spent_from_above() {
        let mut ledger = Ledger::default();
        grant(&mut ledger, &["root"], tokens(100)).unwrap();
        grant(&mut ledger, &["none", "root"], tokens(0)).unwrap();
        let refused = Funding::Refused(Exhausted { limit: "budget_tokens", max: 0 });
        assert_eq!(spend(&mut ledger, &["none", "root"], 1, 0), Some(refused));
        assert_eq!(spend(&mut ledger, &["free", "root"], 60, 0), None);
        let refused = Funding::Refused(Exhausted { limit: "budget_tokens", max: 100 });
        assert_eq!(spend(&mut ledger, &["root"], 41, 0), Some(refused));
        assert_eq!(spend(&mut ledger, &["root"], 40, 0), None);
        assert_eq!(ledger.spent(&"root".into()).tokens, 100);
    }

    #[test]
    fn what_a_child_has_nobody_else_spends_until_it_gives_it_back() {
        let mut ledger = Ledger::default();
        grant(&mut ledger, &["root"], tokens(100)).unwrap();
        let too_much = TooMuch { resource: TOKENS, asked: 101, left: 100 };
        assert_eq!(grant(&mut ledger, &["child", "root"], tokens(101)), Err(too_much));
        grant(&mut ledger, &["child", "root"], tokens(80)).unwrap();
        let lacking = vec![("root".into(), TOKENS)];
        assert_eq!(spend(&mut ledger, &["root"], 21, 0), Some(Funding::Waits { until: None, lacking }));
        assert_eq!(spend(&mut ledger, &["child", "root"], 30, 0), None);
        let refunded = ledger.refund(&"child".into()).unwrap();
        assert_eq!(refunded.amount.tokens, 50);
        ledger.apply(&Fact::BudgetRefunded(refunded), &ids(&["child", "root"]), Millis(0));
        assert_eq!(spend(&mut ledger, &["root"], 21, 0), None);
        // It draws again what it needs, up to its budget.
        assert_eq!(spend(&mut ledger, &["child", "root"], 49, 0), None);
        assert!(matches!(spend(&mut ledger, &["child", "root"], 2, 0), Some(Funding::Refused(_))));
    }

    #[test]
    fn a_full_window_says_when_it_has_room() {
        let mut ledger = Ledger::default();
        let window = Window { resource: TOKENS, most: 100, per_ms: 1_000 };
        grant(&mut ledger, &["root"], Budget { windows: vec![window], ..Budget::default() }).unwrap();
        assert_eq!(spend(&mut ledger, &["a", "root"], 60, 10), None);
        assert_eq!(spend(&mut ledger, &["a", "root"], 30, 20), None);
        let waits = |at| Some(Funding::Waits { until: Some(Millis(at)), lacking: vec![] });
        assert_eq!(spend(&mut ledger, &["b", "root"], 20, 30), waits(1_010));
        assert_eq!(spend(&mut ledger, &["b", "root"], 300, 30), waits(1_020), "alone, when nothing else is in it");
        let tool = Funds::only(Resource::ToolCalls, 1);
        let passes = ledger.reserve(&ids(&["b", "root"]), &"call_1.1.0".into(), tool, Millis(30));
        assert!(matches!(passes, Funding::Granted(_)), "{passes:?}");
        assert_eq!(spend(&mut ledger, &["b", "root"], 20, 1_010), None);
        assert_eq!(spend(&mut ledger, &["b", "root"], 300, 2_010), None);
    }

    #[test]
    fn nothing_starts_when_the_time_is_over() {
        let mut ledger = Ledger::default();
        grant(&mut ledger, &["root"], Budget { wall_ms: Some(50), ..Budget::default() }).unwrap();
        assert_eq!(spend(&mut ledger, &["a", "root"], 9, 49), None);
        let refused = Funding::Refused(Exhausted { limit: "budget_wall_ms", max: 50 });
        assert_eq!(spend(&mut ledger, &["a", "root"], 9, 50), Some(refused));
    }

    #[test]
    fn four_fifths_are_told() {
        let mut ledger = Ledger::default();
        grant(&mut ledger, &["root"], tokens(100)).unwrap();
        assert_eq!(spend(&mut ledger, &["a", "root"], 79, 0), None);
        assert_eq!(ledger.nearly_spent(&"root".into()), []);
        assert_eq!(spend(&mut ledger, &["a", "root"], 1, 0), None);
        assert_eq!(ledger.nearly_spent(&"root".into()), [(TOKENS, 80, 100)]);
    }
}
