//! One agent under every order of reports, late reports, cancels and crashes that a seed can think of.
//!
//! After each step the agent must equal the fold of its log, the oracle must be content, and what it wants must be
//! there exactly when it is not at rest. A failure prints its seed; `SEED=n` runs that one alone.

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use impresario_kernel::Want;
use impresario_kernel::event::{Authority, Context};
use impresario_kernel::invariant::Oracle;
use impresario_kernel::{
    Access, Agent, AgentPath, Birth, Block, CallReport, Cause, Chunk, Entry, Event, Fact, Failure, FinishReason,
    HookAsked, Input, Judgement, Lane, Message, MessageId, Millis, Overlap, Point, QueueRule, Recovery, RequestHeader,
    RetryPolicy, Said, Seq, SessionHeader, Spec, TurnLimits, Usage,
};
use kit::dice::Dice;

const SEEDS: u64 = 2_000;
const STEPS: usize = 60;

/// An agent whose turns are asked about at `asked_at`.
fn spec(asked_at: BTreeSet<Point>) -> Arc<Spec> {
    let overlap = [("read", Overlap::Parallel), ("write", Overlap::Exclusive), ("child", Overlap::Delegation)];
    Arc::new(Spec {
        overlap: Arc::new(overlap.into_iter().map(|(name, overlap)| (name.to_owned(), overlap)).collect()),
        context: Some("you are root".into()),
        limits: TurnLimits { steps: 6, parallel_calls: 2, ..TurnLimits::default() },
        retry: RetryPolicy { max_retries: 2, ..RetryPolicy::default() },
        asked_at: Arc::new(asked_at),
        ..Spec::new(RequestHeader { system: Some("system".into()), ..RequestHeader::new("p", "m") })
    })
}

fn birth() -> Birth {
    Birth {
        root: "r".into(),
        parent: None,
        path: AgentPath::root(),
        depth: 0,
        context: Context::Fresh,
        authority: Authority { dir: "/".into(), access: Access::Read, tools: vec![], may_spawn: None },
        workspace: None,
        output_schema: None,
        route: None,
    }
}

struct World {
    dice: Dice,
    spec: Arc<Spec>,
    now: Millis,
    agent: Agent,
    oracle: Oracle,
    /// The same agent, read from a checkpoint that was made on the way.
    twin: Option<Agent>,
    /// Every report that was ever made: any of them may come again, late.
    past: Vec<Input>,
    messages: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let asked_at = Point::ALL.into_iter().filter(|_| dice.one_in(3)).collect();
        let spec = spec(asked_at);
        let (agent, oracle) = (Agent::new(Arc::clone(&spec)), Oracle::new());
        let mut world = Self { dice, spec, now: Millis(1_000), agent, oracle, twin: None, past: vec![], messages: 0 };
        world.tell(Input::Born { birth: birth(), descriptor: None, last_turns: None });
        world
    }

    fn tell(&mut self, input: Input) {
        self.now.0 += self.dice.below(50);
        let twin = self.twin.as_mut().map(|twin| twin.tell(input.clone(), self.now));
        let told = self.agent.tell(input, self.now);
        if let Some(twin) = twin {
            assert_eq!(twin, told, "what was read from a checkpoint decides otherwise");
        }
        let Ok(events) = told else { return };
        events.iter().for_each(|event| self.oracle.watch(event));
        self.check();
    }

    fn check(&mut self) {
        assert_eq!(self.oracle.violations(), [], "the oracle objects");
        let wants = self.agent.wants();
        assert_eq!(wants.is_empty(), self.agent.is_at_rest(), "AGT-1: {wants:?} {:?}", self.agent.turn());
        if self.dice.one_in(8) {
            self.check_fold();
        }
        self.check_checkpoint();
    }

    fn check_fold(&self) {
        let folded = Agent::fold(Arc::clone(&self.spec), self.agent.log().iter()).expect("its own log folds");
        assert_eq!(folded, self.agent, "LOG-2: the agent is not the fold of its log");
    }

    /// What is written of an agent between turns, and read back, is the same; and it stays that.
    fn check_checkpoint(&mut self) {
        let Some(bytes) = self.agent.checkpoint().expect("it can be written") else { return };
        let twin = self.twin.as_ref().map(|twin| twin.checkpoint().expect("it can be written"));
        assert!(twin.is_none_or(|twin| twin.as_ref() == Some(&bytes)), "the twin has become another");
        if self.dice.one_in(4) {
            let restored = Agent::restore(Arc::clone(&self.spec), &bytes).expect("it can be read");
            assert_eq!(restored.log().next_seq(), self.agent.log().next_seq());
            self.twin = Some(restored);
        }
    }

    fn deliver(&mut self) {
        // Now and then the same message again.
        let repeat = self.messages > 0 && self.dice.one_in(6);
        let number = if repeat { self.dice.below(self.messages) } else { self.messages };
        self.messages = self.messages.max(number + 1);
        let (lane, wakes) = match self.dice.below(5) {
            0 | 1 => (Lane::NextTurn, true),
            2 => (Lane::NextTurn, false),
            3 => (Lane::NextStep, true),
            _ => (Lane::NextStep, false),
        };
        let message = Arc::new(Message::user(format!("m{number}"), format!("do {number}")));
        self.tell(Input::Deliver { lane, wakes, message });
    }

    fn amend(&mut self) {
        let id = format!("m{}", self.dice.below(self.messages)).into();
        let with = self.dice.one_in(2).then(|| Arc::new(Message::user(format!("n{}", self.dice.roll()), "instead")));
        self.tell(Input::Amend { id, with });
    }

    fn cancel(&mut self) {
        let queue = [QueueRule::Run, QueueRule::Park, QueueRule::Discard][self.dice.below(3) as usize];
        self.tell(Input::Cancel { cause: Cause::user("test"), queue });
    }

    /// The process dies and comes back: only the log is left.
    fn crash(&mut self) {
        self.agent = Agent::fold(Arc::clone(&self.spec), self.agent.log().iter()).expect("a stored log folds");
        self.tell(Input::Recovered);
        assert!(self.agent.turn().is_idle(), "recovery never goes on with a turn");
        assert!(self.agent.is_at_rest(), "and opens none by itself");
    }

    /// Does one thing that the agent wants.
    fn perform(&mut self, calls: bool) {
        let wants: Vec<Want> = self.agent.wants().into_iter().collect();
        if wants.is_empty() {
            return;
        }
        let at = self.dice.below(wants.len() as u64) as usize;
        let report = match wants[at] {
            Want::Slot => Input::SlotGranted,
            Want::Judge(asked) => self.judge(asked),
            Want::Retry(run, _) => Input::RetryDue { run },
            Want::Sample(run) if self.dice.one_in(2) => Input::ChunksArrived { run, chunks: self.deltas() },
            Want::Sample(run) => {
                let chunks = self.ending(calls);
                let failed = chunks.is_empty();
                self.tell(Input::ChunksArrived { run, chunks });
                let result = if failed { Err(self.failure()) } else { Ok(()) };
                Input::ModelSettled { run, result, dice: self.dice.roll() }
            }
            Want::Run(call) | Want::Stop(call) => {
                let is_error = self.dice.one_in(3);
                let concludes = self.dice.one_in(9);
                let report = CallReport { content: vec![Block::text("r")], is_error, concludes, ..Default::default() };
                Input::CallSettled { call, report }
            }
        };
        self.past.push(report.clone());
        self.tell(report);
    }

    fn judge(&mut self, asked: HookAsked) -> Input {
        let judgement = match (asked.point, self.dice.below(4)) {
            (point, 0) => Judgement::Failed { point, hook: "hook".into(), why: "as the seed says".into() },
            (Point::SessionStart, n) => Judgement::SessionStart((1..n).map(|n| self.said(n)).collect()),
            (Point::PreStep, 1) => Judgement::PreStep(Entry::Pass),
            (Point::PreStep, 2) => {
                let messages = (0..self.dice.below(3)).map(|n| self.said(n).what).collect();
                Judgement::PreStep(Entry::Enter { messages, hooks: vec!["hook".into()] })
            }
            (Point::PreStep, _) => Judgement::PreStep(Entry::Reject(Said { hook: "hook".into(), what: "no".into() })),
            (Point::Request, n) => {
                let what = RequestHeader::new("p", &format!("m{n}")).config;
                Judgement::Request((n > 1).then(|| Said { hook: "hook".into(), what }))
            }
            (Point::RequestError, 1) => Judgement::RequestError(Recovery::Policy),
            (Point::RequestError, 2) => Judgement::RequestError(Recovery::GiveUp { hook: "hook".into() }),
            (Point::RequestError, n) => {
                Judgement::RequestError(Recovery::Retry { hook: "hook".into(), delay_ms: Some(n) })
            }
            (Point::TurnStopping, n) => Judgement::TurnStopping((2..n).map(|n| self.said(n)).collect()),
        };
        Input::Judged { asked, judgement, dice: self.dice.roll() }
    }

    fn said(&mut self, n: u64) -> Said<Arc<Message>> {
        let what = Arc::new(Message::user(format!("said-{}-{n}", self.dice.roll()), "by a hook"));
        Said { hook: "hook".into(), what }
    }

    fn failure(&mut self) -> Failure {
        Failure::new(if self.dice.one_in(2) { "SERVER" } else { "BAD_REQUEST" }, "no")
    }

    fn deltas(&mut self) -> Vec<(Millis, Chunk)> {
        let index = self.dice.below(2) as u32;
        let count = 1 + self.dice.below(3);
        (0..count).map(|n| (Millis(self.now.0 + n), Chunk::TextDelta { index, text: format!("t{n} ") })).collect()
    }

    /// The last chunks of an attempt; none when it fails without a word.
    fn ending(&mut self, calls: bool) -> Vec<(Millis, Chunk)> {
        let mut chunks = self.deltas();
        let wanted = if calls { self.dice.below(5) } else { 0 };
        for n in 0..wanted {
            let name = ["read", "read", "write", "child", "nobody"][self.dice.below(5) as usize];
            // Providers reuse ids.
            let id = format!("call-{}", self.dice.below(3) + n % 2);
            let (index, arguments_delta) = (10 + n as u32, "{}".to_owned());
            let delta = Chunk::ToolCallDelta { index, id: id.into(), name: Some(name.into()), arguments_delta };
            chunks.push((self.now, delta));
        }
        chunks
            .push((self.now, Chunk::Usage { usage: Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() } }));
        let reason = match self.dice.below(12) {
            0 => FinishReason::MaxTokens,
            1 => FinishReason::Error { failure: self.failure() },
            2 => return vec![],
            _ => FinishReason::Stop,
        };
        chunks.push((self.now, Chunk::Finish { reason, replay_state: None }));
        chunks
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..=3 => self.deliver(),
            4 => self.cancel(),
            5 => self.crash(),
            7 if self.messages > 0 => self.amend(),
            6 if !self.past.is_empty() => {
                let at = self.dice.below(self.past.len() as u64) as usize;
                self.tell(self.past[at].clone());
            }
            _ => self.perform(true),
        }
    }

    /// Nobody asks for anything more, and models stop calling tools: it must come to rest.
    fn come_to_rest(&mut self) {
        let message = Arc::new(Message::user("last", "wake up"));
        self.tell(Input::Deliver { lane: Lane::NextTurn, wakes: true, message });
        for _ in 0..2_000 {
            if self.agent.is_at_rest() && self.agent.inbox().is_empty() {
                return;
            }
            if self.agent.is_at_rest() {
                // A turn failed and parked the rest: the next waking message lets it go on.
                self.deliver();
            }
            self.perform(false);
        }
        panic!("it does not come to rest: {:?} {:?}", self.agent.turn(), self.agent.inbox());
    }

    /// Wherever a log is cut, repair makes a balanced one of it.
    fn check_cut(&mut self) {
        let length = self.agent.log().next_seq().0;
        let cut = Seq(2 + self.dice.below(length.saturating_sub(1)));
        let prefix = self.agent.log().prefix(cut);
        let mut agent = Agent::fold(Arc::clone(&self.spec), prefix.iter()).expect("a prefix folds");
        agent.tell(Input::Recovered, Millis(0)).expect("recovery is never refused");
        let events: Vec<Arc<Event>> = agent.log().iter().cloned().collect();
        let header = SessionHeader::new("r".into(), Millis(0));
        assert_eq!(impresario_kernel::invariant::check_log(&header, &events), [], "cut at {cut}");
        assert!(agent.turn().is_idle() && agent.is_at_rest(), "cut at {cut}");
        let again = agent.decide(Input::Recovered, Millis(0)).expect("recovery is never refused");
        assert_eq!(again, [], "a second recovery has nothing to do");
    }
}

/// A message that was accepted waits, or is before the model, or was taken away by somebody; and never two of these.
fn no_message_is_lost_or_there_twice(agent: &Agent) {
    let mut accepted = BTreeSet::new();
    let (mut shown, mut taken_away) = (BTreeMap::<MessageId, u32>::new(), BTreeSet::new());
    let mut inbox = impresario_kernel::inbox::Inbox::default();
    for event in agent.log().iter() {
        match &event.fact {
            Fact::UserMessage(message) => *shown.entry(message.id.clone()).or_default() += 1,
            Fact::InboxSpliced(splice) => {
                accepted.extend(splice.inserted.iter().map(|message| message.id.clone()));
                if splice.outcome.is_some() {
                    let gone = inbox.lane(splice.target).iter().skip(splice.start).take(splice.removed_count);
                    taken_away.extend(gone.map(|message| message.id.clone()));
                }
                inbox.apply(splice).expect("its own splices fit");
            }
            _ => {}
        }
    }
    let waiting: BTreeSet<_> = [Lane::NextStep, Lane::NextTurn]
        .into_iter()
        .flat_map(|lane| inbox.lane(lane).iter().map(|message| message.id.clone()).collect::<Vec<_>>())
        .collect();
    // A hook before the step may have put something else in its place, or turned it down.
    let may_be_judged_away = agent.spec().asked_at.contains(&Point::PreStep);
    for id in accepted {
        let places = shown.get(&id).copied().unwrap_or(0)
            + u32::from(waiting.contains(&id))
            + u32::from(taken_away.contains(&id));
        assert!(places <= 1 && (places == 1 || may_be_judged_away), "{id} is in {places} places");
    }
}

fn each_ended_turn_has_one_outcome(agent: &Agent) {
    let mut ends = BTreeMap::<u32, (u32, u32)>::new();
    for event in agent.log().iter() {
        match &event.fact {
            Fact::TurnEnded(ended) => ends.entry(ended.turn).or_default().0 += 1,
            Fact::OutcomeReached(reached) => ends.entry(reached.turn).or_default().1 += 1,
            _ => {}
        }
    }
    assert!(ends.values().all(|&counts| counts == (1, 1)), "{ends:?}");
    assert_eq!(ends.len(), agent.last_turn() as usize);
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.come_to_rest();
    world.check_fold();
    each_ended_turn_has_one_outcome(&world.agent);
    no_message_is_lost_or_there_twice(&world.agent);
    world.check_cut();
}

#[test]
fn one_agent_keeps_every_invariant_whatever_happens() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    for seed in 0..SEEDS {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("SEED={seed} fails; run it alone with that variable");
        }
    }
}
