//! Directives: prompts that say what the answer is to be. They need no script file.

use std::time::Duration;

use impresario_kernel::Failure;
use serde_json::{Value, json};

use super::Answer;
use super::view::{Answered, View};

/// The most calls that a directive asks for, and the longest chain.
const CALLS_MAX: u64 = 100_000;

/// What there is.
pub(super) const HELP: &str = "\
[[FANOUT n=32 tool=subagent]]   n parallel calls of the tool, each with the prompt [[LEAF i]]; when
                                all results are in: `fanout done results=N`. With latency=MS
                                (passed on), context=fork, background=true, fail=K (leaf K fails),
                                leaf=\"words for each leaf\"
[[LEAF i]]                      a short text; with `error` it fails, with tool=NAME args={JSON} it
                                calls that first
[[CHAIN d=4]]                   delegates [[CHAIN d=3]] and so on; d=0 answers
[[SAY text]]                    that text
[[TOOL name {JSON}]]            calls the tool, then answers with its result
latency=MS in any of them       the answer takes that long";

/// The answer to a request whose last directive says what it is to be.
pub(super) fn answer(view: &View<'_>) -> Answer {
    let Some((at, text)) = view.last_said(|text| Directive::find(text).is_some()) else {
        let said: String = view.prompt().map(|(_, text)| text.chars().take(200).collect()).unwrap_or_default();
        return Answer::text(format!("You said: {said}"));
    };
    let Some(directive) = Directive::find(&text) else { return Answer::default() };
    if let Some(bad) = directive.bad_number() {
        return Answer::failure(Failure::new("BAD_REQUEST", bad));
    }
    let answered = view.answered(at);
    let answer = match directive.name {
        "FANOUT" => fanout(&directive, view, at, &answered),
        "LEAF" => leaf(&directive, &answered),
        "CHAIN" => chain(&directive, &answered),
        "SAY" => say(&directive),
        "TOOL" => tool(&directive, &answered),
        other => Answer::text(format!("I do not know the directive {other}. There are:\n{HELP}")),
    };
    Answer { latency: directive.number("latency").map(Duration::from_millis), ..answer }
}

struct Directive<'a> {
    name: &'a str,
    rest: &'a str,
    options: Vec<(&'a str, &'a str)>,
    words: Vec<&'a str>,
}

impl<'a> Directive<'a> {
    /// The first directive of a text: `[[NAME …]]` in capitals. Brackets in its arguments do not end it.
    fn find(text: &'a str) -> Option<Self> {
        let starts = text.match_indices("[[").map(|(at, mark)| at + mark.len());
        starts.filter_map(|start| Self::parse(&text[start..])).next()
    }

    fn parse(text: &'a str) -> Option<Self> {
        let name = &text[..text.find(|char: char| !char.is_ascii_uppercase())?];
        let inner = &text[name.len()..];
        if name.is_empty() || !(inner.starts_with(char::is_whitespace) || inner.starts_with("]]")) {
            return None;
        }
        let (mut options, mut words) = (vec![], vec![]);
        let mut behind = inner.trim_start();
        while !behind.is_empty() && !behind.starts_with("]]") {
            let (word, more) = match behind.starts_with('{') {
                true => behind.split_at(document_length(behind)),
                false => behind.split_at(word_length(behind, &['='])),
            };
            behind = match more.strip_prefix('=') {
                None => {
                    words.push(word);
                    more.trim_start()
                }
                Some(more) => {
                    let (value, more) = value(more);
                    options.push((word, value));
                    more.trim_start()
                }
            };
        }
        if behind.is_empty() {
            // A text may have quotes and braces that do not close.
            let rest = inner[..inner.find("]]")?].trim();
            return Some(Self { name, rest, options: vec![], words: vec![] });
        }
        Some(Self { name, rest: inner[..inner.len() - behind.len()].trim(), options, words })
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.options.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }

    /// What is wrong with its numbers, if something is.
    fn bad_number(&self) -> Option<String> {
        let bound = |key: &str| match key {
            "n" | "d" => Some(CALLS_MAX),
            "latency" | "fail" | "panic" => Some(u64::from(u32::MAX)),
            _ => None,
        };
        let of_numbers = self.options.iter().filter_map(|(key, value)| Some((key, value, bound(key)?)));
        let bad = of_numbers.map(|(key, value, max)| (key, value, max, value.parse::<u64>()));
        bad.filter(|(.., max, number)| !number.as_ref().is_ok_and(|number| number <= max))
            .map(|(key, value, max, _)| {
                format!("[[{} {key}={value}]]: {key} is a whole number from 0 to {max}", self.name)
            })
            .next()
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
}

/// A word, a quoted text or JSON, and what is behind it. A quote ends where a space or the end of the directive follows
/// it, so that a quoted text may contain JSON.
fn value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        let Some(inner) = text.strip_prefix(quote) else { continue };
        let is_end = |at: &usize| {
            let behind = &inner[at + 1..];
            behind.is_empty() || behind.starts_with(char::is_whitespace) || behind.starts_with("]]")
        };
        return match inner.match_indices(quote).map(|(at, _)| at).find(is_end) {
            Some(end) => (&inner[..end], &inner[end + 1..]),
            None => (inner, ""),
        };
    }
    text.split_at(if text.starts_with('{') { document_length(text) } else { word_length(text, &[]) })
}

/// How long the word at the beginning of a text is.
fn word_length(text: &str, marks: &[char]) -> usize {
    let end = text.find(|char: char| char.is_whitespace() || marks.contains(&char)).unwrap_or(text.len());
    text.find("]]").map_or(end, |close| close.min(end))
}

/// How long the JSON at the beginning of a text is; of broken JSON, up to its last brace.
fn document_length(text: &str) -> usize {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    match documents.next() {
        Some(Ok(_)) => documents.byte_offset(),
        Some(Err(_)) | None => text.rfind('}').map_or(text.len(), |end| end + 1),
    }
}

fn call(tool: &str, arguments: &Value) -> (String, String) {
    (tool.to_owned(), arguments.to_string())
}

fn fanout(directive: &Directive<'_>, view: &View<'_>, at: usize, answered: &[Answered<'_>]) -> Answer {
    let tool = directive.value("tool").unwrap_or("subagent");
    let background = directive.value("background") == Some("true");
    let n = directive.number("n").unwrap_or(4);
    if n > 0 && !answered.iter().any(|answered| answered.tool == tool) {
        let calls = (1..=n).map(|i| call(tool, &leaf_arguments(directive, i, background))).collect();
        return Answer::calls(format!("I ask {n} at once."), calls);
    }
    if background {
        return gather(view, at, answered);
    }
    let results = answered.iter().filter(|answered| answered.tool == tool);
    let failed = results.clone().filter(|answered| answered.is_error).count();
    let done = results.count() - failed;
    summed(done, failed)
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
    let mut waits: Vec<Value> = vec![];
    for wait in answered.iter().filter(|answered| answered.tool == "wait_agents") {
        match serde_json::from_str(&wait.text) {
            Ok(said) if !wait.is_error => waits.push(said),
            // Asking again would be refused again.
            Ok(_) | Err(_) => return Answer::text(format!("fanout cannot wait: {}", wait.text)),
        }
    }
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let is_done = waits.last().is_some_and(|last| list(last, "pending").is_empty());
    if !is_done {
        return Answer::calls("", vec![call("wait_agents", &json!({}))]);
    }
    // What came as a notice is listed once more, with a note in the place of its text.
    let entries = waits.iter().flat_map(|wait| list(wait, "done")).filter(|entry| entry["note"].is_null());
    let told = entries.map(|entry| entry["outcome"] == "completed");
    let notices = view.notices(at);
    let noticed = notices.iter().map(|text| text.lines().next().unwrap_or_default().contains(" completed "));
    let refused = answered.iter().filter(|answered| answered.tool != "wait_agents" && answered.is_error);
    let all: Vec<bool> = told.chain(noticed).chain(refused.map(|_| false)).collect();
    let done = all.iter().filter(|&&is_completed| is_completed).count();
    summed(done, all.len() - done)
}

fn summed(done: usize, failed: usize) -> Answer {
    Answer::text(match failed {
        0 => format!("fanout done results={done}"),
        _ => format!("fanout done results={done} failed={failed}"),
    })
}

fn leaf(directive: &Directive<'_>, answered: &[Answered<'_>]) -> Answer {
    let number = directive.words.first().copied().unwrap_or("?");
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
    let passed_on: String = ["latency", "context"]
        .iter()
        .filter_map(|key| directive.value(key).map(|value| format!(" {key}={value}")))
        .collect();
    let mut arguments = json!({
        "description": format!("chain {}", depth - 1),
        "label": "link",
        "prompt": format!("[[CHAIN d={}{passed_on}]]", depth - 1),
        "may_spawn": depth - 1,
    });
    if directive.value("context") == Some("fork") {
        arguments["context"] = "fork".into();
    }
    Answer::calls("", vec![call("subagent", &arguments)])
}

fn say(directive: &Directive<'_>) -> Answer {
    let text = directive.rest;
    let is_timed = text.starts_with("latency=");
    Answer::text(if is_timed { text.split_once(char::is_whitespace).map_or("", |(_, text)| text) } else { text })
}

fn tool(directive: &Directive<'_>, answered: &[Answered<'_>]) -> Answer {
    if let Some(last) = answered.last() {
        return Answer::text(last.text.clone());
    }
    let Some(name) = directive.words.first() else { return Answer::text("I do not know which tool to call.") };
    let arguments = directive.words.get(1).copied().unwrap_or("{}");
    Answer::calls("", vec![((*name).to_owned(), arguments.to_owned())])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use impresario_kernel::{AgentPath, Block, Message, RequestHeader, Role, Source};
    use impresario_seams::{ModelRequest, ModelScope};

    use super::*;

    fn request(messages: Vec<Message>) -> ModelRequest {
        let header = Arc::new(RequestHeader::new("scripted", "any"));
        let scope = ModelScope { agent: "a".into(), path: AgentPath::root(), turn: 1, step: 1, attempt: 0 };
        ModelRequest { header, messages: messages.into_iter().map(Arc::new).collect(), scope }
    }

    /// A message that asks for calls, and the message with each result.
    fn step(calls: &[(&str, &str, bool)], at: usize) -> Vec<Message> {
        let id = |n: usize| format!("c{at}-{n}").into();
        let content = calls.iter().enumerate().map(|(n, (tool, ..))| Block::ToolCall {
            id: id(n),
            name: (*tool).into(),
            arguments: "{}".into(),
        });
        let asks = Message {
            id: format!("m{at}").into(),
            role: Role::Assistant,
            content: content.collect(),
            source: Source::of("model"),
        };
        let results = calls.iter().enumerate().map(|(n, (_, text, is_error))| {
            Message::tool_result(format!("r{at}-{n}"), &id(n), vec![Block::text(*text)], *is_error)
        });
        [asks].into_iter().chain(results).collect()
    }

    fn answer_to(prompt: &str, steps: &[&[(&str, &str, bool)]]) -> Answer {
        let steps = steps.iter().enumerate().flat_map(|(at, calls)| step(calls, at));
        let request = request([Message::user("p", prompt)].into_iter().chain(steps).collect());
        answer(&View::new(&request))
    }

    #[test]
    fn a_fan_out_in_the_background_waits_until_nothing_is_pending_and_counts_what_failed() {
        let prompt = "[[FANOUT n=3 background=true]]";
        let first = answer_to(prompt, &[]);
        assert!(first.calls.len() == 3 && first.calls[0].1.contains("\"background\":true"), "{first:?}");
        let spawned: &[_] = &[("subagent", "[a started]", false); 3];
        let waits = vec![("wait_agents".to_owned(), "{}".to_owned())];
        assert_eq!(answer_to(prompt, &[spawned]).calls, waits);
        let some = r#"{"done": [{"agent": "1", "outcome": "completed"}], "pending": [{"agent": "2"}]}"#;
        assert_eq!(answer_to(prompt, &[spawned, &[("wait_agents", some, false)]]).calls, waits);
        let rest =
            r#"{"done": [{"agent": "2", "outcome": "failed"}, {"agent": "3", "outcome": "completed"}], "pending": []}"#;
        let last = answer_to(prompt, &[spawned, &[("wait_agents", some, false)], &[("wait_agents", rest, false)]]);
        assert_eq!(last, Answer::text("fanout done results=2 failed=1"));
    }

    #[test]
    fn a_wait_that_is_refused_is_not_asked_for_again() {
        let refused: &[_] = &[("wait_agents", "Error: not offered", true)];
        let last = answer_to("[[FANOUT n=1 background=true]]", &[&[("subagent", "[a started]", false)], refused]);
        assert!(last.calls.is_empty() && last.text.contains("not offered"), "{last:?}");
    }

    #[test]
    fn the_last_directive_wins_and_earlier_results_are_not_its_own() {
        let mut messages = vec![Message::user("p", "[[FANOUT n=1]]")];
        messages.extend(step(&[("subagent", "[root/leaf-1 completed · agent x]\nok", false)], 0));
        messages.push(Message::user("q", "[[LEAF 4 tool=ls latency=7]]"));
        let asked = answer(&View::new(&request(messages.clone())));
        assert_eq!((asked.calls, asked.latency), (vec![("ls".into(), "{}".into())], Some(Duration::from_millis(7))));
        messages.extend(step(&[("ls", "a.txt\nb.txt", false)], 1));
        assert_eq!(answer(&View::new(&request(messages))).text, "leaf 4: a.txt");
    }

    fn options(text: &str) -> (Vec<(&str, &str)>, Vec<&str>) {
        let directive = Directive::find(text).unwrap();
        (directive.options, directive.words)
    }

    #[test]
    fn options_are_words_quoted_texts_and_json() {
        let text = r#"now [[LEAF 2 tool=bash args={"command": "echo error }]] [[\" x=1"} latency=5]] please"#;
        let expected = (
            vec![("tool", "bash"), ("args", r#"{"command": "echo error }]] [[\" x=1"}"#), ("latency", "5")],
            vec!["2"],
        );
        assert_eq!(options(text), expected);
        let text = r#"[[FANOUT n=2 leaf="tool=ls args={"path":"a b"}" latency=5]]"#;
        assert_eq!(options(text).0[1..], [("leaf", r#"tool=ls args={"path":"a b"}"#), ("latency", "5")]);
        assert_eq!(options(r#"[[TOOL ls {"paths": [["a"]]}]] [[SAY b]]"#).1, ["ls", r#"{"paths": [["a"]]}"#]);
    }

    #[test]
    fn numbers_that_are_none_are_said_to_be_so() {
        for prompt in ["[[FANOUT n=-1]]", "[[FANOUT n=99999999999]]", "[[CHAIN d=x]]", "[[SAY a latency=1s]]"] {
            let failure = answer_to(prompt, &[]).failure.unwrap();
            assert!(failure.message.contains("is a whole number from 0 to"), "{prompt}: {failure}");
        }
        assert_eq!(answer_to("[[FANOUT n=0]]", &[]).text, "fanout done results=0");
    }

    #[test]
    fn brackets_of_other_languages_are_no_directives() {
        assert!(Directive::find("if [[ -f x ]]; then").is_none());
        assert!(Directive::find("[[LEAF 1").is_none());
        assert_eq!(Directive::find("[[ -f x ]] [[SAY a]]").map(|found| found.rest), Some("a"));
    }
}
