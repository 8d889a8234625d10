//! Calls: which may start, and the order in which their results are shown.
//!
//! Exclusive calls are barriers. Calls start in the model's order, bodies overlap, results are committed in the
//! model's order; a result that is early is kept in the log until its turn comes.

use std::sync::Arc;

use super::{CallReport, Draft, Refused};
use crate::agent::Agent;
use crate::event::{CallSettled, ErrorInfo, Event, Fact, InboxSpliced, Lane, ToolCalled, ToolResult};
use crate::id::{CallKey, MessageId, Millis};
use crate::inbox::insertion;
use crate::message::{Block, Message};
use crate::outcome::TurnEnd;
use crate::turn::{Call, CallState, Calling, Open, Phase};

impl Agent {
    pub(super) fn decide_call_settled(
        &self,
        key: CallKey,
        report: CallReport,
        now: Millis,
    ) -> Result<Vec<Arc<Event>>, Refused> {
        let call = self.call(key).ok_or(Refused::Stale)?;
        if !matches!(call.state, CallState::Started { .. }) {
            return Err(Refused::Stale);
        }
        let mut draft = Draft::new(self, now);
        if let Some(todos) = report.todos.clone() {
            draft.say(Fact::TodoWritten(todos));
        }
        report.claims.into_iter().for_each(|message| draft.claim_message(message));
        let message = result_message(key, call, report.id, report.content, report.is_error);
        let is_next = self.calling().is_some_and(|(_, calling)| calling.answered == key.index as usize);
        let (turn, step, index) = (key.turn, key.step, key.index);
        let concludes = report.concludes || report.output.is_some();
        let (error, meta, output, contexts) = (report.error, report.meta, report.output, report.contexts);
        // What concludes the turn or goes with the result must be known to the fold, so it is written down even when
        // its turn has come.
        if !is_next || concludes || !contexts.is_empty() {
            let settled = CallSettled { turn, step, index, message, error, meta, concludes, output, contexts };
            draft.say(Fact::CallSettled(settled));
        } else {
            draft.say(Fact::ToolResult(ToolResult { turn, step, message, error, meta }));
        }
        draft.advance_calls();
        Ok(draft.done())
    }

    pub(super) fn calling(&self) -> Option<(&Open, &Calling)> {
        let open = self.turn.open()?;
        match &open.phase {
            Phase::Calling(calling) => Some((open, calling)),
            Phase::Between | Phase::Sampling(_) | Phase::Backoff(_) => None,
        }
    }

    /// The waiting calls that may start now, in the model's order.
    fn startable(&self) -> Vec<usize> {
        let parallel_max = self.spec.limits.parallel_calls;
        let going_on = self.calling().filter(|(open, _)| open.stopping.is_none());
        going_on.map_or_else(Vec::new, |(_, calling)| calling.startable(parallel_max))
    }
}

impl Draft {
    /// Commits the results whose turn has come, and then starts what may start or closes the step.
    pub(super) fn advance_calls(&mut self) {
        while self.commit_next() {}
        let Some((open, calling)) = self.agent.calling() else { return };
        if !calling.is_answered() {
            for index in self.agent.startable() {
                self.call_started(index);
            }
            return;
        }
        let stopping = open.stopping.clone();
        let concludes = open.concludes;
        self.end_step();
        match stopping {
            Some(stopping) => self.end_turn(TurnEnd::Aborted { reason: stopping.cause }),
            None if concludes => self.conclude(),
            None => self.go_on(),
        }
    }

    /// Accepts a message, if it is new, and takes it out of the inbox, wherever it waits.
    fn claim_message(&mut self, message: Arc<Message>) {
        let id = message.id.clone();
        if !self.agent.has_accepted(&id) {
            self.say(Fact::InboxSpliced(insertion(&self.agent.inbox, Lane::NextStep, message)));
        }
        for target in [Lane::NextStep, Lane::NextTurn] {
            let waiting = self.agent.inbox.lane(target).iter().position(|message| message.id == id);
            if let Some(start) = waiting {
                self.say(Fact::InboxSpliced(InboxSpliced {
                    target,
                    start,
                    removed_count: 1,
                    inserted: vec![],
                    outcome: None,
                }));
            }
        }
    }

    /// Commits the next result in the model's order; `false` if it is not there yet.
    pub(super) fn commit_next(&mut self) -> bool {
        let Some((open, calling)) = self.agent.calling() else { return false };
        let index = calling.answered;
        let Some(call) = calling.calls.get(index) else { return false };
        match &call.state {
            CallState::Settled(settled) => {
                let settled = CallSettled::clone(settled);
                let (turn, step, message) = (settled.turn, settled.step, settled.message);
                let (error, meta) = (settled.error, settled.meta);
                self.say(Fact::ToolResult(ToolResult { turn, step, message, error, meta }));
                for context in settled.contexts {
                    if !self.agent.has_accepted(&context.id) {
                        self.say(Fact::InboxSpliced(insertion(&self.agent.inbox, Lane::NextStep, context)));
                    }
                }
                true
            }
            CallState::Waiting if open.stopping.is_some() => {
                let key = open.key(index);
                self.call_started(index);
                let report =
                    CallReport::failed("AbortError", "ABORTED_BEFORE_DISPATCH", "tool call aborted before dispatch");
                self.synthetic_result(key, report);
                true
            }
            CallState::Waiting | CallState::Started { .. } | CallState::Answered => false,
        }
    }

    /// Writes down that the call at `index` starts.
    pub(super) fn call_started(&mut self, index: usize) {
        let Some((open, calling)) = self.agent.calling() else { return };
        let Some(call) = calling.calls.get(index).cloned() else { return };
        let (turn, step) = (open.number, open.step);
        let (call_id, name, arguments) = (call.id, call.name, call.arguments);
        self.say(Fact::ToolCalled(ToolCalled { turn, step, call_id, name, arguments }));
    }

    /// Answers a call that no tool answered.
    fn synthetic_result(&mut self, key: CallKey, report: CallReport) {
        let Some(call) = self.agent.call(key) else { return };
        let message = result_message(key, call, None, report.content, report.is_error);
        let (turn, step) = (key.turn, key.step);
        self.say(Fact::ToolResult(ToolResult { turn, step, message, error: report.error, meta: None }));
    }

    /// Answers the call at `index` for a reason that has a code, under an id of its own.
    pub(super) fn closing_result(&mut self, index: usize, id: String, error: ErrorInfo, text: String) {
        let Some((open, calling)) = self.agent.calling() else { return };
        let Some(call) = calling.calls.get(index) else { return };
        let (turn, step) = (open.number, open.step);
        let message = Arc::new(Message::tool_result(id, &call.id, vec![Block::text(text)], true));
        self.say(Fact::ToolResult(ToolResult { turn, step, message, error: Some(error), meta: None }));
    }
}

fn result_message(
    key: CallKey,
    call: &Call,
    id: Option<MessageId>,
    content: Vec<Block>,
    is_error: bool,
) -> Arc<Message> {
    let id = id.unwrap_or_else(|| format!("result-{}-{}-{}", key.turn, key.step, key.index).into());
    Arc::new(Message::tool_result(id, &call.id, content, is_error))
}
