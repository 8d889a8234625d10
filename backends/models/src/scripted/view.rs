//! What a script looks at.

use std::collections::HashMap;
use std::sync::Arc;

use impresario_kernel::event::Tools;
use impresario_kernel::message::joined_text;
use impresario_kernel::{Block, CallId, Message, RequestHeader, Role};
use impresario_seams::{ModelRequest, ModelScope};

use crate::aside;

/// A request as a script sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    request: &'a ModelRequest,
}

/// A call of an earlier step and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The arguments as they were sent.
    pub arguments: &'a str,
    /// What came back.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

impl<'a> View<'a> {
    /// A view of a request.
    pub fn new(request: &'a ModelRequest) -> Self {
        Self { request }
    }

    /// Who asks.
    pub fn scope(&self) -> &'a ModelScope {
        &self.request.scope
    }

    /// Route, system text and tools.
    pub fn header(&self) -> &'a RequestHeader {
        &self.request.header
    }

    /// Whether the tool may be called, as far as the request says.
    pub fn offers(&self, tool: &str) -> bool {
        match &self.request.header.tools {
            Some(Tools::Schemas(schemas)) => schemas.iter().any(|schema| schema.name == tool),
            Some(Tools::Other(_)) | None => true,
        }
    }

    /// Whether the tool is on offer.
    pub fn lists(&self, tool: &str) -> bool {
        match &self.request.header.tools {
            Some(Tools::Schemas(schemas)) => schemas.iter().any(|schema| schema.name == tool),
            Some(Tools::Other(_)) | None => false,
        }
    }

    /// Whether any text of the request contains `part`: the system text, what was said, arguments and results of calls.
    pub fn contains(&self, part: &str) -> bool {
        let system = self.request.header.system.as_ref().is_some_and(|system| system.contains(part));
        system || self.request.messages.iter().flat_map(|message| &message.content).any(|block| has(block, part))
    }

    /// The text of the last result of a call, if there is one.
    pub fn last_result(&self) -> Option<String> {
        let blocks = self.request.messages.iter().rev().flat_map(|message| message.content.iter().rev());
        let mut results = blocks.filter_map(|block| match block {
            Block::ToolResult { content, .. } => Some(joined_text(content)),
            Block::Text { .. } | Block::Reasoning { .. } | Block::ToolCall { .. } | Block::Other(_) => None,
        });
        results.next()
    }

    /// All messages.
    pub fn messages(&self) -> &'a [Arc<Message>] {
        &self.request.messages
    }

    /// The text of the last message that is a prompt (not a result, not what the runtime says about itself), and its
    /// place.
    pub fn prompt(&self) -> Option<(usize, String)> {
        self.last_said(|_| true)
    }

    /// The text of the last message from outside that contains `mark`, and its place.
    pub fn last_with(&self, mark: &str) -> Option<(usize, String)> {
        self.last_said(|text| text.contains(mark))
    }

    /// The text of the last message from outside that fits, and its place.
    pub(super) fn last_said(&self, fits: impl Fn(&str) -> bool) -> Option<(usize, String)> {
        let messages = self.request.messages.iter().enumerate().rev();
        messages
            .filter(|(_, message)| is_prompt(message))
            .map(|(at, message)| (at, message.text()))
            .find(|(_, text)| fits(text))
    }

    /// The calls that the model asked for behind place `from`, with their answers, in order.
    pub fn answered(&self, from: usize) -> Vec<Answered<'a>> {
        let behind = || self.request.messages.iter().skip(from);
        let mut results = HashMap::new();
        for block in behind().flat_map(|message| &message.content) {
            if let Block::ToolResult { tool_call_id, content, is_error } = block {
                results.entry(tool_call_id).or_insert((content, *is_error));
            }
        }
        let asked = behind().filter(|message| message.role == Role::Assistant).flat_map(|message| message.calls());
        asked
            .filter_map(|(id, tool, arguments)| {
                let (content, is_error) = *results.get(id)?;
                Some(Answered { tool, arguments, text: joined_text(content), is_error })
            })
            .collect()
    }

    /// The texts that came as notices behind place `from`: answers of agents in the background.
    pub fn notices(&self, from: usize) -> Vec<String> {
        let behind = self.request.messages.iter().skip(from);
        behind.filter(|message| message.source.kind == "subagent-settled").map(|message| message.text()).collect()
    }

    /// An id for the call at `index` of the answer to this request: the same for the same request.
    pub fn call_id(&self, index: u32) -> CallId {
        let scope = &self.request.scope;
        CallId::new(match (scope.turn, scope.step) {
            (0, _) => format!("call_{}_{index}", self.request.messages.len()),
            (turn, step) => format!("call_{turn}_{step}_{index}"),
        })
    }
}

/// Whether a block contains `part`. What the model thought is not sent to every provider, so it does not count.
fn has(block: &Block, part: &str) -> bool {
    match block {
        Block::Text { text } => text.contains(part),
        Block::ToolCall { name, arguments, .. } => name.contains(part) || arguments.contains(part),
        Block::ToolResult { content, .. } => content.iter().any(|block| has(block, part)),
        Block::Reasoning { .. } | Block::Other(_) => false,
    }
}

fn is_prompt(message: &Message) -> bool {
    let is_result = message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }));
    message.role == Role::User && !is_result && aside::name(&message.source).is_none()
}
