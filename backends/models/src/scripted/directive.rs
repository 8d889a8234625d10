//! Directives: prompts that say what the answer is to be. They need no script file.

use std::time::Duration;

use impresario_kernel::Failure;
use serde_json::{Value, json};

use super::Answer;
use super::view::{Answered, View};

/// What there is.
pub(super) const HELP: &str = "\
[[FANOUT n=32 tool=subagent]]      n parallel calls of the tool, each with the prompt [[LEAF i]]; when all results are
                                   in: `fanout done results=N`. With latency=MS (passed on), context=fork,
                                   background=true, fail=K (leaf K fails), leaf=\"words for each leaf\"
[[LEAF i]]                         a short text; with `error` it fails, with tool=NAME args={JSON} it calls that first
[[CHAIN d=4]]                      delegates [[CHAIN d=3]] and so on; d=0 answers
[[SAY text]]                       that text
[[TOOL name {JSON}]]               calls the tool, then answers with its result
latency=MS in any of them          the answer takes that long";

/// The answer to a request whose last directive says what it is to be.
pub(super) fn answer(view: &View<'_>) -> Answer {
    let Some((at, text)) = view.last_with("[[") else {
        let said: String = view.prompt().map(|(_, text)| text.chars().take(200).collect()).unwrap_or_default();
        return Answer::text(format!("You said: {said}"));
    };
    let Some(directive) = Directive::find(&text) else { return Answer::text("I see a directive that does not end.") };
    let answered = view.answered(at);
    let answer = match directive.name {
        "FANOUT" => fanout(&directive, view, at, &answered),
        "LEAF" => leaf(&directive, &answered),
        "CHAIN" => chain(&directive, &answered),
        "SAY" => Answer::text(directive.rest.trim()),
        "TOOL" => tool(&directive, &answered),
        other => Answer::text(format!("I do not know the directive {other}. There are:\n{HELP}")),
    };
    let latency = directive.number("latency").map_or(Duration::ZERO, Duration::from_millis);
    Answer { latency, ..answer }
}

struct Directive<'a> {
    name: &'a str,
    rest: &'a str,
}

impl<'a> Directive<'a> {
    /// The last directive of a text. Arguments may contain brackets, so it ends at the last `]]`.
    fn find(text: &'a str) -> Option<Self> {
        let inner = &text[text.find("[[")? + 2..];
        let inner = &inner[..inner.rfind("]]")?];
        let (name, rest) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
        Some(Self { name, rest })
    }

    /// The value of `key=value`: a word, a quoted text, or JSON up to its closing brace.
    fn value(&self, key: &str) -> Option<&'a str> {
        let at = self.rest.match_indices(key).map(|(at, _)| at).find(|&at| {
            let before = self.rest[..at].chars().next_back().is_none_or(char::is_whitespace);
            before && self.rest[at + key.len()..].starts_with('=')
        })?;
        let value = &self.rest[at + key.len() + 1..];
        if let Some(quoted) = value.strip_prefix('"') {
            return quoted.split('"').next();
        }
        if value.starts_with('{') {
            return Some(&value[..=value.rfind('}')?]);
        }
        value.split_whitespace().next()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }

    fn has(&self, word: &str) -> bool {
        self.rest.split_whitespace().any(|other| other == word)
    }
}

fn call(tool: &str, arguments: &Value) -> (String, String) {
    (tool.to_owned(), arguments.to_string())
}

fn fanout(directive: &Directive<'_>, view: &View<'_>, at: usize, answered: &[Answered<'_>]) -> Answer {
    let tool = directive.value("tool").unwrap_or("subagent");
    let background = directive.value("background") == Some("true");
    if !answered.iter().any(|answered| answered.tool == tool) {
        let n = directive.number("n").unwrap_or(4);
        let calls = (1..=n).map(|i| call(tool, &leaf_arguments(directive, i, background))).collect();
        return Answer::calls(format!("I ask {n} at once."), calls);
    }
    if background {
        return gather(view, at, answered);
    }
    let results = answered.iter().filter(|answered| answered.tool == tool);
    let failed = results.clone().filter(|answered| answered.is_error).count();
    let done = results.count() - failed;
    Answer::text(if failed == 0 {
        format!("fanout done results={done}")
    } else {
        format!("fanout done results={done} failed={failed}")
    })
}

fn leaf_arguments(directive: &Directive<'_>, i: u64, background: bool) -> Value {
    let latency = directive.number("latency").map_or(String::new(), |latency| format!(" latency={latency}"));
    let error = if directive.number("fail") == Some(i) { " error" } else { "" };
    let panic = if directive.number("panic") == Some(i) { " tool=panic_now" } else { "" };
    let words = directive.value("leaf").map_or(String::new(), |words| format!(" {words}"));
    let mut arguments = json!({
        "description": format!("leaf {i}"),
        "label": format!("leaf-{i}"),
        "prompt": format!("[[LEAF {i}{words}{latency}{error}{panic}]]"),
    });
    if directive.value("context") == Some("fork") {
        arguments["context"] = "fork".into();
    }
    if background {
        arguments["background"] = true.into();
    }
    arguments
}

/// Waits for agents in the background until none is pending.
fn gather(view: &View<'_>, at: usize, answered: &[Answered<'_>]) -> Answer {
    let waits: Vec<Value> = answered
        .iter()
        .filter(|answered| answered.tool == "wait_agents")
        .filter_map(|answered| serde_json::from_str(&answered.text).ok())
        .collect();
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let is_done = waits.last().is_some_and(|last| list(last, "pending").is_empty());
    if !is_done {
        return Answer::calls("", vec![call("wait_agents", &json!({}))]);
    }
    let noticed = view.notices(at).iter().filter(|text| text.contains(" completed ")).count();
    let entries: Vec<Value> = waits.iter().flat_map(|wait| list(wait, "done")).collect();
    let done = entries.iter().filter(|entry| entry["outcome"] == "completed" && entry["note"].is_null()).count();
    Answer::text(format!("fanout done results={}", done + noticed))
}

fn leaf(directive: &Directive<'_>, answered: &[Answered<'_>]) -> Answer {
    let number = directive.rest.split_whitespace().next().unwrap_or("?");
    if directive.has("error") {
        return Answer::failure(Failure::new("BAD_REQUEST", format!("leaf {number} was told to fail")));
    }
    match (directive.value("tool"), answered.last()) {
        (Some(tool), None) => {
            let arguments = directive.value("args").unwrap_or("{}");
            Answer::calls("", vec![(tool.to_owned(), arguments.to_owned())])
        }
        (Some(_), Some(last)) => {
            Answer::text(format!("leaf {number}: {}", last.text.lines().next().unwrap_or_default()))
        }
        (None, _) => Answer::text(format!("leaf {number} done")),
    }
}

fn chain(directive: &Directive<'_>, answered: &[Answered<'_>]) -> Answer {
    let depth = directive.number("d").unwrap_or(0);
    if depth == 0 {
        return Answer::text("chain end");
    }
    if let Some(last) = answered.last() {
        return Answer::text(format!("chain {depth} -> {}", last.text.lines().last().unwrap_or_default()));
    }
    let latency = directive.number("latency").map_or(String::new(), |latency| format!(" latency={latency}"));
    let arguments = json!({
        "description": format!("chain {}", depth - 1),
        "label": "link",
        "prompt": format!("[[CHAIN d={}{latency}]]", depth - 1),
        "may_spawn": depth - 1,
    });
    Answer::calls("", vec![call("subagent", &arguments)])
}

fn tool(directive: &Directive<'_>, answered: &[Answered<'_>]) -> Answer {
    if let Some(last) = answered.last() {
        return Answer::text(last.text.clone());
    }
    let (name, rest) = directive.rest.trim().split_once(char::is_whitespace).unwrap_or((directive.rest.trim(), "{}"));
    let arguments = rest.find('{').and_then(|from| Some(&rest[from..=rest.rfind('}')?])).unwrap_or("{}");
    Answer::calls("", vec![(name.to_owned(), arguments.to_owned())])
}
