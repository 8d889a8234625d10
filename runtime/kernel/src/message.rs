//! Messages and their blocks, in the wire form of a session log.
//!
//! Blocks and sources are open unions: what a newer writer added is kept as it came and goes out unchanged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{AgentId, CallId, MessageId};

/// One message of a conversation. Immutable once it is in a log; shared by reference from there on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Unique in the session.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said, block by block.
    pub content: Vec<Block>,
    /// Where it came from.
    pub source: Source,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// A person, a tool result, or context that the runtime adds.
    User,
    /// The model.
    Assistant,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: Arc<str>,
    },
    /// What the model thought before it answered.
    Reasoning {
        /// The text; may be empty and must then still be sent back to providers that ask for it.
        text: Arc<str>,
    },
    /// A call that the model asks for.
    ToolCall {
        /// Unique in the session.
        id: CallId,
        /// The tool's name.
        name: Arc<str>,
        /// The arguments exactly as the model wrote them: JSON text, unparsed.
        arguments: Arc<str>,
    },
    /// The one answer to a call.
    ToolResult {
        /// The call that is answered.
        tool_call_id: CallId,
        /// What the tool gave.
        content: Vec<Block>,
        /// Whether the call failed.
        #[serde(default)]
        is_error: bool,
    },
    /// A block of a kind that this version does not know (images, for one): kept as it came.
    #[serde(untagged)]
    Other(Value),
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The visible text of this block, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Reasoning { .. } | Self::ToolCall { .. } | Self::ToolResult { .. } | Self::Other(_) => None,
        }
    }
}

/// Where a message came from: a kind and whatever that kind adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// `user`, `model`, `tool`, `plugin`, `subagent-settled`, `coordinator`, …
    pub kind: String,
    /// The other fields of this kind.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Source {
    /// A source with no further fields.
    pub fn of(kind: &str) -> Self {
        Self { kind: kind.into(), rest: Map::new() }
    }

    /// A person.
    pub fn user() -> Self {
        Self::of("user")
    }

    /// An answer of `provider`'s `model`.
    pub fn model(provider: &str, model: &str) -> Self {
        Self::of("model").with("provider", provider).with("model", model)
    }

    /// The result of the call `id`.
    pub fn tool(id: &CallId) -> Self {
        Self::of("tool").with("callId", id.as_str())
    }

    /// Context that the runtime adds: `form` is `snapshot`, `notice`, …
    pub fn plugin(plugin: &str, form: &str) -> Self {
        Self::of("plugin").with("plugin", plugin).with("form", form)
    }

    /// The notice that the child `sender` has settled.
    pub fn settled(sender: &AgentId, summary: &str) -> Self {
        Self::of("subagent-settled")
            .with("form", "notice")
            .with("summary", summary)
            .with("senderSessionId", sender.as_str())
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.rest.insert(key.into(), value.into());
        self
    }
}

impl Message {
    /// A person's message of one text block.
    pub fn user(id: impl Into<MessageId>, text: impl Into<Arc<str>>) -> Self {
        Self::context(id, text, Source::user())
    }

    /// A user-role message of one text block from `source`.
    pub fn context(id: impl Into<MessageId>, text: impl Into<Arc<str>>, source: Source) -> Self {
        Self { id: id.into(), role: Role::User, content: vec![Block::text(text)], source }
    }

    /// The answer to one call, as the model sees it.
    pub fn tool_result(id: impl Into<MessageId>, call: &CallId, content: Vec<Block>, is_error: bool) -> Self {
        let block = Block::ToolResult { tool_call_id: call.clone(), content, is_error };
        Self { id: id.into(), role: Role::User, content: vec![block], source: Source::tool(call) }
    }

    /// All visible text, blocks joined by a newline where both sides have text.
    pub fn text(&self) -> String {
        joined_text(&self.content)
    }

    /// The calls that this message asks for, in order.
    pub fn calls(&self) -> impl Iterator<Item = (&CallId, &Arc<str>, &Arc<str>)> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => Some((id, name, arguments)),
            Block::Text { .. } | Block::Reasoning { .. } | Block::ToolResult { .. } | Block::Other(_) => None,
        })
    }
}

/// The visible text of some blocks, joined by newlines.
pub fn joined_text(blocks: &[Block]) -> String {
    let texts: Vec<&str> = blocks.iter().filter_map(Block::as_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}
