//! Somebody is asked at a point of a turn, and answers.

use std::sync::Arc;

use super::{Draft, Refused};
use crate::agent::Agent;
use crate::event::{Event, Fact, Lane, RequestConfig};
use crate::id::{Millis, RunKey};
use crate::inbox::insertion;
use crate::judge::{Decision, Entry, HookAsked, HookJudged, Judgement, Point, Recovery, Said};
use crate::message::Message;
use crate::outcome::{Failure, TurnEnd};
use crate::turn::Phase;

/// What a failed hook costs: the turn, unless the point only adds something.
const HOOK_FAILED: &str = "HOOK_FAILED";

impl Agent {
    pub(super) fn decide_judged(
        &self,
        asked: HookAsked,
        judgement: Judgement,
        dice: u64,
        now: Millis,
    ) -> Result<Vec<Arc<Event>>, Refused> {
        let judging = self.turn.open().and_then(|open| open.judging);
        if judging != Some(asked) || judgement.point() != asked.point {
            return Err(Refused::Stale);
        }
        let mut draft = Draft::new(self, now);
        match judgement {
            Judgement::SessionStart(context) => draft.session_started(asked, context),
            Judgement::PreStep(entry) => draft.step_judged(asked, entry),
            Judgement::Request(config) => draft.request_judged(asked, config),
            Judgement::RequestError(recovery) => draft.error_judged(asked, &recovery, dice),
            Judgement::TurnStopping(steers) => draft.stop_judged(asked, steers),
            Judgement::Failed { hook, why, .. } => draft.hook_failed(asked, hook, why),
        }
        Ok(draft.done())
    }

    /// Whether somebody wants to be asked there.
    pub(super) fn asks_at(&self, point: Point) -> bool {
        self.spec.asked_at.contains(&point)
    }
}

impl Draft {
    /// Asks at `point`, if somebody wants that; what follows then follows from the answer.
    pub(super) fn ask(&mut self, point: Point) -> bool {
        let Some(open) = self.agent.turn.open().filter(|_| self.agent.asks_at(point)) else { return false };
        let attempt = open.run().map_or(0, |run| run.attempt);
        let step = match point {
            Point::SessionStart | Point::PreStep => open.step + 1,
            Point::Request | Point::RequestError | Point::TurnStopping => open.step,
        };
        self.say(Fact::HookAsked(HookAsked { turn: open.number, step, attempt, point }));
        true
    }

    fn judged(&mut self, asked: HookAsked, decision: Decision, hooks: Vec<String>, reason: Option<String>) {
        let (turn, step, point) = (asked.turn, asked.step, asked.point);
        self.say(Fact::HookJudged(HookJudged { turn, step, point, decision, hooks, reason }));
    }

    fn session_started(&mut self, asked: HookAsked, context: Vec<Said<Arc<Message>>>) {
        let decision = if context.is_empty() { Decision::Passed } else { Decision::Changed };
        self.judged(asked, decision, speakers(&context), None);
        for said in context {
            self.say(Fact::UserMessage(said.what));
        }
        self.propose_step();
    }

    fn step_judged(&mut self, asked: HookAsked, entry: Entry) {
        match entry {
            Entry::Pass => {
                self.judged(asked, Decision::Passed, vec![], None);
                let claimed = self.claimed();
                self.open_step(claimed);
            }
            Entry::Enter { messages, hooks } => {
                self.judged(asked, Decision::Changed, hooks, None);
                self.open_step(messages);
            }
            Entry::Reject(Said { hook, what }) => {
                self.judged(asked, Decision::Rejected, vec![hook], Some(what.clone()));
                self.end_turn(TurnEnd::Blocked { reason: Some(what) });
            }
        }
    }

    fn request_judged(&mut self, asked: HookAsked, config: Option<Said<RequestConfig>>) {
        match config {
            None => {
                self.judged(asked, Decision::Passed, vec![], None);
                self.frame(None);
            }
            Some(Said { hook, what }) => {
                self.judged(asked, Decision::Changed, vec![hook], None);
                self.frame(Some(what));
            }
        }
    }

    fn error_judged(&mut self, asked: HookAsked, recovery: &Recovery, dice: u64) {
        let Some((run, failure)) = self.failed_run() else { return };
        let (decision, hooks) = match recovery {
            Recovery::Policy => (Decision::Passed, vec![]),
            Recovery::Retry { hook, .. } => (Decision::Retried, vec![hook.clone()]),
            Recovery::GiveUp { hook } => (Decision::GaveUp, vec![hook.clone()]),
        };
        self.judged(asked, decision, hooks, None);
        self.recover(run, failure, recovery, dice);
    }

    fn stop_judged(&mut self, asked: HookAsked, steers: Vec<Said<Arc<Message>>>) {
        let decision = if steers.is_empty() { Decision::Passed } else { Decision::Steered };
        self.judged(asked, decision, speakers(&steers), None);
        for said in steers {
            self.say(Fact::InboxSpliced(insertion(&self.agent.inbox, Lane::NextStep, said.what)));
        }
        // Somebody may have steered meanwhile.
        self.go_on_or_leave();
    }

    fn hook_failed(&mut self, asked: HookAsked, hook: String, why: String) {
        let error = Failure::new(HOOK_FAILED, format!("the hook {hook} failed at {}: {why}", asked.point));
        self.judged(asked, Decision::Failed, vec![hook], Some(why));
        let step = Some(asked.step);
        match asked.point {
            // What only adds something is missed, and no more.
            Point::SessionStart => self.propose_step(),
            Point::PreStep | Point::TurnStopping => self.end_turn(TurnEnd::Error { step, error }),
            Point::Request => {
                self.end_step();
                self.end_turn(TurnEnd::Error { step, error });
            }
            Point::RequestError => {
                let error = self.failed_run().map_or(error, |(_, failure)| failure);
                self.end_step();
                self.end_turn(TurnEnd::Error { step, error });
            }
        }
    }

    /// The attempt that has failed, and why: its last chunk says so.
    fn failed_run(&self) -> Option<(RunKey, Failure)> {
        let open = self.agent.turn.open()?;
        let Phase::Sampling(sampling) = &open.phase else { return None };
        Some((open.run_of(sampling.attempt), sampling.assembler.failure()?.clone()))
    }
}

fn speakers<T>(said: &[Said<T>]) -> Vec<String> {
    said.iter().map(|said| said.hook.clone()).collect()
}
