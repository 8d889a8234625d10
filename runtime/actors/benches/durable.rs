//! What it costs that nothing is lost: messages that are acknowledged when they are durable, from 1, 64 and 1,024 senders at
//! once, each to an agent of its own, with the sqlite store. Beside it, in the same run and on the same file system, a bare
//! writer, which appends as many bytes to a file and flushes what has come together, and the store without a runtime,
//! which is given the same events, all that have come together in one commit.
//!
//! `cargo bench -p impresario-actors --bench durable`; `SECONDS=n` says how long each of the runs takes, `ROUNDS=n` how
//! many there are of each. Only the ratios within one run mean anything.

// A program of its own may print.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, try_join_all};
use impresario_actors::{AgentHandle, AgentSpec, Durability, Runtime};
use impresario_kernel::event::{Fact, InboxSpliced};
use impresario_kernel::{AgentId, AgentPath, Event, Lane, Message, Millis, Seq, SessionHeader};
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{Batch, Commit, Head, NewSession, Store};
use impresario_stores::SqliteStore;
use tokio::sync::oneshot;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What each message says: with what stands around it in the log about 350 bytes.
const TEXT: &str = "a small event, as most of them are";

/// As many bytes as the event of such a message has in the store.
const ROW: [u8; 350] = [b'x'; 350];

/// How long each thing took, in order of length, and how many there were in a second.
struct Figures {
    took: Vec<Duration>,
    rate: f64,
}

impl Figures {
    fn of(mut took: Vec<Duration>, wall: Duration) -> Self {
        took.sort_unstable();
        Self { rate: took.len() as f64 / wall.as_secs_f64(), took }
    }

    /// In milliseconds.
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.took.len() * percent / 100).min(self.took.len().saturating_sub(1));
        self.took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3)
    }
}

/// Lets `senders` send for a while, each its next message when its last one was acknowledged.
async fn closed_loop<S>(senders: Vec<S>, time: Duration) -> Fallible<Figures>
where
    S: Fn() -> BoxFuture<'static, Fallible<()>> + Send + 'static,
{
    let began = Instant::now();
    let tasks = senders.into_iter().map(|send| async move {
        let sending = tokio::spawn(async move {
            let mut took = vec![];
            while began.elapsed() < time {
                let sent = Instant::now();
                send().await?;
                took.push(sent.elapsed());
            }
            Fallible::Ok(took)
        });
        sending.await?
    });
    let took = try_join_all(tasks).await?.concat();
    Ok(Figures::of(took, began.elapsed()))
}

/// The bare writer: what came while the last flush was on its way is written and flushed together.
struct Bare {
    rows: mpsc::Sender<oneshot::Sender<()>>,
    writer: std::thread::JoinHandle<std::io::Result<Vec<Duration>>>,
}

impl Bare {
    fn start(path: &Path) -> Fallible<Self> {
        let mut file = File::create(path)?;
        let (rows, waiting) = mpsc::channel::<oneshot::Sender<()>>();
        let writer = std::thread::spawn(move || {
            let mut flushes = vec![];
            while let Ok(first) = waiting.recv() {
                let batch: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
                let bytes: Vec<u8> = batch.iter().flat_map(|_| ROW).collect();
                let began = Instant::now();
                file.write_all(&bytes)?;
                file.sync_data()?;
                flushes.push(began.elapsed());
                // Whoever sent may have ended.
                for reply in batch {
                    let _ = reply.send(());
                }
            }
            Ok(flushes)
        });
        Ok(Self { rows, writer })
    }
}

async fn bare(dir: &Path, senders: usize, time: Duration) -> Fallible<(Figures, Figures)> {
    let bare = Bare::start(&dir.join("bare"))?;
    let send = |rows: mpsc::Sender<oneshot::Sender<()>>| {
        move || -> BoxFuture<'static, Fallible<()>> {
            let (reply, durable) = oneshot::channel();
            let sent = rows.send(reply);
            Box::pin(async move {
                sent?;
                Ok(durable.await?)
            })
        }
    };
    let figures = closed_loop((0..senders).map(|_| send(bare.rows.clone())).collect(), time).await?;
    drop(bare.rows);
    let flushes = bare.writer.join().map_err(|_| "the bare writer panicked")??;
    Ok((figures, Figures::of(flushes, time)))
}

/// A message on its way to the store: whose log, and who waits.
type Sent = (usize, oneshot::Sender<()>);

/// The store without a runtime: a task that commits what has come together.
async fn write_all(
    store: Arc<SqliteStore>,
    senders: usize,
    mut sent: tokio::sync::mpsc::UnboundedReceiver<Sent>,
) -> Fallible<()> {
    let lease = Some(store.lease().await?);
    let mut lens = vec![0; senders];
    let mut batch = vec![];
    while sent.recv_many(&mut batch, 4_096).await > 0 {
        let batches = batch.iter().map(|(sender, _)| appended(*sender, &mut lens)).collect();
        store.commit(Commit { lease, batches, ..Commit::default() }).await?;
        for (_, reply) in batch.drain(..) {
            // Whoever sent may have ended.
            let _ = reply.send(());
        }
    }
    Ok(())
}

/// The next message in the inbox of one of them.
fn appended(sender: usize, lens: &mut [u64]) -> Batch {
    let id = AgentId::new(format!("s-{sender}"));
    let (seq, now) = (lens[sender], Millis(1_700_000_000_000));
    lens[sender] += 1;
    let message = Arc::new(Message::user(format!("m-{sender}-{seq}-0123456789-0123456789"), TEXT));
    let splice =
        InboxSpliced { target: Lane::NextStep, start: 0, removed_count: 0, inserted: vec![message], outcome: None };
    let event = Arc::new(Event::new(Seq(seq), now, Fact::InboxSpliced(splice)));
    let create = (seq == 0).then(|| {
        let (header, root, path) = (SessionHeader::new(id.clone(), now), id.clone(), AgentPath::root());
        Arc::new(NewSession { header, root, path, label: "root".into(), fork: None })
    });
    Batch { session: id, create, events: vec![event], head: Head::default() }
}

async fn alone(dir: &Path, senders: usize, time: Duration) -> Fallible<Figures> {
    let store = Arc::new(SqliteStore::open(dir.join("alone.sqlite"))?);
    let (queue, sent) = tokio::sync::mpsc::unbounded_channel::<Sent>();
    let writer = tokio::spawn(write_all(store, senders, sent));
    let send = |sender: usize| {
        let queue = queue.clone();
        move || -> BoxFuture<'static, Fallible<()>> {
            let (reply, durable) = oneshot::channel();
            let sent = queue.send((sender, reply));
            Box::pin(async move {
                sent?;
                Ok(durable.await?)
            })
        }
    };
    let figures = closed_loop((0..senders).map(send).collect(), time).await?;
    drop(queue);
    writer.await??;
    Ok(figures)
}

async fn ours(dir: &Path, senders: usize, time: Duration, durability: Durability) -> Fallible<Figures> {
    let store = Arc::new(SqliteStore::open(dir.join(format!("{durability:?}.sqlite")))?);
    let runtime = Runtime::builder(store).model(ScriptedModel::builtin()).build().await?;
    let spec = AgentSpec::new("scripted", "builtin", std::env::temp_dir()).durability(durability);
    let agents = try_join_all((0..senders).map(|_| runtime.spawn(spec.clone()))).await?;
    let send = |agent: AgentHandle| {
        move || -> BoxFuture<'static, Fallible<()>> {
            let agent = agent.clone();
            Box::pin(async move {
                agent.inject(TEXT).await?;
                Ok(())
            })
        }
    };
    let figures = closed_loop(agents.into_iter().map(send).collect(), time).await?;
    runtime.shutdown().await?;
    Ok(figures)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}

/// One round of each.
struct Round {
    bare: Figures,
    flushes: Figures,
    alone: Figures,
    durable: Figures,
    buffered: Figures,
}

impl Round {
    async fn run(senders: usize, time: Duration) -> Fallible<Self> {
        let dir = tempfile::tempdir()?;
        let (bare, flushes) = bare(dir.path(), senders, time).await?;
        let alone = alone(dir.path(), senders, time).await?;
        let durable = ours(dir.path(), senders, time, Durability::Durable).await?;
        let buffered = ours(dir.path(), senders, time, Durability::Buffered).await?;
        Ok(Self { bare, flushes, alone, durable, buffered })
    }

    fn print(&self) {
        let row = |name: &str, figures: &Figures| {
            let (rate, p50, p99) = (figures.rate, figures.percentile(50), figures.percentile(99));
            println!("    {name:<28} {rate:>8.0}/s  p50 {p50:>6.2} ms  p99 {p99:>6.2} ms");
        };
        row("a flush of the bare writer", &self.flushes);
        row("bare writer", &self.bare);
        row("the store without a runtime", &self.alone);
        row("agents, durable", &self.durable);
        row("agents, buffered", &self.buffered);
    }
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let (time, rounds) = (Duration::from_secs(number("SECONDS", 3)), number("ROUNDS", 3));
    println!("each run {} s, in turn; medians of {rounds} rounds", time.as_secs());
    for senders in [1, 64, 1_024] {
        let mut all = vec![];
        for round in 1..=rounds {
            println!("  {senders} senders, round {round}");
            let round = Round::run(senders, time).await?;
            round.print();
            all.push(round);
        }
        let of = |ratio: fn(&Round) -> f64| median(all.iter().map(ratio).collect());
        println!(
            "{senders} senders: durable {:.0} % of the bare writer's events and {:.0} % of those of the store alone, p99 \
             within {:.1} of the bare writer's flushes ({:.1} of its p99); buffered {:.0} % of the bare writer's",
            of(|round| round.durable.rate / round.bare.rate) * 100.0,
            of(|round| round.durable.rate / round.alone.rate) * 100.0,
            of(|round| round.durable.percentile(99) / round.flushes.percentile(50)),
            of(|round| round.durable.percentile(99) / round.flushes.percentile(99)),
            of(|round| round.buffered.rate / round.bare.rate) * 100.0,
        );
    }
    Ok(())
}
