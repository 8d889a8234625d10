//! What `bench` can be told.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use impresario::models::scripted::Latency;

/// `bench`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// Which scenarios, as --list has them, or files of one's own: TOML with `prompt`, what the root is told, `{n}` in it, and
    /// if need be `name` and `script`, a script for the model [default: fan-out, chain, cancel-storm]
    pub(crate) scenarios: Vec<String>,
    /// List the scenarios
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// How often each is run before it counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) warm_up: u32,
    /// How often each is run; figures are medians, with the least and the most
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Run each once on one thread and a clock that stands still while anybody works: the same seed gives the same logs, byte
    /// by byte, and their hash
    #[arg(long, conflicts_with_all = ["over_http", "warm_up", "repeat", "against"])]
    pub(crate) deterministic: bool,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Run another program on the same server, in turn with this one: `floor`, or a command with {base_url} and {n} in it
    #[arg(long, value_name = "COMMAND")]
    pub(crate) against: Option<String>,
}

/// How the scenarios are set up.
#[derive(Clone, Debug, Args)]
pub(crate) struct SetupArgs {
    /// How many there are of what a scenario has many of: a run for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 64])]
    pub(crate) n: Vec<u32>,
    /// How long answers take: `200ms`, `50..150ms`, `lognormal(200ms, 0.5) + 80 tok/s`
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    pub(crate) latency: Latency,
    /// Where logs are kept
    #[arg(long, value_enum, default_value = "memory")]
    pub(crate) store: StoreKind,
    /// Ask the model over loopback HTTP
    #[arg(long)]
    pub(crate) over_http: bool,
    /// Where latencies and ids come from
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Where logs are kept while it is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum StoreKind {
    /// In memory
    Memory,
    /// In a sqlite file in a temporary folder, each event on the disk before anything follows from it
    Sqlite,
}

impl StoreKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
        }
    }
}

/// What else `bench` does.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Say what became slower between two outputs of `bench --json`, and what is noise; exit 1 if something did
    Compare {
        /// The earlier one
        before: PathBuf,
        /// The later one
        after: PathBuf,
    },
    /// Run the workloads W1 to W14 beside their floors, and say which targets are met
    Targets {
        /// Smaller and quicker, to see that it works: its figures mean nothing
        #[arg(long)]
        quick: bool,
    },
    /// One run of a fan-out over HTTP, for `--against`
    #[command(hide = true)]
    Once {
        /// Where the model is served
        #[arg(long)]
        base_url: String,
        /// Which scenario
        #[arg(long, default_value = "fan-out")]
        scenario: String,
        /// How many children
        #[arg(long)]
        n: u32,
        /// Where logs are kept
        #[arg(long, value_enum, default_value = "memory")]
        store: StoreKind,
    },
    /// The same requests with no runtime
    #[command(hide = true)]
    Floor {
        /// Where the model is served
        #[arg(long)]
        base_url: String,
        /// How many at once
        #[arg(long)]
        n: u32,
        /// What each is told
        #[arg(long, default_value = "work")]
        leaf: String,
    },
    /// Run a command and say what it took
    #[command(hide = true)]
    Measure {
        /// The command and its arguments
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}
