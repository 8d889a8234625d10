//! The workloads of the project's own targets, beside their floors.

use std::time::Duration;

use impresario::models::scripted::Latency;

use super::against::{Medians, Who, side};
use super::args::StoreKind;
use super::scenario::{Scenario, named};
use super::spread::Spread;
use super::table::number;
use super::trial::{self, Setup, Trial};
use crate::args::Common;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::print;

/// One row of the table.
struct Target {
    id: &'static str,
    what: String,
    floor: String,
    target: &'static str,
    measured: String,
    verdict: &'static str,
}

impl Target {
    fn of(id: &'static str, what: String, floor: String, target: &'static str, measured: String, is_met: bool) -> Self {
        Self { id, what, floor, target, measured, verdict: if is_met { "met" } else { "NOT MET" } }
    }

    /// Without a verdict.
    fn beside(mut self) -> Self {
        self.verdict = "beside";
        self
    }

    /// One that this command does not measure, and where it is measured.
    fn elsewhere(id: &'static str, what: &str, command: &str) -> Self {
        let (floor, measured) = (String::new(), command.to_owned());
        Self { id, what: what.to_owned(), floor, target: "", measured, verdict: "not here" }
    }
}

/// What takes long, and how often it is done.
struct Sizes {
    runs: usize,
    wide: u32,
    widest: u32,
    deep: u32,
    many: u32,
}

/// `bench targets`
pub(crate) async fn targets(common: &Common, quick: bool) -> Result<Exit, Failed> {
    let sizes = match quick {
        true => Sizes { runs: 1, wide: 16, widest: 32, deep: 5, many: 200 },
        false => Sizes { runs: 3, wide: 512, widest: 2_000, deep: 50, many: 10_000 },
    };
    let mut rows = vec![];
    for (at, part) in ["W1", "W2", "W3", "W4", "W5", "W6", "W8", "W10", "W11", "W12"].into_iter().enumerate() {
        if !common.quiet {
            print::say(&format!("{part} ({} of 10)", at + 1));
        }
        rows.extend(match part {
            "W1" => fan_out(&sizes).await?,
            "W2" => with_latency(&sizes).await?,
            "W3" => chain(&sizes).await?,
            "W4" => idle(&sizes).await?,
            "W5" => cancel(&sizes).await?,
            "W6" => child(&sizes).await?,
            "W8" => fork(&sizes).await?,
            "W10" => stream(&sizes).await?,
            "W11" => recover(&sizes).await?,
            _ => scaling(&sizes).await?,
        });
    }
    rows.extend(elsewhere());
    print::answer(&table(&rows))?;
    let missed = rows.iter().filter(|row| row.verdict == "NOT MET").count();
    print::say(&format!("{missed} targets not met"));
    Ok(Exit::Completed)
}

fn elsewhere() -> Vec<Target> {
    let bench = |name: &str| format!("cargo bench -p impresario-actors --bench {name}");
    vec![
        Target::elsewhere("W7", "durable events a second beside a bare writer", &bench("durable")),
        Target::elsewhere("W9", "opening a session of a million events", &bench("open")),
        Target::elsewhere(
            "W13",
            "prompts that begin with the same bytes",
            "cargo test -p impresario-actors (a check, not a time)",
        ),
        Target::elsewhere("W14", "ten thousand idle agents and their timers", &bench("passive")),
    ]
}

fn scenario(name: &str) -> Result<Scenario, Failed> {
    named(name).ok_or_else(|| Failed::usage(format!("there is no scenario {name}")))
}

fn setup(n: u32, latency_ms: u64, store: StoreKind) -> Setup {
    let latency = Latency::fixed(Duration::from_millis(latency_ms));
    Setup { n, latency, store, base_url: None, seed: 1, is_deterministic: false }
}

/// The middle one of a figure over several runs.
async fn figure(name: &str, setup: &Setup, figure: &str, runs: usize) -> Result<f64, Failed> {
    let scenario = scenario(name)?;
    // The first one is not looked at: it makes what the others find.
    trial::run(scenario, setup).await?;
    let mut values = vec![];
    for _ in 0..runs {
        let Trial { figures, .. } = trial::run(scenario, setup).await?;
        values.extend(figures.get(figure).copied());
    }
    Ok(Spread::of(values).map_or(f64::NAN, |spread| spread.median()))
}

async fn sides(who: &Who, setup: &Setup, runs: usize) -> Result<Medians, Failed> {
    let mut all = vec![];
    for _ in 0..runs {
        all.push(side(who, setup).await?);
    }
    Ok(Medians::of(&all))
}

async fn fan_out(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    for n in [8, sizes.wide, sizes.widest] {
        let setup = setup(n, 0, StoreKind::Memory);
        let floor = sides(&Who::Floor("work"), &setup, sizes.runs).await?;
        for (store, most) in [(StoreKind::Memory, 1.5), (StoreKind::Sqlite, 2.0)] {
            let ours = sides(&Who::Ours("fan-out", store), &setup, sizes.runs).await?;
            let ratio = ours.span_ms / floor.span_ms;
            let what = format!("fan-out n={n} over HTTP, {}", store.as_str());
            let target = if store == StoreKind::Memory { "span <= 1.5 floors" } else { "span <= 2 floors" };
            let measured = format!("{} ms, {ratio:.2} floors", number(ours.span_ms));
            let row = Target::of("W1", what, format!("{} ms", number(floor.span_ms)), target, measured, ratio <= most);
            // The target is that of one width; the others are shown beside it.
            rows.push(if n == sizes.wide { row } else { row.beside() });
            if store == StoreKind::Memory {
                let kib = (ours.peak_rss_mib - floor.peak_rss_mib) * 1024.0 / f64::from(n);
                let (what, floor) = (format!("its peak memory n={n}"), format!("{} MiB", number(floor.peak_rss_mib)));
                let measured = format!("{} MiB, {kib:.0} KiB a child", number(ours.peak_rss_mib));
                let row = Target::of("W1", what, floor, "<= 64 KiB a child more", measured, kib <= 64.0);
                rows.push(if n == 8 { row.beside() } else { row });
            }
        }
    }
    Ok(rows)
}

async fn with_latency(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    for (n, most, target) in [(128.min(sizes.wide), 1.1, "<= 1.1 times"), (sizes.widest, 1.25, "<= 1.25 times")] {
        let setup = setup(n, 200, StoreKind::Memory);
        let ours = sides(&Who::Ours("fan-out", StoreKind::Memory), &setup, sizes.runs).await?;
        let bare = sides(&Who::Floor("work"), &setup, sizes.runs).await?;
        let ratio = ours.span_ms / 600.0;
        let what = format!("fan-out n={n}, 200 ms each, over HTTP");
        let measured =
            format!("{} ms, {ratio:.2} times, {} in flight", number(ours.span_ms), number(ours.peak_concurrency));
        let floor = format!("600 ms; the bare client takes {} ms", number(bare.span_ms));
        rows.push(Target::of("W2", what, floor, target, measured, ratio <= most));
    }
    Ok(rows)
}

async fn chain(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    for n in [1, 5, sizes.deep] {
        let overhead = figure("chain", &setup(n, 0, StoreKind::Memory), "overhead_ms", 2 * sizes.runs + 1).await?;
        let level = overhead / f64::from(n);
        let measured = format!("{} ms a level", number(level));
        rows.push(Target::of(
            "W3",
            format!("chain of depth {n}"),
            "its answers".into(),
            "< 1 ms a level",
            measured,
            level < 1.0,
        ));
    }
    Ok(rows)
}

async fn idle(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let bytes = figure("idle", &setup(sizes.many, 0, StoreKind::Memory), "bytes_per_agent", 1).await?;
    let bare = bare::bytes_each(sizes.many as usize).await;
    let ratio = bytes / bare;
    let (what, floor) = (format!("{} idle agents in memory", sizes.many), format!("{} bytes each", number(bare)));
    let measured = format!("{} bytes each with its log, {ratio:.1} times", number(bytes));
    Ok(vec![Target::of("W4", what, floor, "<= 2.5 bare actors", measured, ratio <= 2.5)])
}

async fn cancel(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    for n in [10, 100, 1_000.min(sizes.many), sizes.many] {
        let took = figure("cancel-storm", &setup(n, 0, StoreKind::Memory), "cancel_ms", sizes.runs).await?;
        let floor = bare::stop_ms(n as usize).await;
        let ratio = took / floor;
        let (what, floor) = (format!("stop of {n} agents that stream, in process"), format!("{} ms", number(floor)));
        let measured = format!("{} ms, {ratio:.1} times", number(took));
        rows.push(Target::of("W5", what, floor, "<= 5 times", measured, ratio <= 5.0));
    }
    Ok(rows)
}

async fn child(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    for (name, n) in [("pipeline", 64), ("fan-out", 64)] {
        let cpu = figure(name, &setup(n, 0, StoreKind::Memory), "cpu_ms", 8 * sizes.runs).await?;
        let each = cpu * 1e3 / f64::from(n);
        let floor = bare::life_us(1_000).await;
        let ratio = each / floor;
        let how = if name == "pipeline" { "one after another" } else { "at once" };
        let (what, floor) =
            (format!("{n} children in process, {how}: processor"), format!("{} us each", number(floor)));
        let measured = format!("{} us each, {ratio:.1} times", number(each));
        rows.push(Target::of("W6", what, floor, "<= 4 times", measured, ratio <= 4.0));
    }
    Ok(rows)
}

async fn fork(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    let mut first = None;
    for n in [10, 100, 1_000.min(sizes.many)] {
        let took = figure("fork", &setup(n, 0, StoreKind::Sqlite), "fork_p50_ms", 1).await?;
        let floor = *first.get_or_insert(took);
        let (what, ratio) = (format!("fork of {n} turns"), took / floor);
        let measured = format!("{} ms, {ratio:.2} times", number(took));
        let floor = format!("{} ms at 10", number(floor));
        rows.push(Target::of("W8", what, floor, "does not grow", measured, ratio <= 1.5));
    }
    Ok(rows)
}

async fn stream(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let n = 200.min(sizes.many);
    let latency = "0ms + 100 tok/s".parse().map_err(|error| Failed::usage(format!("{error}")))?;
    let setup = Setup { latency, ..setup(n, 0, StoreKind::Sqlite) };
    let floor = sides(&Who::Floor("speak"), &setup, 1).await?;
    let ours = sides(&Who::Ours("stream", StoreKind::Sqlite), &setup, 1).await?;
    let ratio = ours.cpu_ms / floor.cpu_ms;
    let what = format!("{n} agents stream 100 tokens a second each, over HTTP, sqlite: processor");
    let measured = format!("{} ms, {ratio:.2} times", number(ours.cpu_ms));
    let cpu = Target::of("W10", what, format!("{} ms", number(floor.cpu_ms)), "<= 2 times", measured, ratio <= 2.0);
    // What is stored of words beside what is stored of the same tree without.
    let spoken = figure("stream", &setup, "store_bytes", 1).await?;
    let silent =
        figure("fan-out", &Setup { latency: Latency::fixed(Duration::ZERO), ..setup }, "store_bytes", 1).await?;
    let said = f64::from(n) * super::model::speech().len() as f64;
    let growth = (spoken - silent) / said;
    let measured = format!("{growth:.2} bytes");
    let what = "its log for each byte of text".to_owned();
    let grown = Target::of("W10", what, format!("{} of text", number(said)), "<= 1.3 bytes", measured, growth <= 1.3);
    Ok(vec![cpu, grown])
}

async fn recover(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let n = 1_000.min(sizes.many);
    let took = figure("recover", &setup(n, 0, StoreKind::Sqlite), "addressable_ms", sizes.runs).await?;
    let measured = format!("{} ms; beside the rows: cargo bench -p impresario-actors --bench recover", number(took));
    let mut row = Target::elsewhere("W11", &format!("a tree of {n}, all with an open turn, is opened"), &measured);
    row.verdict = "see there";
    Ok(vec![row])
}

async fn scaling(sizes: &Sizes) -> Result<Vec<Target>, Failed> {
    let mut rows = vec![];
    let mut first = None;
    for n in [100, 1_000.min(sizes.many), sizes.many] {
        let cpu = figure("fan-out", &setup(n, 0, StoreKind::Memory), "cpu_ms", sizes.runs).await?;
        let each = cpu * 1e3 / f64::from(n);
        let floor = *first.get_or_insert(each);
        let ratio = each / floor;
        let measured = format!("{} us a child, {ratio:.2} times", number(each));
        let (what, floor) = (format!("fan-out n={n} in process: processor"), format!("{} us at 100", number(floor)));
        rows.push(Target::of("W12", what, floor, "within 25 %", measured, ratio <= 1.25));
    }
    Ok(rows)
}

fn table(rows: &[Target]) -> String {
    let lines = rows.iter().map(|row| {
        let Target { id, what, floor, target, measured, verdict } = row;
        format!("| {id} | {what} | {floor} | {target} | {measured} | {verdict} |\n")
    });
    format!(
        "| id | workload | floor | target | measured | verdict |\n|---|---|---|---|---|---|\n{}",
        lines.collect::<String>()
    )
}

/// What bare actors cost: the floor of what an agent costs.
mod bare {
    use std::time::Instant;

    use impresario::bare::BareActors;

    use crate::bench::usage;

    pub(super) async fn bytes_each(n: usize) -> f64 {
        let before = usage::resident().unwrap_or(0);
        let actors = BareActors::spawn(n).await;
        let grown = usage::resident().unwrap_or(0).saturating_sub(before);
        actors.stop().await;
        grown as f64 / n.max(1) as f64
    }

    pub(super) async fn stop_ms(n: usize) -> f64 {
        let actors = BareActors::spawn(n).await;
        let began = Instant::now();
        actors.stop().await;
        began.elapsed().as_secs_f64() * 1e3
    }

    /// Spawn, ten messages and stop, in microseconds of processors.
    pub(super) async fn life_us(n: usize) -> f64 {
        let before = usage::cpu().unwrap_or_default();
        for _ in 0..n {
            let actor = BareActors::spawn(1).await;
            actor.tell();
            actor.stop().await;
        }
        let taken = usage::cpu().unwrap_or_default().saturating_sub(before);
        taken.as_secs_f64() * 1e6 / n.max(1) as f64
    }
}
