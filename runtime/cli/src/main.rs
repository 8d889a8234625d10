//! The `impresario` command: reads arguments, chooses backends, runs the runtime, prints.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use impresario::kernel::Lane;
use tracing_subscriber::EnvFilter;

mod agents;
mod approver;
mod args;
mod backend;
mod batch;
mod bench;
mod display;
mod doctor;
mod exit;
mod failed;
mod figures;
mod home;
mod keep;
mod mock;
mod output;
mod print;
mod provider;
mod replay;
mod run;
mod schema;
mod sessions;
mod signals;
mod spend;
mod tally;

use args::{Cli, Command, Common, Schema, Sessions};
use exit::Exit;
use failed::Failed;
use print::{Paint, Stream};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let exit = match Cli::try_parse_from(&words) {
        Ok(cli) => start(cli),
        Err(error) => refused(&error, &words),
    };
    ExitCode::from(exit.code())
}

fn start(cli: Cli) -> Exit {
    log(&cli.common);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&cli.common, &Failed::io("start threads", &error)),
    };
    let common = cli.common.clone();
    let done = runtime.block_on(dispatch(cli));
    // What still runs is dropped and ends what it started. Threads that wait for a terminal or for a slow reader must
    // not keep the program alive.
    runtime.shutdown_timeout(Duration::from_millis(300));
    done.unwrap_or_else(|failure| failed(&common, &failure))
}

async fn dispatch(cli: Cli) -> Result<Exit, Failed> {
    let common = &cli.common;
    match cli.command {
        Command::Demo(args) => run::demo(common, args).await,
        Command::Run(args) => run::run(common, *args).await,
        Command::Spawn(args) if args.foreground => run::run(common, args.run).await,
        Command::Spawn(_) => Err(Failed::usage(agents::NO_SERVICE)),
        Command::Send(args) => run::tell(common, *args, Lane::NextTurn).await,
        Command::Steer(args) => run::tell(common, *args, Lane::NextStep).await,
        Command::Wait(args) => agents::wait(common, &args).await,
        Command::Interrupt(args) | Command::Stop(args) => agents::interrupt(common, &args).await,
        Command::Logs(args) => agents::logs(common, &args).await,
        Command::Bench(args) => bench::bench(common, *args).await,
        Command::Batch(args) => batch::batch(common, *args).await,
        Command::Sessions(Sessions::Rm(args)) => keep::remove(common, &args).await,
        Command::Sessions(Sessions::Import(args)) => sessions::import::import(common, &args).await,
        Command::Sessions(command) => sessions::sessions(common, command).await,
        Command::Tree(args) => sessions::sessions(common, Sessions::Tree(args)).await,
        Command::MockModel(args) => mock::mock_model(&args).await,
        Command::Backup(args) => keep::backup(common, &args),
        Command::Gc(args) => keep::gc(common, &args).await,
        Command::Doctor(args) => doctor::doctor(common, &args).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "impresario", &mut script);
            print::answer(&String::from_utf8_lossy(&script))
        }
        Command::Schema { what: Schema::Events } => print::answer(&format!("{:#}\n", schema::events())),
    }
}

/// The program's own log: warnings, or what `-v` and `IMPRESARIO_LOG` ask for.
fn log(common: &Common) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = EnvFilter::builder().with_env_var("IMPRESARIO_LOG").try_from_env();
    let asked_for = std::env::var_os("IMPRESARIO_LOG").is_some_and(|value| !value.is_empty());
    let filter = filter.ok().filter(|_| asked_for).unwrap_or_else(|| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| print::LogWriter)
        .with_ansi(Stream::Err.is_terminal())
        .with_target(false)
        .init();
}

/// A command line that makes no sense, or a question about it.
fn refused(error: &clap::Error, words: &[OsString]) -> Exit {
    if !error.use_stderr() {
        // Help that nobody reads to its end is fine.
        let _ = error.print();
        return Exit::Completed;
    }
    let _ = error.print();
    if words.iter().any(|word| word == "--json") {
        let text = error.to_string();
        let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        // The last line is for whoever still reads.
        let _ = display::json::only_line(&Failed::usage(text));
    }
    Exit::Usage
}

/// A command that failed before it had anything to show.
fn failed(common: &Common, failure: &Failed) -> Exit {
    let paint = Paint::of(common.color, Stream::Err);
    print::say(&format!("{} {}", paint.word("error:"), print::printable(&failure.text)));
    if common.json {
        // The last line is for whoever still reads.
        let _ = display::json::only_line(failure);
    }
    failure.exit
}
