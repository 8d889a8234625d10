//! What it takes to open a session of a million events, from the beginning of its log and from a checkpoint, with the sqlite
//! store. Beside it, in the same run, `serde_json` parsing the same rows.
//!
//! `cargo bench -p impresario-actors --bench open`; `EVENTS=n` says how many. Only the ratios within one run mean anything.

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::TryStreamExt;
use impresario_actors::{AgentSpec, Limits, Runtime};
use impresario_kernel::event::{Authority, Context};
use impresario_kernel::{
    Access, Agent, AgentId, AgentPath, Birth, Chunk, Event, FinishReason, Input, Lane, Message, Millis, RequestHeader,
    Seq, SessionHeader, Spec, Want, wire,
};
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{Batch, Commit, Head, NewSession, Store};
use impresario_stores::SqliteStore;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;

/// How many pieces an answer comes in.
const PIECES: usize = 80;

const PIECE: &str = "a few words of an answer, ";

/// An agent that goes through turns by itself.
struct Talker {
    agent: Agent,
    events: Vec<Arc<Event>>,
}

impl Talker {
    fn new(id: &AgentId) -> Self {
        let agent = Agent::new(Arc::new(Spec::new(RequestHeader::new("scripted", "builtin"))));
        let mut talker = Self { agent, events: vec![] };
        let dir = std::env::temp_dir().display().to_string();
        let authority = Authority { dir, access: Access::Read, tools: vec![], may_spawn: None };
        let birth = Birth {
            root: id.clone(),
            parent: None,
            path: AgentPath::root(),
            depth: 0,
            context: Context::Fresh,
            authority,
            workspace: None,
            output_schema: None,
            route: None,
        };
        talker.tell(Input::Born { birth, descriptor: None, last_turns: None });
        talker
    }

    fn tell(&mut self, input: Input) {
        self.events.extend(self.agent.tell(input, Millis(1_700_000_000_000)).unwrap_or_default());
    }

    fn turn(&mut self, n: usize) {
        let message = Arc::new(Message::user(format!("m{n}"), format!("question {n}")));
        self.tell(Input::Deliver { lane: Lane::NextTurn, wakes: true, message });
        self.tell(Input::SlotGranted);
        let sample = self.agent.wants().into_iter().find_map(|want| match want {
            Want::Sample(run) => Some(run),
            _ => None,
        });
        let Some(run) = sample else { return };
        let delta = |_| (Millis(1_700_000_000_000), Chunk::TextDelta { index: 0, text: PIECE.into() });
        let finish = Chunk::Finish { reason: FinishReason::Stop, replay_state: None };
        let chunks = (0..PIECES).map(delta).chain([(Millis(1_700_000_000_000), finish)]).collect();
        self.tell(Input::ChunksArrived { run, chunks });
        self.tell(Input::ModelSettled { run, result: Ok(()), dice: 0 });
    }
}

/// Writes a session of so many events; how many bytes its rows have, and how many rows there are.
async fn write(store: &SqliteStore, id: &AgentId, events: u64) -> Fallible<(usize, Vec<String>)> {
    let mut talker = Talker::new(id);
    let (header, root, path) = (SessionHeader::new(id.clone(), Millis(1)), id.clone(), AgentPath::root());
    let mut create = Some(Arc::new(NewSession { header, root, path, label: "root".into(), fork: None }));
    let mut rows = vec![];
    for n in 0.. {
        let is_done = talker.agent.log().next_seq().0 >= events;
        if !is_done {
            talker.turn(n);
        }
        if is_done || talker.events.len() > 2_000 {
            let events = std::mem::take(&mut talker.events);
            rows.extend(events.iter().map(|event| wire::encode_row(event)).collect::<Result<Vec<_>, _>>()?);
            let head = Head { turns: talker.agent.own_turns(), ..Head::default() };
            let batches = vec![Batch { session: id.clone(), create: create.take(), events, head }];
            store.commit(Commit { batches, ..Commit::default() }).await?;
        }
        if is_done {
            break;
        }
    }
    Ok((rows.iter().map(String::len).sum(), rows))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}

async fn start(path: &Path, checkpoint_after: Option<u64>) -> Fallible<Runtime> {
    let store = Arc::new(SqliteStore::open(path)?);
    let limits = Limits { checkpoint_after, ..Limits::default() };
    Ok(Runtime::builder(store).model(ScriptedModel::builtin()).limits(limits).build().await?)
}

/// How long it takes, in milliseconds, until it can be written to.
async fn open(path: &Path, id: &AgentId, checkpoint_after: Option<u64>) -> Fallible<f64> {
    let runtime = start(path, checkpoint_after).await?;
    let began = Instant::now();
    runtime.open(id, AgentSpec::new("scripted", "builtin", std::env::temp_dir())).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    runtime.shutdown().await?;
    Ok(took)
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let events = std::env::var("EVENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let (dir, id) = (tempfile::tempdir()?, AgentId::new("a-long-session"));
    let path = dir.path().join("store.sqlite");
    let store = SqliteStore::open(&path)?;
    let (bytes, rows) = write(&store, &id, events).await?;
    println!("a session of {events} events: {} rows, {:.1} MB", rows.len(), bytes as f64 / 1e6);
    let (mut parsed, mut streamed, mut whole) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for row in &rows {
            std::hint::black_box(serde_json::from_str::<serde_json::Value>(row)?);
        }
        parsed.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        store.read(id.clone(), Seq(0)).try_for_each(async |_| Ok(())).await?;
        streamed.push(began.elapsed().as_secs_f64() * 1e3);
        whole.push(open(&path, &id, None).await?);
    }
    // Opened once more, it is written down.
    open(&path, &id, Some(1)).await?;
    let kept = store.checkpoint(id.clone()).await?.ok_or("no checkpoint was kept")?;
    let mut quick = vec![];
    for _ in 0..ROUNDS {
        quick.push(open(&path, &id, None).await?);
    }
    let (parsed, streamed, whole, quick) = (median(parsed), median(streamed), median(whole), median(quick));
    println!("serde_json parses its rows in {parsed:.0} ms");
    println!("read from the store in {streamed:.0} ms: {:.2} of that speed", parsed / streamed);
    println!("opened from the beginning in {whole:.0} ms: {:.2} of that speed", parsed / whole);
    println!("opened from a checkpoint of {:.1} MB in {quick:.1} ms", kept.bytes.len() as f64 / 1e6);
    Ok(())
}
