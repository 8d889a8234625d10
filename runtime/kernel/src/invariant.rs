//! What is true of every log, by name.
//!
//! An oracle that shares nothing with the machine that it watches: it reads events and keeps its own small state. The
//! tests run it after every step, `sessions verify` runs it over what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::event::{AssistantMessage, Event, Fact, InboxSpliced, Lane, RetryScheduled, ToolResult};
use crate::header::SessionHeader;
use crate::id::{CallId, Seq};
use crate::inbox::Inbox;
use crate::judge::{HookAsked, HookJudged};
use crate::message::{Block, Message, Role};
use crate::outcome::{OutcomeKind, Spent, TurnEnd};
use crate::surface::Surface;

/// A rule that a log breaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The rule, as `runtime/ARCHITECTURE.md` numbers them.
    pub id: &'static str,
    /// Which event shows it; none when something is missing at the end.
    pub seq: Option<Seq>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "{} at event {seq}: {}", self.id, self.what),
            None => write!(f, "{}: {}", self.id, self.what),
        }
    }
}

/// Checks a whole log. A turn that is still open at its end is no violation: the agent may be running, or its process
/// may have died.
pub fn check_log(header: &SessionHeader, events: &[Arc<Event>]) -> Vec<Violation> {
    let mut oracle = Oracle::new();
    if let Err(error) = header.check() {
        oracle.report("HDR-1", None, error.to_string());
    }
    if header.id.is_tree_log() {
        events.iter().for_each(|event| oracle.check_order(event));
        return oracle.violations;
    }
    events.iter().for_each(|event| oracle.watch(event));
    oracle.violations
}

/// Watches one log, event by event.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    violations: Vec<Violation>,
    next: Seq,
    surface: Surface,
    inbox: Inbox,
    turn: Option<OpenTurn>,
    last_turn: u32,
    /// A turn that ended in our life and whose outcome is not there yet.
    owes_outcome: Option<(u32, TurnEnd)>,
    born: bool,
    spent: Spent,
}

#[derive(Clone, Debug, Default)]
struct OpenTurn {
    number: u32,
    last_step: u32,
    step: Option<OpenStep>,
    asked: Option<HookAsked>,
}

#[derive(Clone, Debug, Default)]
struct OpenStep {
    number: u32,
    /// Calls of the answer, in order, with what is known of each.
    calls: Vec<(CallId, CallProgress)>,
    /// Where each call stands.
    places: BTreeMap<CallId, usize>,
    /// Those that have no result.
    unanswered: BTreeSet<usize>,
    answered: bool,
    retries: BTreeMap<String, u32>,
    waits_for_retry: Option<(String, u32)>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct CallProgress {
    called: bool,
    results: u32,
}

impl Oracle {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it found so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn report(&mut self, id: &'static str, seq: Option<Seq>, what: impl Into<String>) {
        self.violations.push(Violation { id, seq, what: what.into() });
    }

    fn check_order(&mut self, event: &Event) {
        if event.seq != self.next {
            self.report("LOG-1", Some(event.seq), format!("expected event {}", self.next));
        }
        self.next = event.next_seq();
    }

    /// Looks at the next event.
    pub fn watch(&mut self, event: &Event) {
        self.check_order(event);
        if let Err(error) = self.surface.apply(event) {
            self.report("SURF-1", Some(event.seq), error.to_string());
        }
        self.check_outcome_follows(event);
        let at = event.seq;
        match &event.fact {
            Fact::TurnStarted(started) => self.turn_started(at, started.turn),
            Fact::TurnEnded(ended) => self.turn_ended(at, ended.turn, &ended.reason),
            Fact::StepStarted(mark) => self.step_started(at, mark.turn, mark.step),
            Fact::StepEnded(mark) => self.step_ended(at, mark.turn, mark.step),
            Fact::UserMessage(message) => self.user_message(at, message),
            Fact::Chunk(chunk) => self.in_step(at, chunk.turn, chunk.step),
            Fact::Chunks(run) => self.in_step(at, run.turn, run.step),
            Fact::AssistantMessage(answer) => self.assistant_message(at, answer),
            Fact::ToolCalled(called) => {
                self.in_step(at, called.turn, called.step);
                self.tool_called(at, &called.call_id);
            }
            Fact::CallSettled(settled) => self.in_step(at, settled.turn, settled.step),
            Fact::ToolResult(result) => self.tool_result(at, event, result),
            Fact::TodoWritten(_) | Fact::RequestHeader(_) | Fact::RequestContext(_) => {
                if self.turn.is_none() {
                    self.report("TURN-4", Some(at), format!("`{}` outside a turn", event.fact.kind()));
                }
            }
            Fact::InboxSpliced(splice) => self.inbox_spliced(at, splice),
            Fact::RetryScheduled(retry) => self.retry_scheduled(at, retry),
            Fact::RetryStarted(retry) => {
                self.in_step(at, retry.turn, retry.step);
                let expected = self.step().and_then(|step| step.waits_for_retry.take());
                if expected != Some((retry.retry_id.clone(), retry.retry)) {
                    self.report("RETRY-2", Some(at), "starts a retry that was not scheduled");
                }
            }
            Fact::AgentBorn(_) => self.agent_born(at),
            Fact::TurnStopping(stopping) => {
                if self.turn.as_ref().map(|turn| turn.number) != Some(stopping.turn) {
                    self.report("TURN-2", Some(at), "stops a turn that is not open");
                }
            }
            Fact::HookAsked(asked) => self.hook_asked(at, *asked),
            Fact::HookJudged(judged) => self.hook_judged(at, judged),
            Fact::OutcomeReached(reached) => self.outcome_reached(at, reached.turn, reached.kind, reached.spent),
            Fact::SeedEnded(_) | Fact::SubagentDescribed(_) | Fact::InboxWoken(_) | Fact::InboxParked(_) => {}
            Fact::TreeReserved(_)
            | Fact::TreePublished(_)
            | Fact::TreeRefused(_)
            | Fact::TreeDelivered(_)
            | Fact::TreeTombstoned(_)
            | Fact::TreeLifted(_)
            | Fact::BudgetDrawn(_)
            | Fact::BudgetReserved(_)
            | Fact::BudgetSettled(_)
            | Fact::BudgetRefunded(_) => {
                self.report("LOG-4", Some(at), format!("`{}` belongs to a tree log", event.fact.kind()));
            }
            Fact::Other(_) => {}
        }
    }

    fn step(&mut self) -> Option<&mut OpenStep> {
        self.turn.as_mut().and_then(|turn| turn.step.as_mut())
    }

    fn check_outcome_follows(&mut self, event: &Event) {
        if matches!(event.fact, Fact::OutcomeReached(_)) {
            return;
        }
        if let Some((turn, _)) = self.owes_outcome.take() {
            self.report("OUT-1", Some(event.seq), format!("turn {turn} ended without an outcome behind its end"));
        }
    }

    fn turn_started(&mut self, at: Seq, turn: u32) {
        if let Some(open) = &self.turn {
            let open = open.number;
            self.report("TURN-1", Some(at), format!("turn {turn} starts while turn {open} is open"));
        }
        if turn != self.last_turn + 1 {
            self.report("TURN-1", Some(at), format!("turn {turn} follows turn {}", self.last_turn));
        }
        self.last_turn = turn;
        self.turn = Some(OpenTurn { number: turn, ..OpenTurn::default() });
    }

    fn turn_ended(&mut self, at: Seq, turn: u32, end: &TurnEnd) {
        match self.turn.take() {
            Some(open) if open.number == turn => {
                if open.step.is_some() {
                    self.report("TURN-3", Some(at), format!("turn {turn} ends while a step is open"));
                }
            }
            _ => self.report("TURN-2", Some(at), format!("turn {turn} ends but is not open")),
        }
        if self.born && !matches!(end, TurnEnd::Forked) {
            self.owes_outcome = Some((turn, end.clone()));
        }
    }

    fn step_started(&mut self, at: Seq, turn: u32, step: u32) {
        let Some(open) = self.turn.as_mut().filter(|open| open.number == turn) else {
            return self.report("STEP-1", Some(at), format!("step {turn}.{step} starts outside its turn"));
        };
        let (was_open, expected) = (open.step.is_some(), open.last_step + 1);
        let waits = open.asked.is_some();
        open.last_step = step;
        open.step = Some(OpenStep { number: step, ..OpenStep::default() });
        if was_open {
            self.report("STEP-1", Some(at), format!("step {turn}.{step} starts while another is open"));
        }
        if waits {
            self.report("HOOK-3", Some(at), format!("step {turn}.{step} starts before what was asked is answered"));
        }
        if step != expected {
            self.report("STEP-1", Some(at), format!("step {turn}.{step} where step {expected} was due"));
        }
    }

    fn step_ended(&mut self, at: Seq, turn: u32, step: u32) {
        self.in_step(at, turn, step);
        let Some(open) = self.turn.as_mut().and_then(|open| open.step.take()) else { return };
        for (call, progress) in open.calls {
            if progress.results != 1 {
                let what = format!("call {call} has {} results when its step ends", progress.results);
                self.report("CALL-1", Some(at), what);
            }
        }
    }

    fn in_step(&mut self, at: Seq, turn: u32, step: u32) {
        let open = self.turn.as_ref().and_then(|open| open.step.as_ref().map(|step| (open.number, step.number)));
        if open != Some((turn, step)) {
            self.report("STEP-2", Some(at), format!("names step {turn}.{step}, which is not open"));
        }
    }

    fn user_message(&mut self, at: Seq, message: &Message) {
        if message.role == Role::Assistant {
            self.report("MSG-1", Some(at), "a user message that the assistant says");
        }
        let between = self.step().is_some_and(|step| !step.unanswered.is_empty());
        if between {
            self.report("CALL-3", Some(at), "context between calls and their results");
        }
    }

    fn assistant_message(&mut self, at: Seq, answer: &AssistantMessage) {
        self.in_step(at, answer.turn, answer.step);
        let Some(step) = self.step() else { return };
        let twice = step.answered;
        step.answered = true;
        step.calls = answer.message.calls().map(|(id, _, _)| (id.clone(), CallProgress::default())).collect();
        step.places = step.calls.iter().enumerate().rev().map(|(place, (id, _))| (id.clone(), place)).collect();
        step.unanswered = (0..step.calls.len()).collect();
        if answer.interrupted && !step.calls.is_empty() {
            self.report("CALL-4", Some(at), "an answer that was cut off asks for calls");
        }
        if twice {
            self.report("STEP-3", Some(at), "a second answer in one step");
        }
    }

    fn tool_called(&mut self, at: Seq, call: &CallId) {
        let Some(step) = self.step() else { return };
        let Some((_, progress)) = step.places.get(call).and_then(|&place| step.calls.get_mut(place)) else {
            // The reference tolerates a stray call; ours never writes one.
            return;
        };
        if std::mem::replace(&mut progress.called, true) {
            self.report("CALL-2", Some(at), format!("call {call} starts twice"));
        }
    }

    fn tool_result(&mut self, at: Seq, event: &Event, result: &ToolResult) {
        self.in_step(at, result.turn, result.step);
        if !matches!(event.surface, Some(crate::event::SurfaceOp::Append)) {
            return;
        }
        let call = result.message.content.iter().find_map(|block| match block {
            Block::ToolResult { tool_call_id, .. } => Some(tool_call_id.clone()),
            _ => None,
        });
        let Some(call) = call else { return self.report("MSG-2", Some(at), "a result that names no call") };
        let not_started = result.error.as_ref().is_some_and(|error| error.code == "TOOL_NOT_STARTED");
        let Some(step) = self.step() else { return };
        let early = step.unanswered.first().copied();
        let Some(&position) = step.places.get(&call) else {
            return self.report("CALL-5", Some(at), format!("a result of call {call}, which was not asked for"));
        };
        let progress = &mut step.calls[position].1;
        progress.results += 1;
        step.unanswered.remove(&position);
        let progress = *progress;
        if progress.results > 1 {
            self.report("CALL-1", Some(at), format!("call {call} has {} results", progress.results));
        }
        if !progress.called && !not_started {
            self.report("CALL-2", Some(at), format!("call {call} has a result but never started"));
        }
        if early.is_some_and(|early| early < position) {
            self.report("CALL-6", Some(at), format!("the result of call {call} comes before that of an earlier call"));
        }
    }

    fn inbox_spliced(&mut self, at: Seq, splice: &InboxSpliced) {
        for message in &splice.inserted {
            let pending = [Lane::NextTurn, Lane::NextStep]
                .iter()
                .any(|&lane| self.inbox.lane(lane).iter().any(|m| m.id == message.id));
            if pending {
                self.report("INBOX-2", Some(at), format!("message {} is pending twice", message.id));
            }
        }
        if let Err(error) = self.inbox.apply(splice) {
            self.report("INBOX-1", Some(at), error.to_string());
        }
    }

    fn retry_scheduled(&mut self, at: Seq, retry: &RetryScheduled) {
        self.in_step(at, retry.turn, retry.step);
        let Some(step) = self.step() else { return };
        let count = step.retries.entry(retry.policy_key.clone()).or_default();
        *count += 1;
        let expected = *count;
        step.waits_for_retry = Some((retry.retry_id.clone(), retry.retry));
        if retry.retry != expected || retry.max_retries.is_some_and(|max| retry.retry > max) {
            self.report("RETRY-1", Some(at), format!("retry {} where retry {expected} was due", retry.retry));
        }
    }

    fn hook_asked(&mut self, at: Seq, asked: HookAsked) {
        match &mut self.turn {
            Some(open) if open.number == asked.turn && open.asked.is_none() => open.asked = Some(asked),
            Some(open) if open.number == asked.turn => self.report("HOOK-1", Some(at), "asks while it waits for a say"),
            _ => self.report("HOOK-1", Some(at), "asks in a turn that is not open"),
        }
    }

    fn hook_judged(&mut self, at: Seq, judged: &HookJudged) {
        let asked = self.turn.as_mut().and_then(|open| open.asked.take());
        let is_answer = asked
            .is_some_and(|asked| (asked.turn, asked.step, asked.point) == (judged.turn, judged.step, judged.point));
        if !is_answer {
            self.report("HOOK-2", Some(at), format!("a say at {} that was not asked for", judged.point));
        }
    }

    fn agent_born(&mut self, at: Seq) {
        if self.turn.is_some() {
            self.report("BORN-1", Some(at), "an agent is born inside a turn");
        }
        self.born = true;
        self.inbox = Inbox::default();
        self.spent = Spent::default();
    }

    fn outcome_reached(&mut self, at: Seq, turn: u32, kind: OutcomeKind, spent: Spent) {
        match self.owes_outcome.take() {
            Some((ended, end)) if ended == turn => {
                if OutcomeKind::of(&end) != kind {
                    self.report(
                        "OUT-2",
                        Some(at),
                        format!("turn {turn} came out as {kind}, which its end does not say"),
                    );
                }
            }
            // The log of another program: its turns have no outcomes until repair writes one.
            _ if !self.born => {}
            _ => self.report("OUT-1", Some(at), format!("an outcome of turn {turn}, which did not just end")),
        }
        if spent.model_calls < self.spent.model_calls || spent.tool_calls < self.spent.tool_calls {
            self.report("OUT-3", Some(at), "the agent spent less than before");
        }
        self.spent = spent;
    }
}
