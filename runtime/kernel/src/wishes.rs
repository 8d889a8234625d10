//! Who asks to spend and may not yet.
//!
//! Agents that pay from the same accounts wait in one row, and none of them passes another; between rows, who asked first
//! comes first, and none takes what another row's first one lacks. So a look at all of them costs a look at each row's
//! first, however many wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::budget::{Funds, Resource};
use crate::id::{AgentId, ChargeId, Millis};
use crate::ledger::Funding;
use crate::tree::Tree;

/// A wish for funds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wish {
    /// Whose call.
    pub agent: AgentId,
    /// Which.
    pub charge: ChargeId,
    /// How much it may cost.
    pub amount: Funds,
}

/// The accounts that a row pays from, and whether it is for tool calls: these do not wait for what models cost.
type Row = (Vec<AgentId>, bool);

/// The rows.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// What was taken back is still in its row until it is the first.
    rows: BTreeMap<Row, VecDeque<(u64, Wish)>>,
    /// Those that stand, with their place in the order of asking.
    standing: BTreeMap<(AgentId, ChargeId), u64>,
    asked: u64,
}

/// One look at all of them.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Rows whose first one waits.
    held_up: BTreeSet<Row>,
    lacking: BTreeSet<(AgentId, Resource)>,
    /// When to look again if nobody settles before.
    pub again: Option<Millis>,
}

impl Wishes {
    /// Adds a wish; one for the same charge that waits already is this one from here on.
    pub fn push(&mut self, tree: &Tree, wish: Wish) {
        self.asked += 1;
        self.standing.insert((wish.agent.clone(), wish.charge.clone()), self.asked);
        let row = (tree.accounts_above(&wish.agent), wish.amount.tool_calls > 0);
        self.rows.entry(row).or_default().push_back((self.asked, wish));
    }

    /// Takes a wish back, if it waits.
    pub fn remove(&mut self, agent: &AgentId, charge: &ChargeId) {
        self.standing.remove(&(agent.clone(), charge.clone()));
    }

    /// Takes the wishes of an agent back, apart from some.
    pub fn remove_all_but(&mut self, agent: &AgentId, kept: &[ChargeId]) {
        self.standing.retain(|(owner, charge), _| owner != agent || kept.contains(charge));
    }

    /// Whether a wish waits.
    pub fn is_waiting(&self, agent: &AgentId, charge: &ChargeId) -> bool {
        self.standing.contains_key(&(agent.clone(), charge.clone()))
    }

    /// The next one that is met or refused now, with what became of it; it waits no more. To be called until there is none,
    /// with the same `round`, when what it says was folded into `tree`.
    pub fn next(&mut self, tree: &Tree, now: Millis, round: &mut Round) -> Option<(Wish, Funding)> {
        loop {
            let row = self.first_row(round)?;
            let (_, wish) = self.rows.get(&row)?.front()?;
            let lineage = tree.line_of(&wish.agent);
            let is_behind = tree.ledger().payers(&lineage).iter().any(|payer| round.lacking.contains(payer));
            if is_behind {
                round.held_up.insert(row);
                continue;
            }
            match tree.ledger().reserve(&lineage, &wish.charge, wish.amount, now) {
                Funding::Waits { until, lacking } => {
                    round.lacking.extend(lacking);
                    round.again = [round.again, until].into_iter().flatten().min();
                    round.held_up.insert(row);
                }
                funding @ (Funding::Granted(_) | Funding::Refused(_)) => {
                    let (_, wish) = self.rows.get_mut(&row)?.pop_front()?;
                    self.remove(&wish.agent, &wish.charge);
                    return Some((wish, funding));
                }
            }
        }
    }

    /// The row whose first one asked first, of those that are not held up.
    fn first_row(&mut self, round: &Round) -> Option<Row> {
        let standing = &self.standing;
        self.rows.retain(|_, row| {
            let is_gone =
                |(at, wish): &mut (u64, Wish)| standing.get(&(wish.agent.clone(), wish.charge.clone())) != Some(&*at);
            while row.pop_front_if(is_gone).is_some() {}
            !row.is_empty()
        });
        let open = self.rows.iter().filter(|(row, _)| !round.held_up.contains(*row));
        let first = open.min_by_key(|(_, waiting)| waiting.front().map(|(at, _)| *at));
        first.map(|(row, _)| row.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Window};
    use crate::event::{BudgetSettled, Context, Fact, TreeReserved};
    use crate::id::AgentPath;

    fn tree(budget: Budget) -> Tree {
        let mut tree = Tree::new("r".into());
        grant(&mut tree, "r", budget);
        for child in ["a", "b", "c"] {
            let reserved = TreeReserved {
                child: child.into(),
                parent: "r".into(),
                path: AgentPath::root().child(child),
                label: child.into(),
                context: Context::Fresh,
                background: false,
                call: None,
                may_spawn: 0,
                prompt: None,
            };
            tree.apply(&Fact::TreeReserved(reserved), Millis(0));
        }
        tree
    }

    fn grant(tree: &mut Tree, agent: &str, budget: Budget) {
        let drawn = tree.ledger().grant(&tree.line_of(&agent.into()), &budget).unwrap();
        tree.apply(&Fact::BudgetDrawn(drawn), Millis(0));
    }

    fn wish(agent: &str, tokens: u64) -> Wish {
        Wish { agent: agent.into(), charge: "run_1.1.0".into(), amount: Funds { tokens, ..Funds::default() } }
    }

    /// Who is met in one look, in order.
    fn look(wishes: &mut Wishes, tree: &mut Tree, now: u64) -> (Vec<String>, Option<Millis>) {
        let (mut met, mut round) = (vec![], Round::default());
        while let Some((wish, funding)) = wishes.next(tree, Millis(now), &mut round) {
            let Funding::Granted(facts) = funding else { panic!("{wish:?} is refused") };
            facts.iter().for_each(|fact| tree.apply(fact, Millis(now)));
            met.push(wish.agent.to_string());
        }
        (met, round.again)
    }

    fn settle(tree: &mut Tree, agent: &str, tokens: u64, now: u64) {
        let Wish { agent, charge, amount } = wish(agent, tokens);
        tree.apply(&Fact::BudgetSettled(BudgetSettled { agent, charge, amount }), Millis(now));
    }

    #[test]
    fn nobody_passes_who_waits_for_the_same() {
        let mut tree = tree(Budget { tokens: Some(100), ..Budget::default() });
        let mut wishes = Wishes::default();
        for (agent, tokens) in [("a", 60), ("b", 50), ("c", 10)] {
            wishes.push(&tree, wish(agent, tokens));
        }
        assert_eq!(look(&mut wishes, &mut tree, 0).0, ["a"]);
        assert!(wishes.is_waiting(&"c".into(), &"run_1.1.0".into()));
        settle(&mut tree, "a", 5, 0);
        assert_eq!(look(&mut wishes, &mut tree, 0).0, ["b", "c"]);
    }

    #[test]
    fn what_another_account_has_is_not_held_up_and_what_is_taken_back_neither() {
        let mut tree = tree(Budget { tokens: Some(100), ..Budget::default() });
        grant(&mut tree, "c", Budget { tokens: Some(40), ..Budget::default() });
        let mut wishes = Wishes::default();
        for (agent, tokens) in [("a", 70), ("b", 50), ("c", 10)] {
            wishes.push(&tree, wish(agent, tokens));
        }
        assert_eq!(look(&mut wishes, &mut tree, 0).0, ["c"], "a waits for what c holds");
        wishes.remove(&"a".into(), &"run_1.1.0".into());
        wishes.push(&tree, wish("b", 20));
        assert_eq!(look(&mut wishes, &mut tree, 0).0, ["b"], "asked again, it is the later wish");
        assert!(!wishes.is_waiting(&"b".into(), &"run_1.1.0".into()));
    }

    #[test]
    fn a_large_call_in_front_of_a_full_window_is_not_passed_by_small_ones() {
        let window = Window { resource: Resource::Tokens, most: 100, per_ms: 1_000 };
        let mut tree = tree(Budget { windows: vec![window], ..Budget::default() });
        let mut wishes = Wishes::default();
        wishes.push(&tree, wish("a", 80));
        assert_eq!(look(&mut wishes, &mut tree, 10).0, ["a"]);
        settle(&mut tree, "a", 80, 10);
        wishes.push(&tree, wish("b", 90));
        wishes.push(&tree, wish("c", 5));
        assert_eq!(look(&mut wishes, &mut tree, 20), (vec![], Some(Millis(1_010))));
        assert_eq!(look(&mut wishes, &mut tree, 1_010).0, ["b", "c"]);
    }
}
