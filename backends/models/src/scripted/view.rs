//! What a script looks at.

use std::sync::Arc;

use impresario_kernel::message::joined_text;
use impresario_kernel::{Block, CallId, Message, Role};
use impresario_seams::{ModelRequest, ModelScope};

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

    fn last_said(&self, fits: impl Fn(&str) -> bool) -> Option<(usize, String)> {
        let messages = self.request.messages.iter().enumerate().rev();
        messages
            .filter(|(_, message)| is_prompt(message))
            .map(|(at, message)| (at, message.text()))
            .find(|(_, text)| fits(text))
    }

    /// The calls that the model asked for behind place `from`, with their answers, in order.
    pub fn answered(&self, from: usize) -> Vec<Answered<'a>> {
        let behind = || self.request.messages.iter().skip(from);
        let mut answered = vec![];
        for (id, tool, arguments) in behind().filter(|message| message.role == Role::Assistant).flat_map(|m| m.calls())
        {
            let result = behind().flat_map(|message| &message.content).find_map(|block| match block {
                Block::ToolResult { tool_call_id, content, is_error } if tool_call_id == id => {
                    Some((joined_text(content), *is_error))
                }
                _ => None,
            });
            let Some((text, is_error)) = result else { continue };
            answered.push(Answered { tool, arguments, text, is_error });
        }
        answered
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

fn is_prompt(message: &Message) -> bool {
    let is_result = message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }));
    message.role == Role::User && !is_result && !["plugin", "subagent-settled"].contains(&message.source.kind.as_str())
}
