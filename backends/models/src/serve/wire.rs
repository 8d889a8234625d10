//! The chat-completions form, from the server's side.

use std::collections::HashMap;
use std::sync::Arc;

use impresario_kernel::assembler::Assembler;
use impresario_kernel::event::{ToolSchema, Tools};
use impresario_kernel::message::joined_text;
use impresario_kernel::{
    AgentPath, Block, Chunk, Failure, FinishReason, Message, RequestConfig, RequestHeader, Role, Source, Usage,
};
use impresario_seams::{ModelRequest, ModelScope};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::scripted::View;

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    model: String,
    messages: Vec<WireMessage>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    tools: Option<Vec<WireTool>>,
    #[serde(default, alias = "max_completion_tokens")]
    max_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct WireTool {
    function: WireSchema,
}

#[derive(Deserialize)]
struct WireSchema {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Deserialize)]
struct WireMessage {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

/// The request, and whether it is to be streamed. `asker` is who says that it asks, `asides` which of the messages of the
/// user are no prompts.
pub(super) fn request(
    body: &[u8],
    asker: Option<ModelScope>,
    asides: &HashMap<usize, Source>,
) -> Result<(ModelRequest, bool), serde_json::Error> {
    let body: Body = serde_json::from_slice(body)?;
    let max_tokens = body.max_tokens;
    let config = RequestConfig { provider: "scripted".into(), model: body.model, max_tokens, rest: Map::new() };
    let is_system = |message: &WireMessage| matches!(message.role.as_str(), "system" | "developer");
    let system = body.messages.iter().find(|message| is_system(message)).map(|message| content_text(&message.content));
    let schema = |WireTool { function: WireSchema { name, description, parameters } }| {
        Arc::new(ToolSchema { name, description, parameters })
    };
    let tools = body.tools.map(|tools| Tools::Schemas(tools.into_iter().map(schema).collect()));
    let header = Arc::new(RequestHeader { config, system: system.map(Into::into), tools, rest: Map::new() });
    let messages = body.messages.into_iter().enumerate().filter(|(_, message)| !is_system(message));
    let mut users = 0;
    let messages = messages.map(|(at, wire)| {
        let mut message = message(at, wire);
        if message.source == Source::user() {
            if let Some(source) = asides.get(&users) {
                message.source = source.clone();
            }
            users += 1;
        }
        Arc::new(message)
    });
    let messages = messages.collect();
    if let Some(scope) = asker {
        return Ok((ModelRequest { header, messages, scope }, body.stream.unwrap_or(false)));
    }
    // Other clients say neither who asks nor in which turn; the step is how often the model has spoken behind the prompt.
    let scope = ModelScope { agent: "http".into(), path: AgentPath::root(), turn: 0, step: 0, attempt: 0 };
    let mut request = ModelRequest { header, messages, scope };
    let behind = View::new(&request).prompt().map_or(0, |(at, _)| at);
    let spoken = request.messages.iter().skip(behind).filter(|message| message.role == Role::Assistant).count();
    request.scope.step = u32::try_from(spoken + 1).unwrap_or(u32::MAX);
    Ok((request, body.stream.unwrap_or(false)))
}

fn message(at: usize, wire: WireMessage) -> Message {
    let id = format!("http-{at}");
    let text = content_text(&wire.content);
    if let Some(call) = wire.tool_call_id {
        let is_error = is_error(&text);
        return Message::tool_result(id, &call.into(), vec![Block::text(text)], is_error);
    }
    if wire.role != "assistant" {
        return Message::user(id, text);
    }
    let mut content = vec![];
    if !text.is_empty() {
        content.push(Block::text(text));
    }
    content.extend(wire.tool_calls.into_iter().flatten().map(|call| Block::ToolCall {
        id: call.id.into(),
        name: call.function.name.into(),
        arguments: call.function.arguments.into(),
    }));
    Message { id: id.into(), role: Role::Assistant, content, source: Source::of("model") }
}

/// The wire does not say whether a call failed; the text does: `Error: …`, or a subagent's `[root/a1 failed · …]`.
fn is_error(text: &str) -> bool {
    let head = text.lines().next().unwrap_or_default();
    let ended = |kind: &str| head.starts_with('[') && head.contains(&format!(" {kind} · agent "));
    text.starts_with("Error") || ["failed", "cancelled", "crashed", "refused"].into_iter().any(ended)
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Turns chunks into stream events.
pub(super) struct Encoder {
    model: String,
    /// The block index of each call, in order: their place is the wire's index.
    calls: Vec<u32>,
    /// Sent behind the finish, as OpenAI does.
    usage: Option<Usage>,
}

impl Encoder {
    pub(super) fn new(model: &str) -> Self {
        Self { model: model.to_owned(), calls: vec![], usage: None }
    }

    pub(super) fn encode(&mut self, chunk: &Chunk) -> Vec<Value> {
        match chunk {
            Chunk::TextDelta { text, .. } => vec![self.delta(json!({"content": text}), None)],
            Chunk::ReasoningDelta { text, .. } => vec![self.delta(json!({"reasoning_content": text}), None)],
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                let known = self.calls.iter().position(|call| call == index);
                let call = match known {
                    Some(at) => json!({"index": at, "function": {"arguments": arguments_delta}}),
                    None => {
                        self.calls.push(*index);
                        let function = json!({"name": name, "arguments": arguments_delta});
                        json!({"index": self.calls.len() - 1, "id": id, "type": "function", "function": function})
                    }
                };
                vec![self.delta(json!({"tool_calls": [call]}), None)]
            }
            Chunk::Usage { usage } => {
                self.usage = Some(*usage);
                vec![]
            }
            Chunk::Finish { reason, .. } => {
                let usage = self.usage.take().map(|usage| {
                    let (object, usage) = ("chat.completion.chunk", tokens(&usage));
                    json!({"id": "mock", "object": object, "model": self.model, "choices": [], "usage": usage})
                });
                [self.delta(json!({}), Some(finish(reason)))].into_iter().chain(usage).collect()
            }
            Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } => vec![],
        }
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({"id": "mock", "object": "chat.completion.chunk", "model": self.model, "choices": [choice]})
    }
}

fn finish(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::MaxTokens => "length",
        FinishReason::Stop | FinishReason::Aborted { .. } | FinishReason::Error { .. } | FinishReason::Other(_) => {
            "stop"
        }
    }
}

fn tokens(usage: &Usage) -> Value {
    let cached = usage.cache_read_tokens;
    let (input, output) = (usage.input_tokens + cached.unwrap_or(0), usage.output_tokens);
    let mut tokens = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    if let Some(cached) = cached {
        tokens["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    if let Some(reasoning) = usage.reasoning_tokens {
        tokens["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
    }
    tokens
}

pub(super) fn completion(model: &str, answer: &Assembler) -> Value {
    let blocks = answer.blocks();
    let calls: Vec<Value> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => {
                Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
            }
            Block::Text { .. } | Block::Reasoning { .. } | Block::ToolResult { .. } | Block::Other(_) => None,
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": joined_text(&blocks)});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let reason = answer.finish().map_or("stop", finish);
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let usage = answer.usage().map(|usage| tokens(&usage));
    json!({"id": "mock", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage})
}

pub(super) fn error(failure: &Failure) -> Value {
    json!({"error": {"message": failure.message, "code": failure.code, "type": failure.code}})
}
