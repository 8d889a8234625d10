//! `impresario bench`: what orchestration costs, measured.

pub(crate) mod against;
pub(crate) mod args;
mod compare;
mod ended;
mod file;
mod floor;
mod hash;
mod ideal;
mod json;
mod model;
mod report;
mod row;
mod scenario;
mod server;
mod spread;
mod table;
mod targets;
mod trial;
mod usage;
mod watch;

use std::time::Duration;

use args::{BenchArgs, BenchCommand, SetupArgs};
use row::Row;
use scenario::Scenario;
use server::Server;
use trial::{Setup, Trial};

use crate::args::Common;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::{home, print};

/// `impresario bench`
pub(crate) async fn bench(common: &Common, args: BenchArgs) -> Result<Exit, Failed> {
    match args.command {
        None if args.list => list(),
        None => measure(common, &args).await,
        Some(BenchCommand::Compare { before, after }) => {
            let dir = home::work_dir(common)?;
            compare::compare(common, &dir.join(before), &dir.join(after))
        }
        Some(BenchCommand::Targets { quick }) => targets::targets(common, quick).await,
        Some(BenchCommand::Once { base_url, scenario, n, store }) => against::once(base_url, &scenario, n, store).await,
        Some(BenchCommand::Floor { base_url, n, leaf }) => floor::floor(&base_url, n, &leaf).await,
        Some(BenchCommand::Measure { command }) => against::measure(&command),
    }
}

fn list() -> Result<Exit, Failed> {
    let lines = scenario::ALL.map(|scenario| format!("{:<14} {}\n", scenario.name, scenario.about));
    print::answer(&lines.concat())
}

async fn measure(common: &Common, args: &BenchArgs) -> Result<Exit, Failed> {
    let scenarios = chosen(common, &args.scenarios)?;
    if let Some(command) = &args.against {
        return against::against(common, &args.setup, command, args.repeat).await;
    }
    let (warm_up, repeat) = if args.deterministic { (0, 1) } else { (args.warm_up, args.repeat) };
    let mut rows = vec![];
    for scenario in scenarios {
        for &n in &args.setup.n {
            if !common.quiet && !common.json {
                print::say(&format!("{} n={n}: {repeat} runs", scenario.name));
            }
            rows.push(row(scenario, n, args, (warm_up, repeat)).await?);
        }
    }
    if let Some(file) = &args.report {
        let file = home::work_dir(common)?.join(file);
        let page = report::page(&rows);
        std::fs::write(&file, page).map_err(|error| Failed::io(format!("write {}", home::quoted(&file)), &error))?;
    }
    match common.json {
        true => print::answer(&format!("{}\n", json::document(args, &rows))),
        false => print::answer(&table::table(&rows)),
    }
}

fn chosen(common: &Common, names: &[String]) -> Result<Vec<Scenario>, Failed> {
    let folder = home::work_dir(common)?;
    let default = || scenario::DEFAULT.iter().map(|&name| name.to_owned()).collect();
    let names: Vec<String> = if names.is_empty() { default() } else { names.to_vec() };
    let known = |name: &String| {
        let unknown = || {
            let all = scenario::ALL.map(|scenario| scenario.name).join(", ");
            Failed::usage(format!("there is no scenario {name:?}; there are {all}, and files that end in .toml"))
        };
        match name.ends_with(".toml") {
            true => file::read(&folder.join(name)),
            false => scenario::named(name).ok_or_else(unknown),
        }
    };
    names.iter().map(known).collect()
}

async fn row(scenario: Scenario, n: u32, args: &BenchArgs, (warm_up, repeat): (u32, u32)) -> Result<Row, Failed> {
    let server = match args.setup.over_http {
        true => Some(Server::start(model::model(scenario, &args.setup.latency, args.setup.seed)).await?),
        false => None,
    };
    let setup = setup(&args.setup, n, server.as_ref().map(|server| server.base_url.clone()), args.deterministic);
    for _ in 0..warm_up {
        trial(scenario, &setup).await?;
    }
    let mut trials = vec![];
    for _ in 0..repeat {
        trials.push(trial(scenario, &setup).await?);
    }
    Ok(Row::of(scenario, &setup, trials))
}

fn setup(args: &SetupArgs, n: u32, base_url: Option<String>, is_deterministic: bool) -> Setup {
    let SetupArgs { latency, store, seed, .. } = args.clone();
    Setup { n, latency, store, base_url, seed, is_deterministic }
}

/// Runs it once: here, or on a thread of its own with a clock of its own.
async fn trial(scenario: Scenario, setup: &Setup) -> Result<Trial, Failed> {
    if !setup.is_deterministic {
        return trial::run(scenario, setup).await;
    }
    let setup = setup.clone();
    let alone = tokio::task::spawn_blocking(move || {
        let builder = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = builder.map_err(|error| Failed::io("start a clock", &error))?;
        let done = runtime.block_on(trial::run(scenario, &setup));
        runtime.shutdown_timeout(Duration::from_millis(300));
        done
    });
    alone.await.map_err(|error| Failed::io("run it", &std::io::Error::other(error)))?
}
