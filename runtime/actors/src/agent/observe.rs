//! What observers are told of an agent's events.

use std::sync::Arc;

use impresario_kernel::event::{AssistantMessage, ToolCalled, ToolResult};
use impresario_kernel::message::joined_text;
use impresario_kernel::{Block, Event, Fact, RunKind, TurnEnd};
use impresario_seams::{Observed, ObservedEvent};

use super::AgentState;

impl AgentState {
    pub(super) fn say(&self, what: Observed) {
        if !self.shared.feed.is_heard() {
            return;
        }
        let birth = &self.profile.birth;
        self.shared.feed.say(ObservedEvent {
            time: self.shared.chance.now(),
            root: birth.root.clone(),
            agent: self.id.clone(),
            path: birth.path.clone(),
            parent: birth.parent.clone(),
            what,
        });
    }

    pub(super) fn observe(&mut self, event: &Event) {
        match &event.fact {
            Fact::TurnStarted(started) => {
                self.turn_started = event.time;
                self.say(Observed::TurnStarted { turn: started.turn });
            }
            Fact::Chunks(run) if run.kind == RunKind::Text => {
                self.say(Observed::TextDelta { text: run.deltas.concat().into() });
            }
            Fact::AssistantMessage(answer) => self.observe_answer(answer),
            Fact::ToolCalled(called) => self.observe_call(called),
            Fact::ToolResult(result) => self.observe_result(result),
            Fact::RetryScheduled(retry) => self.say(Observed::Retry {
                code: retry.failure.code.clone(),
                wait_ms: retry.delay_ms,
                attempt: retry.retry,
            }),
            Fact::TurnEnded(ended) => {
                if let TurnEnd::Limit { limit, max } = &ended.reason {
                    self.say(Observed::LimitReached { limit: limit.clone(), used: *max, max: *max });
                }
            }
            _ => {}
        }
    }

    fn observe_answer(&mut self, answer: &AssistantMessage) {
        self.call_names = answer.message.calls().map(|(id, name, _)| (id.clone(), Arc::clone(name))).collect();
        self.say(Observed::Message { text: answer.message.text().into() });
    }

    fn observe_call(&self, called: &ToolCalled) {
        self.say(Observed::ToolStarted {
            call: called.call_id.clone(),
            tool: Arc::clone(&called.name),
            input: Arc::clone(&called.arguments),
        });
    }

    fn observe_result(&self, result: &ToolResult) {
        for block in &result.message.content {
            if let Block::ToolResult { tool_call_id, content, is_error } = block {
                self.say(Observed::ToolEnded {
                    call: tool_call_id.clone(),
                    tool: self.call_names.get(tool_call_id).cloned().unwrap_or_default(),
                    is_error: *is_error,
                    text: joined_text(content).into(),
                });
            }
        }
    }
}
