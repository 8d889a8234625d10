//! The arguments of a call: takes them one by one out of what the model sent, and names the field that does not fit.

use impresario_kernel::ToolSchema;
use impresario_seams::ToolError;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What the model is told of a tool.
pub(crate) fn schema(name: &str, description: &str, parameters: Value) -> Arc<ToolSchema> {
    Arc::new(ToolSchema { name: name.into(), description: description.into(), parameters })
}

/// Arguments not yet taken.
pub(crate) struct Arguments {
    fields: Map<String, Value>,
}

impl Arguments {
    /// Takes an object; nothing at all counts as an empty one.
    pub(crate) fn parse(input: Value) -> Result<Self, ToolError> {
        match input {
            Value::Object(fields) => Ok(Self { fields }),
            Value::Null => Ok(Self { fields: Map::new() }),
            other => Err(ToolError::invalid(format!("the arguments must be an object, not {}", kind(&other)))),
        }
    }

    /// A text that must be there.
    pub(crate) fn string(&mut self, name: &str) -> Result<String, ToolError> {
        self.optional_string(name)?.ok_or_else(|| missing(name))
    }

    /// A text that may be there. `null` is the same as nothing, here and below.
    pub(crate) fn optional_string(&mut self, name: &str) -> Result<Option<String>, ToolError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(unfit(name, "a string", &other)),
        }
    }

    /// A list of texts that may be there.
    pub(crate) fn optional_strings(&mut self, name: &str) -> Result<Option<Vec<String>>, ToolError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let Value::Array(items) = value else { return Err(unfit(name, "a list of strings", &value)) };
        let texts = items.into_iter().enumerate().map(|(at, item)| match item {
            Value::String(text) => Ok(text),
            other => Err(unfit(&format!("{name}[{at}]"), "a string", &other)),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// A list that must be there.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Value>, ToolError> {
        match self.take(name) {
            None => Err(missing(name)),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(unfit(name, "a list", &other)),
        }
    }

    /// A yes or no that may be there.
    pub(crate) fn optional_flag(&mut self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(yes)) => Ok(Some(yes)),
            Some(other) => Err(unfit(name, "true or false", &other)),
        }
    }

    /// A whole number from 1 that may be there. Some models write `2000.0`.
    pub(crate) fn optional_count(&mut self, name: &str) -> Result<Option<u64>, ToolError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let whole = value.as_f64().filter(|float| float.fract() == 0.0 && (1.0..1e15).contains(float));
        match value.as_u64().or(whole.map(|float| float as u64)) {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => Err(ToolError::invalid(format!("`{name}` must be a whole number from 1, not {}", short(&value)))),
        }
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), ToolError> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(name) => Err(ToolError::invalid(format!("`{name}` is not an argument of this tool; leave it out"))),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }
}

/// The error for a field that must be there.
pub(crate) fn missing(name: &str) -> ToolError {
    ToolError::invalid(format!("`{name}` is missing"))
}

fn unfit(name: &str, wanted: &str, got: &Value) -> ToolError {
    ToolError::invalid(format!("`{name}` must be {wanted}, not {}", kind(got)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => kind(other).into(),
    }
}
