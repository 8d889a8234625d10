//! The model's tools for delegation: what they are called, what they take, what they answer.

mod manage;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use impresario_kernel::event::{Context, ToolSchema};
use impresario_kernel::{
    AgentId, AgentPath, Block, Budget, CallReport, Message, Outcome, OutcomeKind, Overlap, Source,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::providers::{FORK, SPAWN};

pub(crate) use manage::{Manage, READ as READ_ARTIFACT, message, report};

/// So many answers are shown up to the limit of one: 256 KiB in all with the default, which models take in.
const SHARES: usize = 16;

/// So much of an answer is shown however many there are, in bytes.
const SHARE_MIN: usize = 256;

/// How long `wait_agents` waits when it is not told.
const WAIT: Duration = Duration::from_secs(600);

/// Starts a subagent.
pub(crate) const SUBAGENT: &str = "subagent";
/// Waits for subagents.
pub(crate) const WAIT_AGENTS: &str = "wait_agents";

/// Gives the output of a turn.
pub(crate) const FINAL_OUTPUT: &str = "final_output";

/// Whether the runtime itself performs this tool.
pub(crate) fn is_delegation(name: &str) -> bool {
    [SUBAGENT, WAIT_AGENTS, FINAL_OUTPUT].contains(&name) || manage::is_manage(name)
}

/// How a tool of the runtime may overlap with other calls. What ends the turn waits for the calls before it, and those
/// behind it wait for it.
pub(crate) fn overlap(name: &str) -> Overlap {
    if name == FINAL_OUTPUT { Overlap::Exclusive } else { Overlap::Delegation }
}

/// Whether a child has this tool of the runtime, whatever its parent grants it.
pub(crate) fn is_of_children(name: &str, has_output: bool) -> bool {
    [manage::REPORT, manage::READ].contains(&name) || (name == FINAL_OUTPUT && has_output)
}

/// What the model is told. Never changes with depth, limits or load.
pub(crate) fn schemas() -> Vec<Arc<ToolSchema>> {
    static SCHEMAS: LazyLock<Vec<Arc<ToolSchema>>> = LazyLock::new(|| {
        let mut schemas = vec![
            schema(
                SUBAGENT,
                "Gives a task to a new agent and returns its final answer. The agent sees only the prompt \
                 (context \"fresh\") or this whole conversation up to here and the prompt (context \"fork\"). \
                 Issue several calls in one message to run agents in parallel. With background the call returns at \
                 once and the answer comes later; wait_agents waits for it.",
                subagent_parameters(),
            ),
            schema(
                WAIT_AGENTS,
                "Waits for agents that run in the background and returns their answers as JSON: \
                 {\"done\": [{\"agent\", \"path\", \"outcome\", \"text\", \"usage\"}], \"pending\": [{\"agent\", \"path\"}]}. \
                 It is over when all or any of them are done, when the first has completed, or when a quorum has; with \
                 stop_rest the others are stopped then and listed with what they had. A time-out is a normal result \
                 that lists who is pending and stops nobody.",
                wait_parameters(),
            ),
        ];
        schemas.extend(manage::schemas());
        schemas.push(schema(
            FINAL_OUTPUT,
            "Gives your result and ends your turn, when you were told what it must look like. Call it last.",
            json!({
                "type": "object",
                "properties": {"result": {"description": "What you were asked for."}},
                "required": ["result"],
                "additionalProperties": false
            }),
        ));
        schemas
    });
    SCHEMAS.clone()
}

fn schema(name: &str, description: &str, parameters: Value) -> Arc<ToolSchema> {
    Arc::new(ToolSchema { name: name.into(), description: description.into(), parameters })
}

fn subagent_parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "What it is for, in a few words."},
            "prompt": {"type": "string", "description": "The whole task. A fresh agent sees nothing else."},
            "label": {"type": "string", "description": "A short name; part of the agent's path."},
            "context": {"type": "string", "enum": ["fresh", "fork"], "description": "Default: fresh."},
            "provider": {"type": "string", "description": "Who runs it, of those you were told of. Default: this runtime."},
            "model": {"type": "string", "description": "provider:model. Default: yours."},
            "background": {"type": "boolean", "description": "Go on meanwhile. Default: false."},
            "tools": {"type": "array", "items": {"type": "string"}, "description": "Only these of your tools."},
            "isolation": {"type": "string", "enum": ["none", "worktree"],
                "description": "worktree: it works in a git worktree of its own, which stays if it changes something. \
                    Default: none, your folder."},
            "output_schema": {"type": "object", "description": "A JSON Schema that its answer must fit. Default: none."},
            "may_spawn": {"type": "integer", "minimum": 0, "description": "How many subagents it may have. Default: 0."},
            "budget": {"type": "object", "description": "What it and its subagents may spend, out of what you may. \
                    Default: they spend from what you have.",
                "properties": {
                    "tokens": {"type": "integer", "minimum": 0},
                    "cost_usd": {"type": "number", "minimum": 0},
                    "tool_calls": {"type": "integer", "minimum": 0},
                    "wall_ms": {"type": "integer", "minimum": 0},
                    "descendants": {"type": "integer", "minimum": 0}
                },
                "additionalProperties": false}
        },
        "required": ["prompt"],
        "additionalProperties": false
    })
}

fn wait_parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "agents": {"type": "array", "items": {"type": "string"},
                "description": "Ids or paths. Default: all whose answer you have not seen."},
            "until": {"type": "string", "enum": ["all", "any", "first_success", "quorum"],
                "description": "Default: all."},
            "quorum": {"type": "integer", "minimum": 1, "description": "How many must complete, for a quorum."},
            "stop_rest": {"type": "boolean", "description": "Stop the others when it is over. Default: false."},
            "timeout_ms": {"type": "integer", "minimum": 0, "description": "Default: 600000."}
        },
        "additionalProperties": false
    })
}

/// Arguments of [`SUBAGENT`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubagentArgs {
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) label: Option<String>,
    #[serde(default)]
    context: Option<Context>,
    #[serde(default)]
    pub(crate) provider: Option<String>,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) background: bool,
    #[serde(default)]
    pub(crate) tools: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) isolation: Isolation,
    #[serde(default)]
    pub(crate) output_schema: Option<Value>,
    #[serde(default)]
    may_spawn: Option<u32>,
    #[serde(default)]
    budget: BudgetArgs,
}

/// Where a child works.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Isolation {
    /// In the folder of its parent.
    #[default]
    None,
    /// In a worktree of its own.
    Worktree,
}

/// What a child may spend.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetArgs {
    tokens: Option<u64>,
    cost_usd: Option<f64>,
    tool_calls: Option<u64>,
    wall_ms: Option<u64>,
    descendants: Option<u32>,
}

impl SubagentArgs {
    /// How much of its parent's context the child begins with.
    pub(crate) fn context(&self) -> Context {
        let is_fork = self.provider.as_deref() == Some(FORK);
        self.context.unwrap_or(if is_fork { Context::Fork } else { Context::Fresh })
    }

    /// What is wrong with them, for the model.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match (self.provider.as_deref(), self.context()) {
            _ if self.prompt.trim().is_empty() => Err("`prompt` is empty"),
            (Some(SPAWN), Context::Fork) | (Some(FORK), Context::Fresh) => {
                Err("`provider` and `context` contradict each other; leave `provider` out")
            }
            _ => Ok(()),
        }
    }

    /// How many descendants the child may have.
    pub(crate) fn may_spawn(&self) -> u32 {
        match (self.may_spawn, self.budget.descendants) {
            (Some(most), Some(descendants)) => most.min(descendants),
            (most, descendants) => most.or(descendants).unwrap_or(0),
        }
    }

    /// What the child may spend, if that has limits of its own.
    pub(crate) fn budget(&self) -> Option<Budget> {
        let BudgetArgs { tokens, cost_usd, tool_calls, wall_ms, descendants: _ } = self.budget;
        // The cast saturates, and makes nothing of what is no number or below zero.
        let micro_usd = cost_usd.map(|dollars| (dollars * 1e6) as u64);
        let budget = Budget { tokens, micro_usd, tool_calls, wall_ms, windows: vec![] };
        (!budget.is_unlimited()).then_some(budget)
    }

    /// What the child is for, in the model's words, if it has some.
    pub(crate) fn purpose(&self) -> Option<&str> {
        self.label.as_deref().or(Some(&*self.description)).map(str::trim).filter(|purpose| !purpose.is_empty())
    }
}

/// Arguments of [`FINAL_OUTPUT`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputArgs {
    pub(crate) result: Value,
}

/// Arguments of [`WAIT_AGENTS`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitArgs {
    #[serde(default)]
    pub(crate) agents: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) until: Until,
    #[serde(default)]
    pub(crate) quorum: Option<usize>,
    #[serde(default)]
    pub(crate) stop_rest: bool,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// When a wait is over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Until {
    /// When each is done.
    #[default]
    All,
    /// When one is.
    Any,
    /// When one has completed, or none can any more.
    FirstSuccess,
    /// When so many have completed, or so many cannot any more.
    Quorum,
}

impl WaitArgs {
    /// What is wrong with them, for the model.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match (self.until, self.quorum) {
            (Until::Quorum, None | Some(0)) => Err("`until: quorum` needs `quorum`, at least 1"),
            (Until::Quorum, Some(_)) | (_, None) => Ok(()),
            (_, Some(_)) => Err("`quorum` goes with `until: quorum`"),
        }
    }

    /// How many have to complete.
    pub(crate) fn wanted(&self) -> usize {
        self.quorum.unwrap_or(1)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout_ms.map_or(WAIT, Duration::from_millis)
    }
}

/// Reads a call's arguments; the error is for the model.
pub(crate) fn parse<'a, T: Deserialize<'a>>(tool: &str, arguments: &'a str) -> Result<T, Box<CallReport>> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments)
        .map_err(|error| CallReport::failed("ToolArgsError", "INVALID_ARGS", &format!("{tool}: {error}")).into())
}

/// A child that came to an end, as its parent is told.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) child: AgentId,
    pub(crate) path: AgentPath,
    pub(crate) outcome: Arc<Outcome>,
    /// What it has left in a workspace of its own.
    pub(crate) left: Option<Arc<str>>,
}

impl Settled {
    /// The id under which the parent is told: the same however often it is sent.
    fn message_id(&self) -> String {
        format!("settled:{}:{}", self.child, self.outcome.turn)
    }

    /// `[root/audit completed · agent 0193…]`, why if it is not completed, and the text.
    fn text(&self, bytes_max: usize) -> String {
        let (why, text) = (self.outcome.why(), self.clipped(bytes_max));
        let head = format!("[{} {} · agent {}]", self.path, self.outcome.kind, self.child);
        let left = self.left.as_deref().unwrap_or_default().to_owned();
        [head, why, text, left].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// At most so many bytes of the answer; says how much is missing, and how it is read.
    fn clipped(&self, bytes_max: usize) -> String {
        let text = &self.outcome.answer();
        let end = cut(text, bytes_max);
        if end == text.len() {
            return text.to_string();
        }
        format!("{}\n{}", &text[..end], more(self.child.as_str(), end, text.len() - end))
    }

    /// What the child has spent so far.
    fn usage(&self) -> Value {
        let spent = &self.outcome.spent;
        json!({"input_tokens": spent.input_tokens, "output_tokens": spent.output_tokens, "tool_calls": spent.tool_calls})
    }

    fn is_error(&self) -> bool {
        !matches!(self.outcome.kind, OutcomeKind::Completed | OutcomeKind::Partial)
    }

    /// The result of the call that asked for the child.
    pub(crate) fn report(&self, bytes_max: usize) -> CallReport {
        let content = vec![Block::text(self.text(bytes_max))];
        let usage = self.usage();
        let meta = json!({"agent": self.child, "path": self.path, "outcome": self.outcome.kind, "usage": usage});
        let id = Some(self.message_id().into());
        CallReport { content, is_error: self.is_error(), meta: Some(meta), id, ..CallReport::default() }
    }

    /// The message that tells the parent between calls.
    pub(crate) fn notice(&self, bytes_max: usize) -> Arc<Message> {
        let summary = format!("{} {}", self.path, self.outcome.kind);
        let source = Source::settled(&self.child, &summary);
        Arc::new(Message::context(self.message_id(), self.text(bytes_max), source))
    }

    /// As [`WAIT_AGENTS`] lists it; without the text if the parent has it already.
    pub(crate) fn entry(&self, bytes_max: usize, with_text: bool) -> Value {
        let mut entry =
            json!({"agent": self.child, "path": self.path, "outcome": self.outcome.kind, "usage": self.usage()});
        if with_text {
            entry["text"] = self.clipped(bytes_max).into();
        } else {
            entry["note"] = "you were told its answer before".into();
        }
        if let Some(left) = &self.left {
            entry["workspace"] = (&**left).into();
        }
        if self.is_error() {
            entry["why"] = self.outcome.why().into();
        }
        entry
    }
}

/// How many bytes of its answer each of so many children may show at once: up to sixteen of them `bytes_max`, more of them
/// a fair part of what sixteen may, so that a wide fan-in does not overflow its parent. What is cut off can be read.
pub(crate) fn share(bytes_max: usize, children: usize) -> usize {
    (bytes_max.saturating_mul(SHARES) / children.max(1)).clamp(SHARE_MIN.min(bytes_max), bytes_max)
}

/// How to read the rest of a text that is cut off.
pub(crate) fn more(artifact: &str, from: usize, left: usize) -> String {
    format!(r#"[… {left} more bytes: read_artifact {{"artifact": "{artifact}", "from_byte": {from}}}]"#)
}

/// The end of the last whole character within `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> usize {
    (0..=bytes_max.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

/// The first message of a child.
pub(crate) fn prompt(child: &AgentId, parent: &AgentId, text: &str) -> Arc<Message> {
    let source = Source::of("coordinator").with("senderSessionId", parent.as_str());
    Arc::new(Message::context(format!("prompt:{child}"), text, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_between_characters_and_says_so() {
        let text: Arc<str> = "ä".repeat(10).into();
        let (kind, end) = (OutcomeKind::Completed, impresario_kernel::TurnEnd::Completed);
        let outcome = Outcome { turn: 1, kind, end, text: Arc::clone(&text), output: None, spent: Default::default() };
        let settled = Settled { child: "c".into(), path: AgentPath::root(), outcome: outcome.into(), left: None };
        assert_eq!(settled.clipped(20), *text);
        let cut = "ää\n[… 16 more bytes: read_artifact {\"artifact\": \"c\", \"from_byte\": 4}]";
        assert_eq!(settled.clipped(5), cut);
    }

    #[test]
    fn many_answers_share_what_sixteen_may_show() {
        let shares: Vec<usize> = [1, 16, 32, 100, 10_000].into_iter().map(|children| share(16_384, children)).collect();
        assert_eq!(shares, [16_384, 16_384, 8_192, 2_621, 256]);
        assert_eq!((share(100, 1_000), share(0, 3)), (100, 0));
    }

    #[test]
    fn unknown_arguments_are_refused_by_name() {
        let report = parse::<SubagentArgs>(SUBAGENT, r#"{"prompt":"x","contxt":"fork"}"#).unwrap_err();
        assert!(format!("{:?}", report.content).contains("contxt"));
        assert!(parse::<WaitArgs>(WAIT_AGENTS, " ").is_ok());
    }
}
