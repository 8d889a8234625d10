//! `--json`: one object a line on stdout, nothing else. `schema events` describes the lines.

use std::io;

use impresario::kernel::{AgentId, AgentPath, Outcome, OutcomeKind, Spent, TurnEnd};
use impresario::seams::{Observed, ObservedEvent};
use impresario::{Price, Seen};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Ending, Start};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::figures;
use crate::print;
use crate::tally::Tally;

/// Changes only when readers would break.
pub(crate) const VERSION: u32 = 1;

/// What every line has.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    r#type: &'a str,
    n: u64,
    time: String,
    root: Option<&'a AgentId>,
    agent: Option<&'a AgentId>,
    path: &'a str,
    parent: Option<&'a AgentId>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// Counts the lines.
#[derive(Debug)]
pub(super) struct JsonLines {
    n: u64,
    deltas: bool,
    /// Of the model that all use.
    price: Option<Price>,
}

impl JsonLines {
    pub(super) fn new(deltas: bool, price: Option<Price>) -> Self {
        Self { n: 0, deltas, price }
    }

    pub(super) fn started(&mut self, start: &Start) -> io::Result<()> {
        let limits = &start.limits;
        let fields = json!({
            "model": start.model,
            "home": start.home,
            "version": env!("CARGO_PKG_VERSION"),
            "access": start.access.as_str(),
            "limits": {
                "depth_max": limits.depth_max,
                "descendants_max": limits.descendants_max,
                "running_max": limits.running_max,
                "steps_max": limits.steps_max,
                "tokens_max": limits.tokens_max,
            },
        });
        self.write("run.started", None, fields)
    }

    pub(super) fn show(&mut self, seen: &Seen) -> io::Result<()> {
        match seen {
            Seen::Missed(missed) => self.write("missed", None, json!({ "events": missed })),
            Seen::Event(event) => match fields(event, self.deltas, self.price) {
                Some((kind, fields)) => self.write(kind, Some(event), fields),
                None => Ok(()),
            },
        }
    }

    pub(super) fn ended(&mut self, ending: &Ending, tally: &Tally) -> io::Result<()> {
        let children: Map<String, Value> =
            ending.children(tally).iter().map(|(kind, count)| (kind.as_str().into(), (*count).into())).collect();
        let own = ending.outcome.as_ref().map(|outcome| outcome.spent);
        let total = if tally.agents().is_empty() { own.unwrap_or_default() } else { tally.spent() };
        let mut fields = match &ending.outcome {
            Some(outcome) => outcome_fields(outcome, ending.duration_ms, self.price),
            None => no_outcome(ending.exit, ending.duration_ms),
        };
        if let (Some(failure), Some(fields)) = (&ending.failure, fields.as_object_mut()) {
            fields.insert("error".into(), failed(failure));
        }
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("session".into(), ending.root.as_ref().map(AgentId::as_str).into());
            fields.insert("exit_code".into(), ending.exit.code().into());
            fields.insert("children".into(), children.into());
            fields.insert("total_usage".into(), usage(&total, self.price));
        }
        self.write_of("run.ended", figures::rfc3339(figures::now()), ending.root.as_ref(), fields)
    }

    fn write(&mut self, kind: &str, event: Option<&ObservedEvent>, fields: Value) -> io::Result<()> {
        match event {
            None => self.write_of(kind, figures::rfc3339(figures::now()), None, fields),
            Some(event) => {
                let (root, agent, parent) = (Some(&event.root), Some(&event.agent), event.parent.as_ref());
                self.line(kind, figures::rfc3339(event.time), root, agent, &event.path, parent, fields)
            }
        }
    }

    fn write_of(&mut self, kind: &str, time: String, root: Option<&AgentId>, fields: Value) -> io::Result<()> {
        self.line(kind, time, root, root, &AgentPath::root(), None, fields)
    }

    #[expect(clippy::too_many_arguments, reason = "the envelope has so many fields")]
    fn line(
        &mut self,
        kind: &str,
        time: String,
        root: Option<&AgentId>,
        agent: Option<&AgentId>,
        path: &AgentPath,
        parent: Option<&AgentId>,
        fields: Value,
    ) -> io::Result<()> {
        let fields = match fields {
            Value::Object(fields) => fields,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let line = Line { v: VERSION, r#type: kind, n: self.n, time, root, agent, path: path.as_str(), parent, fields };
        self.n += 1;
        print::out(&format!("{}\n", serde_json::to_string(&line)?))
    }
}

/// A line about a root that ran a task of a batch; `n` counts the lines of this run.
pub(crate) fn task_line(
    n: u64,
    root: &AgentId,
    outcome: &Outcome,
    duration_ms: u64,
    task: (&str, &str),
    price: Option<Price>,
) -> io::Result<String> {
    let mut fields = outcome_fields(outcome, duration_ms, price);
    fields["session"] = root.as_str().into();
    (fields["task"], fields["task_hash"]) = (task.0.into(), task.1.into());
    let Value::Object(fields) = fields else { return Err(io::ErrorKind::InvalidData.into()) };
    let (time, path) = (figures::rfc3339(figures::now()), AgentPath::root());
    let (root, agent, kind) = (Some(root), Some(root), "agent.ended");
    let line = Line { v: VERSION, r#type: kind, n, time, root, agent, path: path.as_str(), parent: None, fields };
    Ok(serde_json::to_string(&line)?)
}

/// The only line of a command that failed before anything ran.
pub(crate) fn only_line(failure: &Failed) -> io::Result<()> {
    let ending = Ending {
        exit: failure.exit,
        root: None,
        outcome: None,
        receipt: None,
        stop: None,
        failure: Some(failure.clone()),
        duration_ms: 0,
        written: false,
        hints: Vec::new(),
        drain: false,
    };
    JsonLines::new(false, None).ended(&ending, &Tally::default())
}

fn fields(event: &ObservedEvent, deltas: bool, price: Option<Price>) -> Option<(&'static str, Value)> {
    Some(match &event.what {
        Observed::Queued { limit, position } => ("agent.queued", json!({ "limit": limit, "position": position })),
        Observed::Started { label, context, model } => {
            ("agent.started", json!({ "label": label, "context": context.as_str(), "model": model }))
        }
        Observed::TurnStarted { turn } => ("turn.started", json!({ "turn": turn })),
        Observed::TextDelta { text } if deltas => ("text.delta", json!({ "text": &**text })),
        Observed::TextDelta { .. } => return None,
        Observed::Message { text } => ("message", json!({ "role": "assistant", "text": &**text })),
        Observed::ToolStarted { call, tool, input } => {
            ("tool.started", json!({ "call": call, "tool": &**tool, "input": parsed(input) }))
        }
        Observed::ToolEnded { call, tool, is_error, text } => {
            let status = if *is_error { "error" } else { "ok" };
            let fields = json!({
                "call": call, "tool": &**tool, "status": status, "text": &**text, "truncated": false, "artifact": null,
            });
            ("tool.ended", fields)
        }
        Observed::Retry { code, wait_ms, attempt } => {
            ("retry", json!({ "code": code, "wait_ms": wait_ms, "attempt": attempt }))
        }
        Observed::LimitReached { limit, used, max } => {
            ("limit.reached", json!({ "limit": limit, "used": used, "max": max }))
        }
        Observed::Stalled { error } => ("stalled", json!({ "error": error })),
        Observed::Ended { outcome, duration_ms } => {
            let mut fields = outcome_fields(outcome, *duration_ms, price);
            fields["session"] = event.agent.as_str().into();
            ("agent.ended", fields)
        }
    })
}

/// Arguments as an object where they are one, else as the text that the model wrote.
fn parsed(input: &str) -> Value {
    serde_json::from_str(input).unwrap_or_else(|_| input.into())
}

fn outcome_fields(outcome: &Outcome, duration_ms: u64, price: Option<Price>) -> Value {
    json!({
        "outcome": outcome.kind.as_str(),
        "text": &*outcome.text,
        "output": outcome.output.as_deref(),
        "error": error(outcome),
        "usage": usage(&outcome.spent, price),
        "duration_ms": duration_ms,
        "turns": outcome.turn,
    })
}

fn no_outcome(exit: Exit, duration_ms: u64) -> Value {
    let kind = match exit {
        Exit::Completed => OutcomeKind::Completed,
        Exit::Partial => OutcomeKind::Partial,
        Exit::Refused => OutcomeKind::Refused,
        Exit::Timeout | Exit::Interrupted | Exit::Terminated => OutcomeKind::Cancelled,
        Exit::Failed | Exit::Usage | Exit::Provider | Exit::Store => OutcomeKind::Failed,
    };
    json!({
        "outcome": kind.as_str(),
        "text": "",
        "output": null,
        "error": null,
        "usage": usage(&Spent::default(), None),
        "duration_ms": duration_ms,
        "turns": 0,
    })
}

fn error(outcome: &Outcome) -> Value {
    let (code, retryable, cause) = match &outcome.end {
        TurnEnd::Completed => return Value::Null,
        TurnEnd::Error { error, .. } => (error.code.clone(), error.is_retryable(), Value::Null),
        TurnEnd::Aborted { reason } => ("CANCELLED".to_owned(), false, json!(reason)),
        TurnEnd::Blocked { .. } => ("BLOCKED".to_owned(), false, Value::Null),
        TurnEnd::MaxTokens => ("MAX_TOKENS".to_owned(), false, Value::Null),
        TurnEnd::Interrupted => ("INTERRUPTED".to_owned(), true, Value::Null),
        TurnEnd::Forked => ("FORKED".to_owned(), false, Value::Null),
        TurnEnd::Limit { limit, .. } => (format!("LIMIT_{}", limit.to_uppercase()), false, Value::Null),
        TurnEnd::Other(reason) => ("OTHER".to_owned(), false, reason.clone()),
    };
    json!({ "code": code, "message": outcome.why(), "retryable": retryable, "cause": cause })
}

fn failed(failure: &Failed) -> Value {
    json!({ "code": failure.code, "message": failure.text, "retryable": false, "cause": null })
}

/// What the provider did not tell is null, and so is the cost of what has no known price.
pub(crate) fn usage(spent: &Spent, price: Option<Price>) -> Value {
    let told = |n: u64| if spent.is_metered() || spent.model_calls == 0 { Value::from(n) } else { Value::Null };
    json!({
        "input_tokens": told(spent.input_tokens),
        "cached_input_tokens": told(spent.cached_input_tokens),
        "output_tokens": told(spent.output_tokens),
        "reasoning_tokens": told(spent.reasoning_tokens),
        "model_calls": spent.model_calls,
        "tool_calls": spent.tool_calls,
        "cost_usd": figures::cost(spent, price).map(|micro_usd| micro_usd as f64 / 1e6),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use impresario::kernel::{CallId, Context, Failure, Millis};

    use super::*;

    fn event(what: Observed) -> ObservedEvent {
        ObservedEvent {
            time: Millis(0),
            root: "r".into(),
            agent: "a".into(),
            path: AgentPath::root().child("a"),
            parent: Some("r".into()),
            what,
        }
    }

    /// One of each kind of event.
    pub(crate) fn samples() -> Vec<(&'static str, Value)> {
        let call = CallId::from("c");
        let end = TurnEnd::Error { step: Some(1), error: Failure::new("AUTH", "no") };
        let outcome = Outcome {
            turn: 2,
            kind: OutcomeKind::Failed,
            end,
            text: "so far".into(),
            output: None,
            spent: Spent::default(),
        };
        let all = [
            Observed::Queued { limit: 1, position: 2 },
            Observed::Started { label: "l".into(), context: Context::Fork, model: "m".into() },
            Observed::TurnStarted { turn: 1 },
            Observed::TextDelta { text: "t".into() },
            Observed::Message { text: "t".into() },
            Observed::ToolStarted { call: call.clone(), tool: "bash".into(), input: "{\"a\":1}".into() },
            Observed::ToolEnded { call, tool: "bash".into(), is_error: true, text: "t".into() },
            Observed::Retry { code: "SERVER".into(), wait_ms: 5, attempt: 1 },
            Observed::LimitReached { limit: "depth".into(), used: 3, max: 3 },
            Observed::Stalled { error: "full".into() },
            Observed::Ended { outcome: Arc::new(outcome), duration_ms: 9 },
        ];
        all.into_iter().filter_map(|what| fields(&event(what), true, None)).collect()
    }

    #[test]
    fn an_agent_that_failed_says_code_text_and_what_it_said_so_far() {
        let samples = samples();
        let (kind, fields) = samples.last().expect("samples");
        assert_eq!(*kind, "agent.ended");
        assert_eq!(fields["outcome"], "failed");
        assert_eq!(fields["error"]["code"], "AUTH");
        assert_eq!((&fields["text"], &fields["session"]), (&json!("so far"), &json!("a")));
    }

    #[test]
    fn pieces_of_text_come_only_when_asked_for() {
        assert!(fields(&event(Observed::TextDelta { text: "t".into() }), false, None).is_none());
    }

    #[test]
    fn unknown_numbers_are_null() {
        let mut spent = Spent::default();
        spent.count_call(None);
        assert_eq!(usage(&spent, None)["input_tokens"], Value::Null);
        assert_eq!(usage(&spent, None)["model_calls"], 1);
    }
}
