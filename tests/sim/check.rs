//! What must be true of every tree that has come to rest, read from its logs and from nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use impresario_kernel::invariant::check_log;
use impresario_kernel::tree::Tree;
use impresario_kernel::wire::encode_row;
use impresario_kernel::{AgentId, Event, Fact, Funds, Lane, Seq};
use impresario_seams::{SessionFilter, SessionInfo, Store};

/// One stored session.
pub(crate) struct Stored {
    pub(crate) info: SessionInfo,
    pub(crate) events: Vec<Arc<Event>>,
}

/// Everything of one root, by path.
pub(crate) async fn read(store: &dyn Store, root: &AgentId) -> Vec<Stored> {
    let filter = SessionFilter { root: Some(root.clone()), ..SessionFilter::default() };
    let mut infos = store.list(filter).await.unwrap();
    infos.sort_by_key(|info| info.new.path.clone());
    let mut sessions = vec![];
    for info in infos {
        let events = store.read(info.id().clone(), Seq(0)).try_collect().await.unwrap();
        sessions.push(Stored { info, events });
    }
    sessions
}

/// Every log keeps every invariant, no turn is open, each turn has one outcome, each child's outcome is once in its
/// parent's log, and each accepted message is in one place.
pub(crate) async fn whole(store: &dyn Store, root: &AgentId, accepted: &BTreeMap<AgentId, Vec<String>>) {
    let sessions = read(store, root).await;
    assert!(!sessions.is_empty(), "a root that was spawned is stored");
    for session in &sessions {
        let path = &session.info.new.path;
        assert_eq!(check_log(&session.info.new.header, &session.events), [], "{path}");
        each_turn_has_one_outcome(session);
        each_message_is_in_one_place(session, accepted.get(session.info.id()).map(Vec::as_slice).unwrap_or_default());
    }
    no_child_is_made_twice(store, root).await;
    every_budget_holds(store, root).await;
    let delivered = delivered(store, root).await;
    for session in &sessions {
        is_told_to_its_parent_once(session, &sessions, &delivered);
    }
}

/// The facts of a tree; none before it has a child.
async fn tree_log(store: &dyn Store, root: &AgentId) -> Vec<Arc<Event>> {
    let log = root.tree_log();
    if store.info(log.clone()).await.unwrap().is_none() {
        return vec![];
    }
    store.read(log, Seq(0)).try_collect().await.unwrap()
}

/// Every stop has come to its end.
pub(crate) async fn nothing_is_stopped(store: &dyn Store, root: &AgentId) {
    let mut tree = Tree::new(root.clone());
    tree_log(store, root).await.iter().for_each(|event| tree.apply(&event.fact, event.time));
    assert!(tree.tombstones().is_empty(), "{:?} are stopped at rest", tree.tombstones());
}

/// No call made two children that were both there.
async fn no_child_is_made_twice(store: &dyn Store, root: &AgentId) {
    let mut made = BTreeMap::new();
    for event in tree_log(store, root).await {
        match &event.fact {
            Fact::TreeReserved(child) => {
                let twice = made.insert((child.parent.clone(), child.call.clone()), child.child.clone());
                assert_eq!(twice, None, "{} was asked for once", child.path);
            }
            Fact::TreeRefused(refused) => made.retain(|_, child| *child != refused.child),
            _ => {}
        }
    }
}

/// Nothing is in flight, nobody but a root holds what it did not spend, and at every moment what was spent and what might be
/// was within the budget of the root, apart from what calls have cost more than was reserved for them.
async fn every_budget_holds(store: &dyn Store, root: &AgentId) {
    let mut tree = Tree::new(root.clone());
    let (mut spent, mut over) = (Funds::default(), 0);
    let mut open = BTreeMap::new();
    for event in tree_log(store, root).await {
        let at = event.time;
        match &event.fact {
            Fact::BudgetReserved(it) => {
                let twice = open.insert((it.agent.clone(), it.charge.clone()), it.amount);
                assert_eq!(twice, None, "{} of {} is paid for twice", it.charge, it.agent);
                let in_flight: u64 = open.values().map(|amount| amount.tokens).sum();
                let limit = tree.ledger().budget(root).and_then(|budget| budget.tokens).unwrap_or(u64::MAX);
                assert!(spent.tokens + in_flight <= limit.saturating_add(over), "{spent:?} and {in_flight} of {limit}");
            }
            Fact::BudgetSettled(it) => {
                let reserved = open.remove(&(it.agent.clone(), it.charge.clone())).expect("it was reserved before");
                spent.tokens += it.amount.tokens;
                over += it.amount.tokens.saturating_sub(reserved.tokens);
            }
            _ => {}
        }
        tree.apply(&event.fact, at);
    }
    assert!(open.is_empty(), "in flight at rest: {open:?}");
    for agent in tree.budgeted() {
        assert_eq!(tree.ledger().refund(&agent), None, "{agent} holds funds at rest");
    }
}

/// The outcomes that the tree log says have arrived.
async fn delivered(store: &dyn Store, root: &AgentId) -> BTreeSet<(AgentId, u32)> {
    let mut delivered = BTreeSet::new();
    for event in tree_log(store, root).await {
        if let Fact::TreeDelivered(told) = &event.fact {
            assert!(delivered.insert((told.child.clone(), told.turn)), "{} is delivered twice", told.child);
        }
    }
    delivered
}

/// The events of its own life: what is before its birth is its parent's.
fn own(session: &Stored) -> &[Arc<Event>] {
    let born = session.events.iter().rposition(|event| matches!(event.fact, Fact::AgentBorn(_)));
    &session.events[born.expect("everybody is born")..]
}

fn each_turn_has_one_outcome(session: &Stored) {
    let (mut started, mut ended, mut outcomes) = (vec![], vec![], vec![]);
    for event in own(session) {
        match &event.fact {
            Fact::TurnStarted(turn) => started.push(turn.turn),
            Fact::TurnEnded(turn) => ended.push(turn.turn),
            Fact::OutcomeReached(turn) => outcomes.push(turn.turn),
            _ => {}
        }
    }
    assert_eq!(started, ended, "{} has an open turn", session.info.new.path);
    assert_eq!(ended, outcomes, "{}", session.info.new.path);
}

/// In the inbox, in the conversation, or taken away in the open; and never two of these.
fn each_message_is_in_one_place(session: &Stored, accepted: &[String]) {
    let mut shown = BTreeMap::<&str, u32>::new();
    let mut inbox = impresario_kernel::inbox::Inbox::default();
    let mut known = BTreeSet::new();
    for event in own(session) {
        match &event.fact {
            Fact::UserMessage(message) => *shown.entry(message.id.as_str()).or_default() += 1,
            Fact::ToolResult(result) => *shown.entry(result.message.id.as_str()).or_default() += 1,
            Fact::InboxSpliced(splice) => {
                known.extend(splice.inserted.iter().map(|message| message.id.to_string()));
                inbox.apply(splice).unwrap();
            }
            _ => {}
        }
    }
    let waits = |id: &str| {
        let lanes = [Lane::NextStep, Lane::NextTurn];
        lanes.iter().any(|&lane| inbox.lane(lane).iter().any(|message| message.id.as_str() == id))
    };
    for (id, times) in &shown {
        assert!(*times == 1 && !waits(id), "{id} is in {} more than once", session.info.new.path);
    }
    for id in accepted {
        assert!(known.contains(id), "{id} was accepted and is not in the log of {}", session.info.new.path);
        let is_there = shown.contains_key(id.as_str()) || waits(id);
        assert!(is_there, "{id} was accepted and is lost in {}", session.info.new.path);
    }
}

fn is_told_to_its_parent_once(child: &Stored, sessions: &[Stored], delivered: &BTreeSet<(AgentId, u32)>) {
    let Some(parent) = &child.info.new.header.parent_session else { return };
    let mut outcomes = own(child).iter().filter_map(|event| match &event.fact {
        Fact::OutcomeReached(outcome) => Some(outcome.turn),
        _ => None,
    });
    let Some(last) = outcomes.next_back() else { return };
    let id = child.info.id();
    assert!(delivered.contains(&(id.clone(), last)), "nobody was told how {} came out", child.info.new.path);
    let parent = sessions.iter().find(|session| session.info.id() == parent).expect("a parent is stored");
    let notice = format!("settled:{id}:{last}");
    let told = own(parent).iter().filter(|event| tells(&event.fact, &notice)).count();
    assert_eq!(told, 1, "{} was told {told} times how {} came out", parent.info.new.path, child.info.new.path);
}

/// Whether a fact is the arrival of this message: into the inbox, or as the result of a call.
fn tells(fact: &Fact, id: &str) -> bool {
    match fact {
        Fact::InboxSpliced(splice) => splice.inserted.iter().any(|message| message.id.as_str() == id),
        // A result that came early is written twice, and shown once.
        Fact::ToolResult(result) => result.message.id.as_str() == id,
        _ => false,
    }
}

/// How long every log is.
pub(crate) async fn lengths(store: &dyn Store, root: &AgentId) -> BTreeMap<AgentId, Seq> {
    let filter = SessionFilter { root: Some(root.clone()), ..SessionFilter::default() };
    store.list(filter).await.unwrap().into_iter().map(|info| (info.id().clone(), info.len)).collect()
}

/// All logs as they are stored, byte by byte.
pub(crate) async fn bytes(store: &dyn Store, root: &AgentId) -> String {
    let mut text = String::new();
    for session in read(store, root).await {
        text.push_str(&format!("== {} {}\n", session.info.id(), session.info.new.path));
        for event in &session.events {
            text.push_str(&encode_row(event).unwrap());
            text.push('\n');
        }
    }
    text
}
