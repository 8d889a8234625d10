//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use impresario::Durability;
use impresario::kernel::Access;
use impresario::models::scripted::{Latency, ScriptedModel};

use crate::spend::SpendArgs;
use crate::{exit, figures};

/// Run trees of LLM agents that you can bound, stop, kill and resume without losing a result.
#[derive(Debug, Parser)]
#[command(name = "impresario", version, after_help = exit::help(), max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command has.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Folder to work in
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Folder of the store [default: the platform's data folder]
    #[arg(long, global = true, value_name = "DIR", env = "IMPRESARIO_HOME")]
    pub(crate) home: Option<PathBuf>,
    /// JSON on stdout, nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say less on stderr
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Take the store from a process that has it and hangs; what that one still does is not stored
    #[arg(long, global = true)]
    pub(crate) take_over: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch a parallel delegation over this folder: scripted model, no key, no network
    #[command(after_help = exit::help())]
    Demo(DemoArgs),
    /// Run one task to its end
    #[command(after_help = exit::help())]
    Run(Box<RunArgs>),
    /// Run many tasks, one agent each; the same command again goes on where it was
    #[command(after_help = exit::help())]
    Batch(Box<BatchArgs>),
    /// Start an agent on a task; there is no service yet, so only in the foreground, as `run` does
    #[command(after_help = exit::help())]
    Spawn(Box<SpawnArgs>),
    /// Give an agent of a stored tree another task; it is opened here until it is at rest
    #[command(after_help = exit::help())]
    Send(Box<TellArgs>),
    /// The same as `send`, for the agent's next step instead of its next turn
    #[command(after_help = exit::help())]
    Steer(Box<TellArgs>),
    /// Wait until an agent has nothing to do, whichever process runs it, and print its answer
    #[command(after_help = exit::help())]
    Wait(WaitArgs),
    /// End what an agent does now
    Interrupt(AgentArgs),
    /// Stop an agent and everything below it
    Stop(AgentArgs),
    /// The events of an agent's log, a line each
    Logs(LogsArgs),
    /// What is stored
    #[command(subcommand)]
    Sessions(Sessions),
    /// The tree of a stored session (the same as `sessions tree`)
    Tree(TreeArgs),
    /// Serve the scripted model as an OpenAI-compatible API on loopback
    #[command(after_long_help = scripts_help())]
    MockModel(MockArgs),
    /// Measure what orchestration costs
    Bench(Box<crate::bench::args::BenchArgs>),
    /// Copy the store to a file, also while agents run
    Backup(BackupArgs),
    /// Give the room of what was deleted back to the file system
    Gc(GcArgs),
    /// What is configured, reachable and writable, and the limits in force
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print a JSON Schema
    Schema {
        /// Of what
        #[arg(value_enum)]
        what: Schema,
    },
}

/// What has a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Schema {
    /// The lines of `run --json`
    Events,
}

/// `demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    /// Keep nothing: the store is in memory
    #[arg(long)]
    pub(crate) ephemeral: bool,
}

/// `run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to do; `-` reads it from stdin
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// The tools on offer, by name [default: all that the access allows]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub(crate) tools: Option<Vec<String>>,
    /// The answer must be JSON that fits the JSON Schema in this file; stdout has that JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Use this file as the system text
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,
    /// Add this text behind the one of --system
    #[arg(long, value_name = "TEXT", requires = "system")]
    pub(crate) system_append: Option<String>,
    /// Go on with a stored session
    #[arg(long, value_name = "ID", conflicts_with_all = ["ephemeral", "continue_last"])]
    pub(crate) resume: Option<String>,
    /// Go on with the last session of this folder
    #[arg(long = "continue", conflicts_with = "ephemeral")]
    pub(crate) continue_last: bool,
    /// Go on in a copy: the session that is named by --resume or --continue stays as it is, and may be any agent's
    #[arg(long)]
    pub(crate) fork: bool,
    /// With --fork: begin before this event of its log (`sessions export` shows them), which must be between turns
    #[arg(long, value_name = "SEQ", requires = "fork", conflicts_with = "last_turns")]
    pub(crate) at: Option<u64>,
    /// With --fork: show the copy only so many of the last turns
    #[arg(long, value_name = "N", requires = "fork")]
    pub(crate) last_turns: Option<u32>,
    /// Keep nothing: the store is in memory
    #[arg(long)]
    pub(crate) ephemeral: bool,
}

/// How a task is run, whoever gets it.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Read the text, or what belongs to it, from stdin
    #[arg(long)]
    pub(crate) stdin: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    #[command(flatten)]
    pub(crate) spend: SpendArgs,
    /// Keep what the models say in this folder, for --model replay:DIR; what is in it stays
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// What agents may do in the folder [default: write on a terminal, else read]; those that are there keep what they were
    /// given
    #[arg(long, value_parser = parse_access, value_name = "read|write|full")]
    pub(crate) access: Option<Access>,
    /// Wait for no disk: a crash may take the last moments of what is begun with this
    #[arg(long)]
    pub(crate) buffered: bool,
}

impl TaskArgs {
    pub(crate) fn durability(&self) -> Durability {
        if self.buffered { Durability::Buffered } else { Durability::Durable }
    }
}

/// `spawn`
#[derive(Debug, Args)]
pub(crate) struct SpawnArgs {
    /// Stay until all is at rest
    #[arg(long)]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `send`, `steer`
#[derive(Debug, Args)]
pub(crate) struct TellArgs {
    /// Id, unique prefix, @last, or ROOT:path
    pub(crate) id: String,
    /// What it is told; `-` reads it from stdin
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
}

/// `wait`
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Id, unique prefix, @last, or ROOT:path
    #[arg(default_value = "@last")]
    pub(crate) id: String,
    /// Wait no longer than this: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = figures::parse_span)]
    pub(crate) timeout: Option<Duration>,
}

/// `interrupt`, `stop`
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Id, unique prefix, @last, or ROOT:path
    #[arg(default_value = "@last")]
    pub(crate) id: String,
}

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id, unique prefix, @last, or ROOT:path
    #[arg(default_value = "@last")]
    pub(crate) id: String,
    /// Go on as long as a process writes to the store
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin at this event
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) from: u64,
}

/// `batch`
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// The tasks: a JSON object a line (`prompt`, and if need be `id`, `model`, `dir`, `tools`, `output_schema`,
    /// `context`), or a prompt a line in a file whose name ends in .txt
    pub(crate) tasks: PathBuf,
    /// Add each result to this file, a JSON line as soon as a task has settled; what it has is not run again
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Make the prompts of the fields of each line: 'Audit {{path}}'
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Option<String>,
    /// How many tasks may run at once [default: 64 scripted, else 16]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) spend: SpendArgs,
    /// Keep what the models say in this folder, for --model replay:DIR; what is in it stays
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// What agents may do in the folder
    #[arg(long, value_parser = parse_access, value_name = "read|write|full", default_value = "read")]
    pub(crate) access: Access,
    /// The tools on offer, by name [default: all that the access allows]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub(crate) tools: Option<Vec<String>>,
    /// Use this file as the system text
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,
    /// What becomes of a task that has a result and is another one now
    #[arg(long, value_enum, default_value_t = Changed::Refuse, value_name = "HOW")]
    pub(crate) changed: Changed,
    /// Which results are run again, in new sessions
    #[arg(long, value_delimiter = ',', value_enum, value_name = "OUTCOME,…",
        default_values_t = [Again::Failed, Again::Cancelled, Again::Crashed])]
    pub(crate) retry: Vec<Again>,
    /// Run all tasks again, whatever has a result
    #[arg(long)]
    pub(crate) restart: bool,
    /// Begin no more tasks when so many have failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_failures: Option<u32>,
    /// Stop a task after this time: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = figures::parse_span)]
    pub(crate) timeout_per_task: Option<Duration>,
    /// Run at most so many tasks
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Say what would be run, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How deep the tree of a task may grow; 0 is no subagents
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_depth: u32,
    /// How many steps (a model call and its tools) a turn may take
    #[arg(long, visible_alias = "max-steps", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How many tokens an agent may spend in one turn
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
}

/// What becomes of a task whose result is that of another one under its id.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Changed {
    /// Nothing is run
    Refuse,
    /// It is run as it is now
    Rerun,
    /// Its result stands
    Skip,
}

/// An outcome that does not stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Again {
    /// Its end was an error
    Failed,
    /// It was stopped
    Cancelled,
    /// Its process died
    Crashed,
    /// A ceiling was reached
    Partial,
    /// A rule said no
    Refused,
}

/// Who answers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// Which model [default: what the keys in the environment allow]; scripted:FILE follows a script, replay:DIR answers from
    /// what --record has kept or from logs of dsh, replay:session/ID from a stored root
    #[arg(short, long, value_name = "PROVIDER:NAME", env = "IMPRESARIO_MODEL")]
    pub(crate) model: Option<String>,
    /// Where its OpenAI-compatible API is, up to and with `/v1`; makes the key optional
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A setting of each request: temperature, top_p, max_output_tokens, seed, reasoning_effort
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// Where the answer goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write the final text to this file instead of stdout, whole or not at all; - is stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// With --json: also each piece of text as it arrives
    #[arg(long)]
    pub(crate) deltas: bool,
}

/// The bounds.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BoundArgs {
    /// How many turns may run at once [default: 64 scripted, else 16]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// How deep the tree may grow; the root is at depth 0
    #[arg(long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// How many descendants there may be in all
    #[arg(long, value_name = "N")]
    pub(crate) max_agents: Option<u32>,
    /// How many steps (a model call and its tools) a turn may take
    #[arg(long, visible_alias = "max-steps", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How many tokens an agent may spend in one turn
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop everything after this time: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = figures::parse_span)]
    pub(crate) timeout: Option<Duration>,
}

/// `sessions …`
#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List sessions, the newest first
    Ls(ListArgs),
    /// Show what was said and done in a session
    Show(ShowArgs),
    /// Show a tree: every agent, how it came out, what it took
    Tree(TreeArgs),
    /// Check stored logs against every rule
    Verify(VerifyArgs),
    /// Write a session's log to stdout
    Export(ExportArgs),
    /// Store sessions of dsh: a home of it, a folder, or single files, compressed or not
    Import(ImportArgs),
    /// Delete a root, its tree and its logs; forks of it stay whole
    Rm(RemoveArgs),
}

/// `sessions import`
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Files, or folders that are searched for `session.jsonl` and `session.jsonl.zstd`
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Store nothing: show what can be read of each, also of one that would be refused
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// `sessions rm`
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Id, unique prefix, or @last, of one root or more
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `gc`
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Delete first the trees in which nothing has happened for so long: 30d, 12h
    #[arg(long, value_name = "TIME", value_parser = figures::parse_span)]
    pub(crate) older_than: Option<Duration>,
    /// Do not ask
    #[arg(short, long, requires = "older_than")]
    pub(crate) yes: bool,
}

/// `backup`
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Where to; there must be no such file
    pub(crate) file: PathBuf,
}

/// `sessions ls`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Also children
    #[arg(long, conflicts_with = "children")]
    pub(crate) all: bool,
    /// Only the children of this one
    #[arg(long, value_name = "ID")]
    pub(crate) children: Option<String>,
    /// Only sessions that work in this folder
    #[arg(long)]
    pub(crate) here: bool,
    /// At most this many; 0 is all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

/// `sessions show`
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id, unique prefix, @last, or ROOT:path
    pub(crate) id: String,
    /// Only the last answer
    #[arg(long)]
    pub(crate) last: bool,
    /// How much of the tool calls
    #[arg(long, value_enum, default_value_t = ToolDetail::Brief, value_name = "HOW")]
    pub(crate) tools: ToolDetail,
}

/// How much of a tool call is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ToolDetail {
    /// All of it
    Full,
    /// A line each
    Brief,
    /// Nothing
    None,
}

/// `sessions tree`, `tree`
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Id, unique prefix, @last, or ROOT:path
    #[arg(default_value = "@last")]
    pub(crate) id: String,
}

/// `sessions verify`
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The tree of this session [default: @last]
    #[arg(conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Every session of the store
    #[arg(long)]
    pub(crate) all: bool,
}

/// `sessions export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Id, unique prefix, @last, or ROOT:path
    pub(crate) id: String,
    /// In which form
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The header, then one event a line
    Jsonl,
    /// The same as dsh stores it: runs of deltas packed
    Dsh,
    /// What was said and done, to read
    Markdown,
    /// The same as a page of its own
    Html,
}

/// `mock-model`
#[derive(Debug, Args)]
pub(crate) struct MockArgs {
    /// Which port of 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// What it says: `builtin`, `demo`, a file, or replay:DIR for what --record has kept
    #[arg(long, value_name = "FILE", default_value = "builtin")]
    pub(crate) script: String,
    /// How long an answer takes, where the script or the directive does not say: 200ms, 50..150ms, lognormal(200ms, 0.5),
    /// each with `+ 80 tok/s`; a bare number is milliseconds. 0 measures what is left: the runtime itself
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    pub(crate) latency: Latency,
    /// What that is drawn from, if anything is left to chance [default: the script's]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Add each request to this file, a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

/// `doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
}

/// What a script and a prompt can say.
fn scripts_help() -> String {
    let (scripts, directives) = (ScriptedModel::SCRIPTS, ScriptedModel::DIRECTIVES);
    format!("A script is TOML:\n\n{scripts}\nPrompts say what the answer is to be where no rule fits:\n\n{directives}")
}

fn parse_access(text: &str) -> Result<Access, String> {
    [Access::Read, Access::Write, Access::Full]
        .into_iter()
        .find(|access| access.as_str() == text)
        .ok_or_else(|| "there are read, write, full".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn run(args: &[&str]) -> Result<Box<RunArgs>, clap::Error> {
        let all = ["impresario", "run"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Run(run) => Ok(run),
            other => panic!("not run: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_all_commands_may_stand_anywhere() {
        let before = Cli::try_parse_from(["impresario", "--json", "sessions", "ls"]).expect("a command line");
        let after = Cli::try_parse_from(["impresario", "sessions", "ls", "--json"]).expect("a command line");
        assert!(before.common.json && after.common.json);
    }

    #[test]
    fn a_dash_is_a_prompt() {
        assert_eq!(run(&["-"]).expect("a command line").prompt.as_deref(), Some("-"));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert!(run(&["x", "--resume", "abcd", "--ephemeral"]).is_err());
        assert!(run(&["x", "--resume", "abcd", "--continue"]).is_err());
        assert!(run(&["x", "--access", "root"]).is_err());
        assert!(run(&["x", "-j", "0"]).is_err());
    }

    #[test]
    fn the_help_of_run_shows_the_exit_codes() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").expect("there is run");
        assert!(run.render_long_help().to_string().contains("124  --timeout ran out"));
    }
}
