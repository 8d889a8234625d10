//! Scripts: rules in TOML.

use std::time::Duration;

use impresario_kernel::Failure;
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::view::{Answered, View};

/// The keys of a script, of its rules, and of their calls and failures.
const KEYS: [&str; 18] = [
    "rule",
    "path",
    "turn",
    "step",
    "attempt",
    "contains",
    "reasoning",
    "text",
    "calls",
    "latency_ms",
    "fail",
    "max_tokens",
    "name",
    "arguments",
    "code",
    "message",
    "status",
    "retry_after_ms",
];

/// A text that is no script; says where.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not TOML, or not a rule.
    #[error("script: {}{}", error.to_string().trim_end(), meant(error))]
    Toml {
        /// What is wrong, with the line.
        #[from]
        error: toml::de::Error,
    },
    /// A rule with a placeholder that nothing stands for.
    #[error(
        "script: rule {rule} has the placeholder {{{{{placeholder}}}}}; there are {{{{prompt}}}} and {{{{result 0}}}}"
    )]
    Placeholder {
        /// Which rule, from 1.
        rule: usize,
        /// What is between the braces.
        placeholder: String,
    },
}

/// The key that was probably meant where an unknown one is.
fn meant(error: &toml::de::Error) -> String {
    let unknown = error.message().strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let Some(unknown) = unknown else { return String::new() };
    let nearest = KEYS.iter().map(|key| (distance(unknown, key), key)).min();
    match nearest {
        Some((distance, key)) if distance <= 1 + unknown.len() / 3 => format!("\ndid you mean `{key}`?"),
        Some(_) | None => String::new(),
    }
}

/// How many letters differ, are missing or are too many.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, &others) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != others);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

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
    /// From 0; each retry is one more.
    attempt: Option<u32>,
    /// Something that the prompt contains.
    contains: Option<String>,
    #[serde(default)]
    reasoning: String,
    /// `{{prompt}}` and `{{result 0}}` stand for the prompt and the results so far, here and in arguments.
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<RuleCall>,
    latency_ms: Option<u64>,
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
    let script: Script = toml::from_str(text)?;
    for (at, rule) in script.rule.iter().enumerate() {
        let arguments = rule.calls.iter().map(|call| call.arguments.to_string());
        for text in arguments.chain([rule.text.clone()]) {
            if let Some(placeholder) = Pieces(&text).find_map(|piece| piece.unknown()) {
                return Err(ScriptError::Placeholder { rule: at + 1, placeholder });
            }
        }
    }
    Ok(script)
}

/// A text in pieces: what stands as it is, and placeholders.
struct Pieces<'a>(&'a str);

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.0;
        if let Some((placeholder, behind)) = text.strip_prefix("{{").and_then(|inner| inner.split_once("}}")) {
            self.0 = behind;
            return Some(Piece::Placeholder(placeholder.trim()));
        }
        let next = text.char_indices().skip(1).map(|(at, _)| at).find(|&at| text[at..].starts_with("{{"));
        let (piece, behind) = text.split_at(next.unwrap_or(text.len()));
        self.0 = behind;
        (!piece.is_empty()).then_some(Piece::Text(piece))
    }
}

impl Piece<'_> {
    /// The placeholder, if nothing stands for it. JSON has double braces of its own: only words are placeholders.
    fn unknown(&self) -> Option<String> {
        let Self::Placeholder(placeholder) = self else { return None };
        let is_word = placeholder.chars().all(|char| char.is_alphanumeric() || matches!(char, ' ' | '_' | '-'));
        let is_known = *placeholder == "prompt" || result_number(placeholder).is_some();
        (is_word && !is_known).then(|| (*placeholder).to_owned())
    }
}

fn result_number(placeholder: &str) -> Option<usize> {
    placeholder.strip_prefix("result ")?.trim().parse().ok()
}

/// A text with its placeholders filled in, once: what fills them in is left as it is.
fn filled(text: &str, prompt: &str, answered: &[Answered<'_>]) -> String {
    let fill = |piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Placeholder("prompt") => prompt.to_owned(),
        Piece::Placeholder(other) => match result_number(other) {
            Some(number) => answered.get(number).map_or_else(String::new, |answered| answered.text.clone()),
            None => format!("{{{{{other}}}}}"),
        },
    };
    Pieces(text).map(fill).collect()
}

/// JSON with the placeholders in its texts filled in.
fn filled_in(value: &Value, prompt: &str, answered: &[Answered<'_>]) -> Value {
    match value {
        Value::String(text) => filled(text, prompt, answered).into(),
        Value::Array(items) => items.iter().map(|item| filled_in(item, prompt, answered)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), filled_in(value, prompt, answered))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
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
            && self.attempt.is_none_or(|attempt| attempt == scope.attempt)
            && self.contains.as_ref().is_none_or(|part| prompt.contains(part.as_str()))
    }

    fn answer(&self, view: &View<'_>, at: usize, prompt: &str) -> Answer {
        let answered = view.answered(at);
        let text = filled(&self.text, prompt, &answered);
        let arguments = |call: &RuleCall| match &call.arguments {
            Value::Null => "{}".to_owned(),
            arguments => filled_in(arguments, prompt, &answered).to_string(),
        };
        Answer {
            reasoning: self.reasoning.clone(),
            text,
            calls: self.calls.iter().map(|call| (call.name.clone(), arguments(call))).collect(),
            latency: self.latency_ms.map(Duration::from_millis),
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
        assert!(
            error.contains("line 5") && error.contains("txet") && error.contains("did you mean `text`?"),
            "{error}"
        );
        let error = parse("[[rule]]\nelephant = 1\n").unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn placeholders_are_filled_in_once_and_unknown_ones_are_refused() {
        let answered = [Answered { tool: "ls", arguments: "{}", text: "{{prompt}}".into(), is_error: false }];
        assert_eq!(filled("{{prompt}}: {{result 0}}{{ result 7 }}.", "p", &answered), "p: {{prompt}}.");
        let given = serde_json::json!({"a": ["{{result 0}}", {"b": "{{prompt}}"}], "n": 1});
        let expected = serde_json::json!({"a": ["{{prompt}}", {"b": "p"}], "n": 1});
        assert_eq!(filled_in(&given, "p", &answered), expected);
        let error = parse("[[rule]]\ntext = \"a\"\n[[rule]]\ntext = \"{{promt}}\"\n").unwrap_err().to_string();
        assert!(error.contains("rule 2") && error.contains("{{promt}}"), "{error}");
        let nested = "[[rule]]\ncalls = [{ name = \"f\", arguments = { a = { b = { c = 1 } } } }]\n";
        assert!(parse(nested).is_ok());
    }
}
