//! `batch`: many tasks, one root agent each. What is done is in the file of results, what is not is in the store; the same
//! command again goes on from both.

mod results;
mod tasks;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use impresario::kernel::{AgentId, Boundary, Cause, MessageId, Outcome, OutcomeKind, Spent};
use impresario::seams::{SessionFilter, Store};
use impresario::{AgentHandle, AgentSpec, Limits, OutputSchema, PriceTable, Runtime};
use serde_json::json;

use crate::args::{Again, BatchArgs, Changed, Common, ModelArgs};
use crate::display::json::{task_line, usage};
use crate::exit::{Exit, Stop};
use crate::failed::Failed;
use crate::home::{self, Home};
use crate::print::{self, Paint, Stream};
use crate::provider::{self, Choice};
use crate::run::{STOP_DEADLINE, system, time_is_up};
use crate::sessions::find;
use crate::signals::Signals;
use crate::{backend, figures, replay};

use results::Results;
use tasks::Task;

/// What a task is told that had begun when its process ended.
const GO_ON: &str = "You were interrupted. Go on with your task from where you were.";

/// A task and what it is run with.
struct Job {
    task: Task,
    spec: AgentSpec,
    /// Marks its sessions: the label of each. The same task of another batch has another.
    label: String,
    /// A session of it that has no result yet.
    session: Option<AgentId>,
    /// The session whose conversation it begins with.
    fork: Option<AgentId>,
}

/// What came of a task.
struct Ended {
    job: Job,
    root: AgentId,
    outcome: Arc<Outcome>,
    duration: Duration,
}

/// `impresario batch`
pub(crate) async fn batch(common: &Common, args: BatchArgs) -> Result<Exit, Failed> {
    let all = tasks::read(&args.tasks, args.template.as_deref())?;
    let mut results = Results::open(&args.output)?;
    let (total, chosen) = (all.len(), chosen(&args, all, &results)?);
    let home = Home::of(common)?;
    let prices = args.spend.prices(&home)?;
    let (choices, mut jobs) = jobs(common, &args, chosen, (&prices, &home))?;
    if args.dry_run {
        return dry_run(&jobs, total);
    }
    let store = backend::store(&home)?;
    find_sessions(&store, &results, &mut jobs).await?;
    find_forks(&store, common, &mut jobs).await?;
    let is_scripted = choices.values().all(Choice::is_scripted);
    let most = args.jobs.map_or(if is_scripted { 64 } else { 16 }, |jobs| jobs as usize);
    let mut models = Vec::with_capacity(choices.len());
    for choice in choices.values() {
        // A replay also answers for the providers that are recorded, where these were not chosen themselves.
        let is_chosen = |name: &str| choices.values().any(|other| other.provider == name);
        let answering = backend::models(common, choice).await?;
        models.extend(
            answering.into_iter().filter(|model| model.provider() == choice.provider || !is_chosen(model.provider())),
        );
    }
    if let Some(folder) = &args.record {
        models = replay::recorded(models, folder)?;
    }
    let builder = backend::builder(common, store).models(models).tools(backend::tools()).hooks(backend::hooks());
    let runtime = builder.limits(limits(&args)).prices(prices.clone()).build().await?;
    let mut run = Run {
        runtime: &runtime,
        timeout: args.timeout_per_task,
        max_failures: args.max_failures,
        quiet: common.quiet,
        paint: Paint::of(common.color, Stream::Err),
        total: jobs.len(),
        prices: prices.clone(),
        counts: BTreeMap::new(),
        spent: Spent::default(),
        ended: 0,
        over: None,
    };
    let mut signals = Signals::new()?;
    let ran = run.all(jobs, most, &mut results, &mut signals).await;
    let exit = run.exit();
    let counted = (total - run.total, run.total.saturating_sub(run.ended));
    let Run { counts, spent, over, .. } = run;
    let shut = tokio::select! {
        shut = runtime.shutdown() => shut,
        // Whoever asks twice does not want to wait; a kill loses nothing.
        again = signals.next() => return Ok(again.exit()),
    };
    ran?;
    shut?;
    say_the_end(common, &args, &counts, &spent, counted, over.as_ref())?;
    Ok(exit)
}

/// The tasks that are to be run: those without a result that stands.
fn chosen(args: &BatchArgs, all: Vec<Task>, results: &Results) -> Result<Vec<Task>, Failed> {
    let mut chosen = Vec::new();
    for task in all {
        let earlier = results.earlier(&task.id).filter(|_| !args.restart);
        let runs = match earlier {
            None => true,
            Some(earlier) if earlier.task_hash != task.hash => match args.changed {
                Changed::Rerun => true,
                Changed::Skip => false,
                Changed::Refuse => {
                    let (id, output) = (&task.id, args.output.display());
                    return Err(Failed::usage(format!(
                        "the task {id:?} is another one now than when {output} got its result; say --changed rerun or \
                         --changed skip"
                    )));
                }
            },
            Some(earlier) => args.retry.iter().any(|again| earlier.outcome == word(*again)),
        };
        if runs {
            chosen.push(task);
        }
    }
    chosen.truncate(args.limit.unwrap_or(usize::MAX));
    Ok(chosen)
}

fn word(again: Again) -> &'static str {
    match again {
        Again::Failed => OutcomeKind::Failed,
        Again::Cancelled => OutcomeKind::Cancelled,
        Again::Crashed => OutcomeKind::Crashed,
        Again::Partial => OutcomeKind::Partial,
        Again::Refused => OutcomeKind::Refused,
    }
    .as_str()
}

fn limits(args: &BatchArgs) -> Limits {
    let defaults = Limits::default();
    Limits {
        depth_max: args.max_depth,
        steps_max: args.max_turns.unwrap_or(defaults.steps_max),
        tokens_max: args.max_tokens,
        ..defaults
    }
}

/// The providers by name, and each task with all that it is run with.
fn jobs(
    common: &Common,
    args: &BatchArgs,
    tasks: Vec<Task>,
    (prices, home): (&PriceTable, &Home),
) -> Result<(BTreeMap<String, Choice>, Vec<Job>), Failed> {
    let env = |name: &str| std::env::var(name).ok();
    let (sampling, max_tokens) = provider::settings(&args.model.settings)?;
    let budget = args.spend.budget()?;
    let system = system(args.system.as_deref(), None)?;
    let folder = home::work_dir(common)?;
    let output = std::path::absolute(&args.output).unwrap_or_else(|_| args.output.clone());
    let (mut choices, mut jobs) = (BTreeMap::new(), Vec::with_capacity(tasks.len()));
    for task in tasks {
        let model = task.model.clone().or_else(|| args.model.model.clone());
        let choice = Choice::of(&ModelArgs { model, ..args.model.clone() }, &env)?;
        args.spend.check(prices, budget.as_ref(), &choice, home)?;
        let dir = task.dir.as_ref().map_or_else(|| folder.clone(), |dir| folder.join(dir));
        let schema = task.output_schema.clone().map(OutputSchema::json).transpose();
        let schema = schema.map_err(|error| Failed::usage(format!("the task {:?}: {error}", task.id)))?;
        let spec = AgentSpec {
            output: schema,
            max_tokens,
            sampling: sampling.clone(),
            system: system.clone(),
            access: args.access,
            budget: budget.clone(),
            tools: task.tools.clone().or_else(|| args.tools.clone()),
            ..AgentSpec::new(&choice.provider, &choice.model, dir)
        };
        let label = format!("batch-{}", tasks::hash(&json!([output.display().to_string(), task.id, task.hash])));
        let spec = AgentSpec { label: label.clone(), ..spec };
        let known = choices.entry(choice.provider.clone()).or_insert_with(|| choice.clone());
        if known.route != choice.route {
            let (id, one, other) = (&task.id, known.name(), choice.name());
            return Err(Failed::usage(format!(
                "the task {id:?} asks for {other} and an earlier one for {one}, which are reached in two ways; give each \
                 a batch of its own"
            )));
        }
        jobs.push(Job { task, spec, label, session: None, fork: None });
    }
    Ok((choices, jobs))
}

/// Finds what an earlier run has begun and not written down.
async fn find_sessions(store: &Arc<dyn Store>, results: &Results, jobs: &mut [Job]) -> Result<(), Failed> {
    let roots = store.list(SessionFilter { roots_only: true, ..SessionFilter::default() }).await?;
    let mut begun = HashMap::new();
    for root in roots.into_iter().filter(|root| !results.has_session(root.id().as_str())) {
        // The newest come first.
        begun.entry(root.new.label.clone()).or_insert_with(|| root.id().clone());
    }
    for job in jobs {
        job.session = begun.get(&job.label).cloned();
    }
    Ok(())
}

/// Finds the sessions that tasks begin with a copy of.
async fn find_forks(store: &Arc<dyn Store>, common: &Common, jobs: &mut [Job]) -> Result<(), Failed> {
    let folder = home::work_dir(common)?;
    for job in jobs {
        if let Some(named) = &job.task.fork {
            job.fork = Some(find::session(store, named, &folder).await?.id().clone());
        }
    }
    Ok(())
}

fn dry_run(jobs: &[Job], total: usize) -> Result<Exit, Failed> {
    let mut text = String::new();
    for Job { task, spec, .. } in jobs {
        let prompt = print::one_line(&task.prompt, 60);
        text.push_str(&format!("{}  {}:{}  {prompt}\n", task.id, spec.provider, spec.model));
    }
    print::say(&format!("{} of {} would run", jobs.len(), figures::plural(total, "task")));
    print::answer(&text)
}

/// Why no more tasks are begun.
#[derive(Clone, Debug)]
enum Over {
    /// No request to the provider can work.
    Provider,
    /// `--max-failures`
    Failures(u32),
    Signal(Stop),
}

struct Run<'a> {
    runtime: &'a Runtime,
    timeout: Option<Duration>,
    max_failures: Option<u32>,
    quiet: bool,
    paint: Paint,
    total: usize,
    prices: PriceTable,
    counts: BTreeMap<OutcomeKind, usize>,
    spent: Spent,
    /// How many have a result.
    ended: usize,
    over: Option<Over>,
}

impl Run<'_> {
    /// Runs the jobs, at most so many at once, until they have all ended or no more are to be begun.
    async fn all(
        &mut self,
        jobs: Vec<Job>,
        most: usize,
        results: &mut Results,
        signals: &mut Signals,
    ) -> Result<(), Failed> {
        let (mut waiting, mut running) = (jobs.into_iter(), FuturesUnordered::new());
        loop {
            while running.len() < most && self.over.is_none() {
                let Some(job) = waiting.next() else { break };
                running.push(perform(self.runtime, job, self.timeout));
            }
            tokio::select! {
                ended = running.next() => match ended {
                    None => return Ok(()),
                    Some(ended) => self.take(ended?, results)?,
                },
                stop = signals.next() => {
                    // What runs is ended by the shutdown; without a result it goes on the next time.
                    if !self.quiet {
                        print::say(&format!("stopping ({}); a second signal leaves at once", stop.reason()));
                    }
                    self.over = Some(Over::Signal(stop));
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, ended: Ended, results: &mut Results) -> Result<(), Failed> {
        let Ended { job, root, outcome, duration } = ended;
        self.spent.add(&outcome.spent);
        if let Some(failure) = outcome.failure().filter(|failure| failure.is_provider_unusable()) {
            // It has no result: nothing is wrong with the task.
            if self.over.is_none() {
                print::say(&format!("{} {failure}; no more tasks are begun", self.paint.word("error:")));
                self.over = Some(Over::Provider);
            }
            return Ok(());
        }
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let price = self.prices.price(&job.spec.provider, &job.spec.model);
        let line = task_line(self.ended as u64, &root, &outcome, ms, (&job.task.id, &job.task.hash), price);
        results.add(&line.map_err(|error| Failed::io("write a result", &error))?)?;
        self.ended += 1;
        *self.counts.entry(outcome.kind).or_default() += 1;
        if !self.quiet {
            let kind = self.paint.word(outcome.kind.as_str());
            let why = print::first_line(&outcome.why(), 80);
            let (n, total, id, took) = (self.ended, self.total, print::one_line(&job.task.id, 40), figures::span(ms));
            print::say(format!("[{n}/{total}] {id} {kind} {took} {why}").trim_end());
        }
        let failures = u32::try_from(self.failures()).unwrap_or(u32::MAX);
        if let Some(max) = self.max_failures.filter(|max| failures >= *max && self.over.is_none()) {
            self.over = Some(Over::Failures(max));
        }
        Ok(())
    }

    fn failures(&self) -> usize {
        let count = |kind| self.counts.get(&kind).copied().unwrap_or(0);
        count(OutcomeKind::Failed) + count(OutcomeKind::Crashed)
    }

    /// The worst of all.
    fn exit(&self) -> Exit {
        let has = |kind| self.counts.contains_key(&kind);
        match &self.over {
            Some(Over::Provider) => Exit::Provider,
            Some(Over::Signal(stop)) => stop.exit(),
            Some(Over::Failures(_)) => Exit::Failed,
            None if self.failures() > 0 || has(OutcomeKind::Cancelled) => Exit::Failed,
            None if has(OutcomeKind::Refused) => Exit::Refused,
            None if has(OutcomeKind::Partial) => Exit::Partial,
            None => Exit::Completed,
        }
    }
}

/// Runs one task to its end.
async fn perform(runtime: &Runtime, job: Job, timeout: Option<Duration>) -> Result<Ended, Failed> {
    let began = Instant::now();
    let (handle, done) = begin(runtime, &job).await?;
    let root = handle.id().clone();
    if let Some(outcome) = done {
        return Ok(Ended { job, root, outcome, duration: Duration::ZERO });
    }
    tokio::select! {
        rest = runtime.quiesce(&root) => drop(rest?),
        () = time_is_up(timeout) => drop(runtime.stop(&root, Cause::user(Stop::Timeout.reason()), STOP_DEADLINE).await?),
    }
    let outcome = handle.outcome().await?;
    let outcome = outcome.ok_or_else(|| Failed::usage(format!("the task {:?} came to no end", job.task.id)))?;
    Ok(Ended { job, root, outcome, duration: began.elapsed() })
}

/// Begins a task, or goes on with its session; gives its outcome if that has one which only was not written down.
async fn begin(runtime: &Runtime, job: &Job) -> impresario::Result<(AgentHandle, Option<Arc<Outcome>>)> {
    let first = || MessageId::new("task");
    let Some(session) = &job.session else {
        let handle = match &job.fork {
            Some(from) => runtime.fork(from, Boundary::Completed, job.spec.clone()).await?,
            None => runtime.spawn(job.spec.clone()).await?,
        };
        handle.followup_as(first(), &job.task.prompt).await?;
        return Ok((handle, None));
    };
    let handle = runtime.open(session, job.spec.clone()).await?;
    match handle.outcome().await? {
        Some(outcome) if matches!(outcome.kind, OutcomeKind::Completed | OutcomeKind::Partial) => {
            return Ok((handle, Some(outcome)));
        }
        Some(_) => handle.followup(GO_ON).await?,
        None => {
            // It was never taken up: what waits from before is told anew, so that it wakes.
            handle.remove(first()).await?;
            handle.followup(&job.task.prompt).await?
        }
    };
    Ok((handle, None))
}

/// One line for people on stderr; with `--json` one object on stdout.
fn say_the_end(
    common: &Common,
    args: &BatchArgs,
    counts: &BTreeMap<OutcomeKind, usize>,
    spent: &Spent,
    (skipped, unstarted): (usize, usize),
    over: Option<&Over>,
) -> Result<(), Failed> {
    let outcomes: BTreeMap<&str, usize> = counts.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    if common.json {
        let end = json!({
            "v": 1, "type": "batch.ended", "outcomes": outcomes, "skipped": skipped, "without_result": unstarted,
            "usage": usage(spent, None), "output": args.output.display().to_string(),
        });
        print::answer(&format!("{end}\n"))?;
    }
    if common.quiet {
        return Ok(());
    }
    let mut parts: Vec<String> = outcomes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    parts.extend((skipped > 0).then(|| format!("{skipped} had a result")));
    parts.extend((unstarted > 0).then(|| format!("{unstarted} without a result")));
    if parts.is_empty() {
        parts.push("nothing to do".into());
    }
    print::say(&format!("{} · {}", parts.join(", "), figures::tokens(spent)));
    if let Some(Over::Failures(max)) = over {
        print::say(&format!("stopped behind {}", figures::plural(*max as usize, "failure")));
    }
    if unstarted > 0 || counts.keys().any(|kind| *kind != OutcomeKind::Completed) {
        print::say(&format!("go on with the same command again: what has a result in {} stands", shown(&args.output)));
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    home::quoted(path)
}
