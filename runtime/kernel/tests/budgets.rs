//! Random spending in trees three levels deep. An oracle that knows nothing of accounts adds up what was spent below each
//! budget, and is asked at every grant and at every refusal. A failure prints its seed; `SEED=n` runs that one alone.

mod kit;

use std::collections::{BTreeMap, BTreeSet};

use impresario_kernel::event::{BudgetSettled, Context, TreeReserved};
use impresario_kernel::ledger::{Funding, Ledger};
use impresario_kernel::tree::Tree;
use impresario_kernel::{AgentId, AgentPath, Budget, ChargeId, Fact, Funds, Millis, Resource, Window};
use kit::dice::Dice;

const SEEDS: u64 = 3_000;
const STEPS: u64 = 200;
const DEPTH: usize = 3;

/// What the oracle knows of an agent.
#[derive(Default)]
struct Agent {
    budget: Budget,
    lineage: Vec<AgentId>,
    /// (when, what) its own calls have cost.
    costs: Vec<(Millis, Funds)>,
    call: Option<Call>,
    waits: Option<Call>,
    calls: u32,
}

#[derive(Clone)]
struct Call {
    charge: ChargeId,
    amount: Funds,
}

struct World {
    dice: Dice,
    now: Millis,
    tree: Tree,
    log: Vec<(Fact, Millis)>,
    agents: BTreeMap<AgentId, Agent>,
    granted: u64,
    waited: u64,
    refused: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let root = AgentId::from("0");
        let (tree, agents) = (Tree::new(root.clone()), BTreeMap::new());
        let (granted, waited, refused) = (0, 0, 0);
        let mut world = Self { dice: Dice(seed), now: Millis(1), tree, log: vec![], agents, granted, waited, refused };
        let windows = world.dice.one_in(3).then_some(Window { resource: Resource::Tokens, most: 20_000, per_ms: 500 });
        let micro_usd = world.dice.one_in(2).then_some(400_000);
        let windows = windows.into_iter().collect();
        let budget = Budget { tokens: Some(100_000), micro_usd, windows, ..Budget::default() };
        world.grant(&root, budget.clone());
        world.agents.insert(root.clone(), Agent { budget, lineage: vec![root], ..Agent::default() });
        world
    }

    fn record(&mut self, fact: Fact) {
        self.tree.apply(&fact, self.now);
        self.log.push((fact, self.now));
    }

    fn grant(&mut self, agent: &AgentId, budget: Budget) {
        let drawn = self.tree.ledger().grant(&self.tree.line_of(agent), &budget).expect("it was asked before");
        self.record(Fact::BudgetDrawn(drawn));
    }

    fn any(&mut self) -> AgentId {
        let at = self.dice.below(self.agents.len() as u64) as usize;
        self.agents.keys().nth(at).expect("there is a root").clone()
    }

    fn spawn(&mut self) {
        let parent = self.any();
        let lineage = self.agents[&parent].lineage.clone();
        if lineage.len() >= DEPTH || self.agents.len() > 40 {
            return;
        }
        let child = AgentId::from(self.agents.len().to_string());
        let amount = |dice: &mut Dice, most: u64| dice.one_in(2).then(|| dice.below(most) * dice.below(2));
        let budget = Budget {
            tokens: amount(&mut self.dice, 60_000),
            micro_usd: amount(&mut self.dice, 100_000),
            tool_calls: amount(&mut self.dice, 10),
            ..Budget::default()
        };
        let granted = self.tree.grant(&child, &parent, &budget);
        if let Err(too_much) = &granted {
            // Nobody is refused what nobody has spent or holds.
            assert!(too_much.asked > 0, "{too_much}");
            return;
        }
        self.record(Fact::TreeReserved(TreeReserved {
            child: child.clone(),
            parent: parent.clone(),
            path: AgentPath::root().child(child.as_str()),
            label: child.to_string(),
            context: Context::Fresh,
            background: false,
            call: None,
            may_spawn: 9,
            prompt: None,
        }));
        if let Ok(drawn) = granted
            && !budget.is_unlimited()
        {
            self.record(Fact::BudgetDrawn(drawn));
        }
        let lineage = std::iter::once(child.clone()).chain(lineage).collect();
        self.agents.insert(child, Agent { budget, lineage, ..Agent::default() });
    }

    fn begin_call(&mut self) {
        let id = self.any();
        let amount = Funds {
            tokens: self.dice.below(8_000),
            micro_usd: self.dice.below(20_000),
            tool_calls: self.dice.below(2),
        };
        let agent = self.agents.get_mut(&id).expect("known");
        if agent.call.is_some() || agent.waits.is_some() {
            return;
        }
        agent.calls += 1;
        let call = Call { charge: format!("run_1.{}.0", agent.calls).into(), amount };
        self.ask(&id, call);
    }

    fn ask(&mut self, id: &AgentId, call: Call) {
        let lineage = self.tree.line_of(id);
        match self.tree.ledger().reserve(&lineage, &call.charge, call.amount, self.now) {
            Funding::Granted(facts) => {
                facts.into_iter().for_each(|fact| self.record(fact));
                self.agents.get_mut(id).expect("known").call = Some(call);
                self.granted += 1;
                self.check_granted(id);
            }
            Funding::Waits { until, .. } => {
                assert!(until.is_none_or(|until| until > self.now), "a wait for a time that has passed");
                self.agents.get_mut(id).expect("known").waits = Some(call);
                self.waited += 1;
            }
            Funding::Refused(_) => {
                self.refused += 1;
                let fits = self.agents[id].lineage.iter().all(|above| self.would_fit(above, call.amount));
                assert!(!fits, "{id} was refused {:?}, which others could free", call.amount);
            }
        }
    }

    /// Whether `amount` is within the budget of `above` if all calls in flight there turn out to cost nothing.
    fn would_fit(&self, above: &AgentId, amount: Funds) -> bool {
        Resource::ALL.into_iter().all(|resource| {
            let limit = self.agents[above].budget.limit(resource);
            let need = amount.of(resource);
            need == 0 || limit.is_none_or(|limit| self.spent(above, resource, 0) + need <= limit)
        })
    }

    fn below<'a>(&'a self, top: &'a AgentId) -> impl Iterator<Item = &'a Agent> {
        self.agents.values().filter(move |agent| agent.lineage.contains(top))
    }

    /// What was spent at and below `top` since a time.
    fn spent(&self, top: &AgentId, resource: Resource, since: u64) -> u64 {
        let costs = self.below(top).flat_map(|agent| &agent.costs);
        costs.filter(|(at, _)| at.0 > since || since == 0).map(|(_, cost)| cost.of(resource)).sum()
    }

    fn in_flight(&self, top: &AgentId, resource: Resource) -> u64 {
        self.below(top).filter_map(|agent| agent.call.as_ref()).map(|call| call.amount.of(resource)).sum()
    }

    /// Every budget above a call that was let pass has room for it and for all that is in flight.
    fn check_granted(&self, id: &AgentId) {
        for above in &self.agents[id].lineage {
            let budget = &self.agents[above].budget;
            let own = self.agents[id].call.as_ref().expect("granted").amount;
            for resource in Resource::ALL.into_iter().filter(|resource| own.of(*resource) > 0) {
                let used = self.spent(above, resource, 0) + self.in_flight(above, resource);
                assert!(
                    budget.limit(resource).is_none_or(|limit| used <= limit),
                    "{above} has {budget:?} and its agents {used} of {resource:?}"
                );
            }
            for window in &budget.windows {
                let since = self.now.0.saturating_sub(window.per_ms);
                let recent = self.spent(above, window.resource, since);
                let used = recent + self.in_flight(above, window.resource);
                assert!(used <= window.most || used == own.of(window.resource), "{used} in {window:?}");
            }
        }
    }

    fn settle(&mut self, id: &AgentId, cost: Funds) {
        let Some(call) = self.agents.get_mut(id).and_then(|agent| agent.call.take()) else { return };
        let (agent, charge, amount) = (id.clone(), call.charge, cost);
        self.record(Fact::BudgetSettled(BudgetSettled { agent, charge, amount }));
        let now = self.now;
        self.agents.get_mut(id).expect("known").costs.push((now, cost));
        self.ask_again();
    }

    fn ask_again(&mut self) {
        let waiting: Vec<(AgentId, Call)> =
            self.agents.iter_mut().filter_map(|(id, agent)| Some((id.clone(), agent.waits.take()?))).collect();
        waiting.into_iter().for_each(|(id, call)| self.ask(&id, call));
    }

    fn end_call(&mut self) {
        let id = self.any();
        let Some(call) = self.agents[&id].call.clone() else { return };
        let mut cost = |reserved: u64| match self.dice.below(4) {
            0 => 0,
            1 => reserved,
            // More than it was thought to cost.
            2 => reserved + self.dice.below(reserved / 4 + 1),
            _ => self.dice.below(reserved + 1),
        };
        let Funds { tokens, micro_usd, tool_calls } = call.amount;
        let cost = Funds { tokens: cost(tokens), micro_usd: cost(micro_usd), tool_calls };
        self.settle(&id, cost);
    }

    /// An agent with nothing in flight at or below it gives back what it holds.
    fn rest(&mut self) {
        let id = self.any();
        if self.below(&id).all(|agent| agent.call.is_none() && agent.waits.is_none()) {
            self.refund(&id);
            self.ask_again();
        }
    }

    fn refund(&mut self, id: &AgentId) {
        if let Some(refunded) = self.tree.ledger().refund(id) {
            self.record(Fact::BudgetRefunded(refunded));
        }
    }

    /// The process dies: the ledger is what its log says, and what was in flight is spent in full.
    fn crash(&mut self) {
        let mut again = Tree::new("0".into());
        self.log.iter().for_each(|(fact, at)| again.apply(fact, *at));
        assert_eq!(again, self.tree, "the ledger is the fold of its log");
        let ledger: &Ledger = self.tree.ledger();
        let open: BTreeSet<AgentId> = ledger.reservations().map(|(agent, _, _)| agent.clone()).collect();
        let known: BTreeSet<AgentId> =
            self.agents.iter().filter(|(_, agent)| agent.call.is_some()).map(|(id, _)| id.clone()).collect();
        assert_eq!(open, known);
        self.agents.values_mut().for_each(|agent| agent.waits = None);
        for id in open {
            let cost = self.agents[&id].call.as_ref().expect("in flight").amount;
            self.settle(&id, cost);
        }
    }

    fn step(&mut self) {
        self.now.0 += self.dice.below(40);
        match self.dice.below(20) {
            0..=2 => self.spawn(),
            3..=9 => self.begin_call(),
            10..=16 => self.end_call(),
            17 => self.rest(),
            18 => self.ask_again(),
            _ if self.dice.one_in(5) => self.crash(),
            _ => {}
        }
    }

    /// When all are at rest and windows are empty, nobody waits: what is asked is granted or refused.
    fn drain(&mut self) {
        self.agents.values_mut().for_each(|agent| agent.waits = None);
        let in_flight: Vec<AgentId> = self.agents.keys().cloned().collect();
        in_flight.iter().for_each(|id| self.settle(id, Funds::default()));
        let mut deepest: Vec<AgentId> = in_flight;
        deepest.sort_by_key(|id| std::cmp::Reverse(self.agents[id].lineage.len()));
        deepest.iter().for_each(|id| self.refund(id));
        self.now.0 += 10_000;
        let waited = self.waited;
        for _ in 0..20 {
            self.begin_call();
            let ids: Vec<AgentId> = self.agents.keys().cloned().collect();
            ids.iter().for_each(|id| self.settle(id, Funds { tokens: 10, ..Funds::default() }));
            ids.iter().for_each(|id| self.refund(id));
            self.now.0 += 10_000;
        }
        assert_eq!(self.waited, waited, "somebody waits for agents that are all at rest");
        for id in deepest {
            let (spent, agent) = (self.tree.ledger().spent(&id), &self.agents[&id]);
            for resource in Resource::ALL.into_iter().filter(|resource| agent.budget.limit(*resource).is_some()) {
                assert_eq!(spent.of(resource), self.spent(&id, resource, 0), "{id} {resource:?}");
            }
        }
    }
}

#[test]
fn random_spending_stays_within_every_budget_and_nobody_is_refused_what_others_could_free() {
    let only = std::env::var("SEED").ok().map(|seed| seed.parse::<u64>().expect("SEED is a number"));
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let (mut granted, mut waited, mut refused) = (0, 0, 0);
    for seed in seeds {
        let world = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..STEPS).for_each(|_| world.step());
            world.drain();
            world
        });
        let world = world.unwrap_or_else(|_| panic!("SEED={seed} fails"));
        granted += world.granted;
        waited += world.waited;
        refused += world.refused;
    }
    let tried = [granted, waited, refused];
    assert!(only.is_some() || tried.iter().all(|count| *count > SEEDS), "granted, waited, refused: {tried:?}");
}
