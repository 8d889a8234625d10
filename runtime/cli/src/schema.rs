//! The JSON Schema of `run --json`.

use serde_json::{Map, Value, json};

use crate::display::json::VERSION;

/// Each type of line with what it adds to the envelope: name and JSON Schema type.
const TYPES: [(&str, &[(&str, &str)]); 14] = [
    (
        "run.started",
        &[("model", "string"), ("home", "string"), ("version", "string"), ("access", "access"), ("limits", "object")],
    ),
    ("agent.queued", &[("limit", "integer"), ("position", "integer")]),
    ("agent.started", &[("label", "string"), ("context", "context"), ("model", "string")]),
    ("turn.started", &[("turn", "integer")]),
    ("text.delta", &[("text", "string")]),
    ("message", &[("role", "string"), ("text", "string")]),
    ("tool.started", &[("call", "string"), ("tool", "string"), ("input", "any")]),
    (
        "tool.ended",
        &[
            ("call", "string"),
            ("tool", "string"),
            ("status", "status"),
            ("text", "string"),
            ("truncated", "boolean"),
            ("artifact", "string?"),
        ],
    ),
    ("retry", &[("code", "string"), ("wait_ms", "integer"), ("attempt", "integer")]),
    ("limit.reached", &[("limit", "string"), ("used", "integer"), ("max", "integer")]),
    ("stalled", &[("error", "string")]),
    ("missed", &[("events", "integer")]),
    ("agent.ended", ENDED),
    ("run.ended", &[]),
];

const ENDED: &[(&str, &str)] = &[
    ("outcome", "outcome"),
    ("text", "string"),
    ("output", "any"),
    ("error", "error"),
    ("usage", "usage"),
    ("duration_ms", "integer"),
    ("turns", "integer"),
    ("session", "string?"),
];

const RUN_ENDED: &[(&str, &str)] = &[("exit_code", "integer"), ("children", "counts"), ("total_usage", "usage")];

/// The schema of one line.
pub(crate) fn events() -> Value {
    let lines: Vec<Value> = TYPES.iter().map(|(kind, fields)| line(kind, fields)).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of `impresario run --json`",
        "description": "The last line is always `run.ended`. Readers ignore types and fields that they do not know.",
        "type": "object",
        "required": ["v", "type", "n", "time", "root", "agent", "path", "parent"],
        "properties": {
            "v": { "const": VERSION },
            "type": { "type": "string" },
            "n": { "type": "integer", "minimum": 0, "description": "contiguous in the stream, from 0" },
            "time": { "type": "string", "format": "date-time" },
            "root": { "type": ["string", "null"] },
            "agent": { "type": ["string", "null"] },
            "path": { "type": "string" },
            "parent": { "type": ["string", "null"] },
        },
        "oneOf": lines,
    })
}

fn line(kind: &str, fields: &[(&str, &str)]) -> Value {
    let fields: Vec<_> = match kind {
        "run.ended" => ENDED.iter().chain(RUN_ENDED).collect(),
        _ => fields.iter().collect(),
    };
    let mut properties: Map<String, Value> =
        fields.iter().map(|(name, field)| ((*name).to_owned(), schema(field))).collect();
    properties.insert("type".into(), json!({ "const": kind }));
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    json!({ "properties": properties, "required": required })
}

fn schema(field: &str) -> Value {
    match field {
        "any" => json!({}),
        "string?" => json!({ "type": ["string", "null"] }),
        "access" => json!({ "enum": ["read", "write", "full"] }),
        "context" => json!({ "enum": ["fresh", "fork"] }),
        "status" => json!({ "enum": ["ok", "error"] }),
        "outcome" => json!({ "enum": ["completed", "partial", "failed", "cancelled", "crashed", "refused"] }),
        "counts" => json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
        "error" => json!({
            "type": ["object", "null"],
            "required": ["code", "message", "retryable", "cause"],
            "properties": { "code": { "type": "string" }, "message": { "type": "string" }, "retryable": { "type": "boolean" } },
        }),
        "usage" => {
            let names = [
                "input_tokens",
                "cached_input_tokens",
                "output_tokens",
                "reasoning_tokens",
                "model_calls",
                "tool_calls",
            ];
            let mut properties: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({ "type": ["integer", "null"] }))).collect();
            properties.insert("cost_usd".into(), json!({ "type": ["number", "null"] }));
            json!({ "type": "object", "properties": properties })
        }
        plain => json!({ "type": plain }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::json::tests::samples;

    #[test]
    fn every_line_that_is_written_is_described() {
        let schema = events();
        let lines = schema["oneOf"].as_array().expect("lines");
        for (kind, fields) in samples() {
            let line = lines.iter().find(|line| line["properties"]["type"]["const"] == kind);
            let line = line.unwrap_or_else(|| panic!("{kind} is not described"));
            let required = line["required"].as_array().expect("names");
            let mut named: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
            named.sort_unstable();
            let mut written: Vec<&str> = fields.as_object().expect("fields").keys().map(String::as_str).collect();
            written.sort_unstable();
            assert_eq!(written, named, "{kind}");
        }
    }
}
