//! A tail of the write-ahead log that did not reach the disk, or not whole.
//!
//! What is guaranteed: whatever is cut off or overwritten behind some place of the log, the store opens, every log in it is
//! whole by all rules and is the beginning of what it was, and a message that was acknowledged is there if its commit ends
//! before that place. What comes back goes on: it takes another prompt and comes to rest. What stands in front of the
//! place cannot be torn: it was flushed to the disk before anybody was told, and before it was copied to the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::archive::{Archive, listed, said, text, violations};
use crate::dice::Dice;
use crate::kills::script;
use crate::kit::Place;
use crate::wal::Extent;
use crate::world::Running;

/// A message that was acknowledged, and how far the log went then.
struct Mark {
    text: String,
    extent: Extent,
}

fn args(words: &[&str]) -> Vec<String> {
    let model = format!("scripted:{}", script().display());
    let rest = ["--json", "--access", "full", "-m", &model];
    words.iter().chain(&rest).map(|word| (*word).to_owned()).collect()
}

/// Makes a store with some acknowledged messages, whose last process was killed; a mark for each of them.
fn killed(place: &Place, dice: &mut Dice) -> Vec<Mark> {
    let mut marks: Vec<Mark> = vec![];
    for n in 0..8 {
        let text = format!("{} w{n}", if n == 3 { "journey" } else { "errand" });
        let (ways, whom) = (["run", "run", "send", "steer"], ["--continue", "--continue", "@last", "@last"]);
        let way = dice.below(4) as usize;
        let words = if n == 0 { vec!["run", &text] } else { vec![ways[way], whom[way], &text] };
        let (status, seen) = Running::start(place, &args(&words)).finish();
        assert_eq!(status.code(), Some(0), "{:?}", seen.last());
        let extent = Extent::of(&place.home(), marks.last().map(|mark| &mark.extent));
        marks.extend(extent.map(|extent| Mark { text, extent }));
    }
    let mut last = Running::start(place, &args(&["run", "--continue", "journey last"]));
    let lines = 5 + dice.below(40);
    last.read(std::time::Duration::from_secs(60), |seen| seen.len() as u64 >= lines);
    last.murder();
    marks
}

/// Damages all of the log behind a place, or cuts it off there.
fn tear(log: &Path, place: usize, dice: &mut Dice) -> &'static str {
    let mut bytes = fs::read(log).expect("a log");
    let end = bytes.len();
    let how = match dice.below(4) {
        0 => {
            bytes[place..].fill(0);
            "zeros"
        }
        1 => {
            bytes[place..].fill_with(|| dice.below(256) as u8);
            "noise"
        }
        2 if place < end => {
            let at = place + dice.below((end - place) as u64) as usize;
            bytes[at] ^= 1 << dice.below(8);
            "a bit"
        }
        _ => {
            bytes.truncate(place);
            "a cut"
        }
    };
    fs::write(log, bytes).expect("a log");
    how
}

/// The messages of a store by text, and its logs.
fn found(place: &Place) -> (Vec<String>, BTreeMap<String, Vec<serde_json::Value>>) {
    if listed(place).is_empty() {
        return Default::default();
    }
    let archive = Archive::read(place);
    let splices = archive.sessions.values().flat_map(|session| session.of("agent/inbox/spliced"));
    let inserted = splices.flat_map(|event| event["data"]["inserted"].as_array().cloned().unwrap_or_default());
    let messages = inserted.map(|message| said(&message)).collect();
    (messages, archive.sessions.into_iter().map(|(id, session)| (id, session.events)).collect())
}

#[test]
fn a_torn_tail_of_the_write_ahead_log_takes_nothing_with_it_that_was_committed_before() {
    let seed = crate::seed();
    println!("SEED={seed} torn");
    let mut dice = Dice::of(seed, "torn");
    let place = Place::new();
    let marks = killed(&place, &mut dice);
    let whole =
        Extent::of(&place.home(), marks.last().map(|mark| &mark.extent)).expect("a store that was killed has a log");
    // Reading may tidy up, so what is torn is a copy from before.
    let kept = copy(&place);
    let (_, logs) = found(&place);
    let (mut kept_messages, mut lost_messages) = (0, 0);
    for _ in 0..crate::number("TEARS").unwrap_or(12) {
        let torn = copy(&kept);
        let at = whole.copied + dice.below((whole.end - whole.copied) as u64 + 1) as usize;
        let how = tear(&torn.home().join("store.sqlite-wal"), at, &mut dice);
        let what = format!("SEED={seed}: {how} at {at} of {}", whole.end);
        assert_eq!(violations(&torn), Vec::<String>::new(), "{what}");
        let (messages, torn_logs) = found(&torn);
        for Mark { text, extent } in &marks {
            let is_before = extent.salt != whole.salt || extent.end <= at;
            let times = messages.iter().filter(|message| *message == text).count();
            assert!(times <= 1 && (times == 1 || !is_before), "{what}: {text:?} is there {times} times");
            kept_messages += times;
            lost_messages += 1 - times;
        }
        for (id, log) in &torn_logs {
            assert!(logs[id].starts_with(log), "{what}: {id} is no beginning of what it was");
        }
        goes_on(&torn, &what);
    }
    println!("SEED={seed} torn: {} of {} bytes may be torn", whole.end - whole.copied, whole.end);
    println!("acknowledged messages there {kept_messages}, gone with the tail {lost_messages}, lost 0");
}

/// What is left takes another prompt.
fn goes_on(place: &Place, what: &str) {
    let sessions = listed(place);
    let root = sessions.iter().find(|session| session["parent"].is_null()).map(|root| text(&root["id"]));
    let words = root.as_ref().map_or(vec!["run", "errand on"], |root| vec!["run", "--resume", root, "errand on"]);
    let (status, seen) = Running::start(place, &args(&words)).finish();
    assert_eq!(status.code(), Some(0), "{what}: {:?}", seen.last());
    assert_eq!(violations(place), Vec::<String>::new(), "{what}");
}

/// Another home with the same files. What another process would find is all in these two.
fn copy(place: &Place) -> Place {
    let other = Place::new();
    fs::create_dir_all(other.home()).expect("a home");
    for file in ["store.sqlite", "store.sqlite-wal"] {
        fs::copy(place.home().join(file), other.home().join(file)).expect("a file of the store");
    }
    other
}
