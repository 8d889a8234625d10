//! The agent actor: one mailbox, one log. It decides through the kernel, hands what it decided to the journal, and
//! makes the running tasks match what is wanted. `handle` awaits nothing.

mod effect;
mod funds;
mod hold;
mod judge;
mod observe;
mod work;
mod workspace;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdSet;
use impresario_kernel::event::{Lane, QueueRule};
use impresario_kernel::{
    Agent, AgentId, Boundary, CallId, CallKey, CallReport, Cause, ChargeId, Failure, Fork, HookAsked, Input, Judgement,
    Message, MessageId, Millis, NoFork, Outcome, Refused, RunKey, Seq, Want,
};
use impresario_seams::{NewSession, Workspace};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::checkpoints;
use crate::delegation::{self, Settled};
use crate::error::Error;
use crate::pipeline;
use crate::profile::Profile;
use crate::sampling::ChunkBuffer;
use crate::shared::Shared;
use crate::supervisor::{SupervisorMessage, WaitResult};

use effect::Effect;
pub(crate) use funds::Paid;
use funds::Payment;
use hold::Held;

pub(crate) struct AgentActor;

/// Requests are imperative, reports are past tense. The first group may give an agent work and is counted by the
/// router; the second only comes to an agent that is not at rest.
pub(crate) enum AgentMessage {
    /// Begin: reconcile what the log calls for.
    Start,
    /// Begin: close what a dead actor or process left open.
    Recover,
    /// Accept a message.
    Deliver(Delivery),
    /// Take a message that waits away, or put another in its place; answered with whether it waited.
    Amend { id: MessageId, with: Option<Arc<Message>>, reply: oneshot::Sender<bool> },
    /// End the turn; what has not ended by `deadline` is abandoned.
    Cancel { cause: Cause, queue: QueueRule, deadline: Duration },
    /// A child came to an end: the result of the call that asked for it, or else a message.
    ChildSettled { call: Option<CallKey>, settled: Settled, wakes: bool },
    /// How the last turn came out.
    TellOutcome(oneshot::Sender<Option<Arc<Outcome>>>),
    /// There is a new supervisor, which knows nothing of what is on its way: ask it again, and tell it how things stand.
    Announce,
    /// Give a copy to go on from.
    Fork { boundary: Boundary, reply: oneshot::Sender<Result<Fork, NoFork>> },
    /// Say how the last turn came out when there is nothing left to do.
    WhenIdle(oneshot::Sender<Option<Arc<Outcome>>>),

    /// A turn may run: the answer to this ask.
    SlotGranted { ask: u64 },
    /// What is said to a wish for funds.
    Paid { charge: ChargeId, paid: Paid },
    /// Something that the model is told with its next request.
    Note(String),
    /// The log is durable up to here.
    Durable(Seq),
    /// Pieces of an answer have waited long enough to be written.
    HeldLong,
    /// There is something in the buffer of this attempt.
    ChunksReady { run: RunKey },
    /// An attempt is over.
    ModelEnded { run: RunKey, result: Result<(), Failure> },
    /// The wait before this attempt is over.
    RetryDue { run: RunKey },
    /// A call has really ended.
    CallEnded { call: CallKey, report: CallReport },
    /// Hooks have let a call for other agents pass.
    CallJudged { call: CallKey },
    /// Hooks have looked at a child's answer.
    AnswerReviewed { call: CallKey, settled: Settled, wakes: bool, report: Box<CallReport> },
    /// A workspace for a child is there, or cannot be had.
    WorkspaceOpened { call: CallKey, opened: Result<Workspace, String>, is_again: bool },
    /// What the turn has left in the agent's own workspace.
    WorkspaceSeen { outcome: Arc<Outcome>, left: Arc<str> },
    /// Hooks have answered.
    Judged { asked: HookAsked, judgement: Judgement },
    /// A wait for children is over.
    WaitEnded { call: CallKey, result: WaitResult },
    /// The deadline of a cancel has passed.
    DeadlinePassed { turn: u32 },
}

/// A message on its way into an inbox.
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    pub(crate) lane: Lane,
    pub(crate) wakes: bool,
    /// Answered when the message is durable.
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
}

/// How an agent's actor begins.
pub(crate) struct AgentInit {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: AgentId,
    pub(crate) profile: Arc<Profile>,
    pub(crate) agent: Agent,
    /// How much of its log is known to be durable.
    pub(crate) durable: Seq,
    pub(crate) title: String,
}

pub(crate) struct AgentState {
    shared: Arc<Shared>,
    id: AgentId,
    profile: Arc<Profile>,
    agent: Agent,
    /// How many events its last checkpoint stands for.
    kept: Seq,
    /// As it was before its open turn: what forks go on from. It shares nearly everything.
    rested: Option<Agent>,
    durable: Seq,
    title: String,
    /// What was wanted when what runs was last made to match it.
    wanted: OrdSet<Want>,
    /// Running work; dropping a handle ends its task.
    tasks: BTreeMap<Want, Task>,
    /// Work that is wanted, with the place up to which the log must be durable before it may start.
    gates: BTreeMap<Want, Seq>,
    /// How long the log was when what runs was last made to match what is wanted.
    reconciled: Option<Seq>,
    cancels: HashMap<CallKey, CancellationToken>,
    /// Calls for other agents that hooks still judge.
    judging: BTreeSet<CallKey>,
    /// Workspaces for children on their way.
    opening: BTreeMap<CallKey, Task>,
    /// Set while it is looked at what a turn has left in the agent's own workspace.
    looking: Option<Task>,
    /// Children's answers that hooks look at.
    reviews: BTreeMap<CallKey, Task>,
    buffers: HashMap<RunKey, Arc<ChunkBuffer>>,
    held: Held,
    /// What follows when the log is durable up to a place.
    effects: VecDeque<(Seq, Effect)>,
    slot: SlotState,
    /// How far the payment for what costs is.
    payments: BTreeMap<Want, Payment>,
    /// How often a slot was asked for.
    asks: u64,
    /// Names of the calls of the open step, for observers.
    call_names: HashMap<CallId, Arc<str>>,
    turn_started: Millis,
    handled: u64,
    reported: Option<u64>,
    idle_waiters: Vec<oneshot::Sender<Option<Arc<Outcome>>>>,
}

/// A task, or something that others perform.
enum Task {
    Own { _handle: AbortOnDropHandle<()> },
    Delegated,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SlotState {
    None,
    Asked,
    Held,
}

impl Actor for AgentActor {
    type Msg = AgentMessage;
    type State = AgentState;
    type Arguments = AgentInit;

    async fn pre_start(&self, _: ActorRef<Self::Msg>, init: AgentInit) -> Result<Self::State, ActorProcessingErr> {
        // Who is read back is written down soon if all of its log had to be read; who is born shares what it has inherited.
        let is_born = init.durable == Seq(0);
        let kept = if is_born { init.agent.log().next_seq() } else { init.agent.log().begins_at() };
        Ok(AgentState {
            shared: init.shared,
            id: init.id,
            profile: init.profile,
            agent: init.agent,
            kept,
            rested: None,
            durable: init.durable,
            title: init.title,
            wanted: OrdSet::new(),
            tasks: BTreeMap::new(),
            gates: BTreeMap::new(),
            reconciled: None,
            cancels: HashMap::new(),
            judging: BTreeSet::new(),
            opening: BTreeMap::new(),
            looking: None,
            reviews: BTreeMap::new(),
            buffers: HashMap::new(),
            held: Held::default(),
            effects: VecDeque::new(),
            slot: SlotState::None,
            payments: BTreeMap::new(),
            asks: 0,
            call_names: HashMap::new(),
            turn_started: Millis(0),
            handled: 0,
            reported: None,
            idle_waiters: vec![],
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: AgentMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.chance.linger().await;
        state.take(&myself, message);
        state.reconcile(&myself);
        state.report_rest();
        Ok(())
    }
}

impl AgentState {
    fn take(&mut self, myself: &ActorRef<AgentMessage>, message: AgentMessage) {
        match message {
            AgentMessage::Start => self.handled += 1,
            AgentMessage::Recover => {
                self.handled += 1;
                self.input(Input::Recovered);
            }
            AgentMessage::Deliver(delivery) => {
                self.handled += 1;
                self.deliver(delivery);
            }
            AgentMessage::Amend { id, with, reply } => {
                self.handled += 1;
                let before = self.agent.log().next_seq();
                self.input(Input::Amend { id, with });
                let waited = self.agent.log().next_seq() != before;
                self.follow(Effect::Amended(reply, waited));
            }
            AgentMessage::Cancel { cause, queue, deadline } => {
                self.handled += 1;
                self.cancel(myself, cause, queue, deadline);
            }
            AgentMessage::ChildSettled { call, settled, wakes } => {
                self.handled += 1;
                self.child_settled(myself, call, settled, wakes);
            }
            AgentMessage::TellOutcome(reply) => {
                self.handled += 1;
                self.follow(Effect::Tell(reply));
            }
            AgentMessage::Fork { boundary, reply } => {
                self.handled += 1;
                self.follow(Effect::Fork(boundary, reply));
            }
            AgentMessage::Announce => {
                self.handled += 1;
                self.announce(myself);
            }
            AgentMessage::WhenIdle(reply) => {
                self.handled += 1;
                self.idle_waiters.push(reply);
            }
            // A grant that was on its way when the slot was returned has been taken back.
            AgentMessage::SlotGranted { ask } if self.slot == SlotState::Asked && ask == self.asks => {
                self.slot_granted()
            }
            AgentMessage::SlotGranted { .. } => {}
            AgentMessage::Paid { charge, paid } => self.paid(&charge, paid),
            AgentMessage::Note(note) => self.note(&note),
            AgentMessage::Durable(until) => self.durable_until(until),
            AgentMessage::HeldLong => self.write_held(),
            AgentMessage::ChunksReady { run } => self.take_chunks(run),
            AgentMessage::ModelEnded { run, result } => {
                self.take_chunks(run);
                self.settle_payment();
                self.buffers.remove(&run);
                self.input(Input::ModelSettled { run, result, dice: self.shared.chance.roll() });
            }
            AgentMessage::RetryDue { run } => self.input(Input::RetryDue { run }),
            AgentMessage::CallEnded { call, report } => {
                self.cancels.remove(&call);
                self.reviews.remove(&call);
                self.judging.remove(&call);
                self.input(Input::CallSettled { call, report });
            }
            AgentMessage::CallJudged { call } => self.call_judged(myself, call),
            AgentMessage::AnswerReviewed { call, settled, wakes, report } => {
                self.reviews.remove(&call);
                self.child_answered(Some((call, *report)), settled, wakes);
            }
            AgentMessage::WorkspaceOpened { call, opened, is_again } => {
                self.workspace_opened(myself, call, opened, is_again);
            }
            AgentMessage::WorkspaceSeen { outcome, left } => self.workspace_seen(outcome, left),
            AgentMessage::Judged { asked, judgement } => {
                self.input(Input::Judged { asked, judgement, dice: self.shared.chance.roll() })
            }
            AgentMessage::WaitEnded { call, result } => self.wait_ended(call, result),
            AgentMessage::DeadlinePassed { turn } => self.abandon(turn),
        }
    }

    /// Decides, folds, tells observers, and hands the events to the journal.
    fn input(&mut self, input: Input) {
        if let Err(refused) = self.try_input(input) {
            tracing::debug!(agent = %self.id, %refused, "an input changed nothing");
        }
    }

    fn try_input(&mut self, input: Input) -> Result<(), Refused> {
        let before = self.agent.outcome().map(|outcome| outcome.turn);
        let rested = (self.agent.turn().is_idle() && may_open(&input)).then(|| self.agent.clone());
        let events = self.agent.tell(input, self.shared.chance.now())?;
        if rested.is_some() && !self.agent.turn().is_idle() {
            self.rested = rested;
        }
        if events.is_empty() {
            return Ok(());
        }
        events.iter().for_each(|event| self.observe(event));
        self.submit(events);
        if let Some(outcome) = self.agent.outcome().filter(|outcome| Some(outcome.turn) != before).cloned() {
            self.follow(Effect::TurnEnded(outcome));
        }
        Ok(())
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Delivery { message, lane, wakes, reply } = delivery;
        // What comes while the agent is being stopped waits behind that.
        let wakes = wakes && !self.is_halted();
        if self.title.is_empty() {
            self.title = crate::supervisor::title(&message.text());
        }
        self.input(Input::Deliver { lane, wakes, message });
        self.follow(Effect::Accepted(reply));
    }

    fn cancel(&mut self, myself: &ActorRef<AgentMessage>, cause: Cause, queue: QueueRule, deadline: Duration) {
        let turn = self.agent.last_turn();
        self.settle_payment();
        self.input(Input::Cancel { cause, queue });
        if self.agent.turn().open().is_some() {
            myself.send_after(deadline, move || AgentMessage::DeadlinePassed { turn });
        }
    }

    /// The model is told `note` behind what it is told of its place.
    fn note(&mut self, note: &str) {
        let before = self.agent.spec().context.as_deref().unwrap_or_default();
        self.agent.set_context(format!("{before} {note}").trim().into());
    }

    /// Whether somebody is stopping it, or an agent above it.
    fn is_halted(&self) -> bool {
        self.shared.halts.is_halted(&self.profile.birth.root, &self.profile.birth.path)
    }

    fn take_chunks(&mut self, run: RunKey) {
        let chunks = self.buffers.get(&run).map(|buffer| buffer.take()).unwrap_or_default();
        if !chunks.is_empty() {
            self.input(Input::ChunksArrived { run, chunks });
        }
    }

    /// A child's outcome came: the answer of the call that asked for it, once hooks have looked at it.
    fn child_settled(&mut self, myself: &ActorRef<AgentMessage>, call: Option<CallKey>, settled: Settled, wakes: bool) {
        let Some(key) = call else { return self.child_answered(None, settled, wakes) };
        let bytes_max = delegation::share(self.shared.limits.result_bytes_max, self.agent.calls_in_step());
        let report = settled.report(bytes_max);
        let reviewed = if self.profile.call_hooks.is_empty() { None } else { self.pipeline_call(key) };
        let Some(call) = reviewed else { return self.child_answered(Some((key, report)), settled, wakes) };
        let myself = myself.clone();
        let review = work::own(async move {
            let report = Box::new(pipeline::reviewed(call, report).await);
            // The actor may be gone; its next life is told again.
            let _ = myself.cast(AgentMessage::AnswerReviewed { call: key, settled, wakes, report });
        });
        self.reviews.insert(key, review);
    }

    fn child_answered(&mut self, answer: Option<(CallKey, CallReport)>, settled: Settled, wakes: bool) {
        // Those that wait to be read share as well.
        let bytes_max = delegation::share(self.shared.limits.result_bytes_max, self.agent.inbox().len() + 1);
        let answered = answer.is_some_and(|(call, report)| self.try_input(Input::CallSettled { call, report }).is_ok());
        if !answered {
            let message = settled.notice(bytes_max);
            let wakes = wakes && !self.is_halted();
            self.input(Input::Deliver { lane: Lane::NextStep, wakes, message });
        }
        self.follow(Effect::Delivered { child: settled.child, turn: settled.outcome.turn });
    }

    /// The real ends that a cancel waited for did not come in time.
    fn abandon(&mut self, turn: u32) {
        let stops: Vec<CallKey> = self.agent.wants().into_iter().filter_map(stopped).collect();
        for call in stops.into_iter().filter(|call| call.turn == turn) {
            tracing::warn!(agent = %self.id, %call, "a cancelled call did not end in time and was abandoned");
            self.cancels.remove(&call);
            self.input(Input::CallSettled { call, report: crate::pipeline::abandoned() });
        }
    }

    /// Tells the supervisor whether there is anything left to do here, whenever that may have changed.
    fn report_rest(&mut self) {
        let at_rest = self.agent.is_at_rest()
            && self.durable >= self.agent.log().next_seq()
            && self.effects.is_empty()
            && self.looking.is_none()
            && self.slot == SlotState::None;
        if at_rest {
            let outcome = self.agent.outcome().cloned();
            // Whoever waits may have left.
            self.idle_waiters.drain(..).for_each(|waiter| drop(waiter.send(outcome.clone())));
            if checkpoints::is_due(&self.shared, self.kept, self.durable) {
                self.kept = self.durable;
                checkpoints::keep(&self.shared, &self.id, self.agent.clone());
            }
        }
        let report = at_rest.then_some(self.handled);
        // What is left is to be written: until that is said, what it was sent says that it is not at rest any more.
        let is_writing = !at_rest && self.agent.is_at_rest() && self.looking.is_none() && self.slot == SlotState::None;
        if report == self.reported || is_writing {
            return;
        }
        self.reported = report;
        let (agent, unread) = (self.id.clone(), self.agent.inbox().len());
        self.shared.supervisor.cast(SupervisorMessage::AgentRests { agent, handled: report, unread });
    }
}

/// Whether a turn may begin with this. All else leaves a copy of the agent unmade, and so what it shares with that.
fn may_open(input: &Input) -> bool {
    matches!(input, Input::SlotGranted | Input::Cancel { .. } | Input::Recovered)
}

/// The call that is to end.
fn stopped(want: Want) -> Option<CallKey> {
    match want {
        Want::Stop(call) => Some(call),
        Want::Slot | Want::Judge(_) | Want::Sample(_) | Want::Retry(..) | Want::Run(_) => None,
    }
}

/// A session as its first commit creates it.
pub(crate) fn new_session(
    id: &AgentId,
    profile: &Profile,
    fork: Option<impresario_seams::ForkRef>,
    created_at: Millis,
) -> Arc<NewSession> {
    let birth = &profile.birth;
    let mut header = impresario_kernel::SessionHeader::new(id.clone(), created_at);
    header.cwd = Some(birth.authority.dir.clone());
    header.parent_session = birth.parent.clone();
    header.seed_length = fork.as_ref().map(|fork| fork.until.0);
    header.origin = birth.parent.is_some().then(|| "subagent".into());
    header.delegation_depth = (birth.depth > 0).then_some(birth.depth);
    let (root, path, label) = (birth.root.clone(), birth.path.clone(), profile.label.clone());
    Arc::new(NewSession { header, root, path, label, fork })
}
