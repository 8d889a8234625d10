//! Recorded sessions of the reference, replayed: what its models said is said to our agents, who have to ask for it in the
//! same order, start the same subagents and call the same tools. The recordings are not part of the project; without
//! them this says so and passes.
//!
//! Tools that are not here answer with what they answered there. Subagents are not among these: our runtime starts them,
//! and the model hears what it tells.

// What was compared and what was not is the result.
#![allow(clippy::print_stderr)]

mod orders;
mod recorded;
mod stand_in;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario_actors::{AgentSpec, Limits, Runtime};
use impresario_kernel::{Event, Seq};
use impresario_models::replay::{Recording, ReplayModel};
use impresario_models::scripted::Latency;
use impresario_seams::{SessionFilter, Store};
use impresario_stores::MemoryStore;

use recorded::{Answer, Recorded, answers, first_prompt};

/// What of a folder is compared, session by session, and why the rest is not. The words are looked for in what came out.
const EXPECTED: [(&str, &[(&str, &str)]); 13] = [
    ("product-subagent-both", &[("session", "compared: 1 answers")]),
    ("product-subagent-result-diagnostic", &[("session", "compared: 7 answers")]),
    ("subagent-child-question-rejection", &[("session", "compared: 2"), ("session.1", "compared: 2")]),
    ("subagent-continuable", &[("session", "turn 1 only"), ("session.1", "turn 1 only")]),
    (
        "subagent-depth-two-rejection",
        &[("session", "compared: 2"), ("session.1", "compared: 2"), ("session.2", "compared: 2")],
    ),
    ("subagent-fork-in-process", &[("session", "compared: 3"), ("session.1", "not compared: a fork")]),
    ("subagent-max-tokens-partial", &[("session", "compared: 2"), ("session.1", "compared: 2")]),
    (
        "subagent-mixed",
        &[("session", "compared: 4"), ("session.1", "compared: 1"), ("session.2", "not compared: a fork")],
    ),
    ("subagent-parallel", &[("session", "compared: 2"), ("session.1", "compared: 1"), ("session.2", "compared: 1")]),
    (
        "subagent-published-run-failure",
        &[("session", "compared: 2"), ("session.1", "not compared: its model was never asked")],
    ),
    ("subagent-spawn-in-process", &[("session", "compared: 2"), ("session.1", "compared: 1")]),
    ("subagent-settlement", &[]),
    ("parent-override", &[]),
];

/// Our logs of one replay, by path.
type Logs = BTreeMap<String, Vec<Arc<Event>>>;

/// Replays a recording: each of the root's prompts, a turn each, until all is at rest.
async fn replayed(recorded: &Recorded, latency: Latency, seed: u64) -> Logs {
    let logs = recorded.sessions.iter().map(|session| (session.header.clone(), session.events.clone())).collect();
    let model = ReplayModel::new(Recording::of_logs(logs)).with_latency(latency, seed);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    // As deep as the reference went.
    let limits = Limits { depth_max: 2, ..Limits::default() };
    let builder = Runtime::builder(Arc::clone(&store)).model(model).tools(stand_in::tools(recorded)).limits(limits);
    let runtime = builder.build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("replay", "dsh", std::env::temp_dir())).await.unwrap();
    for prompt in recorded.prompts() {
        root.followup(&prompt).await.unwrap();
        runtime.quiesce(root.id()).await.unwrap();
    }
    let mut logs = Logs::new();
    for session in store.list(SessionFilter::default()).await.unwrap() {
        let events = store.read(session.id().clone(), Seq(0)).try_collect().await.unwrap();
        logs.insert(session.new.path.to_string(), events);
    }
    runtime.shutdown().await.unwrap();
    logs
}

/// What came of each recorded session: compared, or why not. What differs is a failure.
fn compare(recorded: &Recorded, ours: &Logs) -> Vec<(String, String)> {
    let mut free: Vec<(&String, &Vec<Arc<Event>>)> = ours.iter().filter(|(path, _)| *path != "root").collect();
    recorded
        .sessions
        .iter()
        .map(|session| {
            let theirs = answers(session.own());
            let log = match session.is_root() {
                true => &ours["root"],
                false if theirs.is_empty() => {
                    return (session.name.clone(), "not compared: its model was never asked".into());
                }
                // Ours takes the conversation up to the call that asks for it, theirs up to the last turn that had ended.
                false if session.is_fork() => {
                    return (session.name.clone(), "not compared: a fork of another context".into());
                }
                false => {
                    let prompt = first_prompt(session.own());
                    let at = free.iter().position(|(_, events)| first_prompt(events) == prompt);
                    let at = at.unwrap_or_else(|| panic!("{}: nobody was asked {prompt:?}", recorded.name));
                    free.remove(at).1
                }
            };
            (session.name.clone(), compared(&theirs, &answers(log), &format!("{}/{}", recorded.name, session.name)))
        })
        .collect()
}

/// Each answer in its place, with all that it says and asks for.
fn compared(theirs: &[Answer], ours: &[Answer], name: &str) -> String {
    let is_only_first = theirs.iter().any(|answer| answer.turn > 1) && name.contains("continuable");
    let of_turns = |answers: &[Answer]| -> Vec<Answer> {
        answers.iter().filter(|answer| !is_only_first || answer.turn == 1).cloned().collect()
    };
    let (theirs, ours) = (of_turns(theirs), of_turns(ours));
    assert_eq!(ours, theirs, "{name}");
    let calls: usize = theirs.iter().map(|answer| answer.calls.len()).sum();
    // There a follow-up failed for want of a disk, and when it is told of is a matter of time.
    let part = if is_only_first { " (turn 1 only: the others hang on a fault that was injected there)" } else { "" };
    format!("compared: {} answers, {calls} calls{part}", theirs.len())
}

#[tokio::test]
async fn recorded_trees_of_subagents_come_again() {
    let folders = recorded::folders("subagent");
    let mut wrong = vec![];
    for folder in &folders {
        let recorded = match Recorded::read(folder) {
            Ok(recorded) => recorded,
            Err(why) => {
                eprintln!("{}: not compared: {why}", recorded::name(folder));
                wrong.extend(unexpected(folder, &[]));
                continue;
            }
        };
        let ours = replayed(&recorded, Latency::default(), 0).await;
        let found = compare(&recorded, &ours);
        for (session, what) in &found {
            eprintln!("{} {session}: {what}", recorded.name);
        }
        wrong.extend(unexpected(folder, &found));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(folders.is_empty() || folders.len() == EXPECTED.len(), "{} folders", folders.len());
}

/// What was to be compared and was not.
fn unexpected(folder: &Path, found: &[(String, String)]) -> Vec<String> {
    let name = recorded::name(folder);
    let Some((_, expected)) = EXPECTED.iter().find(|(ending, _)| name.ends_with(ending)) else {
        return vec![format!("{name} is not known")];
    };
    let is_found =
        |(session, what): &&(&str, &str)| found.iter().any(|(name, came)| name == session && came.contains(what));
    let missing = expected.iter().filter(|expected| !is_found(expected));
    let missing = missing.map(|(session, what)| format!("{name} {session}: not `{what}`")).collect::<Vec<_>>();
    if found.len() == expected.len() { missing } else { [missing, vec![format!("{name}: {found:?}")]].concat() }
}

#[tokio::test(start_paused = true)]
async fn siblings_get_their_answers_whatever_each_of_them_takes() {
    let folders = recorded::folders("subagent-parallel");
    for folder in &folders {
        let recorded = Recorded::read(folder).unwrap();
        let latency: Latency = "1ms..2s".parse().unwrap();
        for seed in 0..8 {
            let ours = replayed(&recorded, latency, seed).await;
            let found = compare(&recorded, &ours);
            assert!(found.iter().all(|(_, what)| what.starts_with("compared")), "seed {seed}: {found:?}");
        }
    }
}
