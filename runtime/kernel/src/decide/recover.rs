//! A life begins: of a new agent, of a fork, or of one whose process died.

use std::sync::Arc;

use super::{Draft, Refused};
use crate::agent::Agent;
use crate::event::{
    Birth, ErrorInfo, Event, Fact, InboxParked, InboxSpliced, Lane, OutcomeReached, ParkReason, SeedEnded,
    SubagentDescribed, TurnEnded,
};
use crate::id::{CallId, Millis};
use crate::outcome::{OutcomeKind, TurnEnd};
use crate::turn::{CallState, Phase};

impl Agent {
    pub(super) fn decide_born(
        &self,
        birth: Birth,
        descriptor: Option<SubagentDescribed>,
        last_turns: Option<u32>,
        now: Millis,
    ) -> Result<Vec<Arc<Event>>, Refused> {
        // A fork carries its parent's birth in what it shares; its own comes behind its parent's open turn.
        if self.birth.is_some() && self.turn.is_idle() {
            return Err(Refused::BornTwice);
        }
        let mut draft = Draft::new(self, now);
        draft.close_parents_turn();
        if !self.log.is_empty() {
            draft.say(Fact::SeedEnded(SeedEnded {}));
        }
        draft.say(Fact::AgentBorn(birth));
        if let Some(descriptor) = descriptor {
            draft.say(Fact::SubagentDescribed(descriptor));
        }
        if let Some(turns) = last_turns {
            draft.leave_out_all_but(turns);
        }
        Ok(draft.done())
    }

    pub(super) fn decide_recovered(&self) -> Vec<Arc<Event>> {
        // What repair writes happened when the process died, as far as anybody knows.
        let mut draft = Draft::new(self, self.log.last_time());
        draft.close_open_calls();
        draft.give_back_claimed();
        if matches!(
            self.turn.open().map(|open| &open.phase),
            Some(Phase::Sampling(_) | Phase::Backoff(_) | Phase::Calling(_))
        ) {
            draft.end_step();
        }
        draft.end_turn(TurnEnd::Interrupted);
        draft.owe_outcome();
        if draft.agent.awake && !draft.agent.inbox.is_empty() {
            draft.say(Fact::InboxParked(InboxParked { reason: ParkReason::Reopened }));
        }
        if self.log.last().is_some_and(|last| !matches!(last.fact, Fact::SeedEnded(_))) {
            draft.say(Fact::SeedEnded(SeedEnded {}));
        }
        draft.done()
    }
}

impl Draft {
    /// In the log of a fork: its parent's calls are its parent's.
    fn close_parents_turn(&mut self) {
        let Some((open, calling)) = self.agent.calling() else { return };
        let (turn, keys): (u32, Vec<_>) = (open.number, (0..calling.calls.len()).map(|at| open.key(at)).collect());
        for key in keys {
            let index = key.index as usize;
            self.call_started(index);
            let id = format!("belongs-to-parent-{}-{}-{}", key.turn, key.step, key.index);
            let error = ErrorInfo { name: "BelongsToParentError".into(), code: "BELONGS_TO_PARENT".into() };
            let text = "Error: this call belongs to the agent that this conversation was forked from. \
                        Go on with the task below; do not wait for its result.";
            self.closing_result(index, id, error, text.into());
        }
        self.end_step();
        self.say(Fact::TurnEnded(TurnEnded { turn, reason: TurnEnd::Forked }));
    }

    /// What the turn had taken up and not begun with waits again.
    fn give_back_claimed(&mut self) {
        let claimed = self.agent.turn.open().map(|open| open.claimed.clone()).unwrap_or_default();
        for target in [Lane::NextStep, Lane::NextTurn] {
            let inserted: Vec<_> =
                claimed.iter().filter(|(lane, _)| *lane == target).map(|(_, message)| Arc::clone(message)).collect();
            if !inserted.is_empty() {
                let (start, removed_count, outcome) = (0, 0, None);
                self.say(Fact::InboxSpliced(InboxSpliced { target, start, removed_count, inserted, outcome }));
            }
        }
    }

    /// One honest result for each call that has none: the real one if it is known.
    fn close_open_calls(&mut self) {
        while let Some((_, calling)) = self.agent.calling() {
            let index = calling.answered;
            let Some(call) = calling.calls.get(index).cloned() else { return };
            match call.state {
                CallState::Settled(_) => {
                    self.commit_next();
                }
                CallState::Waiting => {
                    let text = "Error: the process ended before this call was started. Nothing was done; \
                                call again if it is still needed.";
                    self.repair(index, &call.id, ("ToolNotStartedError", "TOOL_NOT_STARTED"), text.into());
                }
                CallState::Started { at } => {
                    let text = format!(
                        "Error: the process ended while this call (event {at}) was running; its outcome is unknown. \
                         Call again only if it is read-only or safe to repeat; otherwise look first at what it did."
                    );
                    self.repair(index, &call.id, ("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"), text);
                }
                CallState::Answered => return,
            }
        }
    }

    /// A log that was torn between the end of a turn and its outcome.
    fn owe_outcome(&mut self) {
        let Some(ended) = self.agent.ended.clone().filter(|_| self.agent.birth.is_some()) else { return };
        if self.agent.outcome.as_ref().is_none_or(|outcome| outcome.turn != ended.turn) {
            let (kind, text) = (OutcomeKind::of(&ended.end), ended.text.map(|said| said.at));
            let spent = self.agent.spent;
            self.say(Fact::OutcomeReached(OutcomeReached {
                turn: ended.turn,
                kind,
                text,
                output: ended.output.clone(),
                spent,
            }));
        }
    }

    fn repair(&mut self, index: usize, call: &CallId, (name, code): (&str, &str), text: String) {
        let id = format!("interrupted-tool-result-{call}-{}", self.agent.log.next_seq());
        self.closing_result(index, id, ErrorInfo { name: name.into(), code: code.into() }, text);
    }
}
