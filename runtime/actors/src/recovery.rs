//! Reading stored trees back, and closing what a dead process left open.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, TryStreamExt};
use impresario_kernel::event::{
    BudgetSettled, Fact, Lane, QueueRule, TreeChild, TreeDelivered, TreeLifted, TreeRefused,
};
use impresario_kernel::tree::{NodeState, Tree};
use impresario_kernel::{
    Agent, AgentId, Boundary, Budget, Cause, Event, Fork, Input, NoFork, Outcome, OutcomeKind, RequestHeader, Seq,
    Spec, TurnEnd,
};
use impresario_seams::{Batch, Commit, Head, SessionFilter, SessionInfo, StoreError, TurnState};

use crate::checkpoints::{read, read_whole};
use crate::delegation::Settled;
use crate::error::Error;
use crate::profile::Profile;
use crate::shared::{Shared, panic_text};
use crate::supervisor::{Frame, InheritedTree, Member};

/// The first wait before a store that failed is read again, and the longest.
const READ_WAIT: Duration = Duration::from_millis(50);
const READ_WAIT_MAX: Duration = Duration::from_secs(5);

/// A tree that is whole again.
pub(crate) struct Loaded {
    pub(crate) tree: Tree,
    pub(crate) tree_next: Seq,
    pub(crate) root: Agent,
    pub(crate) title: String,
    pub(crate) profile: Arc<Profile>,
    pub(crate) others: Vec<(AgentId, Option<Arc<Outcome>>)>,
}

/// A stored agent.
pub(crate) struct Stored {
    pub(crate) agent: Agent,
    pub(crate) info: SessionInfo,
}

/// One agent of a tree in repair.
struct Patient {
    info: SessionInfo,
    agent: Agent,
    /// Events that repair adds.
    added: Vec<Arc<Event>>,
}

/// Reads the tree of `root`, repairs it (children before parents), hands on outcomes that never arrived, and writes all
/// of that at once.
pub(crate) async fn load(shared: &Shared, root: &AgentId, frame: Frame) -> Result<Loaded, Error> {
    shared.journal.catch_up().await;
    let info = shared.store.info(root.clone()).await?.ok_or_else(|| Error::UnknownAgent(root.clone()))?;
    if let Some(parent) = &info.new.header.parent_session {
        let top = &info.new.root;
        return Err(Error::Refused(format!("{root} is a subagent (of {parent}); open its root {top}")));
    }
    let (mut profile, budget) = match frame {
        Frame::Given(spec) => {
            let budget = spec.budget.clone();
            (Profile { is_as_born: false, ..Profile::root(shared, root, *spec)? }, budget)
        }
        Frame::Kept(profile) => (Profile::clone(&profile), None),
        Frame::Logged => {
            // What it is made of is in what is read.
            let any = Arc::new(Spec::new(RequestHeader::new("any", "any")));
            let agent = read(shared, root, any).await?;
            (Profile::logged(shared, &Stored { agent, info: info.clone() })?, None)
        }
    };
    let mut facts = read_tree(shared, root).await?;
    facts.lift(shared);
    facts.balance(shared, budget);
    profile.is_budgeted = !facts.tree.ledger().is_empty();
    profile.check_price(shared, facts.tree.ledger().budget(root))?;
    let profile = Arc::new(profile);
    let (mut patients, unreadable) = read_patients(shared, root, &profile.spec).await?;
    // What this runtime has sent to the store itself is whole, and its life goes on.
    let is_ours = shared.router.is_passive(root);
    patients.iter_mut().filter(|_| !is_ours).for_each(|patient| patient.recover(shared));
    facts.extend(shared, deliver(shared, &facts.tree, &mut patients));
    facts.extend(shared, end_births(&facts.tree, &patients, &unreadable));
    let batches = patients.iter().filter_map(Patient::batch).chain(facts.batch(root)).collect();
    let commit = Commit { lease: Some(shared.lease), batches, ..Commit::default() };
    if !commit.batches.is_empty() {
        shared.store.commit(commit).await?;
    }
    let title = info.head.title.clone();
    let at = patients.iter().position(|patient| patient.info.id() == root);
    let Some(at) = at else { return Err(Error::UnknownAgent(root.clone())) };
    let root_agent = patients.swap_remove(at).agent;
    let others = patients.into_iter().map(|patient| {
        let outcome = patient.agent.outcome().cloned();
        (patient.info.id().clone(), outcome)
    });
    let others = others.collect();
    Ok(Loaded { tree: facts.tree, tree_next: facts.next, root: root_agent, title, profile, others })
}

/// Runs what reads a stored session: whoever waits for `id` hears of a panic as of any other failure.
pub(crate) async fn contained<T>(id: &AgentId, reading: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    AssertUnwindSafe(reading).catch_unwind().await.unwrap_or_else(|panic| {
        let why = format!("reading it panicked: {}", panic_text(&*panic));
        Err(Error::Unreadable { id: id.clone(), why })
    })
}

/// Reads what a supervisor that failed had written of the trees that are open here, each log as often as it takes: begun
/// from the front with every failure, a wide tree on a store that fails now and then would never be read. How resident agents stand, they say
/// themselves.
pub(crate) async fn inherit(shared: &Shared) -> Result<Vec<InheritedTree>, Error> {
    let roots = shared.roots().clone();
    let mut trees = Vec::with_capacity(roots.len());
    for (root, profile) in roots {
        let TreeFacts { tree, next, .. } = patiently(|| read_tree(shared, &root)).await?;
        let mut members = vec![];
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            let Some(node) = tree.node(&id).filter(|node| node.state != NodeState::Refused) else { continue };
            open.extend(node.children.iter().rev().cloned());
            let member = member(shared, &id, &profile).await?;
            members.push((id, member));
        }
        trees.push(InheritedTree { tree, next, members });
    }
    Ok(trees)
}

async fn member(shared: &Shared, id: &AgentId, profile: &Profile) -> Result<Member, Error> {
    if shared.router.sent(id).is_some() {
        return Ok(Member::Resident);
    }
    if patiently(|| async { Ok(shared.store.info(id.clone()).await?) }).await?.is_none() {
        return Ok(Member::Unborn);
    }
    let agent = patiently(|| read(shared, id, Arc::clone(&profile.spec))).await?;
    let outcome = agent.outcome().map(Arc::as_ref);
    // It failed too often: its log is closed when its tree is opened again.
    let is_closed = agent.turn().is_idle() && !agent.wants_turn();
    Ok(if is_closed { Member::Stored(agent.outcome().cloned()) } else { Member::Failed(Arc::new(crashed(outcome))) })
}

/// The outcome of an agent that will not say how it ended, behind its last one.
pub(crate) fn crashed(last: Option<&Outcome>) -> Outcome {
    let (kind, end, text) = (OutcomeKind::Crashed, TurnEnd::Interrupted, Arc::from(""));
    let spent = last.map(|outcome| outcome.spent).unwrap_or_default();
    Outcome { turn: last.map_or(1, |outcome| outcome.turn + 1), kind, end, text, output: None, spent }
}

/// Reads again, ever later, as long as the store says that asking again may help.
pub(crate) async fn patiently<T, F>(read: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut wait = READ_WAIT;
    loop {
        match read().await {
            Err(Error::Store(error)) if error.is_retryable() => {
                tracing::warn!(%error, "the store cannot be read; it is asked again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(READ_WAIT_MAX);
            }
            read => return read,
        }
    }
}

/// A stored agent and what the store says of it.
pub(crate) async fn read_back(shared: &Shared, id: &AgentId, spec: Arc<Spec>) -> Result<Stored, Error> {
    shared.journal.catch_up().await;
    let info = shared.store.info(id.clone()).await?.ok_or_else(|| Error::UnknownAgent(id.clone()))?;
    Ok(Stored { agent: read(shared, id, spec).await?, info })
}

/// What a fork of a stored agent goes on from.
pub(crate) async fn fork_stored(
    shared: &Shared,
    id: &AgentId,
    spec: Arc<Spec>,
    boundary: Boundary,
) -> Result<Fork, Error> {
    let agent = contained(id, read(shared, id, Arc::clone(&spec))).await?;
    let mut fork = agent.fork_at(boundary, None);
    if matches!(fork, Err(NoFork::NotAtHand(_))) {
        fork = contained(id, read_whole(shared, id, spec)).await?.fork_at(boundary, None);
    }
    fork.map_err(|no| Error::Refused(format!("{id} cannot be forked there: {no}")))
}

/// The facts of a tree log and what is to be added to them.
struct TreeFacts {
    tree: Tree,
    next: Seq,
    added: Vec<Arc<Event>>,
}

impl TreeFacts {
    fn extend(&mut self, shared: &Shared, facts: Vec<Fact>) {
        for fact in facts {
            let event = Event::new(self.next, shared.chance.now(), fact);
            self.tree.apply(&event.fact, event.time);
            self.next = event.next_seq();
            self.added.push(Arc::new(event));
        }
    }

    /// A cancel whose process died: its subtree is at rest as soon as it is repaired.
    fn lift(&mut self, shared: &Shared) {
        let stones = self.tree.tombstones().clone();
        let lifted = stones.into_iter().map(|(agent, epoch)| Fact::TreeLifted(TreeLifted { agent, epoch }));
        self.extend(shared, lifted.collect());
    }

    /// What was in flight has cost all that was reserved, nobody at rest holds what it does not need, and the root may
    /// spend what it is given now.
    fn balance(&mut self, shared: &Shared, budget: Option<Budget>) {
        let open = self.tree.ledger().reservations().map(|(agent, charge, amount)| {
            let (agent, charge, amount) = (agent.clone(), charge.clone(), *amount);
            Fact::BudgetSettled(BudgetSettled { agent, charge, amount })
        });
        let open = open.collect();
        self.extend(shared, open);
        let root = self.tree.root().clone();
        for agent in self.tree.budgeted() {
            let refunded = self.tree.ledger().refund(&agent);
            self.extend(shared, refunded.map(Fact::BudgetRefunded).into_iter().collect());
        }
        if let Some(budget) = budget {
            let budget = self.tree.ledger().budget(&root).map_or(budget.clone(), |before| budget.over(before));
            // There is nobody above a root who could have too little.
            let drawn = self.tree.ledger().grant(&[root], &budget).ok();
            self.extend(shared, drawn.map(Fact::BudgetDrawn).into_iter().collect());
        }
    }

    fn batch(&self, root: &AgentId) -> Option<Batch> {
        let first = self.added.first().filter(|event| event.seq == Seq(0));
        let create = first.map(|event| crate::supervisor::tree_session(root, event.time));
        (!self.added.is_empty()).then(|| Batch {
            session: root.tree_log(),
            create,
            events: self.added.clone(),
            head: Head::default(),
        })
    }
}

async fn read_tree(shared: &Shared, root: &AgentId) -> Result<TreeFacts, Error> {
    let mut facts = TreeFacts { tree: Tree::new(root.clone()), next: Seq(0), added: vec![] };
    let log = root.tree_log();
    // A root that never had a child has no tree log.
    if shared.store.info(log.clone()).await?.is_some() {
        let mut events = shared.store.read(log, Seq(0));
        while let Some(event) = events.try_next().await? {
            facts.tree.apply(&event.fact, event.time);
            facts.next = event.next_seq();
        }
    }
    Ok(facts)
}

/// All agents of the tree that can be read, the deepest first, and the ids of those that cannot: one bad log does not keep
/// the rest of a tree from being opened.
async fn read_patients(
    shared: &Shared,
    root: &AgentId,
    spec: &Arc<Spec>,
) -> Result<(Vec<Patient>, BTreeSet<AgentId>), Error> {
    let filter = SessionFilter { root: Some(root.clone()), ..SessionFilter::default() };
    let mut infos = shared.store.list(filter).await?;
    infos.sort_by_key(|info| std::cmp::Reverse(info.new.path.as_str().matches('/').count()));
    let (mut patients, mut unreadable) = (Vec::with_capacity(infos.len()), BTreeSet::new());
    for info in infos {
        match read(shared, info.id(), Arc::clone(spec)).await {
            Ok(agent) => patients.push(Patient { info, agent, added: vec![] }),
            Err(error) if info.id() != root && is_damage(&error) => {
                tracing::warn!(agent = %info.id(), %error, "a subagent cannot be read; its tree is opened without it");
                unreadable.insert(info.id().clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok((patients, unreadable))
}

/// Whether a log will never be read, however often it is tried.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Unreadable { .. } | Error::Store(StoreError::Damaged { .. }))
}

/// Hands the outcomes that their parents do not have to their parents, without waking them.
fn deliver(shared: &Shared, tree: &Tree, patients: &mut [Patient]) -> Vec<Fact> {
    let bytes_max = shared.limits.result_bytes_max;
    let places: BTreeMap<AgentId, usize> =
        patients.iter().enumerate().map(|(at, patient)| (patient.info.id().clone(), at)).collect();
    let mut facts = vec![];
    for at in 0..patients.len() {
        let patient = &patients[at];
        let Some(parent) = patient.agent.parent().cloned() else { continue };
        let Some(outcome) = patient.agent.outcome().cloned() else { continue };
        let (child, path, turn) = (patient.info.id().clone(), patient.info.new.path.clone(), outcome.turn);
        if tree.is_delivered(&child, turn) {
            continue;
        }
        let settled = Settled { child: child.clone(), path, outcome, left: None };
        let Some(above) = places.get(&parent).and_then(|above| patients.get_mut(*above)) else { continue };
        let message = settled.notice(bytes_max);
        above.tell(shared, Input::Deliver { lane: Lane::NextStep, wakes: false, message });
        facts.push(Fact::TreeDelivered(TreeDelivered { child, turn }));
    }
    facts
}

/// Ends the births that a crash cut short: gives the places of children back whose first append never was, and says of
/// those who are there that they are, for nobody counts a child before that.
fn end_births(tree: &Tree, patients: &[Patient], unreadable: &BTreeSet<AgentId>) -> Vec<Fact> {
    let there: BTreeSet<&AgentId> = patients.iter().map(|patient| patient.info.id()).chain(unreadable).collect();
    let exists = |id: &AgentId| there.contains(id);
    let mut facts = vec![];
    let mut open = vec![tree.root().clone()];
    while let Some(id) = open.pop() {
        let Some(node) = tree.node(&id) else { continue };
        open.extend(node.children.iter().cloned());
        match (node.state, exists(&id)) {
            (NodeState::Reserved | NodeState::Published, false) => {
                facts.push(Fact::TreeRefused(TreeRefused { child: id, reason: "the process ended first".into() }));
            }
            (NodeState::Reserved, true) => facts.push(Fact::TreePublished(TreeChild { child: id })),
            (NodeState::Published, true) | (NodeState::Refused, _) => {}
        }
    }
    facts
}

impl Patient {
    /// Closes what a dead process has left open. A child that had not begun its task is owed an end, and so is its parent,
    /// who may wait for it; the task stays in its log, for whoever tells it to go on.
    fn recover(&mut self, shared: &Shared) {
        let had_not_begun = self.agent.parent().is_some() && self.agent.own_turns() == 0 && self.agent.wants_turn();
        if had_not_begun {
            self.tell(shared, Input::Cancel { cause: Cause::Disposed, queue: QueueRule::Park });
        }
        self.tell(shared, Input::Recovered);
    }

    fn tell(&mut self, shared: &Shared, input: Input) {
        // Repair and delivery are not refused.
        self.added.extend(self.agent.tell(input, shared.chance.now()).unwrap_or_default());
    }

    fn batch(&self) -> Option<Batch> {
        let outcome = self.agent.outcome();
        let head = Head {
            state: TurnState::Idle,
            outcome: outcome.map(|outcome| outcome.kind),
            spent: self.agent.spent(),
            undelivered: None,
            ..self.info.head.clone()
        };
        (!self.added.is_empty()).then(|| Batch {
            session: self.info.id().clone(),
            create: None,
            events: self.added.clone(),
            head,
        })
    }
}
