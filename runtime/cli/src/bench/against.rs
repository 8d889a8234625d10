//! Another program on the same server, in turn with this one.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::{SetupArgs, StoreKind};
use super::scenario::Scenario;
use super::server::Server;
use super::spread::Spread;
use super::table::number;
use super::trial::{self, Setup};
use super::watch::{Seen, Watched};
use super::{model, scenario, usage};
use crate::args::Common;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a command took, as the process around it says.
#[derive(Debug, Deserialize, Serialize)]
struct Taken {
    wall_ms: f64,
    cpu_ms: Option<f64>,
    peak_rss_mib: Option<f64>,
    code: Option<i32>,
}

/// One run of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// From the server's first request to its last answer.
    pub(crate) span_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) peak_rss_mib: f64,
    pub(crate) requests: usize,
    pub(crate) peak: usize,
}

/// Who runs.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    /// In one scenario.
    Ours(&'static str, StoreKind),
    /// With what each child is told.
    Floor(&'static str),
    /// With `{base_url}` and `{n}` in it.
    Other(String),
}

impl Who {
    /// What its requests are answered for.
    fn scenario(&self) -> Result<Scenario, Failed> {
        let name = if let Self::Ours(name, _) = self { name } else { "fan-out" };
        scenario::named(name).ok_or_else(|| Failed::usage(format!("there is no scenario {name:?}")))
    }

    fn command(&self, base_url: &str, n: u32) -> Result<Vec<String>, Failed> {
        let this = std::env::current_exe().map_err(|error| Failed::io("find this program", &error))?;
        let own = |words: &[&str]| {
            let this = this.display().to_string();
            [this.as_str(), "bench"].iter().chain(words).map(|&word| word.to_owned()).collect()
        };
        let number = n.to_string();
        Ok(match self {
            Self::Ours(scenario, store) => {
                let (kind, store) = (["--scenario", scenario], ["--store", store.as_str()]);
                own(&[&["once", "--base-url", base_url, "--n", &number][..], &kind, &store].concat())
            }
            Self::Floor(leaf) => own(&["floor", "--base-url", base_url, "--n", &number, "--leaf", leaf]),
            Self::Other(command) => {
                let command = command.replace("{base_url}", base_url).replace("{n}", &number);
                vec!["sh".into(), "-c".into(), command]
            }
        })
    }
}

/// Runs one of them once, and looks at it from the server.
pub(crate) async fn side(who: &Who, setup: &Setup) -> Result<Side, Failed> {
    let seen = Seen::new();
    let watched =
        Watched { model: Arc::new(model::model(who.scenario()?, &setup.latency, setup.seed)), seen: Arc::clone(&seen) };
    let server = Server::start(watched).await?;
    let command = who.command(&server.base_url, setup.n)?;
    let this = std::env::current_exe().map_err(|error| Failed::io("find this program", &error))?;
    let around = tokio::process::Command::new(this)
        .args(["bench", "measure", "--"])
        .args(&command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, around)
        .await
        .map_err(|_| Failed::usage(format!("{} did not end in {} s", command.join(" "), PATIENCE.as_secs())))?;
    let output = output.map_err(|error| Failed::io("start a process", &error))?;
    let taken: Taken = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failed::usage(format!("{} could not be measured: {error}", command.join(" "))))?;
    if taken.code != Some(0) {
        let code = taken.code.map_or_else(|| "a signal".into(), |code| code.to_string());
        return Err(Failed::usage(format!("{} ended with {code}", command.join(" "))));
    }
    let asked = seen.asked();
    let first = asked.iter().map(|asked| asked.began).min().unwrap_or_default();
    let last = asked.iter().filter_map(|asked| asked.ended).max().unwrap_or_default();
    Ok(Side {
        span_ms: last.saturating_sub(first).as_secs_f64() * 1e3,
        cpu_ms: taken.cpu_ms.unwrap_or(f64::NAN),
        peak_rss_mib: taken.peak_rss_mib.unwrap_or(f64::NAN),
        requests: asked.len(),
        peak: seen.peak(),
    })
}

/// `bench --against COMMAND`: a fan-out over HTTP, theirs and ours in turn.
pub(crate) async fn against(common: &Common, args: &SetupArgs, command: &str, repeat: u32) -> Result<Exit, Failed> {
    let other = if command == "floor" { Who::Floor("work") } else { Who::Other(command.to_owned()) };
    let (mut text, mut results) = (String::new(), vec![]);
    for &n in &args.n {
        let setup = super::setup(args, n, None, false);
        let (mut ours, mut theirs) = (vec![], vec![]);
        for _ in 0..repeat {
            theirs.push(side(&other, &setup).await?);
            ours.push(side(&Who::Ours("fan-out", args.store), &setup).await?);
        }
        let (ours, theirs) = (Medians::of(&ours), Medians::of(&theirs));
        results.push(json!({"n": n, "runs": repeat, "ours": ours, "theirs": theirs, "ratio": ours.over(&theirs)}));
        text.push_str(&format!(
            "fan-out n={n} over HTTP (latency {}, store {}), medians of {repeat}\n{}{}{}",
            args.latency,
            args.store.as_str(),
            ours.line("ours"),
            theirs.line("theirs"),
            ours.over(&theirs).line("ratio"),
        ));
    }
    match common.json {
        true => {
            print::answer(&format!("{}\n", json!({"v": super::json::VERSION, "against": command, "results": results})))
        }
        false => print::answer(&text),
    }
}

/// The figures in the middle.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Medians {
    pub(crate) span_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) peak_rss_mib: f64,
    pub(crate) requests: f64,
    pub(crate) peak_concurrency: f64,
}

impl Medians {
    pub(crate) fn of(sides: &[Side]) -> Self {
        let median = |of: fn(&Side) -> f64| {
            Spread::of(sides.iter().map(of).collect()).map_or(f64::NAN, |spread| spread.median())
        };
        Self {
            span_ms: median(|side| side.span_ms),
            cpu_ms: median(|side| side.cpu_ms),
            peak_rss_mib: median(|side| side.peak_rss_mib),
            requests: median(|side| side.requests as f64),
            peak_concurrency: median(|side| side.peak as f64),
        }
    }

    pub(crate) fn over(&self, other: &Self) -> Self {
        Self {
            span_ms: self.span_ms / other.span_ms,
            cpu_ms: self.cpu_ms / other.cpu_ms,
            peak_rss_mib: self.peak_rss_mib / other.peak_rss_mib,
            requests: self.requests / other.requests,
            peak_concurrency: self.peak_concurrency / other.peak_concurrency,
        }
    }

    fn line(&self, name: &str) -> String {
        format!(
            "  {name:<7} span_ms {:>9}  cpu_ms {:>9}  peak_rss_mib {:>7}  requests {:>6}  peak_concurrency {:>6}\n",
            number(self.span_ms),
            number(self.cpu_ms),
            number(self.peak_rss_mib),
            number(self.requests),
            number(self.peak_concurrency),
        )
    }
}

/// Our side of it, once, in a process of its own.
pub(crate) async fn once(base_url: String, name: &str, n: u32, store: StoreKind) -> Result<Exit, Failed> {
    let unknown = || Failed::usage(format!("there is no scenario {name:?}"));
    let scenario = scenario::named(name).ok_or_else(unknown)?;
    let latency = impresario::models::scripted::Latency::fixed(Duration::ZERO);
    let setup = Setup { n, latency, store, base_url: Some(base_url), seed: 1, is_deterministic: false };
    trial::run(scenario, &setup).await?;
    print::answer("done\n")
}

/// Runs a command to its end, and prints what it took.
pub(crate) fn measure(command: &[String]) -> Result<Exit, Failed> {
    let Some((program, rest)) = command.split_first() else { return Ok(Exit::Usage) };
    let began = Instant::now();
    let status = std::process::Command::new(program).args(rest).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| Failed::io(format!("start {program}"), &error))?;
    let taken = Taken {
        wall_ms: began.elapsed().as_secs_f64() * 1e3,
        cpu_ms: usage::cpu_of_children().map(|cpu| cpu.as_secs_f64() * 1e3),
        peak_rss_mib: usage::peak_of_children().map(|peak| peak as f64 / f64::from(1 << 20)),
        code: status.code(),
    };
    print::answer(&format!("{}\n", json!(taken)))
}
