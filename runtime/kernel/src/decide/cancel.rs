//! A cancel.

use std::sync::Arc;

use serde_json::Map;

use super::Draft;
use crate::agent::Agent;
use crate::event::{
    Event, Fact, InboxParked, InboxSpliced, Lane, ParkReason, QueueRule, SpliceOutcome, TurnStarted, TurnStopping,
};
use crate::id::Millis;
use crate::judge::Point;
use crate::outcome::{Cause, TurnEnd};
use crate::turn::{Phase, Turn};

impl Agent {
    pub(super) fn decide_cancel(&self, cause: Cause, queue: QueueRule, now: Millis) -> Vec<Arc<Event>> {
        let mut draft = Draft::new(self, now);
        match &self.turn {
            // Whoever gave it this task is owed an outcome, although nothing has begun.
            Turn::Idle if queue == QueueRule::Park && self.wants_turn() => draft.abort_unopened(cause),
            Turn::Idle => draft.settle_queue(queue),
            Turn::Open(open) => match &open.stopping {
                None => draft.stop_turn(cause, queue),
                // The first cause stays, and the turn ends when its calls have; but whoever asks for more than the first
                // did about the queue gets it.
                Some(stopping) if queue != QueueRule::Run && (stopping.queue != queue || stopping.woken) => {
                    let (turn, cause) = (open.number, stopping.cause.clone());
                    draft.say(Fact::TurnStopping(TurnStopping { turn, cause, queue }));
                    if queue == QueueRule::Discard {
                        draft.discard();
                    }
                }
                Some(_) => {}
            },
        }
        draft.done()
    }
}

impl Draft {
    fn settle_queue(&mut self, queue: QueueRule) {
        match queue {
            QueueRule::Run => {}
            QueueRule::Park => self.park(),
            QueueRule::Discard => self.discard(),
        }
    }

    /// Opens the turn that was due and ends it at once, without a step.
    fn abort_unopened(&mut self, cause: Cause) {
        let turn = self.agent.last_turn + 1;
        self.say(Fact::TurnStarted(TurnStarted { turn, rest: Map::new() }));
        self.claim(true);
        self.show_claimed();
        self.end_turn(TurnEnd::Aborted { reason: cause });
        self.park();
    }

    /// Puts what the turn has taken up before the model, for the next turn to see, unless a hook was to look at it first.
    fn show_claimed(&mut self) {
        if self.agent.asks_at(Point::PreStep) {
            return;
        }
        for message in self.claimed() {
            self.say(Fact::UserMessage(message));
        }
    }

    fn park(&mut self) {
        if self.agent.awake && !self.agent.inbox.is_empty() {
            self.say(Fact::InboxParked(InboxParked { reason: ParkReason::Cancelled }));
        }
    }

    fn discard(&mut self) {
        for target in [Lane::NextStep, Lane::NextTurn] {
            let removed_count = self.agent.inbox.lane(target).len();
            if removed_count > 0 {
                let outcome = Some(SpliceOutcome::Canceled);
                self.say(Fact::InboxSpliced(InboxSpliced {
                    target,
                    start: 0,
                    removed_count,
                    inserted: vec![],
                    outcome,
                }));
            }
        }
    }

    fn stop_turn(&mut self, cause: Cause, queue: QueueRule) {
        let Some(open) = self.agent.turn.open() else { return };
        let (turn, run) = (open.number, open.run());
        self.say(Fact::TurnStopping(TurnStopping { turn, cause: cause.clone(), queue }));
        if queue == QueueRule::Discard {
            self.discard();
        }
        match self.agent.turn.open().map(|open| &open.phase) {
            Some(Phase::Sampling(sampling)) => {
                // An attempt that has failed already is not cut off.
                let has_failed = sampling.assembler.failure().is_some();
                let visible = if has_failed { vec![] } else { sampling.assembler.visible_blocks() };
                if let Some(run) = run.filter(|_| !visible.is_empty()) {
                    self.assistant_message(run, visible, true);
                }
                self.end_step();
                self.end_turn(TurnEnd::Aborted { reason: cause });
            }
            Some(Phase::Backoff(_)) => {
                self.end_step();
                self.end_turn(TurnEnd::Aborted { reason: cause });
            }
            Some(Phase::Between) => {
                self.show_claimed();
                self.end_turn(TurnEnd::Aborted { reason: cause });
            }
            Some(Phase::Calling(_)) => self.advance_calls(),
            None => {}
        }
    }
}
