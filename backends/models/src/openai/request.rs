//! The request that a provider sees: the same bytes each time, so that its cache of prompts works.

use impresario_kernel::event::Tools;
use impresario_seams::ModelRequest;
use serde_json::{Map, Value, json};

use super::history::{self, Thoughts};

pub(super) fn body(request: &ModelRequest, provider: &str) -> Vec<u8> {
    let header = &request.header;
    let mut body = Map::new();
    body.insert("model".into(), header.config.model.as_str().into());
    let system = header.system.as_ref().map(|system| json!({"role": "system", "content": &**system}));
    let messages: Vec<Value> =
        system.into_iter().chain(history::messages(&request.messages, Thoughts::of(provider))).collect();
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
