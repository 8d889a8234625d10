//! The request that a provider sees: a view of the surface, repaired for the wire, the same bytes each time.
//!
//! The log is never changed by a repair. Every call that is sent has exactly one result, directly behind its message;
//! results of calls that are not sent are left out.

use impresario_kernel::event::Tools;
use impresario_kernel::message::joined_text;
use impresario_kernel::{Block, CallId, Message, Role};
use impresario_seams::ModelRequest;
use serde_json::{Map, Value, json};

/// What stands where a call has no result.
const NO_RESULT: &str = "Error: this call was interrupted; its effects are unknown.";

pub(super) fn body(request: &ModelRequest, provider: &str) -> Vec<u8> {
    let header = &request.header;
    let mut body = Map::new();
    body.insert("model".into(), header.config.model.as_str().into());
    let system = header.system.as_ref().map(|system| json!({"role": "system", "content": &**system}));
    let messages: Vec<Value> = system.into_iter().chain(messages(request, provider)).collect();
    body.insert("messages".into(), messages.into());
    body.insert("stream".into(), true.into());
    body.insert("stream_options".into(), json!({"include_usage": true}));
    if let Some(Tools::Schemas(schemas)) = &header.tools
        && !schemas.is_empty()
    {
        let tools: Vec<Value> =
            schemas.iter().map(|schema| json!({"type": "function", "function": &**schema})).collect();
        body.insert("tools".into(), tools.into());
    }
    if let Some(max) = header.config.max_tokens {
        let key = if provider == "openai" { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.into(), max.into());
    }
    for (key, value) in &header.config.rest {
        let key = match key.as_str() {
            "topP" => "top_p",
            "reasoningEffort" => "reasoning_effort",
            other => other,
        };
        body.insert(key.into(), value.clone());
    }
    serde_json::to_vec(&body).expect("a JSON value can be written")
}

fn messages(request: &ModelRequest, provider: &str) -> Vec<Value> {
    let all = &request.messages;
    let last_prompt = all.iter().rposition(|message| is_prompt(message)).unwrap_or(0);
    let mut sent = vec![];
    for (at, message) in all.iter().enumerate() {
        match message.role {
            Role::System => sent.push(json!({"role": "system", "content": message.text()})),
            Role::Assistant => {
                // DeepSeek wants the thoughts of a turn with calls back; other providers must not see them.
                let has_calls = message.calls().next().is_some();
                let thinks = provider == "deepseek" && (has_calls || at > last_prompt);
                sent.extend(assistant(message, thinks));
                let results = &all[at + 1..];
                sent.extend(message.calls().map(|(id, _, _)| result(id, results)));
            }
            Role::User if is_prompt(message) => sent.push(json!({"role": "user", "content": message.text()})),
            // Results go out behind the message that asked for them.
            Role::User => {}
        }
    }
    sent
}

fn is_prompt(message: &Message) -> bool {
    message.role == Role::User && !message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

fn assistant(message: &Message, thinks: bool) -> Option<Value> {
    let text = message.text();
    let calls: Vec<Value> = message
        .calls()
        .map(|(id, name, arguments)| {
            let arguments = if is_object(arguments) { arguments } else { "{}" };
            json!({"id": id, "type": "function", "function": {"name": &**name, "arguments": arguments}})
        })
        .collect();
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { Value::Null } else { text.into() };
    let mut sent = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        sent["tool_calls"] = calls.into();
    }
    let thoughts: Vec<&str> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Reasoning { text } => Some(&**text),
            Block::Text { .. } | Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Other(_) => None,
        })
        .collect();
    if thinks && !thoughts.is_empty() {
        sent["reasoning_content"] = thoughts.concat().into();
    }
    Some(sent)
}

fn is_object(arguments: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(arguments).is_ok()
}

/// The first result of `call` behind its message, before the same id is used again.
fn result(call: &CallId, behind: &[std::sync::Arc<Message>]) -> Value {
    let of_call = behind
        .iter()
        .take_while(|message| !message.calls().any(|(id, _, _)| id == call))
        .flat_map(|message| &message.content)
        .find_map(|block| match block {
            Block::ToolResult { tool_call_id, content, .. } if tool_call_id == call => Some(joined_text(content)),
            _ => None,
        });
    json!({"role": "tool", "tool_call_id": call, "content": of_call.unwrap_or_else(|| NO_RESULT.into())})
}
