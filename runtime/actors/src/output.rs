//! What a turn is to come out with: a value that fits a schema.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// So many violations are told at once.
const VIOLATIONS_MAX: usize = 8;

type Check = dyn Fn(&Value) -> Vec<String> + Send + Sync;

/// What an agent's final output must look like. The model is told, gives it with the tool `final_output`, and is told what
/// is wrong with it until it fits.
#[derive(Clone)]
pub struct OutputSchema {
    schema: Arc<Value>,
    /// What is wrong with a value; nothing if it fits.
    check: Arc<Check>,
}

impl OutputSchema {
    /// That it can be read as a `T`.
    pub fn of<T: DeserializeOwned + JsonSchema>() -> Self {
        let schema = Arc::new(schemars::schema_for!(T).to_value());
        let check = |value: &Value| match serde_path_to_error::deserialize::<_, T>(value) {
            Ok(_) => vec![],
            Err(error) => vec![format!("{}: {}", error.path(), error.inner())],
        };
        Self { schema, check: Arc::new(check) }
    }

    /// That it fits a JSON Schema.
    ///
    /// # Errors
    /// [`Error::Refused`] when it is no schema, or when this was built without the feature `json-schema`.
    #[cfg(feature = "json-schema")]
    pub fn json(schema: Value) -> Result<Self, Error> {
        let validator = jsonschema::validator_for(&schema)
            .map_err(|error| Error::Refused(format!("the output schema is no JSON Schema: {error}")))?;
        let check = move |value: &Value| {
            let told = validator.iter_errors(value).map(|error| match error.instance_path().as_str() {
                "" => error.to_string(),
                place => format!("{place}: {error}"),
            });
            told.take(VIOLATIONS_MAX).collect()
        };
        Ok(Self { schema: Arc::new(schema), check: Arc::new(check) })
    }

    /// That it fits a JSON Schema.
    ///
    /// # Errors
    /// [`Error::Refused`]: this was built without the feature `json-schema`.
    #[cfg(not(feature = "json-schema"))]
    pub fn json(_: Value) -> Result<Self, Error> {
        Err(Error::Refused("output schemas take the feature json-schema of impresario".into()))
    }

    pub(crate) fn schema(&self) -> Arc<Value> {
        Arc::clone(&self.schema)
    }

    /// What is wrong with a value, for the model; `None` if it fits.
    pub(crate) fn violations(&self, value: &Value) -> Option<String> {
        let violations = (self.check)(value);
        let told = violations.iter().take(VIOLATIONS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
        (!violations.is_empty()).then_some(told)
    }

    /// What the model is told.
    pub(crate) fn told(&self) -> String {
        format!(
            "When you are done, call final_output with a `result` that fits this JSON Schema; nothing else that you say is \
             used: {}",
            self.schema
        )
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.schema).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    struct Finding {
        #[serde(rename = "file")]
        _file: String,
        #[serde(rename = "lines")]
        _lines: Vec<u32>,
    }

    #[test]
    fn a_type_says_where_a_value_does_not_fit() {
        let schema = OutputSchema::of::<Finding>();
        assert_eq!(schema.violations(&json!({"file": "a", "lines": [1, 2]})), None);
        let wrong = schema.violations(&json!({"file": "a", "lines": [1, "two"]})).unwrap();
        assert!(wrong.starts_with("lines[1]: invalid type"), "{wrong}");
        assert!(schema.told().contains("\"lines\""));
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn a_schema_says_all_that_does_not_fit() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n", "m"]});
        let schema = OutputSchema::json(schema).unwrap();
        let wrong = schema.violations(&json!({"n": 1})).unwrap();
        assert!(wrong.contains("/n: ") && wrong.contains("\"m\""), "{wrong}");
        assert_eq!(schema.violations(&json!({"n": 3, "m": null})), None);
        assert!(OutputSchema::json(json!({"type": "nothing"})).is_err());
        let elsewhere = OutputSchema::json(json!({"$ref": "http://127.0.0.1:1/schema"}));
        assert!(elsewhere.is_err(), "nothing is fetched");
    }
}
