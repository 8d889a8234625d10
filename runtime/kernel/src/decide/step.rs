//! Turns and steps: how they open and how they close.

use std::sync::Arc;

use serde_json::Map;

use super::{Draft, Refused};
use crate::agent::Agent;
use crate::event::{
    Event, Fact, HeaderLogged, HeaderReason, InboxParked, Lane, OutcomeReached, ParkReason, QueueRule, RequestConfig,
    RequestContext, RequestHeader, StepMark, TurnEnded, TurnStarted,
};
use crate::id::{MessageId, Millis};
use crate::inbox::{claim, insertion};
use crate::judge::Point;
use crate::message::{Message, Source};
use crate::outcome::{Failure, OutcomeKind, TurnEnd};

/// Under which name the runtime tells the model about itself.
const SNAPSHOT_PLUGIN: &str = "runtime-context";

/// What a model is told that was done without an output.
const NO_OUTPUT: &str =
    "You have not called final_output yet. Call it with your result; nothing else of this turn is used.";

impl Agent {
    pub(super) fn decide_slot_granted(&self, now: Millis) -> Result<Vec<Arc<Event>>, Refused> {
        if !self.wants_turn() {
            return Err(Refused::NoTurn);
        }
        let mut draft = Draft::new(self, now);
        let turn = self.last_turn + 1;
        draft.say(Fact::TurnStarted(TurnStarted { turn, rest: Map::new() }));
        draft.enter_step(true);
        Ok(draft.done())
    }
}

impl Draft {
    /// Claims what waits and opens the next step with it.
    pub(super) fn enter_step(&mut self, first: bool) {
        self.claim(first);
        if self.agent.session_is_known || !self.ask(Point::SessionStart) {
            self.propose_step();
        }
    }

    /// Opens the next step with what was claimed, if nobody objects.
    pub(super) fn propose_step(&mut self) {
        if !self.ask(Point::PreStep) {
            let claimed = self.claimed();
            self.open_step(claimed);
        }
    }

    /// What the turn has taken up and not begun a step with.
    pub(super) fn claimed(&self) -> Vec<Arc<Message>> {
        let claimed = self.agent.turn.open().map(|open| &open.claimed);
        claimed.into_iter().flatten().map(|(_, message)| Arc::clone(message)).collect()
    }

    /// Opens the next step with `messages`. With none of them there is no step unless the model is owed one.
    pub(super) fn open_step(&mut self, messages: Vec<Arc<Message>>) {
        let Some(open) = self.agent.turn.open() else { return };
        if messages.is_empty() && (open.step == 0 || open.is_done) {
            return self.leave();
        }
        let mark = StepMark { turn: open.number, step: open.step + 1 };
        self.say(Fact::StepStarted(mark));
        // Before the prompt, so that the prompt is what the model reads last.
        if let Some(text) = self.agent.spec.context.clone().filter(|text| self.agent.snapshot.as_ref() != Some(text)) {
            let id = format!("context-{}-{}", mark.turn, mark.step);
            let source = Source::plugin(SNAPSHOT_PLUGIN, "snapshot");
            self.say(Fact::UserMessage(Arc::new(Message::context(id, text, source))));
        }
        for message in messages {
            self.say(Fact::UserMessage(message));
        }
        if !self.ask(Point::Request) {
            self.frame(None);
        }
    }

    /// Takes the whole next-step lane and, at the head of a turn, one message of the next-turn lane.
    pub(super) fn claim(&mut self, first: bool) {
        for (lane, most) in [(Lane::NextStep, usize::MAX), (Lane::NextTurn, usize::from(first))] {
            let waiting = self.agent.inbox.lane(lane);
            let count = waiting.len().min(most);
            if count > 0 {
                self.say(Fact::InboxSpliced(claim(lane, count)));
            }
        }
    }

    /// Logs the frame of the request, with `config` for its own settings if there is one, when it is not the one that
    /// the log says.
    pub(super) fn frame(&mut self, config: Option<RequestConfig>) {
        let agent = &self.agent;
        let header = match config {
            None => Arc::clone(&agent.spec.header),
            Some(config) => Arc::new(RequestHeader { config, ..RequestHeader::clone(&agent.spec.header) }),
        };
        let reason = match &agent.header {
            None => Some(HeaderReason::Initial),
            Some(logged) if *logged != header => Some(HeaderReason::Change),
            Some(_) if !agent.header_is_fresh => Some(HeaderReason::Resume),
            Some(_) => None,
        };
        let route = RequestContext {
            provider: header.config.provider.clone(),
            model: header.config.model.clone(),
            context_window: None,
        };
        if let Some(reason) = reason {
            self.say(Fact::RequestHeader(HeaderLogged { header, reason }));
        }
        if self.agent.route.as_ref() != Some(&route) {
            self.say(Fact::RequestContext(route));
        }
    }

    /// Closes the open step.
    pub(super) fn end_step(&mut self) {
        if let Some(open) = self.agent.turn.open() {
            let mark = StepMark { turn: open.number, step: open.step };
            self.say(Fact::StepEnded(mark));
        }
    }

    /// Behind a closed step that owes the model a look at results or at new input: the next step, unless a ceiling says
    /// no.
    pub(super) fn go_on(&mut self) {
        match self.ceiling() {
            Some((limit, max)) => self.end_turn(TurnEnd::Limit { limit: limit.into(), max }),
            None => self.enter_step(false),
        }
    }

    /// The ceiling that the open turn has reached, if it has: its name and value.
    fn ceiling(&self) -> Option<(&'static str, u64)> {
        let open = self.agent.turn.open()?;
        let limits = self.agent.spec.limits;
        let (before, spent) = (open.spent_before, self.agent.spent);
        let used = [
            ("steps", open.step.into(), Some(limits.steps.into())),
            ("tokens", spent.tokens().saturating_sub(before.tokens()), limits.tokens),
            ("tool_calls", spent.tool_calls.saturating_sub(before.tool_calls), limits.calls),
            ("wall_ms", self.now.0.saturating_sub(open.started.0), limits.wall_ms),
        ];
        used.into_iter().find_map(|(limit, used, max)| max.filter(|&max| used >= max).map(|max| (limit, max)))
    }

    /// Behind a closed step that the model was done with.
    pub(super) fn conclude(&mut self) {
        let Some(open) = self.agent.turn.open() else { return };
        let may_go_on = open.steered.len() < self.agent.spec.limits.continuations as usize;
        let is_steered = !self.agent.inbox.lane(Lane::NextStep).is_empty();
        if is_steered || !may_go_on || !self.ask(Point::TurnStopping) {
            self.go_on_or_leave();
        }
    }

    /// Goes on if something waits for the next step, and ends the turn if not.
    pub(super) fn go_on_or_leave(&mut self) {
        if self.agent.inbox.lane(Lane::NextStep).is_empty() { self.leave() } else { self.go_on() }
    }

    /// Ends a turn that owes nobody anything.
    fn leave(&mut self) {
        let Some(open) = self.agent.turn.open() else { return };
        let lacks = self.agent.spec.requires_output && open.output.is_none() && open.step > 0;
        match (open.max_tokens, lacks) {
            (true, _) => self.end_turn(TurnEnd::MaxTokens),
            (false, true) => self.ask_for_output(),
            (false, false) => self.end_turn(TurnEnd::Completed),
        }
    }

    /// Behind a turn that the model was done with and that gave no output: it is told so once.
    fn ask_for_output(&mut self) {
        let Some(open) = self.agent.turn.open() else { return };
        let (id, step) = (MessageId::new(format!("output-{}", open.number)), open.step);
        if self.agent.has_accepted(&id) {
            let error = Failure::new("NO_OUTPUT", "the model was done and had given no final output");
            return self.end_turn(TurnEnd::Error { step: Some(step), error });
        }
        let source = Source::plugin(SNAPSHOT_PLUGIN, "notice");
        let message = Arc::new(Message::context(id, NO_OUTPUT, source));
        self.say(Fact::InboxSpliced(insertion(&self.agent.inbox, Lane::NextStep, message)));
        self.go_on();
    }

    /// Closes the turn and says how it came out, in the same append.
    pub(super) fn end_turn(&mut self, end: TurnEnd) {
        let Some(open) = self.agent.turn.open() else { return };
        let (turn, text) = (open.number, open.text.as_ref().map(|said| said.at));
        let (stopping, output) = (open.stopping.clone(), open.output.clone());
        let kind = OutcomeKind::of(&end);
        let spent = self.agent.spent;
        self.say(Fact::TurnEnded(TurnEnded { turn, reason: end.clone() }));
        self.say(Fact::OutcomeReached(OutcomeReached { turn, kind, text, output, spent }));
        let park = match &end {
            TurnEnd::Aborted { .. } => stopping
                .filter(|stopping| stopping.queue == QueueRule::Park && !stopping.woken)
                .map(|_| ParkReason::Cancelled),
            TurnEnd::Error { .. } => Some(ParkReason::Failed),
            TurnEnd::Interrupted => Some(ParkReason::Reopened),
            TurnEnd::Completed
            | TurnEnd::Blocked { .. }
            | TurnEnd::MaxTokens
            | TurnEnd::Forked
            | TurnEnd::Limit { .. }
            | TurnEnd::Other(_) => None,
        };
        if let Some(reason) = park.filter(|_| !self.agent.inbox.is_empty()) {
            self.say(Fact::InboxParked(InboxParked { reason }));
        }
    }
}
