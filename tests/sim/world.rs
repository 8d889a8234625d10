//! One seed: trees at work, people who interfere, a store that fails, actors and processes that die.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use impresario_actors::{AgentHandle, AgentSpec, Error, Limits, Receipt, Runtime};
use impresario_kernel::{AgentId, Budget, Cause, MessageId, Resource, Window};
use impresario_seams::{SessionFilter, Store};

use crate::check;
use crate::dice::Dice;
use crate::seams::{self, Asked, Busy, Counted, Unsteady, tools};

/// Longer than anything that a seed can ask for takes; nobody really waits, the clock is paused.
const EVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs one seed to its end and checks what is left. Gives the logs.
pub(crate) fn run(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed).await;
        let turns = 4 + world.dice.below(12);
        for _ in 0..turns {
            world.step().await;
        }
        world.end().await
    })
}

struct World {
    seed: u64,
    dice: Dice,
    store: Arc<Unsteady>,
    asked: Asked,
    /// Of this process.
    busy: Arc<Busy>,
    runtime: Runtime,
    roots: Vec<AgentHandle>,
    /// What agents were told and said that they had accepted.
    accepted: BTreeMap<AgentId, Vec<String>>,
    told: u64,
    crashes: u64,
    /// How many supervisors of this process failed; one too many ends the runtime.
    supervisors: u32,
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let fails = if dice.one_in(3) { 4 + dice.below(20) } else { 0 };
        let store = Arc::new(Unsteady::new(dice.roll(), fails));
        let asked = Arc::new(Mutex::new(vec![]));
        let busy = Arc::default();
        let runtime = start(seed, 0, &store, model(seed, &asked, &busy)).await;
        let mut world = Self {
            seed,
            dice,
            store,
            asked,
            busy,
            runtime,
            roots: vec![],
            accepted: BTreeMap::new(),
            told: 0,
            crashes: 0,
            supervisors: 0,
        };
        for _ in 0..=world.dice.below(2) {
            let root = world.runtime.spawn(spec(seed)).await.unwrap();
            world.roots.push(root);
        }
        world
    }

    /// Lets some time pass, and does one thing.
    async fn step(&mut self) {
        let ms = self.dice.below(120);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        for _ in 0..self.dice.below(30) {
            tokio::task::yield_now().await;
        }
        match self.dice.below(18) {
            0..=7 => self.tell().await,
            8 => self.interrupt().await,
            9 | 10 => self.stop().await,
            11 | 12 => self.fail_an_actor().await,
            13 => self.crash().await,
            15 => self.runtime.fail_writer(),
            14 => self.quiesce_or_leave().await,
            16 | 17 => self.fail_the_supervisor().await,
            _ => {}
        }
    }

    /// Any agent that is there.
    async fn somebody(&mut self) -> AgentHandle {
        let root = self.roots[self.dice.below(self.roots.len() as u64) as usize].clone();
        if self.dice.one_in(2) {
            return root;
        }
        let filter = SessionFilter { root: Some(root.id().clone()), ..SessionFilter::default() };
        let infos = self.store.store.list(filter).await.unwrap();
        let mut ids: Vec<AgentId> = infos.iter().map(|info| info.id().clone()).collect();
        ids.sort();
        let at = self.dice.below(ids.len().max(1) as u64) as usize;
        let Some(id) = ids.get(at) else { return root };
        // One that is only stored comes back, unless the store fails just now.
        let woken = tokio::time::timeout(EVER, self.runtime.wake(id)).await.expect("waking ends");
        woken.unwrap_or(root)
    }

    async fn tell(&mut self) {
        let to = self.somebody().await;
        self.told += 1;
        let id = MessageId::new(format!("told-{}", self.told));
        let mut accepted = false;
        // Whoever is not sure sends again.
        for _ in 0..=self.dice.below(2) {
            accepted |= to.followup_as(id.clone(), "do something").await.is_ok();
        }
        if accepted {
            self.accepted.entry(to.id().clone()).or_default().push(id.to_string());
        }
        if self.dice.one_in(4) {
            // Refused when its actor is gone for good.
            let _ = to.steer("and hurry").await;
        }
    }

    async fn interrupt(&mut self) {
        let whom = self.somebody().await;
        // Refused when its actor is gone for good.
        let _ = whom.interrupt(Cause::user("the seed"));
    }

    async fn stop(&mut self) {
        let top = self.somebody().await;
        let deadline = Duration::from_millis(self.dice.below(2_000));
        let stop = self.runtime.stop(top.id(), Cause::user("the seed"), deadline);
        if self.supervisors < Limits::default().restarts.max_restarts && self.dice.one_in(3) {
            self.supervisors += 1;
            let ms = self.dice.below(60);
            let stop = tokio::time::timeout(Duration::from_millis(ms), stop);
            let fail = async {
                tokio::task::yield_now().await;
                self.runtime.fail_supervisor();
            };
            // Whoever asked has left before there was an answer, or behind it.
            let (_, ()) = tokio::join!(stop, fail);
            return;
        }
        let receipt = tokio::time::timeout(EVER, stop).await.expect("a stop ends");
        let receipt = receipt.expect("it is open here");
        assert!(!receipt.agents.is_empty());
        // Whoever is above may tell it at once to go on.
        let is_root = self.roots.iter().any(|root| root.id() == top.id());
        if is_root && receipt.at_rest() && self.dice.one_in(2) {
            let before = self.asked_within(&receipt);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(self.asked_within(&receipt), before, "a model is asked behind a stop: {receipt:?}");
        }
    }

    /// How often models were asked for the agents of a receipt.
    fn asked_within(&self, receipt: &Receipt) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|agent| receipt.agents.iter().any(|end| end.id == **agent)).count()
    }

    async fn fail_an_actor(&mut self) {
        let whom = self.somebody().await;
        self.runtime.fail_agent(whom.id());
    }

    /// No more models were asked at once than may be: whoever waits for others is not asking.
    fn count_the_busy(&self) {
        let max = self.roots.len() * limits(self.seed).running_max;
        assert!(self.busy.most() <= max, "{} models were asked at once, and {max} may be", self.busy.most());
    }

    async fn fail_the_supervisor(&mut self) {
        if self.supervisors < Limits::default().restarts.max_restarts {
            self.supervisors += 1;
            self.runtime.fail_supervisor();
        }
        // Somebody fails while nobody is there to see it.
        if self.dice.one_in(3) {
            self.fail_an_actor().await;
        }
    }

    async fn crash(&mut self) {
        self.crashes += 1;
        self.supervisors = 0;
        self.count_the_busy();
        self.busy = Arc::default();
        // Dropping a runtime equals a crash.
        self.runtime = start(self.seed, self.crashes, &self.store, model(self.seed, &self.asked, &self.busy)).await;
        for root in &mut self.roots {
            // A store that fails is told so to whoever opens something; asking again helps.
            *root = loop {
                match self.runtime.open(root.id(), spec(self.seed)).await {
                    Ok(root) => break root,
                    Err(Error::Store(error)) if error.is_retryable() => {}
                    Err(error) => panic!("{error}"),
                }
            };
        }
    }

    /// Waits for rest, for a while.
    async fn quiesce_or_leave(&mut self) {
        let top = self.somebody().await;
        let patience = Duration::from_millis(self.dice.below(5_000));
        if let Ok(receipt) = tokio::time::timeout(patience, self.runtime.quiesce(top.id())).await {
            assert!(receipt.expect("it is open here").at_rest());
        }
    }

    /// Nobody interferes any more: everything comes to rest, can be told to go on, and is whole.
    async fn end(mut self) -> String {
        let mut logs = String::new();
        for root in self.roots.clone() {
            self.rest(root.id()).await;
            root.followup("once more").await.expect("a root is always there");
            self.rest(root.id()).await;
            check::nothing_is_stopped(&*self.store.store, root.id()).await;
        }
        self.count_the_busy();
        // A crash at rest changes nothing but the end of the log.
        self.crash().await;
        for root in self.roots.clone() {
            self.rest(root.id()).await;
            check::whole(&*self.store.store, root.id(), &self.accepted).await;
            logs.push_str(&check::bytes(&*self.store.store, root.id()).await);
        }
        tokio::time::timeout(EVER, self.runtime.shutdown()).await.expect("a shutdown ends").unwrap();
        logs
    }

    async fn rest(&self, root: &AgentId) {
        let receipt = tokio::time::timeout(EVER, self.runtime.quiesce(root)).await.expect("every tree comes to rest");
        let receipt = receipt.unwrap();
        assert!(receipt.at_rest(), "{receipt:?}");
        // Rest that was announced early would end here.
        let before = check::lengths(&*self.store.store, root).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(check::lengths(&*self.store.store, root).await, before, "a log of {root} grew at rest");
    }
}

async fn start(seed: u64, crashes: u64, store: &Arc<Unsteady>, model: Counted) -> Runtime {
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Runtime::builder(store)
        .model(model)
        .tools(tools())
        .limits(limits(seed))
        .seeded(seed.wrapping_add(crashes.wrapping_mul(0x1_0000_0001)))
        .build()
        .await
        .unwrap()
}

fn limits(seed: u64) -> Limits {
    let mut dice = Dice(seed ^ 0xfeed);
    let large = seed % 40 == 7;
    Limits {
        depth_max: 1 + dice.below(4) as u32,
        descendants_max: if large { 400 } else { 2 + dice.below(30) as u32 },
        running_max: 1 + dice.below(6) as usize,
        steps_max: 12,
        // Most trees are sent to the store again and again, whatever goes on around them.
        idle_after: (!dice.one_in(4)).then(|| Duration::from_millis(1 + dice.below(200))),
        checkpoint_after: (!dice.one_in(4)).then(|| 1 + dice.below(60)),
        resident_max: dice.one_in(4).then(|| 1 + dice.below(6) as usize),
        ..Limits::default()
    }
}

fn model(seed: u64, asked: &Asked, busy: &Arc<Busy>) -> Counted {
    Counted { model: seams::model(seed, Arc::clone(asked)), busy: Arc::clone(busy) }
}

fn spec(seed: u64) -> AgentSpec {
    AgentSpec { budget: budget(seed), ..AgentSpec::new("scripted", "sim", std::env::temp_dir()) }
}

/// What the root of every second seed may spend: from nothing to more than it needs, in all or within a time.
fn budget(seed: u64) -> Option<Budget> {
    let mut dice = Dice(seed ^ 0xb0d9e7);
    let tokens = dice.one_in(2).then(|| dice.below(12) * dice.below(12) * 2_000);
    let tool_calls = dice.one_in(3).then(|| dice.below(40));
    let window = Window { resource: Resource::Tokens, most: 4_000 + dice.below(30_000), per_ms: 1 + dice.below(3_000) };
    let windows = if dice.one_in(3) { vec![window] } else { vec![] };
    dice.one_in(2).then_some(Budget { tokens, tool_calls, windows, ..Budget::default() })
}
