//! Scripts: rules in TOML.

use std::time::Duration;

use impresario_kernel::Failure;
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::view::View;

/// A text that is no script; says where.
#[derive(Debug, thiserror::Error)]
#[error("script: {0}")]
pub struct ScriptError(#[from] toml::de::Error);

/// Rules; the first that matches answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default)]
    rule: Vec<Rule>,
}

/// One rule: conditions, all of which must hold, and an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// The agent's path; `*` stands for anything.
    path: Option<String>,
    turn: Option<u32>,
    step: Option<u32>,
    /// Something that the prompt contains.
    contains: Option<String>,
    #[serde(default)]
    reasoning: String,
    /// `{{prompt}}` and `{{result 0}}` stand for the prompt and the results so far.
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<RuleCall>,
    #[serde(default)]
    latency_ms: u64,
    fail: Option<RuleFailure>,
    #[serde(default)]
    max_tokens: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFailure {
    code: String,
    #[serde(default)]
    message: String,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    Ok(toml::from_str(text)?)
}

impl Script {
    pub(super) fn answer(&self, view: &View<'_>) -> Option<Answer> {
        let (at, prompt) = view.prompt().unwrap_or_default();
        let rule = self.rule.iter().find(|rule| rule.matches(view, &prompt))?;
        Some(rule.answer(view, at, &prompt))
    }
}

impl Rule {
    fn matches(&self, view: &View<'_>, prompt: &str) -> bool {
        let scope = view.scope();
        self.path.as_ref().is_none_or(|pattern| fits(pattern, scope.path.as_str()))
            && self.turn.is_none_or(|turn| turn == scope.turn)
            && self.step.is_none_or(|step| step == scope.step)
            && self.contains.as_ref().is_none_or(|part| prompt.contains(part.as_str()))
    }

    fn answer(&self, view: &View<'_>, at: usize, prompt: &str) -> Answer {
        let mut text = self.text.replace("{{prompt}}", prompt);
        for (n, answered) in view.answered(at).iter().enumerate() {
            text = text.replace(&format!("{{{{result {n}}}}}"), &answered.text);
        }
        let arguments = |call: &RuleCall| match &call.arguments {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        };
        Answer {
            reasoning: self.reasoning.clone(),
            text,
            calls: self.calls.iter().map(|call| (call.name.clone(), arguments(call))).collect(),
            latency: Duration::from_millis(self.latency_ms),
            failure: self.fail.as_ref().map(RuleFailure::failure),
            is_cut: self.max_tokens,
        }
    }
}

impl RuleFailure {
    fn failure(&self) -> Failure {
        let message = if self.message.is_empty() { "the script says so" } else { &self.message };
        Failure {
            status: self.status,
            provider_retry_after_ms: self.retry_after_ms,
            ..Failure::new(&self.code, message)
        }
    }
}

/// Whether `text` is `pattern`, in which each `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(fits("root/*", "root/a") && fits("*", "") && fits("root*/b*", "root/a/b-2"));
        assert!(!fits("root", "root/a") && !fits("root/*/x", "root/a/b"));
    }

    #[test]
    fn a_key_that_does_not_exist_is_named_with_its_line() {
        let error = parse("[[rule]]\ntext = \"a\"\n\n[[rule]]\ntxet = \"b\"\n").unwrap_err().to_string();
        assert!(error.contains("line 5") && error.contains("txet"), "{error}");
    }
}
