//! Scripts: rules in TOML.

mod fault;
mod placeholder;

use std::time::Duration;

use impresario_kernel::Usage;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::latency::Latency;
use super::view::View;
use super::{Answer, Pace};
use fault::Faults;
use placeholder::{filled, filled_in};

/// The keys of a script, of its rules, and of their calls, usage and failures.
const KEYS: [&str; 33] = [
    "seed",
    "defaults",
    "rule",
    "path",
    "turn",
    "step",
    "attempt",
    "contains",
    "system_contains",
    "request_contains",
    "last_result_contains",
    "has_tool",
    "reasoning",
    "text",
    "calls",
    "usage",
    "latency",
    "latency_ms",
    "fail",
    "max_tokens",
    "name",
    "arguments",
    "input",
    "cached",
    "output",
    "kind",
    "code",
    "message",
    "status",
    "retry_after_ms",
    "after",
    "times",
    "probability",
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
    /// A text with a placeholder that nothing stands for.
    #[error(
        "script: line {line}: `{key}` has the placeholder {{{{{placeholder}}}}}; there are {{{{prompt}}}} and \
         {{{{result 0}}}}"
    )]
    Placeholder {
        /// Where the value begins.
        line: usize,
        /// Whose value.
        key: &'static str,
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
    /// What is drawn for latencies and failures follows from it and from who asks.
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    rule: Vec<Rule>,
}

/// What a rule has that does not say otherwise; directives have it, too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    latency: Option<Latency>,
    latency_ms: Option<u64>,
    usage: Option<RuleUsage>,
    #[serde(default)]
    fail: Faults,
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
    system_contains: Option<String>,
    /// Something that any text of the request contains.
    request_contains: Option<String>,
    last_result_contains: Option<String>,
    /// A tool that is on offer.
    has_tool: Option<String>,
    #[serde(default)]
    reasoning: String,
    /// `{{prompt}}` and `{{result 0}}` stand for the prompt and the results so far, here and in arguments.
    text: Option<Spanned<String>>,
    #[serde(default)]
    calls: Vec<RuleCall>,
    usage: Option<RuleUsage>,
    latency: Option<Latency>,
    latency_ms: Option<u64>,
    fail: Option<Faults>,
    #[serde(default)]
    max_tokens: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleCall {
    name: String,
    arguments: Option<Spanned<Value>>,
}

/// Tokens, as a provider counts them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleUsage {
    /// Input that was not cached.
    #[serde(default)]
    input: u64,
    cached: Option<u64>,
    /// All output, reasoning included.
    #[serde(default)]
    output: u64,
    reasoning: Option<u64>,
}

impl From<RuleUsage> for Usage {
    fn from(usage: RuleUsage) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cached,
            reasoning_tokens: usage.reasoning,
            ..Self::default()
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    let script: Script = toml::from_str(text)?;
    for rule in &script.rule {
        let in_text = rule.text.iter().map(|text| ("text", text.span(), text.get_ref().clone()));
        let arguments = rule.calls.iter().filter_map(|call| call.arguments.as_ref());
        let in_arguments = arguments.map(|arguments| ("arguments", arguments.span(), arguments.get_ref().to_string()));
        for (key, span, value) in in_text.chain(in_arguments) {
            if let Some(placeholder) = placeholder::unknown(&value) {
                let line = text.get(..span.start).unwrap_or_default().matches('\n').count() + 1;
                return Err(ScriptError::Placeholder { line, key, placeholder });
            }
        }
    }
    Ok(script)
}

impl Script {
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The answer of the first rule that matches, else of `otherwise`.
    pub(super) fn answer(&self, view: &View<'_>, otherwise: impl Fn(&View<'_>) -> Answer) -> Answer {
        let (at, prompt) = view.prompt().unwrap_or_default();
        let rule = self.rule.iter().find(|rule| rule.matches(view, &prompt));
        let answer = rule.map_or_else(|| otherwise(view), |rule| rule.answer(view, at, &prompt));
        let faults = rule.and_then(|rule| rule.fail.as_ref()).unwrap_or(&self.defaults.fail);
        let usage = answer.usage.or(self.defaults.usage.map(Into::into));
        let answer = self.paced(Answer { usage, ..answer }, rule, view);
        faults.inject(answer, self.seed, view.scope())
    }

    /// The answer with its latency: of the rule or the directive, else the usual one.
    fn paced(&self, answer: Answer, rule: Option<&Rule>, view: &View<'_>) -> Answer {
        let of_rule = rule.and_then(|rule| latency(rule.latency, rule.latency_ms));
        let usual = latency(self.defaults.latency, self.defaults.latency_ms).filter(|_| answer.latency.is_none());
        match of_rule.or(usual).map(|latency| latency.draw(self.seed, view.scope())) {
            Some(Pace { first, token }) => Answer { latency: Some(first), per_token: Some(token), ..answer },
            None => answer,
        }
    }
}

fn latency(latency: Option<Latency>, ms: Option<u64>) -> Option<Latency> {
    latency.or_else(|| ms.map(|ms| Latency::fixed(Duration::from_millis(ms))))
}

impl Rule {
    fn matches(&self, view: &View<'_>, prompt: &str) -> bool {
        let scope = view.scope();
        let system = || view.header().system.as_deref().unwrap_or_default();
        let holds = |part: &Option<String>, is: &dyn Fn(&str) -> bool| part.as_deref().is_none_or(is);
        self.turn.is_none_or(|turn| turn == scope.turn)
            && self.step.is_none_or(|step| step == scope.step)
            && self.attempt.is_none_or(|attempt| attempt == scope.attempt)
            && holds(&self.path, &|pattern| fits(pattern, scope.path.as_str()))
            && holds(&self.contains, &|part| prompt.contains(part))
            && holds(&self.system_contains, &|part| system().contains(part))
            && holds(&self.last_result_contains, &|part| view.last_result().is_some_and(|text| text.contains(part)))
            && holds(&self.has_tool, &|tool| view.lists(tool))
            && holds(&self.request_contains, &|part| view.contains(part))
    }

    fn answer(&self, view: &View<'_>, at: usize, prompt: &str) -> Answer {
        let answered = view.answered(at);
        let text = self.text.as_ref().map_or_else(String::new, |text| filled(text.get_ref(), prompt, &answered));
        let arguments = |call: &RuleCall| match call.arguments.as_ref().map(Spanned::get_ref) {
            None => "{}".to_owned(),
            Some(arguments) => filled_in(arguments, prompt, &answered).to_string(),
        };
        Answer {
            reasoning: self.reasoning.clone(),
            text,
            calls: self.calls.iter().map(|call| (call.name.clone(), arguments(call))).collect(),
            usage: self.usage.map(Into::into),
            is_cut: self.max_tokens,
            ..Answer::default()
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
    fn the_script_that_shows_the_form_is_one() {
        assert_eq!(parse(super::super::ScriptedModel::SCRIPTS).unwrap().seed(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_key() {
        for (script, line, wrong) in [
            ("[[rule]]\ntext = \"a\"\n[[rule]]\ntext = \"{{promt}}\"\n", 4, "`text` has the placeholder {{promt}}"),
            ("[[rule]]\ncalls = [{ name = \"f\", arguments = { a = \"{{resutl 0}}\" } }]\n", 2, "`arguments` has the"),
            ("seed = 1\n[defaults]\nlatency = \"soon\"\n", 3, "latency `soon`: `soon` is no time"),
            ("[[rule]]\n\nlatency = 7\n", 3, "expected a string"),
            ("[defaults]\nfail = { kind = \"earthquake\" }\n", 2, "unknown variant `earthquake`"),
            ("[[rule]]\nfail = { after = 1 }\n", 2, "write a `kind` (rate_limit"),
            ("[[rule]]\nfail = { kind = \"reset\", code = \"X\" }\n", 2, "`kind` and `code` exclude"),
            ("[[rule]]\nfail = { kind = \"stall\", status = 500 }\n", 2, "`status` and `retry_after_ms` go with"),
            ("[[rule]]\nfail = { kind = \"server\", status = 404 }\n", 2, "`status` of a server is from 500"),
            (
                "[[rule]]\nfail = [{ kind = \"reset\" }, { kind = \"reset\", probability = 2.0 }]\n",
                2,
                "`probability` is",
            ),
            ("[[rule]]\nfail = { kind = \"reset\", propability = 1.0 }\n", 2, "did you mean `probability`?"),
            ("[[rule]]\nusage = { inputs = 1 }\n", 2, "did you mean `input`?"),
            ("[default]\nlatency = \"1s\"\n", 1, "did you mean `defaults`?"),
            ("[[rule]]\nfail = 1\n", 2, "expected a table with a `kind` or a `code`"),
        ] {
            let error = parse(script).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}")) && error.contains(wrong), "{script}: {error}");
        }
        let nested = "[[rule]]\ncalls = [{ name = \"f\", arguments = { a = { b = { c = 1 } } } }]\n";
        assert!(parse(nested).is_ok());
    }
}
