//! `run` and `demo`: one task to its end.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use impresario::kernel::{Access, AgentId, Boundary, Cause, Lane, Outcome, OutcomeKind, Seq};
use impresario::seams::Model;
use impresario::{AgentHandle, AgentSpec, Limits, OutputSchema, PriceTable, Receipt, Runtime, RuntimeBuilder};
use tokio::sync::oneshot;

use crate::approver::TerminalApprover;
use crate::args::{BoundArgs, Common, DemoArgs, OutputArgs, RunArgs, TellArgs};
use crate::backend;
use crate::display::{Ending, Screen, Start, Style};
use crate::exit::{Exit, Stop};
use crate::failed::Failed;
use crate::home::{self, Home};
use crate::output::OutputFile;
use crate::print::{self, Paint, Stream};
use crate::provider::{self, Choice};
use crate::replay;
use crate::sessions::find;
use crate::signals::Signals;

/// How long a stop may take.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// All that a run needs to know.
struct Job {
    prompt: String,
    choice: Choice,
    models: Vec<Arc<dyn Model>>,
    spec: AgentSpec,
    limits: Limits,
    prices: PriceTable,
    timeout: Option<Duration>,
    builder: RuntimeBuilder,
    resume: Option<AgentId>,
    /// Whom to tell, and when, if not the root.
    whom: Option<(AgentId, Lane)>,
    /// Set when a copy of it goes on: from where.
    fork: Option<Boundary>,
    asks: bool,
    output: Option<OutputFile>,
    style: Style,
    /// The `--home` of hints; none when nothing is kept.
    kept: Option<Home>,
    is_demo: bool,
}

/// `impresario demo`
pub(crate) async fn demo(common: &Common, args: DemoArgs) -> Result<Exit, Failed> {
    let choice = Choice::demo();
    let output = OutputFile::at(args.output.output.as_deref())?;
    let home = Home::of(common)?;
    let dir = home::work_dir(common)?;
    let mut spec = AgentSpec::new(&choice.provider, &choice.model, dir);
    spec.label = "demo".into();
    let job = Job {
        prompt: "Look over this folder and report.".into(),
        limits: limits(&args.bounds, true),
        prices: PriceTable::default(),
        timeout: args.bounds.timeout,
        spec,
        models: backend::models(common, &choice).await?,
        choice,
        builder: backend::builder(common, if args.ephemeral { backend::memory() } else { backend::store(&home)? }),
        resume: None,
        whom: None,
        fork: None,
        asks: false,
        style: style(common, &args.output, output.is_some())?,
        output,
        kept: (!args.ephemeral).then_some(home),
        is_demo: true,
    };
    job.run().await
}

/// `impresario send` and `impresario steer`
pub(crate) async fn tell(common: &Common, args: TellArgs, lane: Lane) -> Result<Exit, Failed> {
    let TellArgs { id, text, task } = args;
    if !common.quiet && !common.json {
        print::say("there is no service yet; the tree is opened here until it is at rest");
    }
    let args = RunArgs {
        prompt: text,
        task,
        tools: None,
        output_schema: None,
        system: None,
        system_append: None,
        resume: Some(id),
        continue_last: false,
        fork: false,
        at: None,
        last_turns: None,
        ephemeral: false,
    };
    run_or_tell(common, args, Some(lane)).await
}

/// `impresario run`
pub(crate) async fn run(common: &Common, args: RunArgs) -> Result<Exit, Failed> {
    run_or_tell(common, args, None).await
}

/// Tells the root something, or with a lane the very agent that is named.
async fn run_or_tell(common: &Common, args: RunArgs, lane: Option<Lane>) -> Result<Exit, Failed> {
    if args.fork && args.resume.is_none() && !args.continue_last {
        return Err(Failed::usage("--fork needs --resume ID or --continue: a copy of what?"));
    }
    let prompt = prompt(args.prompt.as_deref(), args.task.stdin)?;
    let choice = Choice::of(&args.task.model, &|name| std::env::var(name).ok())?;
    let (sampling, max_tokens) = provider::settings(&args.task.model.settings)?;
    let output = OutputFile::at(args.task.output.output.as_deref())?;
    let style = style(common, &args.task.output, output.is_some())?;
    let system = system(args.system.as_deref(), args.system_append.as_deref())?;
    let home = Home::of(common)?;
    let budget = args.task.spend.budget()?;
    let prices = args.task.spend.prices(&home)?;
    args.task.spend.check(&prices, budget.as_ref(), &choice, &home)?;
    let price = prices.price(&choice.provider, &choice.model);
    let mut dir = home::work_dir(common)?;
    let store = if args.ephemeral { backend::memory() } else { backend::store(&home)? };
    let asked_for = if args.continue_last { Some("@last") } else { args.resume.as_deref() };
    let mut whom = None;
    let resume = match asked_for {
        None => None,
        Some(id) => {
            let found = match args.fork || lane.is_some() {
                true => find::session(&store, id, &dir).await?,
                false => find::root(&store, id, &dir).await?,
            };
            // A child may work elsewhere than its root.
            let root = store.info(found.new.root.clone()).await?.filter(|_| lane.is_some());
            let cwd = root.map_or_else(|| found.new.header.cwd.clone(), |root| root.new.header.cwd);
            if let (None, Some(cwd)) = (&common.dir, &cwd) {
                dir = home::work_dir(&Common { dir: Some(cwd.into()), ..common.clone() })?;
            }
            whom = lane.map(|lane| (found.id().clone(), lane));
            let root = if whom.is_some() { &found.new.root } else { found.id() };
            Some(root.clone())
        }
    };
    let boundary = match (args.at, args.last_turns) {
        (Some(seq), _) => Boundary::At(Seq(seq)),
        (None, Some(turns)) => Boundary::LastTurns(turns),
        (None, None) => Boundary::Completed,
    };
    let on_terminal = Stream::In.is_terminal() && Stream::Err.is_terminal();
    let spec = AgentSpec {
        max_tokens,
        sampling,
        system,
        access: args.task.access.unwrap_or_else(|| default_access(on_terminal)),
        tools: args.tools,
        output: args.output_schema.as_deref().map(output_schema).transpose()?,
        budget,
        durability: args.task.durability(),
        ..AgentSpec::new(&choice.provider, &choice.model, dir)
    };
    let models = backend::models(common, &choice).await?;
    let models = match &args.task.record {
        Some(folder) => replay::recorded(models, folder)?,
        None => models,
    };
    let job = Job {
        prompt,
        limits: limits(&args.task.bounds, choice.is_scripted()),
        prices,
        timeout: args.task.bounds.timeout,
        spec,
        choice,
        models,
        builder: backend::builder(common, store),
        resume,
        whom,
        fork: args.fork.then_some(boundary),
        asks: on_terminal,
        style: Style { price, ..style },
        output,
        kept: (!args.ephemeral).then_some(home),
        is_demo: false,
    };
    job.run().await
}

/// What agents may do when nobody said so: a person can see and answer, a script cannot.
fn default_access(on_terminal: bool) -> Access {
    if on_terminal { Access::Write } else { Access::Read }
}

/// The limits in force.
pub(crate) fn limits(args: &BoundArgs, is_scripted: bool) -> Limits {
    let defaults = Limits::default();
    let running = args.jobs.and_then(|jobs| usize::try_from(jobs).ok());
    Limits {
        depth_max: args.max_depth.unwrap_or(defaults.depth_max),
        descendants_max: args.max_agents.unwrap_or(defaults.descendants_max),
        running_max: running.unwrap_or(if is_scripted { 64 } else { defaults.running_max }),
        steps_max: args.max_turns.unwrap_or(defaults.steps_max),
        tokens_max: args.max_tokens.or(defaults.tokens_max),
        ..defaults
    }
}

fn style(common: &Common, args: &OutputArgs, to_file: bool) -> Result<Style, Failed> {
    if args.deltas && !common.json {
        return Err(Failed::usage("--deltas needs --json"));
    }
    Ok(Style {
        json: common.json,
        deltas: args.deltas,
        quiet: common.quiet,
        to_file,
        price: None,
        paint: Paint::of(common.color, Stream::Err),
    })
}

fn prompt(argument: Option<&str>, stdin: bool) -> Result<String, Failed> {
    let reads = stdin || argument == Some("-");
    let mut prompt = argument.filter(|text| *text != "-").unwrap_or_default().to_owned();
    if reads {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failed::usage(format!("cannot read the prompt from stdin: {error}")))?;
        if !prompt.is_empty() {
            prompt.push_str("\n\n");
        }
        prompt.push_str(text.trim_end_matches(['\n', '\r']));
    }
    if prompt.trim().is_empty() {
        let why = if reads { "stdin holds no prompt" } else { "say what to do: impresario run PROMPT, or - for stdin" };
        return Err(Failed::usage(why));
    }
    Ok(prompt)
}

pub(crate) fn system(file: Option<&Path>, append: Option<&str>) -> Result<Option<String>, Failed> {
    let Some(file) = file else {
        return Ok(None);
    };
    let mut text = std::fs::read_to_string(file)
        .map_err(|error| Failed::usage(format!("system text {}: {error}", file.display())))?;
    if let Some(append) = append {
        text.push_str("\n\n");
        text.push_str(append);
    }
    Ok(Some(text))
}

/// A JSON Schema from a file.
fn output_schema(file: &Path) -> Result<OutputSchema, Failed> {
    let wrong = |why: String| Failed::usage(format!("output schema {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let schema = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    OutputSchema::json(schema).map_err(|error| wrong(error.to_string()))
}

/// What a run came to.
#[derive(Default)]
struct Came {
    root: Option<AgentId>,
    outcome: Option<Arc<Outcome>>,
    receipt: Option<Receipt>,
    stop: Option<Stop>,
    failure: Option<Failed>,
    at_once: bool,
}

impl Job {
    async fn run(self) -> Result<Exit, Failed> {
        let began = Instant::now();
        let mut signals = Signals::new()?;
        let start = self.start();
        let runtime = self.runtime()?;
        if !self.style.quiet && !self.style.json {
            print::say(&self.style.paint.dim(&start.line()));
        }
        let runtime = runtime.build().await?;
        let (screen, mut closed) = Screen::open(self.style, start, runtime.subscribe());
        let mut came = self.drive(&runtime, &mut signals, &mut closed).await;
        let written = match self.write(came.outcome.as_deref()) {
            Ok(written) => written,
            Err(failure) => {
                came.failure.get_or_insert(failure);
                false
            }
        };
        if !came.at_once
            && let Err(error) = runtime.shutdown().await
        {
            came.failure.get_or_insert(error.into());
        }
        let exit = match &came.failure {
            Some(failure) => failure.exit,
            None => Exit::of(came.outcome.as_deref(), came.stop),
        };
        let hints = self.hints(&came);
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ending = Ending {
            exit,
            root: came.root,
            outcome: came.outcome,
            receipt: came.receipt,
            stop: came.stop,
            failure: came.failure,
            duration_ms,
            written,
            hints,
            drain: !came.at_once,
        };
        match screen.close(ending).await {
            // What was said is lost to whoever asked for it.
            Err(_) if exit == Exit::Completed => Ok(Exit::Failed),
            Ok(()) | Err(_) => Ok(exit),
        }
    }

    fn start(&self) -> Start {
        Start {
            model: self.choice.name(),
            dir: home::short(&self.spec.dir),
            home: self.kept.as_ref().map_or_else(|| "memory".into(), |home| home.dir().display().to_string()),
            access: self.spec.access,
            limits: self.limits.clone(),
            budget: self.spec.budget.clone(),
        }
    }

    fn runtime(&self) -> Result<RuntimeBuilder, Failed> {
        let asks = self.asks && self.spec.access == Access::Write;
        let builder = self.builder.clone();
        let runtime = builder
            .models(self.models.clone())
            .tools(backend::tools())
            .hooks(backend::hooks())
            .limits(self.limits.clone())
            .prices(self.prices.clone());
        let runtime = match &self.kept {
            Some(home) => runtime.workspaces(backend::worktrees(home)),
            None => runtime,
        };
        Ok(if asks { runtime.approver(TerminalApprover::default()) } else { runtime })
    }

    /// Starts the root, waits until its tree is at rest or is to be stopped, and asks how it came out.
    async fn drive(&self, runtime: &Runtime, signals: &mut Signals, closed: &mut oneshot::Receiver<()>) -> Came {
        let mut came = Came::default();
        let handle = match self.open(runtime).await {
            Ok(handle) => handle,
            Err(error) => return Came { failure: Some(error.into()), ..came },
        };
        let root = handle.id().clone();
        came.root = Some(root.clone());
        let handle = match self.tell(runtime, handle).await {
            Ok(handle) => handle,
            Err(error) => return Came { failure: Some(error.into()), ..came },
        };
        tokio::select! {
            rest = runtime.quiesce(&root) => came.take(rest),
            stop = reason(signals, closed, self.timeout) => {
                came.stop = Some(stop);
                self.stop(runtime, &root, stop, signals, &mut came).await;
            }
        }
        if came.at_once {
            return came;
        }
        match handle.outcome().await {
            Ok(outcome) => came.outcome = outcome,
            Err(error) => {
                came.failure.get_or_insert(error.into());
            }
        }
        came
    }

    async fn open(&self, runtime: &Runtime) -> impresario::Result<AgentHandle> {
        match (&self.resume, self.fork) {
            (Some(id), Some(boundary)) => runtime.fork(id, boundary, self.spec.clone()).await,
            (Some(id), None) => runtime.open(id, self.spec.clone()).await,
            (None, _) => runtime.spawn(self.spec.clone()).await,
        }
    }

    /// Tells whoever is meant what to do.
    async fn tell(&self, runtime: &Runtime, root: AgentHandle) -> impresario::Result<AgentHandle> {
        let Some((whom, lane)) = &self.whom else {
            root.followup(&self.prompt).await?;
            return Ok(root);
        };
        let handle = runtime.wake(whom).await?;
        match lane {
            Lane::NextTurn => handle.followup(&self.prompt).await?,
            Lane::NextStep => handle.steer(&self.prompt).await?,
        };
        Ok(handle)
    }

    async fn stop(&self, runtime: &Runtime, root: &AgentId, stop: Stop, signals: &mut Signals, came: &mut Came) {
        if !self.style.quiet && !self.style.json && stop != Stop::OutputClosed {
            let again = if stop == Stop::Sigint { "; Ctrl-C again leaves at once" } else { "" };
            print::say(&format!("stopping ({}){again}", stop.reason()));
        }
        let stopping = runtime.stop(root, Cause::user(stop.reason()), STOP_DEADLINE);
        tokio::select! {
            receipt = stopping => came.take(receipt),
            again = signals.next() => {
                came.stop = Some(again);
                came.at_once = true;
            }
        }
    }

    /// Writes the final text to the file that was asked for; whether it did.
    fn write(&self, outcome: Option<&Outcome>) -> Result<bool, Failed> {
        let (Some(file), Some(outcome)) = (&self.output, outcome) else {
            return Ok(false);
        };
        if !matches!(outcome.kind, OutcomeKind::Completed | OutcomeKind::Partial) {
            return Ok(false);
        }
        file.write(&format!("{}\n", outcome.answer())).map(|()| true)
    }

    /// What can be done next, as commands that work.
    fn hints(&self, came: &Came) -> Vec<String> {
        let (Some(home), Some(root)) = (&self.kept, &came.root) else {
            return Vec::new();
        };
        let home = home::quoted(home.dir());
        if self.is_demo {
            return vec![format!("look again: impresario sessions tree {root} --home {home}")];
        }
        match (&came.outcome, came.stop) {
            (Some(outcome), _) if outcome.kind == OutcomeKind::Completed => Vec::new(),
            (_, Some(Stop::OutputClosed)) => Vec::new(),
            _ => {
                let model = self.choice.flags();
                vec![format!("go on with: impresario run --resume {root} {model} --home {home} PROMPT")]
            }
        }
    }
}

impl Came {
    fn take(&mut self, receipt: impresario::Result<Receipt>) {
        match receipt {
            Ok(receipt) => self.receipt = Some(receipt),
            Err(error) => {
                self.failure.get_or_insert(error.into());
            }
        }
    }
}

/// Waits until the time is up, or for ever.
pub(crate) async fn time_is_up(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Waits for the first reason to stop.
async fn reason(signals: &mut Signals, closed: &mut oneshot::Receiver<()>, timeout: Option<Duration>) -> Stop {
    let nobody_reads = async {
        // A screen that ended without a word has not lost its reader.
        if closed.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        stop = signals.next() => stop,
        () = time_is_up(timeout) => Stop::Timeout,
        () = nobody_reads => Stop::OutputClosed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_agents_may_only_read() {
        assert_eq!(default_access(false), Access::Read);
        assert_eq!(default_access(true), Access::Write);
    }

    #[test]
    fn scripted_models_run_more_turns_at_once() {
        let none = BoundArgs::default();
        assert_eq!(limits(&none, true).running_max, 64);
        assert_eq!(limits(&none, false).running_max, 16);
        assert_eq!(limits(&none, false).descendants_max, 200);
        let three = BoundArgs { jobs: Some(3), max_depth: Some(0), ..none };
        assert_eq!((limits(&three, true).running_max, limits(&three, true).depth_max), (3, 0));
    }

    #[test]
    fn a_run_without_a_prompt_is_a_usage_error() {
        assert_eq!(prompt(None, false).expect_err("no prompt").exit, Exit::Usage);
        assert_eq!(prompt(Some("  "), false).expect_err("no prompt").exit, Exit::Usage);
        assert_eq!(prompt(Some("do it"), false).expect("a prompt"), "do it");
    }
}
