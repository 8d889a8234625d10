//! Scripts of inputs for one agent, and its log as short lines.

// Each test program uses a part of it.
#![allow(dead_code)]

pub(crate) mod dice;

use std::sync::Arc;

use impresario_kernel::event::{Authority, Context, Lane, QueueRule};
use impresario_kernel::invariant::Oracle;
use impresario_kernel::turn::Phase;
use impresario_kernel::{
    Access, Agent, AgentPath, Birth, Block, CallKey, CallReport, Cause, Chunk, Event, Fact, Failure, FinishReason,
    HookAsked, Input, Judgement, Message, Millis, Overlap, Point, RequestHeader, Spec, TurnEnd, TurnLimits, Want,
};

/// An agent and everything that was told to it.
pub(crate) struct Script {
    pub(crate) agent: Agent,
    spec: Arc<Spec>,
    oracle: Oracle,
}

/// Some visible text.
pub(crate) fn text(text: &str) -> Vec<Chunk> {
    vec![Chunk::TextDelta { index: 0, text: text.into() }]
}

/// A whole answer of one text.
pub(crate) fn answer(said: &str) -> Vec<Chunk> {
    text(said)
}

/// The answer runs into the output limit.
pub(crate) fn cut() -> Vec<Chunk> {
    vec![Chunk::Finish { reason: FinishReason::MaxTokens, replay_state: None }]
}

/// The attempt fails.
pub(crate) fn failed(code: &str) -> Vec<Chunk> {
    let failure = Failure::new(code, "as the script says");
    vec![Chunk::Finish { reason: FinishReason::Error { failure }, replay_state: None }]
}

/// A call of a tool: `read` is parallel, `write` exclusive, `child` a delegation.
pub(crate) fn call(index: u32, id: &str, tool: &str) -> Chunk {
    Chunk::ToolCallDelta { index, id: id.into(), name: Some(tool.into()), arguments_delta: "{}".into() }
}

impl Script {
    /// An agent that was born and told nothing.
    pub(crate) fn new() -> Self {
        Self::of(spec("be brief", None))
    }

    /// As [`Script::new`], with something that the runtime says about itself.
    pub(crate) fn with_context(context: &str) -> Self {
        Self::of(spec("be brief", Some(context.into())))
    }

    /// An agent whose first turn is open and whose model is asked.
    pub(crate) fn told(prompt: &str) -> Self {
        let mut script = Self::new();
        script.followup(prompt);
        script.slot();
        script
    }

    /// As [`Script::told`], when somebody wants to be asked at these points.
    pub(crate) fn asking(points: &[Point], prompt: &str) -> Self {
        let spec = spec("be brief", None);
        let asked_at = Arc::new(points.iter().copied().collect());
        let mut script = Self::of(Arc::new(Spec { asked_at, ..Spec::clone(&spec) }));
        script.followup(prompt);
        script.slot();
        script
    }

    fn of(spec: Arc<Spec>) -> Self {
        let mut script = Self { agent: Agent::new(Arc::clone(&spec)), spec, oracle: Oracle::new() };
        let authority = Authority { dir: "/".into(), access: Access::Read, tools: vec![], may_spawn: None };
        let birth = Birth {
            root: "r".into(),
            parent: None,
            path: AgentPath::root(),
            depth: 0,
            context: Context::Fresh,
            authority,
            workspace: None,
            output_schema: None,
            route: None,
        };
        script.tell(Input::Born { birth, descriptor: None, last_turns: None });
        script
    }

    /// Decides, applies, and looks at every rule.
    pub(crate) fn tell(&mut self, input: Input) {
        let events = self.agent.tell(input, Millis(1)).expect("the script's input fits");
        events.iter().for_each(|event| self.oracle.watch(event));
        assert_eq!(self.oracle.violations(), []);
        assert_eq!(self.folded(), self.agent);
    }

    /// An input that must change nothing.
    pub(crate) fn refused(&mut self, input: Input) {
        self.agent.decide(input, Millis(1)).expect_err("it is late");
    }

    pub(crate) fn followup(&mut self, prompt: &str) {
        self.deliver(Lane::NextTurn, true, prompt);
    }

    pub(crate) fn deliver(&mut self, lane: Lane, wakes: bool, said: &str) {
        self.deliver_as(&format!("m-{said}"), lane, wakes, said);
    }

    pub(crate) fn deliver_as(&mut self, id: &str, lane: Lane, wakes: bool, said: &str) {
        self.tell(Input::Deliver { lane, wakes, message: Arc::new(Message::user(id, said)) });
    }

    /// What should be in flight, in order.
    pub(crate) fn wants(&self) -> Vec<Want> {
        self.agent.wants().into_iter().collect()
    }

    pub(crate) fn slot(&mut self) {
        self.tell(Input::SlotGranted);
    }

    pub(crate) fn cancel(&mut self, queue: QueueRule) {
        self.tell(Input::Cancel { cause: Cause::user("test"), queue });
    }

    /// Some of the model's answer.
    pub(crate) fn chunks(&mut self, chunks: Vec<Chunk>) {
        let [Want::Sample(run)] = self.wants()[..] else { panic!("no model is asked: {:?}", self.wants()) };
        self.tell(Input::ChunksArrived { run, chunks: chunks.into_iter().map(|chunk| (Millis(2), chunk)).collect() });
    }

    /// The model's answer and its end.
    pub(crate) fn model(&mut self, mut chunks: Vec<Chunk>) {
        if !chunks.iter().any(|chunk| matches!(chunk, Chunk::Finish { .. })) {
            chunks.push(Chunk::Finish { reason: FinishReason::Stop, replay_state: None });
        }
        let [Want::Sample(run)] = self.wants()[..] else { panic!("no model is asked: {:?}", self.wants()) };
        self.chunks(chunks);
        self.tell(Input::ModelSettled { run, result: Ok(()), dice: 0 });
    }

    pub(crate) fn retry(&mut self) {
        let [Want::Retry(run, _)] = self.wants()[..] else { panic!("no retry waits") };
        self.tell(Input::RetryDue { run });
    }

    /// What is asked just now is answered.
    pub(crate) fn judge(&mut self, judgement: Judgement) {
        let asked = self.asked();
        self.tell(Input::Judged { asked, judgement, dice: 0 });
    }

    /// What is asked just now.
    pub(crate) fn asked(&self) -> HookAsked {
        let [Want::Judge(asked)] = self.wants()[..] else { panic!("nothing is asked: {:?}", self.wants()) };
        asked
    }

    /// A call ends well.
    pub(crate) fn settle(&mut self, id: &str) {
        let call = self.key(id);
        let report = CallReport { content: vec![Block::text("ok")], ..CallReport::default() };
        self.tell(Input::CallSettled { call, report });
    }

    /// A call ends well, with something more to its report.
    pub(crate) fn settle_with(&mut self, id: &str, change: impl FnOnce(&mut CallReport)) {
        let call = self.key(id);
        let mut report = CallReport { content: vec![Block::text("ok")], ..CallReport::default() };
        change(&mut report);
        self.tell(Input::CallSettled { call, report });
    }

    /// A call ends well, and the turn with it.
    pub(crate) fn conclude(&mut self, id: &str) {
        let call = self.key(id);
        let report = CallReport { content: vec![Block::text("ok")], concludes: true, ..CallReport::default() };
        self.tell(Input::CallSettled { call, report });
    }

    fn key(&self, id: &str) -> CallKey {
        let open = self.agent.turn().open().expect("a turn is open");
        let Phase::Calling(calling) = &open.phase else { panic!("no calls are run") };
        let index = calling.calls.iter().position(|call| call.id.as_str() == id).expect("there is such a call");
        CallKey { turn: open.number, step: open.step, index: index as u32 }
    }

    /// The process dies and the log is read back; what repair adds.
    pub(crate) fn crash(&mut self) -> Vec<String> {
        let before = self.log().len();
        self.agent = self.folded();
        self.tell(Input::Recovered);
        self.log().split_off(before)
    }

    /// The frame of requests is another one from here on.
    pub(crate) fn reframe(&mut self, system: &str) {
        self.spec = spec(system, None);
        self.agent = self.folded();
    }

    pub(crate) fn folded(&self) -> Agent {
        Agent::fold(Arc::clone(&self.spec), self.agent.log().iter()).expect("its own log folds")
    }

    /// The log, a short line an event.
    pub(crate) fn log(&self) -> Vec<String> {
        self.agent.log().iter().map(|event| line(event)).collect()
    }

    /// The lines that begin with `mark`.
    pub(crate) fn only(&self, mark: &str) -> Vec<String> {
        self.log().into_iter().filter(|line| line.starts_with(mark)).collect()
    }
}

fn spec(system: &str, context: Option<Arc<str>>) -> Arc<Spec> {
    let overlap = [("read", Overlap::Parallel), ("write", Overlap::Exclusive), ("child", Overlap::Delegation)];
    Arc::new(Spec {
        overlap: Arc::new(overlap.into_iter().map(|(name, overlap)| (name.to_owned(), overlap)).collect()),
        context,
        limits: TurnLimits { steps: 5, parallel_calls: 2, answer_calls: 8, continuations: 2, ..TurnLimits::default() },
        ..Spec::new(RequestHeader { system: Some(system.into()), ..RequestHeader::new("p", "m") })
    })
}

fn line(event: &Event) -> String {
    match &event.fact {
        Fact::TurnStarted(started) => format!("turn/start {}", started.turn),
        Fact::TurnEnded(ended) => format!("turn/end {}", end(&ended.reason)),
        Fact::StepStarted(mark) => format!("step/start {}.{}", mark.turn, mark.step),
        Fact::UserMessage(message) => format!("user/message {}", message.text()),
        Fact::AssistantMessage(answer) => {
            let interrupted = if answer.interrupted { " (interrupted)" } else { "" };
            format!("assistant/message {}{interrupted}", answer.message.text())
        }
        Fact::ToolCalled(called) => format!("tool/call {}", called.call_id),
        Fact::ToolResult(result) => {
            let id = result.message.source.rest["callId"].as_str().unwrap_or_default().to_owned();
            result
                .error
                .as_ref()
                .map_or(format!("tool/result {id}"), |error| format!("tool/result {id} {}", error.code))
        }
        Fact::OutcomeReached(reached) => format!("agent/outcome {}", reached.kind),
        Fact::HookAsked(asked) => format!("hook/asked {}", asked.point),
        Fact::HookJudged(judged) => format!("hook/judged {} {:?}", judged.point, judged.decision),
        Fact::RetryScheduled(retry) => format!("llm/retry {}", retry.retry),
        Fact::Chunks(_) => "chunks".into(),
        Fact::Chunk(_) => "chunk".into(),
        other => other.kind().to_owned(),
    }
}

fn end(end: &TurnEnd) -> String {
    match end {
        TurnEnd::Completed => "completed".into(),
        TurnEnd::Aborted { .. } => "aborted".into(),
        TurnEnd::Blocked { .. } => "blocked".into(),
        TurnEnd::Error { error, .. } => format!("error {}", error.code),
        TurnEnd::MaxTokens => "max-tokens".into(),
        TurnEnd::Interrupted => "interrupted".into(),
        TurnEnd::Forked => "forked".into(),
        TurnEnd::Limit { limit, max } => format!("limit {limit} {max}"),
        TurnEnd::Other(value) => value.to_string(),
    }
}
