//! The model's tools for subagents that are there: to write to them, to interrupt them, to stop them, to list them.

use std::sync::Arc;

use impresario_kernel::event::{Lane, ToolSchema};
use impresario_kernel::{AgentId, AgentPath, CallReport, Message, MessageId, Source};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{parse, schema};

const MESSAGE: &str = "message_agent";
const INTERRUPT: &str = "interrupt_agent";
const STOP: &str = "stop_agent";
const LIST: &str = "list_agents";
/// The rest of what was cut off: an answer, or the result of a tool.
pub(crate) const READ: &str = "read_artifact";
/// What a child tells its parent while it works.
pub(super) const REPORT: &str = "report";

/// How much of a long answer is read at once when nobody says how much, and at most, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Whether it is one of these tools.
pub(super) fn is_manage(name: &str) -> bool {
    [MESSAGE, INTERRUPT, STOP, LIST, READ, REPORT].contains(&name)
}

pub(super) fn schemas() -> Vec<Arc<ToolSchema>> {
    let agent = json!({"type": "string", "description": "Its id or path."});
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    vec![
        schema(
            MESSAGE,
            "Sends a message to one of your subagents, running or done, and returns when it is stored. It answers with \
             another outcome, which comes like the first; wait_agents waits for it.",
            object(
                json!({
                    "agent": agent,
                    "message": {"type": "string", "description": "What it is told."},
                    "when": {"type": "string", "enum": ["next_turn", "now"],
                        "description": "Behind what it does, or at its next step. Default: next_turn."}
                }),
                json!(["agent", "message"]),
            ),
        ),
        schema(
            INTERRUPT,
            "Ends what one of your subagents does now; it goes on with the messages that wait for it.",
            object(json!({"agent": agent}), json!(["agent"])),
        ),
        schema(
            STOP,
            "Stops one of your subagents and everything below it, and returns how each of them ended.",
            object(json!({"agent": agent}), json!(["agent"])),
        ),
        schema(
            READ,
            "Reads more of a long result, or of a subagent's last answer, where it was cut off.",
            object(
                json!({
                    "artifact": {"type": "string", "description": "Its name, or the subagent's id or path."},
                    "from_byte": {"type": "integer", "minimum": 0, "description": "Where to go on. Default: 0."},
                    "max_bytes": {"type": "integer", "minimum": 1, "maximum": READ_BYTES,
                        "description": "Default: 16384."}
                }),
                json!(["artifact"]),
            ),
        ),
        schema(
            REPORT,
            "Tells the agent that gave you your task how far you are. Your final answer goes there by itself; this is for \
             what it should know before. It comes at its next step; with quiet it waits until there is one.",
            object(
                json!({
                    "message": {"type": "string", "description": "What it is told."},
                    "quiet": {"type": "boolean", "description": "Do not wake it for this. Default: false."}
                }),
                json!(["message"]),
            ),
        ),
        schema(
            LIST,
            "Lists your subagents as JSON: {\"agents\": [{\"agent\", \"path\", \"state\", \"outcome\"}]}.",
            object(
                json!({"scope": {"type": "string", "enum": ["children", "subtree"],
                    "description": "Default: children."}}),
                json!([]),
            ),
        ),
    ]
}

/// What a call asks for.
#[derive(Clone, Debug)]
pub(crate) enum Manage {
    Message { agent: String, text: String, lane: Lane },
    Interrupt { agent: String },
    Stop { agent: String },
    Report { text: String, wakes: bool },
    List { subtree: bool },
    Read { agent: String, from: usize, bytes: usize },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageArgs {
    agent: String,
    message: String,
    #[serde(default)]
    when: When,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum When {
    #[default]
    NextTurn,
    Now,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentArgs {
    agent: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    artifact: String,
    #[serde(default)]
    from_byte: usize,
    #[serde(default)]
    max_bytes: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportArgs {
    message: String,
    #[serde(default)]
    quiet: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    #[serde(default)]
    scope: Scope,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    #[default]
    Children,
    Subtree,
}

impl Manage {
    /// Reads a call; the error is for the model.
    pub(crate) fn of(tool: &str, arguments: &str) -> Result<Self, Box<CallReport>> {
        Ok(match tool {
            MESSAGE => {
                let MessageArgs { agent, message, when } = parse(tool, arguments)?;
                if message.trim().is_empty() {
                    let why = "message_agent: `message` is empty";
                    return Err(CallReport::failed("ToolArgsError", "INVALID_ARGS", why).into());
                }
                let lane = if matches!(when, When::Now) { Lane::NextStep } else { Lane::NextTurn };
                Self::Message { agent, text: message, lane }
            }
            INTERRUPT => Self::Interrupt { agent: parse::<AgentArgs>(tool, arguments)?.agent },
            READ => {
                let ReadArgs { artifact, from_byte, max_bytes } = parse(tool, arguments)?;
                let bytes = max_bytes.unwrap_or(READ_BYTES).clamp(4, READ_BYTES);
                Self::Read { agent: artifact, from: from_byte, bytes }
            }
            REPORT => {
                let ReportArgs { message, quiet } = parse(tool, arguments)?;
                if message.trim().is_empty() {
                    let why = "report: `message` is empty";
                    return Err(CallReport::failed("ToolArgsError", "INVALID_ARGS", why).into());
                }
                Self::Report { text: message, wakes: !quiet }
            }
            STOP => Self::Stop { agent: parse::<AgentArgs>(tool, arguments)?.agent },
            _ => Self::List { subtree: matches!(parse::<ListArgs>(tool, arguments)?.scope, Scope::Subtree) },
        })
    }

    /// Whom it is about; nobody in particular for a list.
    pub(crate) fn agent(&self) -> Option<&str> {
        match self {
            Self::Message { agent, .. }
            | Self::Interrupt { agent }
            | Self::Stop { agent }
            | Self::Read { agent, .. } => Some(agent),
            Self::Report { .. } | Self::List { .. } => None,
        }
    }
}

/// What a child tells its parent. The same call again is the same message.
pub(crate) fn report(from: &AgentId, path: &AgentPath, id: MessageId, text: &str) -> Arc<Message> {
    let source = Source::of("subagent-report").with("form", "relay").with("senderSessionId", from.as_str());
    Arc::new(Message::context(id, format!("[{path} reports · agent {from}]\n{text}"), source))
}

/// A message from an agent to one below it. The same call again is the same message.
pub(crate) fn message(from: &AgentId, id: MessageId, text: &str) -> Arc<Message> {
    let source = Source::of("coordinator").with("senderSessionId", from.as_str());
    Arc::new(Message::context(id, text, source))
}
