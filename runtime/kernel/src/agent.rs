//! The state of one agent: a fold of its log, and the work that this state calls for.

use std::sync::Arc;

use imbl::{OrdSet, Vector};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chunk::FinishReason;
use crate::event::{
    Birth, CallSettled, Event, Fact, InboxSpliced, Lane, OutcomeReached, ParkReason, RequestContext, RequestHeader,
    SurfaceOp, TodoItem,
};
use crate::id::{AgentId, CallId, CallKey, MessageId, Millis, Seq};
use crate::inbox::{BadSplice, Inbox};
use crate::judge::{Decision, HookJudged, Point};
use crate::log::{Log, OutOfOrder};
use crate::message::Message;
use crate::outcome::{Outcome, Spent, TurnEnd};
use crate::spec::Spec;
use crate::surface::{Surface, SurfaceError, snapshot_text};
use crate::turn::{Backoff, Call, CallState, Calling, Open, Phase, Said, Sampling, Stopping, Turn, Want};

/// One agent. `decide` reads it, `apply` folds one event in, `wants` names what should be in flight.
///
/// Cloning is cheap whatever the length of its log: everything that grows is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub(crate) spec: Arc<Spec>,
    pub(crate) log: Log,
    pub(crate) surface: Surface,
    pub(crate) inbox: Inbox,
    pub(crate) turn: Turn,
    /// Where its turns begin, those that it inherited included.
    pub(crate) turns: Vector<Seq>,
    pub(crate) last_turn: u32,
    /// How many turns it inherited.
    pub(crate) turns_before: u32,
    pub(crate) header: Option<Arc<RequestHeader>>,
    /// Whether a header was logged since the session was last opened.
    pub(crate) header_is_fresh: bool,
    /// Whether hooks were told that the session has begun or goes on.
    pub(crate) session_is_known: bool,
    pub(crate) route: Option<RequestContext>,
    pub(crate) snapshot: Option<Arc<str>>,
    pub(crate) birth: Option<Birth>,
    /// Whether what waits in the inbox opens a turn.
    pub(crate) awake: bool,
    pub(crate) parked: Option<ParkReason>,
    pub(crate) accepted: OrdSet<MessageId>,
    pub(crate) call_ids: OrdSet<CallId>,
    pub(crate) spent: Spent,
    pub(crate) todos: Arc<[TodoItem]>,
    pub(crate) ended: Option<Ended>,
    pub(crate) outcome: Option<Arc<Outcome>>,
}

/// The last turn that ended, until its outcome is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) turn: u32,
    pub(crate) end: TurnEnd,
    pub(crate) text: Option<Said>,
    pub(crate) output: Option<Arc<Value>>,
}

/// An event that does not fit the state that its log had before it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Broken {
    /// It is not the next one.
    #[error(transparent)]
    Order(#[from] OutOfOrder),
    /// Its surface operation breaks a rule.
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    /// It splices an inbox that is not like that.
    #[error("event {at}: {splice}")]
    Inbox {
        /// Which event.
        at: Seq,
        /// What is wrong.
        splice: BadSplice,
    },
}

impl Agent {
    /// An agent without a past.
    pub fn new(spec: Arc<Spec>) -> Self {
        Self {
            spec,
            log: Log::default(),
            surface: Surface::default(),
            inbox: Inbox::default(),
            turn: Turn::Idle,
            turns: Vector::new(),
            last_turn: 0,
            turns_before: 0,
            header: None,
            header_is_fresh: false,
            session_is_known: false,
            route: None,
            snapshot: None,
            birth: None,
            awake: false,
            parked: None,
            accepted: OrdSet::new(),
            call_ids: OrdSet::new(),
            spent: Spent::default(),
            todos: Arc::from([]),
            ended: None,
            outcome: None,
        }
    }

    /// The agent that a log makes.
    pub fn fold<'a>(spec: Arc<Spec>, events: impl IntoIterator<Item = &'a Arc<Event>>) -> Result<Self, Broken> {
        let mut agent = Self::new(spec);
        for event in events {
            agent.apply(event)?;
        }
        Ok(agent)
    }

    /// Folds one event in. Never decides. On an error nothing changed.
    pub fn apply(&mut self, event: &Arc<Event>) -> Result<(), Broken> {
        if event.seq != self.log.next_seq() {
            return Err(OutOfOrder { expected: self.log.next_seq(), found: event.seq }.into());
        }
        if let Fact::InboxSpliced(splice) = &event.fact {
            let taken = self.claimed_by(splice);
            self.inbox.apply(splice).map_err(|splice| Broken::Inbox { at: event.seq, splice })?;
            self.with_open(|open| {
                open.claimed.append(taken);
                // What waits again is not taken up any more.
                open.claimed.retain(|(_, claimed)| !splice.inserted.iter().any(|back| back.id == claimed.id));
            });
        }
        self.surface.apply(event)?;
        self.log.push(Arc::clone(event))?;
        self.apply_fact(event);
        Ok(())
    }

    fn apply_fact(&mut self, event: &Arc<Event>) {
        let (seq, time) = (event.seq, event.time);
        match &event.fact {
            Fact::TurnStarted(started) => {
                self.turns.push_back(seq);
                self.open_turn(started.turn, time);
            }
            Fact::TurnEnded(ended) => self.close_turn(ended.turn, &ended.reason),
            Fact::StepStarted(step) => {
                let step = step.step;
                self.with_open(|open| fold_step_started(open, step));
            }
            Fact::StepEnded(_) => {
                self.count_failed_attempt();
                self.with_open(fold_step_ended);
            }
            Fact::UserMessage(_) => {
                if matches!(event.surface, Some(SurfaceOp::Replace { .. })) {
                    // It may be among what is not seen any more.
                    self.snapshot = None;
                }
                if let Some(text) = snapshot_text(&event.fact) {
                    self.snapshot = Some(text);
                }
            }
            Fact::Chunk(_) | Fact::Chunks(_) => self.with_open(|open| fold_chunks(open, event)),
            Fact::AssistantMessage(answer) => {
                self.spent.count_call(answer.usage.as_ref());
                self.call_ids.extend(answer.message.calls().map(|(id, _, _)| id.clone()));
                let message = Arc::clone(&answer.message);
                let spec = Arc::clone(&self.spec);
                self.with_open(|open| fold_answer(open, seq, message, &spec));
            }
            Fact::ToolCalled(called) => {
                let started = self.set_call(&called.call_id, CallState::Started { at: seq });
                let stopping = self.turn.open().is_some_and(|open| open.stopping.is_some());
                // What a cancel finds not started is logged as a call, but never runs.
                if started && !stopping {
                    self.spent.tool_calls += 1;
                }
            }
            Fact::CallSettled(settled) => self.fold_settled(settled),
            Fact::ToolResult(result) => self.fold_result(&result.message),
            Fact::TodoWritten(written) => {
                self.todos = written.todos.clone().into();
                self.with_open(|open| open.wrote_todos = true);
            }
            Fact::RequestHeader(logged) => {
                self.header = Some(Arc::clone(&logged.header));
                self.header_is_fresh = true;
            }
            Fact::RequestContext(route) => self.route = Some(route.clone()),
            Fact::SeedEnded(_) => (self.header_is_fresh, self.session_is_known) = (false, false),
            Fact::InboxSpliced(splice) => self.fold_splice(splice),
            Fact::InboxWoken(_) => self.wake(),
            Fact::InboxParked(parked) => {
                (self.awake, self.parked) = (false, Some(parked.reason));
                self.with_open(|open| open.stopping.iter_mut().for_each(|stopping| stopping.woken = false));
            }
            Fact::RetryScheduled(retry) => {
                self.count_failed_attempt();
                let backoff = Backoff {
                    retry_id: retry.retry_id.clone(),
                    retry: retry.retry,
                    until: Millis(time.0.saturating_add(retry.delay_ms)),
                    failure: retry.failure.clone(),
                };
                self.with_open(|open| open.phase = Phase::Backoff(backoff));
            }
            Fact::RetryStarted(retry) => {
                let sampling = Sampling { attempt: retry.retry, ..Sampling::default() };
                self.with_open(|open| open.phase = Phase::Sampling(sampling));
            }
            Fact::AgentBorn(birth) => self.be_born(birth),
            Fact::TurnStopping(stopping) => {
                let stopping = Stopping { cause: stopping.cause.clone(), queue: stopping.queue, woken: false };
                self.with_open(|open| {
                    open.stopping = Some(stopping);
                    if let Phase::Calling(calling) = &mut open.phase {
                        calling.stop();
                    }
                });
            }
            Fact::HookAsked(asked) => self.with_open(|open| open.judging = Some(*asked)),
            Fact::HookJudged(judged) => {
                self.session_is_known |= judged.point == Point::SessionStart;
                self.with_open(|open| fold_judged(open, judged));
            }
            Fact::OutcomeReached(reached) => self.fold_outcome(reached),
            Fact::SubagentDescribed(_)
            | Fact::TreeReserved(_)
            | Fact::TreePublished(_)
            | Fact::TreeRefused(_)
            | Fact::TreeDelivered(_)
            | Fact::TreeTombstoned(_)
            | Fact::TreeLifted(_)
            | Fact::BudgetDrawn(_)
            | Fact::BudgetReserved(_)
            | Fact::BudgetSettled(_)
            | Fact::BudgetRefunded(_)
            | Fact::Other(_) => {}
        }
    }

    fn open_turn(&mut self, number: u32, started: Millis) {
        self.last_turn = number;
        self.turn = Turn::Open(Box::new(Open {
            number,
            started,
            step: 0,
            phase: Phase::Between,
            max_tokens: false,
            concludes: false,
            is_done: false,
            claimed: Vector::new(),
            judging: None,
            steered: Vector::new(),
            wrote_todos: false,
            stopping: None,
            text: None,
            output: None,
            spent_before: self.spent,
        }));
    }

    fn close_turn(&mut self, turn: u32, end: &TurnEnd) {
        let (text, output) = match std::mem::take(&mut self.turn) {
            Turn::Open(open) => (open.text, open.output),
            Turn::Idle => (None, None),
        };
        self.ended = Some(Ended { turn, end: end.clone(), text, output });
        self.awake &= !self.inbox.is_empty();
        self.parked = None;
    }

    fn with_open(&mut self, change: impl FnOnce(&mut Open)) {
        if let Turn::Open(open) = &mut self.turn {
            change(open);
        }
    }

    /// Moves the call `id` of the open step on; `false` if there is none.
    fn set_call(&mut self, id: &CallId, state: CallState) -> bool {
        let Turn::Open(open) = &mut self.turn else { return false };
        let (turn, step, is_stopping) = (open.number, open.step, open.stopping.is_some());
        let Phase::Calling(calling) = &mut open.phase else { return false };
        calling.set(id, state, |at| CallKey::at(turn, step, at), is_stopping)
    }

    fn fold_settled(&mut self, settled: &CallSettled) {
        self.accepted.insert(settled.message.id.clone());
        let Some(id) = answered_call(&settled.message) else { return };
        self.set_call(&id, CallState::Settled(Arc::new(settled.clone())));
        if settled.concludes {
            self.with_open(|open| open.concludes = true);
        }
        if let Some(output) = settled.output.clone() {
            self.with_open(|open| open.output = Some(output));
        }
    }

    fn fold_result(&mut self, message: &Message) {
        // A child's outcome may come as a result or as a message, under one id: once is enough.
        self.accepted.insert(message.id.clone());
        let Some(id) = answered_call(message) else { return };
        self.set_call(&id, CallState::Answered);
    }

    /// What a splice takes out of the inbox for the open turn; it comes before the splice is folded in.
    fn claimed_by(&self, splice: &InboxSpliced) -> Vector<(Lane, Arc<Message>)> {
        let is_between = self.turn.open().is_some_and(|open| open.phase == Phase::Between);
        if !is_between || splice.outcome.is_some() || !splice.inserted.is_empty() {
            return Vector::new();
        }
        let lane = self.inbox.lane(splice.target);
        lane.iter().skip(splice.start).take(splice.removed_count).map(|m| (splice.target, Arc::clone(m))).collect()
    }

    fn fold_splice(&mut self, splice: &InboxSpliced) {
        self.accepted.extend(splice.inserted.iter().map(|message| message.id.clone()));
        // What stands in the place of another wakes nobody: the other one did, or was parked.
        if splice.target == Lane::NextTurn && !splice.inserted.is_empty() && splice.removed_count == 0 {
            self.wake();
        }
        // A turn takes up all that joins a step; what wakes from here on is the rest of the queue.
        if !self.turn.is_idle() && self.inbox.lane(Lane::NextStep).is_empty() {
            self.awake = !self.inbox.lane(Lane::NextTurn).is_empty();
        }
        if self.turn.is_idle() && self.inbox.is_empty() {
            (self.awake, self.parked) = (false, None);
        }
    }

    fn wake(&mut self) {
        (self.awake, self.parked) = (true, None);
        self.with_open(|open| {
            if let Some(stopping) = &mut open.stopping {
                stopping.woken = true;
            }
        });
    }

    /// A step or an attempt ends without an answer: it was a model call all the same.
    fn count_failed_attempt(&mut self) {
        if let Turn::Open(open) = &self.turn
            && let Phase::Sampling(sampling) = &open.phase
        {
            self.spent.count_call(sampling.assembler.usage().as_ref());
        }
    }

    /// What is before belongs to the parent of a fork: its conversation is inherited, its mail, its plan and its bill are not.
    fn be_born(&mut self, birth: &Birth) {
        self.birth = Some(birth.clone());
        self.turns_before = self.last_turn;
        self.inbox = Inbox::default();
        (self.awake, self.parked) = (false, None);
        self.accepted = OrdSet::new();
        self.todos = Arc::from([]);
        self.spent = Spent::default();
        (self.ended, self.outcome) = (None, None);
    }

    fn fold_outcome(&mut self, reached: &OutcomeReached) {
        let (kind, spent, output) = (reached.kind, reached.spent, reached.output.clone());
        let Some(ended) = &self.ended else { return };
        let text = ended.text.as_ref().map(|said| said.message.text().into()).unwrap_or_default();
        self.outcome = Some(Arc::new(Outcome { turn: ended.turn, kind, end: ended.end.clone(), text, output, spent }));
    }
}

fn fold_step_started(open: &mut Open, step: u32) {
    (open.step, open.phase) = (step, Phase::Sampling(Sampling::default()));
    (open.concludes, open.is_done) = (false, false);
    open.claimed.clear();
}

fn fold_step_ended(open: &mut Open) {
    open.is_done = match &open.phase {
        Phase::Calling(calling) => open.concludes || calling.calls.is_empty(),
        Phase::Between | Phase::Sampling(_) | Phase::Backoff(_) => false,
    };
    open.phase = Phase::Between;
}

fn fold_judged(open: &mut Open, judged: &HookJudged) {
    open.judging = None;
    if judged.decision == Decision::Steered {
        open.steered.extend(judged.hooks.iter().cloned());
    }
}

fn fold_chunks(open: &mut Open, event: &Event) {
    let Phase::Sampling(sampling) = &mut open.phase else { return };
    // Places grow, so the push cannot be refused.
    let _ = sampling.sources.push(event.seq.0, event.next_seq().0 - 1);
    match &event.fact {
        Fact::Chunk(streamed) => {
            sampling.assembler.push(&streamed.chunk);
            // Sticky: a later answer that is whole does not make the turn complete.
            open.max_tokens |= sampling.assembler.finish() == Some(&FinishReason::MaxTokens);
        }
        Fact::Chunks(run) => sampling.assembler.push_run(run),
        _ => {}
    }
}

fn fold_answer(open: &mut Open, seq: Seq, message: Arc<Message>, spec: &Spec) {
    let calls: Vector<Call> = message
        .calls()
        .map(|(id, name, arguments)| Call {
            id: id.clone(),
            name: Arc::clone(name),
            arguments: Arc::clone(arguments),
            overlap: spec.overlap_of(name),
            state: CallState::Waiting,
        })
        .collect();
    if !message.text().is_empty() {
        open.text = Some(Said { at: seq, message });
    }
    open.phase = Phase::Calling(Calling::new(seq, calls));
}

fn answered_call(message: &Message) -> Option<CallId> {
    message.content.iter().find_map(|block| match block {
        crate::message::Block::ToolResult { tool_call_id, .. } => Some(tool_call_id.clone()),
        _ => None,
    })
}

/// Views.
impl Agent {
    /// Its log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its id's namesake facts: where it stands, and what it may do.
    pub fn birth(&self) -> Option<&Birth> {
        self.birth.as_ref()
    }

    /// Its turn.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The number of its last turn; 0 before the first.
    pub fn last_turn(&self) -> u32 {
        self.last_turn
    }

    /// How many turns were its own, inherited ones apart.
    pub fn own_turns(&self) -> u32 {
        self.last_turn.saturating_sub(self.turns_before)
    }

    /// What waits.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Why what waits opens no turn, if it does not.
    pub fn parked(&self) -> Option<ParkReason> {
        self.parked
    }

    /// How its last ended turn came out.
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.outcome.as_ref()
    }

    /// What it spent so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Its todo list.
    pub fn todos(&self) -> &[TodoItem] {
        &self.todos
    }

    /// What the open turn is to come out with, once a call has given it.
    pub fn output(&self) -> Option<&Arc<Value>> {
        self.turn.open()?.output.as_ref()
    }

    /// What the runtime last told the model about itself.
    pub fn snapshot(&self) -> Option<&Arc<str>> {
        self.snapshot.as_ref()
    }

    /// What the runtime tells the model about itself is this from here on; said with the next request.
    pub fn set_context(&mut self, context: Arc<str>) {
        self.spec = Arc::new(Spec { context: Some(context), ..Spec::clone(&self.spec) });
    }

    /// What it runs with.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Whether this message was accepted, now or earlier.
    pub fn has_accepted(&self, id: &MessageId) -> bool {
        self.accepted.contains(id)
    }

    /// The frame of its requests; none before the first turn.
    pub fn header(&self) -> Option<&Arc<RequestHeader>> {
        self.header.as_ref()
    }

    /// What the model sees.
    pub fn messages(&self) -> Vec<Arc<Message>> {
        self.surface.messages().cloned().collect()
    }

    /// The call at `key`, if it belongs to the open step.
    pub fn call(&self, key: CallKey) -> Option<&Call> {
        let open = self.turn.open()?;
        let Phase::Calling(calling) = &open.phase else { return None };
        if (open.number, open.step) != (key.turn, key.step) {
            return None;
        }
        calling.calls.get(key.index as usize)
    }

    /// How many calls the answer asked for whose calls run now.
    pub fn calls_in_step(&self) -> usize {
        match self.turn.open().map(|open| &open.phase) {
            Some(Phase::Calling(calling)) => calling.calls.len(),
            _ => 0,
        }
    }

    /// Its id's parent.
    pub fn parent(&self) -> Option<&AgentId> {
        self.birth.as_ref().and_then(|birth| birth.parent.as_ref())
    }
}

/// What should be in flight.
impl Agent {
    /// The work that this state calls for; empty exactly at rest. What is the same as before is shared with the set of
    /// before, so that comparing the two costs what has changed.
    pub fn wants(&self) -> OrdSet<Want> {
        let Turn::Open(open) = &self.turn else {
            return self.wants_turn().then_some(Want::Slot).into_iter().collect();
        };
        if let Some(asked) = open.judging {
            return OrdSet::unit(Want::Judge(asked));
        }
        match &open.phase {
            Phase::Between => OrdSet::new(),
            Phase::Sampling(sampling) => OrdSet::unit(Want::Sample(open.run_of(sampling.attempt))),
            Phase::Backoff(backoff) => OrdSet::unit(Want::Retry(open.run_of(backoff.retry), backoff.until)),
            Phase::Calling(calling) => calling.wants().clone(),
        }
    }

    /// Whether something that waits opens a turn.
    pub fn wants_turn(&self) -> bool {
        self.turn.is_idle() && self.awake && !self.inbox.is_empty()
    }

    /// Whether its turn counts against the limit of running turns: not while all that it does is wait for others.
    pub fn is_running(&self) -> bool {
        let Turn::Open(open) = &self.turn else { return false };
        let Phase::Calling(calling) = &open.phase else { return true };
        // Everything that may start has started, so what waits waits for something that runs.
        calling.is_answered() || calling.is_working()
    }

    /// Whether nothing is in flight and nothing that waits would start something.
    pub fn is_at_rest(&self) -> bool {
        self.turn.is_idle() && !self.wants_turn()
    }
}
