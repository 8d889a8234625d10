//! What must be true of a store whatever was done to its process, and of one at rest. Each rule adds what it counted to
//! the figures, and what it found wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::archive::{Archive, Session, said, shown, text};
use crate::figures::Figures;
use crate::tools;

/// What became of a command that told somebody something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It exited with 0, or showed before it was killed what only follows from a message that is durable.
    Acknowledged,
    /// It was killed before it showed anything.
    Unknown,
    /// It said that another process has the store.
    Refused,
}

/// Something that a command told somebody: its text is like no other.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) fate: Fate,
}

/// All rules for a store at rest; `counter` is what the tools have left in the world.
pub(crate) fn whole(archive: &Archive, told: &[Told], counter: &str, figures: &mut Figures) {
    figures.agents = archive.sessions.len() as u64;
    let mail: BTreeMap<&str, Mail> =
        archive.sessions.iter().map(|(id, session)| (id.as_str(), Mail::of(session))).collect();
    for session in archive.sessions.values() {
        nothing_is_shown_twice(session, figures);
        each_turn_has_one_outcome(session, figures);
        each_message_is_in_one_place(session, &mail[session.id.as_str()], figures);
        what_was_relayed_has_arrived(session, &mail, figures);
        belongs_to_a_tree(session, archive, figures);
        outcomes_are_told_once(session, archive, &mail, figures);
    }
    archive.trees.values().for_each(|tree| each_place_has_its_child(tree, archive, figures));
    what_was_told_is_there_once(told, &mail, figures);
    tools::leave_what_their_logs_say(archive, counter, figures);
}

/// The post of one session: what came in, what the model was shown, what waits.
#[derive(Default)]
struct Mail {
    /// How often each message was put into the inbox, and its text.
    inserted: BTreeMap<String, (u32, String)>,
    /// How often each message was shown.
    shown: BTreeMap<String, u32>,
    waiting: Vec<String>,
}

impl Mail {
    fn of(session: &Session) -> Self {
        let mut mail = Self::default();
        let mut lanes = BTreeMap::<String, Vec<String>>::new();
        for event in session.own() {
            if let Some(message) = shown(event) {
                *mail.shown.entry(text(&message["id"])).or_default() += 1;
            }
            if event["type"] == "agent/inbox/spliced" {
                mail.splice(&event["data"], &mut lanes);
            }
        }
        mail.waiting = lanes.into_values().flatten().collect();
        mail
    }

    fn splice(&mut self, splice: &Value, lanes: &mut BTreeMap<String, Vec<String>>) {
        let number = |key: &str| splice[key].as_u64().unwrap_or(0) as usize;
        let messages = splice["inserted"].as_array().map(Vec::as_slice).unwrap_or_default();
        for message in messages {
            self.inserted.entry(text(&message["id"])).or_insert((0, said(message))).0 += 1;
        }
        let lane = lanes.entry(text(&splice["target"])).or_default();
        let start = number("start");
        lane.splice(start..start + number("removedCount"), messages.iter().map(|message| text(&message["id"])));
    }

    fn waits(&self, id: &str) -> usize {
        self.waiting.iter().filter(|other| *other == id).count()
    }

    fn shows(&self, id: &str) -> usize {
        self.shown.get(id).copied().unwrap_or(0) as usize
    }

    fn has(&self, id: &str) -> bool {
        self.inserted.contains_key(id)
    }
}

/// What the model sees has no message twice, what was inherited included.
fn nothing_is_shown_twice(session: &Session, figures: &mut Figures) {
    let mut seen = BTreeSet::new();
    for message in session.events.iter().filter(|event| event["surfaceOp"] == "append").filter_map(shown) {
        if !seen.insert(text(&message["id"])) {
            figures.duplicates.push(format!("{} is shown twice in {}", message["id"], session.path));
        }
    }
}

fn each_turn_has_one_outcome(session: &Session, figures: &mut Figures) {
    let turns = |kind: &str| session.of(kind).map(|event| event["data"]["turn"].as_u64()).collect::<Vec<_>>();
    let (started, ended, outcomes) = (turns("turn/start"), turns("turn/end"), turns("agent/outcome"));
    figures.not_begun += u64::from(session.parent.is_some() && started.is_empty());
    if started != ended || ended != outcomes {
        let what = format!("turns {started:?}, ends {ended:?}, outcomes {outcomes:?}");
        figures.violations.push(format!("{} {} is not at rest: {what}", session.root, session.path));
    }
}

/// Shown once, or waiting; what children have to say has a rule of its own.
fn each_message_is_in_one_place(session: &Session, mail: &Mail, figures: &mut Figures) {
    for id in mail.inserted.keys().filter(|id| !id.starts_with("settled:")) {
        let (shows, waits) = (mail.shows(id), mail.waits(id));
        figures.accepted += 1;
        figures.consumed += shows.min(1) as u64;
        figures.waiting += waits.min(1) as u64;
        let what =
            || format!("{id} of {} {} is shown {shows} times and waits {waits} times", session.root, session.path);
        match shows + waits {
            0 => figures.losses.push(what()),
            1 => {}
            _ => figures.duplicates.push(what()),
        }
    }
}

/// A call of `message_agent` or `report` that was answered well has left its message in one log.
fn what_was_relayed_has_arrived(session: &Session, mail: &BTreeMap<&str, Mail>, figures: &mut Figures) {
    for call in tools::calls(session) {
        let kind = match call.tool.as_str() {
            "message_agent" => "message",
            "report" => "report",
            _ => continue,
        };
        let id = format!("{kind}:{}:call_{}.{}.{}", session.id, call.turn, call.step, call.index);
        let arrived = mail.values().filter(|mail| mail.has(&id)).count();
        let is_answered = call.is_done();
        if arrived > 1 {
            figures.duplicates.push(format!("{id} arrived in {arrived} logs"));
        } else if is_answered && arrived == 0 {
            figures.losses.push(format!("{id} was accepted and is in no log"));
        }
    }
}

/// Its parents end at the root of a tree that shows it, and that has given it a place.
fn belongs_to_a_tree(session: &Session, archive: &Archive, figures: &mut Figures) {
    let mut above = session;
    while let Some(parent) = above.parent.as_ref().and_then(|parent| archive.sessions.get(parent)) {
        above = parent;
    }
    let tree = archive.trees.get(&session.root).map(Vec::as_slice).unwrap_or_default();
    let is_placed = |event: &Value| event["type"] == "tree/published" && event["data"]["child"] == session.id.as_str();
    let has_place = session.parent.is_none() || tree.iter().any(is_placed);
    if above.id != session.root || above.parent.is_some() || !archive.in_trees.contains(&session.id) || !has_place {
        figures.violations.push(format!("{} {} is an orphan", session.root, session.path));
    }
}

/// Each call made one child at most, and whoever got a place is there or was refused.
fn each_place_has_its_child(tree: &[Value], archive: &Archive, figures: &mut Figures) {
    let mut places = BTreeMap::new();
    let mut published = BTreeSet::new();
    let mut delivered = BTreeSet::new();
    for event in tree {
        let data = &event["data"];
        let child = text(&data["child"]);
        match event["type"].as_str().unwrap_or_default() {
            "tree/reserved" => {
                let asked = (text(&data["parent"]), text(&data["call"]));
                if places.values().any(|other| *other == asked) {
                    figures.duplicates.push(format!("{asked:?} made two children"));
                }
                places.insert(child, asked);
            }
            "tree/published" => {
                published.insert(child);
            }
            "tree/refused" => {
                places.remove(&child);
            }
            "tree/delivered" if !delivered.insert((child.clone(), data["turn"].as_u64())) => {
                figures.duplicates.push(format!("{child} is delivered twice"));
            }
            _ => {}
        }
    }
    let homeless = places.keys().filter(|child| !archive.sessions.contains_key(*child) || !published.contains(*child));
    figures
        .violations
        .extend(homeless.map(|child| format!("{child} has a place, and no log or no word that it is there")));
}

/// The last outcome of a child is told exactly once, an earlier one at most once: who waits for a child that ends two turns
/// meanwhile is told of the later.
fn outcomes_are_told_once(child: &Session, archive: &Archive, mail: &BTreeMap<&str, Mail>, figures: &mut Figures) {
    let Some(parent) = child.parent.as_ref().and_then(|parent| archive.sessions.get(parent)) else { return };
    let outcomes: Vec<_> = child.of("agent/outcome").map(|event| event["data"]["turn"].as_u64()).collect();
    let mail = &mail[parent.id.as_str()];
    // Those that are neither shown nor wait have been taken into the answer of a wait.
    let mut claimed = 0;
    for (at, turn) in outcomes.iter().enumerate() {
        let id = format!("settled:{}:{}", child.id, turn.expect("turns are numbers"));
        let inserted = mail.inserted.get(&id).map_or(0, |(times, _)| *times as usize);
        let shows = mail.shows(&id);
        let as_result = if inserted == 0 { shows } else { 0 };
        let what = || format!("{id} came {inserted} times, is shown {shows} times, waits {} times", mail.waits(&id));
        figures.outcomes += 1;
        figures.told += (inserted + as_result).min(1) as u64;
        match inserted + as_result {
            0 if at + 1 == outcomes.len() => figures.losses.push(what()),
            0 => figures.superseded += 1,
            1 => {}
            _ => figures.duplicates.push(what()),
        }
        match (inserted, shows + mail.waits(&id)) {
            (1.., 0) => claimed += 1,
            (_, 0 | 1) => {}
            _ => figures.duplicates.push(what()),
        }
    }
    let listed = listed_by_waits(parent, &child.id);
    let what = format!("{} {}: {claimed} outcomes taken up by waits, {listed} listed", child.root, child.path);
    match listed.cmp(&claimed) {
        std::cmp::Ordering::Less => figures.losses.push(what),
        std::cmp::Ordering::Equal => {}
        std::cmp::Ordering::Greater => figures.duplicates.push(what),
    }
}

/// How often an answer of `wait_agents` has a child with its text; one that was told before has a note in its place.
fn listed_by_waits(parent: &Session, child: &str) -> usize {
    let waits = tools::calls(parent).into_iter().filter(|call| call.tool == "wait_agents" && call.is_done());
    let answers = waits.filter_map(|call| serde_json::from_str::<Value>(&call.answer).ok());
    let done = answers.flat_map(|answer| answer["done"].as_array().cloned().unwrap_or_default());
    done.filter(|entry| entry["agent"] == child && entry["note"].is_null()).count()
}

/// By its text: what was acknowledged is in one log, what was refused in none, anything else in one at most.
fn what_was_told_is_there_once(told: &[Told], mail: &BTreeMap<&str, Mail>, figures: &mut Figures) {
    for Told { text, fate } in told {
        let logs = mail.values().flat_map(|mail| mail.inserted.values());
        let times: u32 = logs.filter(|(_, other)| other == text).map(|(times, _)| *times).sum();
        let what = || format!("{text:?} is {fate:?} and came in {times} times");
        match fate {
            Fate::Acknowledged => figures.acknowledged += 1,
            Fate::Refused => figures.refused += 1,
            Fate::Unknown => {}
        }
        match (fate, times) {
            (Fate::Acknowledged, 1) | (Fate::Unknown, 0 | 1) | (Fate::Refused, 0) => {}
            (Fate::Acknowledged, 0) => figures.losses.push(what()),
            (Fate::Acknowledged | Fate::Unknown | Fate::Refused, _) => figures.duplicates.push(what()),
        }
    }
}
