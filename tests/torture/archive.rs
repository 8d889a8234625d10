//! What a home holds, read through the command line: sessions, their logs, their trees. The logs of trees are no sessions
//! that are exported, so they are read from the file. Nothing here believes what a run said about itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kit::Place;

/// One session and all of its log.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) root: String,
    pub(crate) parent: Option<String>,
    pub(crate) path: String,
    pub(crate) events: Vec<Value>,
    /// Where its own life begins: what is before its birth is its parent's.
    born: usize,
}

/// Everything.
pub(crate) struct Archive {
    pub(crate) sessions: BTreeMap<String, Session>,
    /// The log of each tree, by root.
    pub(crate) trees: BTreeMap<String, Vec<Value>>,
    /// The sessions that `sessions tree` shows below some root.
    pub(crate) in_trees: BTreeSet<String>,
}

impl Session {
    pub(crate) fn own(&self) -> &[Value] {
        &self.events[self.born..]
    }

    /// Its own events of one kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.own().iter().filter(move |event| event["type"] == kind)
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of a message, whatever its blocks are.
pub(crate) fn said(message: &Value) -> String {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = blocks.iter().map(|block| match block["type"].as_str() {
        Some("tool-result") => said(block),
        _ => text(&block["text"]),
    });
    texts.collect()
}

/// The message that an event shows to the model.
pub(crate) fn shown(event: &Value) -> Option<&Value> {
    match event["type"].as_str() {
        Some("user/message") => Some(&event["data"]),
        Some("assistant/message" | "tool/result") => Some(&event["data"]["message"]),
        _ => None,
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

/// All sessions as `sessions ls` lists them.
pub(crate) fn listed(place: &Place) -> Vec<Value> {
    lines(&place.ok(&["sessions", "ls", "--all", "--json", "--limit", "0"]).out)
}

/// What `sessions verify` has to say against the whole store.
pub(crate) fn violations(place: &Place) -> Vec<String> {
    let said = place.run(&["sessions", "verify", "--all", "--json"]);
    let Ok(verdict) = serde_json::from_str::<Value>(said.out.trim()) else {
        return vec![format!("the store cannot be verified: {said:?}")];
    };
    verdict["violations"].as_array().map_or(vec![], |found| found.iter().map(Value::to_string).collect())
}

impl Archive {
    pub(crate) fn read(place: &Place) -> Self {
        let sessions: BTreeMap<_, _> =
            listed(place).iter().map(|listed| Self::session(place, listed)).map(|it| (it.id.clone(), it)).collect();
        let roots = sessions.values().filter(|session| session.parent.is_none());
        let shown = roots.flat_map(|root| lines(&place.ok(&["sessions", "tree", &root.id, "--json"]).out));
        let in_trees = shown.map(|agent| text(&agent["id"])).collect();
        Self { sessions, trees: trees(place), in_trees }
    }

    fn session(place: &Place, listed: &Value) -> Session {
        let id = text(&listed["id"]);
        let mut events = lines(&place.ok(&["sessions", "export", &id]).out);
        events.remove(0);
        let born = events.iter().rposition(|event| event["type"] == "agent/born").expect("everybody is born");
        Session {
            root: text(&listed["root"]),
            parent: listed["parent"].as_str().map(str::to_owned),
            path: text(&listed["path"]),
            id,
            events,
            born,
        }
    }
}

/// The file of a store, only to be read: closing the last connection would tidy up what a crash has left.
fn file(place: &Place) -> rusqlite::Connection {
    let store = rusqlite::Connection::open(place.home().join("store.sqlite")).expect("a store");
    store.pragma_update(None, "query_only", true).expect("a setting");
    store
}

/// The log of each tree, by root.
fn trees(place: &Place) -> BTreeMap<String, Vec<Value>> {
    let store = file(place);
    let select = "SELECT s.id, e.line FROM events e JOIN sessions s ON s.key = e.session \
                  WHERE s.id LIKE '%.tree' ORDER BY e.session, e.seq";
    let mut select = store.prepare(select).expect("a query");
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let mut trees = BTreeMap::<String, Vec<Value>>::new();
    for row in rows.expect("rows") {
        let (id, line) = row.expect("a row");
        let root = id.trim_end_matches(".tree").to_owned();
        trees.entry(root).or_default().push(serde_json::from_str(&line).expect("a row is JSON"));
    }
    trees
}

/// How long each log is.
pub(crate) fn lengths(place: &Place) -> BTreeMap<String, usize> {
    let store = file(place);
    let mut select = store.prepare("SELECT id, len FROM sessions JOIN heads ON session = key").expect("a query");
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)? as usize)));
    rows.expect("rows").map(|row| row.expect("a row")).collect()
}
