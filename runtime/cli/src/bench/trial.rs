//! One run of one scenario.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use impresario::kernel::{AgentPath, Boundary, Cause};
use impresario::models::openai::{OpenAiModel, OpenAiOptions};
use impresario::models::scripted::Latency;
use impresario::seams::{Model, Observed, SessionFilter, Store};
use impresario::stores::{MemoryStore, SqliteStore};
use impresario::{AgentHandle, AgentSpec, Limits, Runtime, Seen as Heard};
use tokio::time::Instant;

use super::args::StoreKind;
use super::ideal::ideal;
use super::scenario::{Scenario, Work};
use super::spread::percentile;
use super::watch::{Asked, Seen, Watched};
use super::{ended, model, usage};
use crate::failed::Failed;

/// How many messages each agent of a storm gets.
const MESSAGES: usize = 16;

/// How many forks are made of a long conversation.
const FORKS: usize = 64;

/// How long an answer takes that nobody waits for.
const EVER: Duration = Duration::from_secs(3_600);

/// How long a stop waits for real ends.
const DEADLINE: Duration = Duration::from_secs(60);

/// How a run is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) n: u32,
    pub(crate) latency: Latency,
    pub(crate) store: StoreKind,
    /// Where the model is served, if it is asked over HTTP.
    pub(crate) base_url: Option<String>,
    pub(crate) seed: u64,
    /// On one thread and a clock that stands still.
    pub(crate) is_deterministic: bool,
}

/// What came out: figures by name, the name ends in its unit; and who asked when.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    pub(crate) figures: BTreeMap<&'static str, f64>,
    pub(crate) asked: Vec<Asked>,
    /// Of all logs, when that is asked for.
    pub(crate) hash: Option<u64>,
}

/// What a run works with.
struct Bench {
    scenario: Scenario,
    setup: Setup,
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
    /// The store and its folder, if it is on a disk. It goes with the run.
    file: Option<(Arc<SqliteStore>, tempfile::TempDir)>,
}

/// Runs it once.
pub(crate) async fn run(scenario: Scenario, setup: &Setup) -> Result<Trial, Failed> {
    let bench = Bench::new(scenario, setup)?;
    let has_peak = usage::forget_peak();
    let (cpu, began) = (usage::cpu(), Instant::now());
    let mut trial = match scenario.work {
        Work::Tree(prompt) => bench.tree(&prompt(setup.n)).await,
        Work::Told(prompt) => bench.tree(&prompt.replace("{n}", &setup.n.to_string())).await,
        Work::Cancel => bench.cancel().await,
        Work::Idle => bench.idle().await,
        Work::Messages => bench.messages().await,
        Work::Recover => bench.recover().await,
        Work::Fork => bench.fork().await,
    }?;
    let figures = &mut trial.figures;
    figures.entry("wall_ms").or_insert(ms(began.elapsed()));
    // The clock of the machine says nothing where the clock of the run stands still.
    if !setup.is_deterministic {
        let cpu = cpu.zip(usage::cpu()).map(|(before, after)| ms(after.saturating_sub(before)));
        figures.extend(cpu.map(|cpu| ("cpu_ms", cpu)));
        let peak = usage::peak().filter(|_| has_peak).map(|peak| peak as f64 / f64::from(1 << 20));
        figures.extend(peak.map(|peak| ("peak_rss_mib", peak)));
    }
    let usage = bench.seen.usage();
    trial.asked = bench.seen.asked();
    figures.extend(bench.stored().map(|bytes| ("store_bytes", bytes as f64)));
    figures.insert("requests", trial.asked.len() as f64);
    figures.insert("input_tokens", usage.input_tokens as f64);
    figures.insert("output_tokens", usage.output_tokens as f64);
    figures.insert("peak_concurrency", bench.seen.peak() as f64);
    Ok(trial)
}

impl Bench {
    fn new(scenario: Scenario, setup: &Setup) -> Result<Self, Failed> {
        let (store, file): (Arc<dyn Store>, _) = match setup.store {
            StoreKind::Memory => (Arc::new(MemoryStore::new()), None),
            StoreKind::Sqlite => {
                let folder = tempfile::tempdir().map_err(|error| Failed::io("make a temporary folder", &error))?;
                let store = Arc::new(SqliteStore::open(folder.path().join("store.sqlite"))?);
                (Arc::clone(&store) as _, Some((store, folder)))
            }
        };
        Ok(Self { scenario, setup: setup.clone(), store, seen: Seen::new(), file })
    }

    /// How large a copy of its store is: without what was written twice on the way.
    fn stored(&self) -> Option<u64> {
        let (store, folder) = self.file.as_ref()?;
        let copy = folder.path().join("copy.sqlite");
        store.backup(&copy).ok()?;
        std::fs::metadata(&copy).ok().map(|meta| meta.len())
    }

    /// How many turns may run at once: nothing but the model is to be waited for.
    fn at_once(&self) -> usize {
        self.setup.n as usize + 16
    }

    async fn runtime(&self, latency: &Latency) -> Result<Runtime, Failed> {
        let model: Arc<dyn Model> = match &self.setup.base_url {
            None => Arc::new(model::model(self.scenario, latency, self.setup.seed)),
            Some(base_url) => Arc::new(OpenAiModel::new(OpenAiOptions {
                provider: "scripted".into(),
                base_url: base_url.clone(),
                api_key: None,
                idle_timeout: EVER,
            })),
        };
        let limits = Limits {
            depth_max: self.setup.n + 4,
            descendants_max: 16 * self.setup.n + 64,
            same_prompt_max: u32::MAX,
            running_max: self.at_once(),
            parallel_calls_max: self.at_once(),
            answer_calls_max: self.at_once(),
            steps_max: self.setup.n.saturating_add(16),
            idle_after: None,
            ..Limits::default()
        };
        let builder = Runtime::builder(Arc::clone(&self.store));
        let builder = builder.models([Arc::new(Watched { model, seen: Arc::clone(&self.seen) }) as _]).limits(limits);
        let builder = if self.setup.is_deterministic { builder.seeded(self.setup.seed) } else { builder };
        Ok(builder.build().await?)
    }

    fn spec() -> AgentSpec {
        AgentSpec::new("scripted", "bench", std::env::temp_dir())
    }

    /// A root is told something, and its tree comes to rest.
    async fn tree(&self, prompt: &str) -> Result<Trial, Failed> {
        let runtime = self.runtime(&self.setup.latency).await?;
        let mut heard = runtime.subscribe();
        let seen = Arc::clone(&self.seen);
        let births = tokio::spawn(async move {
            let (mut births, mut is_whole) = (BTreeMap::<AgentPath, Duration>::new(), true);
            while let Some(next) = heard.next().await {
                match next {
                    Heard::Event(event) if matches!(event.what, Observed::Started { .. }) => {
                        births.entry(event.path.clone()).or_insert(seen.now());
                    }
                    Heard::Event(_) => {}
                    Heard::Missed(_) => is_whole = false,
                }
            }
            is_whole.then_some(births)
        });
        let began = self.seen.now();
        let root = runtime.spawn(Self::spec()).await?;
        root.followup(prompt).await?;
        let receipt = runtime.quiesce(root.id()).await?;
        let wall = self.seen.now() - began;
        // A script of somebody's own says itself how many there are.
        let agents = self.scenario.model.is_none().then(|| 1 + model::below(prompt) as usize);
        ended::tree(&receipt, agents)?;
        let id = root.id().clone();
        // With the last handle what happens ends to be told.
        drop(root);
        runtime.shutdown().await?;
        let asked = self.seen.asked();
        let ideal = ideal(&asked, self.at_once());
        let mut figures = BTreeMap::from([
            ("wall_ms", ms(wall)),
            ("ideal_ms", ms(ideal)),
            ("overhead_ms", ms(wall.saturating_sub(ideal))),
        ]);
        let mut agents: BTreeMap<&AgentPath, (Duration, Duration)> = BTreeMap::new();
        for asked in &asked {
            let ended = asked.ended.unwrap_or(asked.began);
            let entry = agents.entry(&asked.path).or_insert((asked.began, ended));
            entry.1 = entry.1.max(ended);
        }
        let took = agents.values().map(|(began, ended)| ms(*ended - *began)).collect();
        spread(&mut figures, ["agent_p50_ms", "agent_p90_ms", "agent_p99_ms"], took);
        // Absent when the listener has missed something.
        if let Ok(Some(births)) = births.await {
            let first =
                agents.iter().filter_map(|(path, (began, _))| Some(ms(began.saturating_sub(*births.get(*path)?))));
            let names = ["spawn_to_request_p50_ms", "spawn_to_request_p90_ms", "spawn_to_request_p99_ms"];
            spread(&mut figures, names, first.collect());
        }
        let hash = if self.setup.is_deterministic { Some(super::hash::logs(&*self.store, &id).await?) } else { None };
        Ok(Trial { figures, hash, ..Trial::default() })
    }

    /// A tree is stopped while every child waits for its model.
    async fn cancel(&self) -> Result<Trial, Failed> {
        let runtime = self.runtime(&Latency::fixed(Duration::ZERO)).await?;
        let root = runtime.spawn(Self::spec()).await?;
        root.followup(&format!("rounds {} | forever", self.setup.n)).await?;
        while self.seen.in_flight() < self.setup.n as usize || self.seen.asked().len() <= self.setup.n as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = self.seen.now();
        let receipt = runtime.stop(root.id(), Cause::user("bench"), DEADLINE).await?;
        let took = self.seen.now() - began;
        if !receipt.at_rest() {
            return Err(Failed::usage("the tree did not come to rest in time"));
        }
        let figures = BTreeMap::from([
            ("cancel_ms", ms(took)),
            ("agents", receipt.agents.len() as f64),
            ("in_flight_behind", self.seen.in_flight() as f64),
        ]);
        runtime.shutdown().await?;
        Ok(Trial { figures, ..Trial::default() })
    }

    /// Roots that have had a turn each.
    async fn idle(&self) -> Result<Trial, Failed> {
        let runtime = self.runtime(&self.setup.latency).await?;
        let before = usage::resident();
        let roots = self.roots(&runtime).await?;
        let turns = try_join_all(roots.iter().map(async |root| {
            root.followup("work").await?;
            root.wait().await
        }));
        turns.await?.iter().try_for_each(|outcome| ended::turn(outcome.as_ref()))?;
        let mut figures = BTreeMap::new();
        let grown = before.zip(usage::resident()).map(|(before, after)| after.saturating_sub(before));
        figures.extend(grown.map(|grown| ("bytes_per_agent", grown as f64 / f64::from(self.setup.n.max(1)))));
        runtime.shutdown().await?;
        Ok(Trial { figures, ..Trial::default() })
    }

    async fn roots(&self, runtime: &Runtime) -> Result<Vec<AgentHandle>, Failed> {
        Ok(try_join_all((0..self.setup.n).map(|_| runtime.spawn(Self::spec()))).await?)
    }

    /// Messages to agents that do nothing with them.
    async fn messages(&self) -> Result<Trial, Failed> {
        let runtime = self.runtime(&self.setup.latency).await?;
        let roots = self.roots(&runtime).await?;
        let began = self.seen.now();
        let sent = try_join_all(roots.into_iter().map(|root| {
            let seen = Arc::clone(&self.seen);
            async move {
                let mut waits = Vec::with_capacity(MESSAGES);
                for n in 0..MESSAGES {
                    let sent = seen.now();
                    root.inject(&format!("message {n}")).await?;
                    waits.push(ms(seen.now() - sent));
                }
                Ok::<_, impresario::Error>(waits)
            }
        }));
        let waits = sent.await?.concat();
        let took = self.seen.now() - began;
        let mut figures = BTreeMap::from([("messages_per_s", waits.len() as f64 / took.as_secs_f64().max(1e-9))]);
        spread(&mut figures, ["accepted_p50_ms", "accepted_p90_ms", "accepted_p99_ms"], waits);
        runtime.shutdown().await?;
        Ok(Trial { figures, ..Trial::default() })
    }

    /// A tree is opened again whose runtime was dropped as it was; what it had in flight was never said.
    async fn recover(&self) -> Result<Trial, Failed> {
        let runtime = self.runtime(&Latency::fixed(Duration::ZERO)).await?;
        let root = runtime.spawn(Self::spec()).await?;
        let n = self.setup.n as usize;
        root.followup(&format!("rounds {} | forever", self.setup.n)).await?;
        let filter = SessionFilter { parent: Some(root.id().clone()), ..SessionFilter::default() };
        while self.seen.in_flight() < n || self.store.list(filter.clone()).await?.len() < n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let id = root.id().clone();
        drop((root, runtime));
        while self.seen.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = self.seen.now();
        let runtime = self.runtime(&self.setup.latency).await?;
        let root = runtime.open(&id, Self::spec()).await?;
        root.inject("are you there?").await?;
        let addressable = self.seen.now() - began;
        runtime.quiesce(&id).await?;
        let figures =
            BTreeMap::from([("addressable_ms", ms(addressable)), ("recovered_ms", ms(self.seen.now() - began))]);
        runtime.shutdown().await?;
        Ok(Trial { figures, ..Trial::default() })
    }

    /// Forks of a conversation of n turns.
    async fn fork(&self) -> Result<Trial, Failed> {
        let runtime = self.runtime(&self.setup.latency).await?;
        let root = runtime.spawn(Self::spec()).await?;
        for _ in 0..self.setup.n {
            root.followup("work").await?;
        }
        ended::turn(root.wait().await?.as_ref())?;
        let mut took = Vec::with_capacity(FORKS);
        for _ in 0..FORKS {
            let began = self.seen.now();
            root.fork_at(Boundary::Completed).await?;
            took.push(ms(self.seen.now() - began));
        }
        let mut figures = BTreeMap::new();
        spread(&mut figures, ["fork_p50_ms", "fork_p90_ms", "fork_p99_ms"], took);
        runtime.shutdown().await?;
        Ok(Trial { figures, ..Trial::default() })
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn spread(figures: &mut BTreeMap<&'static str, f64>, names: [&'static str; 3], mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    if !values.is_empty() {
        figures.extend(names.into_iter().zip([0.5, 0.9, 0.99].map(|share| percentile(&values, share))));
    }
}
