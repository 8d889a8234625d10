//! A log as people read it: who said and did what.

use std::sync::Arc;

use impresario::kernel::{Block, Event, Fact, Message, OutcomeKind, Role, TurnEnd, message};

/// One thing in a transcript.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// A person or another agent said something.
    Said {
        /// `you`, or where it came from.
        by: String,
        /// What.
        text: String,
    },
    /// The agent answered.
    Answered(String),
    /// The agent called a tool.
    Called {
        /// The tool.
        tool: String,
        /// The arguments as the model wrote them.
        arguments: String,
    },
    /// A call was answered.
    Resulted {
        /// What the model saw.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// A failed model call was tried again.
    Retried(String),
    /// A turn ended.
    Ended {
        /// Which.
        turn: u32,
        /// How.
        kind: OutcomeKind,
        /// Why, when it did not complete.
        why: String,
    },
}

/// What a log tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    /// In order.
    pub(super) entries: Vec<Entry>,
    /// `provider:model` of the last request.
    pub(super) model: Option<String>,
    /// The last turn, if it is still open.
    pub(super) open: Option<u32>,
}

impl Transcript {
    /// Folds the events from the `inherited`th on.
    pub(crate) fn of(events: &[Arc<Event>], inherited: u64) -> Self {
        let mut transcript = Self::default();
        events.iter().filter(|event| event.seq.0 >= inherited).for_each(|event| transcript.fold(event));
        transcript
    }

    /// The last text that the agent said.
    pub(crate) fn last(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Answered(text) => Some(text.as_str()),
            _ => None,
        })
    }

    fn fold(&mut self, event: &Event) {
        match &event.fact {
            Fact::UserMessage(message) => {
                self.entries.push(Entry::Said { by: speaker(message), text: message.text() });
            }
            Fact::AssistantMessage(answer) => self.answered(&answer.message),
            Fact::ToolResult(result) => self.resulted(&result.message),
            Fact::RequestHeader(logged) => {
                let config = &logged.header.config;
                self.model = Some(format!("{}:{}", config.provider, config.model));
            }
            Fact::RetryScheduled(retry) => {
                self.entries.push(Entry::Retried(format!("retry {} after {}", retry.retry, retry.failure)));
            }
            Fact::TurnStarted(started) => self.open = Some(started.turn),
            Fact::TurnEnded(ended) => {
                self.open = None;
                let kind = OutcomeKind::of(&ended.reason);
                self.entries.push(Entry::Ended { turn: ended.turn, kind, why: why(&ended.reason) });
            }
            _ => {}
        }
    }

    fn answered(&mut self, message: &Message) {
        let text = message.text();
        if !text.is_empty() {
            self.entries.push(Entry::Answered(text));
        }
        for (_, tool, arguments) in message.calls() {
            self.entries.push(Entry::Called { tool: tool.to_string(), arguments: arguments.to_string() });
        }
    }

    fn resulted(&mut self, message: &Message) {
        for block in &message.content {
            if let Block::ToolResult { content, is_error, .. } = block {
                self.entries.push(Entry::Resulted { text: message::joined_text(content), is_error: *is_error });
            }
        }
    }
}

fn speaker(message: &Message) -> String {
    match (message.role, message.source.kind.as_str()) {
        (Role::User, "user") => "user".into(),
        (Role::System, _) => "system".into(),
        (_, kind) => kind.to_owned(),
    }
}

fn why(end: &TurnEnd) -> String {
    let spent = impresario::kernel::Spent::default();
    impresario::kernel::Outcome {
        turn: 0,
        kind: OutcomeKind::of(end),
        end: end.clone(),
        text: "".into(),
        output: None,
        spent,
    }
    .why()
}

#[cfg(test)]
mod tests {
    use impresario::kernel::{AssistantMessage, Millis, Seq, Source, TurnEnded};

    use super::*;

    fn log(facts: Vec<Fact>) -> Vec<Arc<Event>> {
        let place = |(at, fact)| Arc::new(Event::new(Seq(at), Millis(0), fact));
        (0..).zip(facts).map(place).collect()
    }

    fn answer(text: &str) -> Fact {
        let call = Block::ToolCall { id: "c".into(), name: "bash".into(), arguments: "{}".into() };
        let message = Message {
            id: "m2".into(),
            role: Role::Assistant,
            content: vec![Block::text(text), call],
            source: Source::model("p", "m"),
        };
        Fact::AssistantMessage(AssistantMessage {
            turn: 1,
            step: 1,
            message: Arc::new(message),
            usage: None,
            interrupted: false,
        })
    }

    #[test]
    fn a_transcript_says_who_said_and_did_what() {
        let events = log(vec![
            Fact::UserMessage(Arc::new(Message::user("m1", "hello"))),
            answer("hi"),
            Fact::ToolResult(impresario::kernel::ToolResult {
                turn: 1,
                step: 1,
                message: Arc::new(Message::tool_result("m3", &"c".into(), vec![Block::text("out")], true)),
                error: None,
                meta: None,
            }),
            Fact::TurnEnded(TurnEnded { turn: 1, reason: TurnEnd::MaxTokens }),
        ]);
        let transcript = Transcript::of(&events, 0);
        assert_eq!(transcript.last(), Some("hi"));
        assert_eq!(transcript.entries.len(), 5);
        assert_eq!(transcript.entries[0], Entry::Said { by: "user".into(), text: "hello".into() });
        assert_eq!(transcript.entries[3], Entry::Resulted { text: "out".into(), is_error: true });
        assert!(matches!(&transcript.entries[4], Entry::Ended { kind: OutcomeKind::Partial, .. }));
    }

    #[test]
    fn what_was_inherited_is_left_out() {
        let events = log(vec![Fact::UserMessage(Arc::new(Message::user("m1", "hello"))), answer("hi")]);
        assert_eq!(Transcript::of(&events, 1).entries.len(), 2);
    }
}
