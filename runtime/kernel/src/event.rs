//! Facts: what a log is made of. Written once, never edited.
//!
//! The vocabulary is the wire's (dsh session logs, format 0); facts that only we have are `ignorable`, so that other
//! readers may skip them. A fact of an unknown type is kept as it came; whether a log with it may be opened is
//! decided by the reader (see [`crate::wire`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::{Budget, Funds};
use crate::chunk::{Chunk, ChunkRun};
use crate::id::{AgentId, AgentPath, CallId, ChargeId, MessageId, Millis, Seq};
use crate::judge::{HookAsked, HookJudged};
use crate::message::Message;
use crate::outcome::{Cause, Failure, OutcomeKind, Spent, TurnEnd, Usage};

/// One entry of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place; a run of chunks takes as many places as it has deltas.
    pub seq: Seq,
    /// When it was accepted. Clocks may step backwards.
    pub time: Millis,
    /// What happened.
    pub fact: Fact,
    /// How it changes what the model sees; on the three surface types and only there.
    pub surface: Option<SurfaceOp>,
    /// The events it was made from; on the three surface types only.
    pub sources: Option<SeqRanges>,
    /// Whether a reader that does not know the type may skip it.
    pub ignorable: bool,
}

impl Event {
    /// An entry for `fact` at `seq`, with the surface operation that its type calls for (an append).
    pub fn new(seq: Seq, time: Millis, fact: Fact) -> Self {
        let surface = fact.is_surface().then_some(SurfaceOp::Append);
        let ignorable = fact.is_ours();
        Self { seq, time, fact, surface, sources: None, ignorable }
    }

    /// How many places of the log it takes.
    pub fn len(&self) -> u64 {
        match &self.fact {
            Fact::Chunks(run) => run.len(),
            _ => 1,
        }
    }

    /// Never: an event takes at least one place.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The place behind it.
    pub fn next_seq(&self) -> Seq {
        self.seq.plus(self.len())
    }
}

/// How an event changes the surface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SurfaceOp {
    /// At the tail.
    Append,
    /// In place of the current nodes from `start` to `end`, both included.
    Replace {
        /// First node to go.
        start: Seq,
        /// Last node to go.
        end: Seq,
    },
}

/// A sorted list of places, kept as ranges: `[4, 5, 6, 9]` is `4..=6, 9..=9`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SeqRanges(Vec<(u64, u64)>);

impl SeqRanges {
    /// The empty list: an assistant message whose stream is known to have been empty.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The places `from..to`.
    pub fn span(from: Seq, to: Seq) -> Self {
        if from < to { Self(vec![(from.0, to.0 - 1)]) } else { Self::default() }
    }

    /// Adds places behind the ones that are there; `false` (and no change) if `from` is not behind them.
    #[must_use]
    pub fn push(&mut self, from: u64, to_inclusive: u64) -> bool {
        match self.0.last_mut() {
            Some((_, last)) if from <= *last => false,
            Some((_, last)) if from == *last + 1 => {
                *last = to_inclusive;
                true
            }
            _ => {
                self.0.push((from, to_inclusive));
                true
            }
        }
    }

    /// The ranges, both ends included.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Each place.
    pub fn iter(&self) -> impl Iterator<Item = Seq> {
        self.0.iter().flat_map(|&(from, to)| (from..=to).map(Seq))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `seq` is among them.
    pub fn contains(&self, seq: Seq) -> bool {
        self.0.iter().any(|&(from, to)| (from..=to).contains(&seq.0))
    }

    /// The last place.
    pub fn last(&self) -> Option<Seq> {
        self.0.last().map(|&(_, to)| Seq(to))
    }
}

macro_rules! facts {
    ($($(#[$doc:meta])* $variant:ident($payload:ty) = $name:literal $owner:ident;)*) => {
        /// What happened. One variant for each type of event that we read or write; `Other` for all the rest.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Fact {
            $($(#[$doc])* $variant($payload),)*
            /// A run of streamed deltas.
            Chunks(ChunkRun),
            /// A type that we do not interpret: kept as it came.
            Other(OtherFact),
        }

        impl Fact {
            /// The wire's name of the type. A run of chunks is many `assistant/chunk` there.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Chunks(_) => "assistant/chunk",
                    Self::Other(other) => &other.kind,
                }
            }

            /// Whether only we write this type.
            pub fn is_ours(&self) -> bool {
                match self {
                    $(Self::$variant(_) => facts!(@ours $owner),)*
                    Self::Chunks(_) | Self::Other(_) => false,
                }
            }

            /// Reads the payload of a type that we interpret; `None` for any other type.
            pub(crate) fn decode(kind: &str, data: &str) -> Option<Result<Self, serde_json::Error>> {
                match kind {
                    $($name => Some(serde_json::from_str(data).map(Self::$variant)),)*
                    _ => None,
                }
            }

            /// Writes the payload. A run of chunks has no payload of its own: it is written delta by delta, or as a row.
            pub(crate) fn encode(&self) -> Result<String, serde_json::Error> {
                match self {
                    $(Self::$variant(payload) => serde_json::to_string(payload),)*
                    Self::Chunks(run) => serde_json::to_string(&run.deltas),
                    Self::Other(other) => serde_json::to_string(&other.data),
                }
            }
        }
    };
    (@ours core) => { false };
    (@ours ours) => { true };
}

facts! {
    /// A turn began.
    TurnStarted(TurnStarted) = "turn/start" core;
    /// A turn ended.
    TurnEnded(TurnEnded) = "turn/end" core;
    /// A step began: one model request and its calls.
    StepStarted(StepMark) = "step/start" core;
    /// A step ended.
    StepEnded(StepMark) = "step/end" core;
    /// Something was said to the model.
    UserMessage(Arc<Message>) = "user/message" core;
    /// A piece of a stream that is not part of a run of deltas.
    Chunk(StreamedChunk) = "assistant/chunk" core;
    /// The model's answer, whole.
    AssistantMessage(AssistantMessage) = "assistant/message" core;
    /// A call was started (or is about to be answered without having been started).
    ToolCalled(ToolCalled) = "tool/call" core;
    /// A call was answered.
    ToolResult(ToolResult) = "tool/result" core;
    /// The todo list was written, whole.
    TodoWritten(TodoWritten) = "todo/write" core;
    /// What frames every request from here on.
    RequestHeader(HeaderLogged) = "request/header" core;
    /// Which route serves the requests from here on.
    RequestContext(RequestContext) = "request/context" core;
    /// What is before it was inherited or belongs to an earlier life of the session.
    SeedEnded(SeedEnded) = "session/end-seed" core;
    /// The inbox changed.
    InboxSpliced(InboxSpliced) = "agent/inbox/spliced" core;
    /// A failed model call will be tried again.
    RetryScheduled(RetryScheduled) = "llm/retry" core;
    /// The wait before a retry is over.
    RetryStarted(RetryStarted) = "llm/retry-started" core;
    /// What kind of subagent this is.
    SubagentDescribed(SubagentDescribed) = "subagent/descriptor" core;
    /// The agent was born: where it stands in its tree, and what it may do.
    AgentBorn(Birth) = "agent/born" ours;
    /// A message in the next-step lane wakes the agent.
    InboxWoken(InboxWoken) = "agent/inbox/woken" ours;
    /// The queue waits for a waking message.
    InboxParked(InboxParked) = "agent/inbox/parked" ours;
    /// A turn is being cancelled; calls that had started still run to their real end.
    TurnStopping(TurnStopping) = "turn/stopping" ours;
    /// Somebody is asked at a point of a turn, and the turn waits.
    HookAsked(HookAsked) = "hook/asked" ours;
    /// What came of it.
    HookJudged(HookJudged) = "hook/judged" ours;
    /// A call has its result, which is shown to the model when the calls before it have theirs.
    CallSettled(CallSettled) = "tool/settled" ours;
    /// A turn came out as this. In the same append as its `turn/end`.
    OutcomeReached(OutcomeReached) = "agent/outcome" ours;
    /// Tree log: a place was taken for a child.
    TreeReserved(TreeReserved) = "tree/reserved" ours;
    /// Tree log: the child is there and has its first prompt.
    TreePublished(TreeChild) = "tree/published" ours;
    /// Tree log: the place was given back, the child never was.
    TreeRefused(TreeRefused) = "tree/refused" ours;
    /// Tree log: the parent has the outcome of this turn of the child.
    TreeDelivered(TreeDelivered) = "tree/delivered" ours;
    /// Tree log: a subtree is being cancelled; nothing new may start in it.
    TreeTombstoned(TreeTombstoned) = "tree/tombstoned" ours;
    /// Tree log: the cancel has its receipt.
    TreeLifted(TreeLifted) = "tree/lifted" ours;
    /// Tree log: an agent has a budget, or more of it.
    BudgetDrawn(BudgetDrawn) = "budget/drawn" ours;
    /// Tree log: a call that is about to start may cost so much.
    BudgetReserved(BudgetReserved) = "budget/reserved" ours;
    /// Tree log: the call is over and cost so much.
    BudgetSettled(BudgetSettled) = "budget/settled" ours;
    /// Tree log: an agent at rest has given back what it did not spend.
    BudgetRefunded(BudgetRefunded) = "budget/refunded" ours;
}

impl Fact {
    /// Whether it is one of the three types that the model sees.
    pub fn is_surface(&self) -> bool {
        matches!(self, Self::UserMessage(_) | Self::AssistantMessage(_) | Self::ToolResult(_))
    }

    /// The message that it puts before the model, if any. An answer without content derives to nothing.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match self {
            Self::UserMessage(message) => Some(message),
            Self::AssistantMessage(answer) => (!answer.message.content.is_empty()).then_some(&answer.message),
            Self::ToolResult(result) => Some(&result.message),
            _ => None,
        }
    }
}

/// A fact that we do not interpret.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherFact {
    /// The wire's name of the type.
    pub kind: String,
    /// Its payload.
    pub data: Value,
}

/// See [`Fact::TurnStarted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// From 1, contiguous.
    pub turn: u32,
    /// Fields of other versions.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// See [`Fact::TurnEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// The open turn.
    pub turn: u32,
    /// Why.
    pub reason: TurnEnd,
}

/// See [`Fact::StepStarted`] and [`Fact::StepEnded`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct StepMark {
    /// The open turn.
    pub turn: u32,
    /// From 1 in each turn.
    pub step: u32,
}

/// See [`Fact::Chunk`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamedChunk {
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// As it came.
    pub chunk: Chunk,
}

/// See [`Fact::AssistantMessage`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// What the model said; its content may be empty.
    pub message: Arc<Message>,
    /// What it cost, if the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether it was cut off by a cancel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// See [`Fact::ToolCalled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCalled {
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// The call.
    pub call_id: CallId,
    /// The tool's name as the model wrote it.
    pub name: Arc<str>,
    /// The arguments as the model wrote them.
    pub arguments: Arc<str>,
}

/// See [`Fact::ToolResult`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// A user-role message with one tool-result block.
    pub message: Arc<Message>,
    /// For programs, when the call failed in a way that has a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// For displays; never shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Name and code of a failed call.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// `ToolArgsError`, `AbortError`, …
    pub name: String,
    /// `INVALID_ARGS`, `ABORTED`, …
    pub code: String,
}

/// See [`Fact::TodoWritten`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TodoWritten {
    /// The whole list.
    pub todos: Vec<TodoItem>,
}

/// One item of a todo list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// What is to do.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// How far a todo item is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
}

/// See [`Fact::RequestHeader`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeaderLogged {
    /// The frame, whole.
    pub header: Arc<RequestHeader>,
    /// Why it is logged here.
    pub reason: HeaderReason,
}

/// Why a request header is logged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeaderReason {
    /// The first of the log.
    Initial,
    /// The first of this life of the session.
    Resume,
    /// It differs from the last one.
    Change,
}

/// What frames every request: with the surface it is all that the model sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestHeader {
    /// Route and sampling.
    pub config: RequestConfig,
    /// The system text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The tools on offer, in order. Anything but our own shape is kept as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Tools>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl RequestHeader {
    /// A frame that names a route and nothing else.
    pub fn new(provider: &str, model: &str) -> Self {
        let config =
            RequestConfig { provider: provider.into(), model: model.into(), max_tokens: None, rest: Map::new() };
        Self { config, system: None, tools: None, rest: Map::new() }
    }
}

/// The tools of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tools {
    /// Schemas.
    Schemas(Vec<Arc<ToolSchema>>),
    /// Something else, kept.
    Other(Value),
}

/// What a model is told about a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// A JSON Schema of its arguments.
    pub parameters: Value,
}

/// Route and sampling of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestConfig {
    /// Which adapter.
    pub provider: String,
    /// Which of its models.
    pub model: String,
    /// The most output tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Everything else: `temperature`, `topP`, `seed`, `reasoningEffort`, …
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// See [`Fact::RequestContext`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestContext {
    /// Which adapter.
    pub provider: String,
    /// Which of its models.
    pub model: String,
    /// How many tokens fit, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
}

/// See [`Fact::SeedEnded`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedEnded {}

/// Which lane of an inbox.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// One message opens one turn.
    NextTurn,
    /// Joined at the next step boundary.
    NextStep,
}

/// See [`Fact::InboxSpliced`]: an array splice of one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxSpliced {
    /// The lane.
    pub target: Lane,
    /// Where.
    pub start: usize,
    /// How many go.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed_count: usize,
    /// What comes in their place.
    pub inserted: Vec<Arc<Message>>,
    /// Present for removals that are no claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<SpliceOutcome>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What became of removed messages that no turn claimed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpliceOutcome {
    /// They were thrown away.
    Canceled,
}

/// See [`Fact::RetryScheduled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryScheduled {
    /// Pairs it with its start.
    pub retry_id: String,
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// Whose call failed.
    pub provider: String,
    /// `normal` or `always`.
    pub mode: String,
    /// Which policy counts it.
    pub policy_key: String,
    /// From 1.
    pub retry: u32,
    /// The policy's bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// How long the wait is, in milliseconds.
    pub delay_ms: u64,
    /// What failed.
    pub failure: Failure,
}

/// See [`Fact::RetryStarted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryStarted {
    /// Pairs it with its schedule.
    pub retry_id: String,
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// From 1.
    pub retry: u32,
}

/// See [`Fact::SubagentDescribed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentDescribed {
    /// 2.
    pub version: u32,
    /// `one-shot` or `continuable`.
    pub mode: String,
    /// `spawn` or `fork`.
    pub provider: String,
    /// What it is for, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// See [`Fact::AgentBorn`]. What a child may do is at most what its parent may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Birth {
    /// The root of its tree.
    pub root: AgentId,
    /// Its parent; none for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// Where it stands.
    pub path: AgentPath,
    /// 0 for a root.
    pub depth: u32,
    /// How much of its parent's context it has.
    pub context: Context,
    /// What it may do.
    pub authority: Authority,
    /// The workspace of its own that its folder is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The JSON Schema of what each of its turns is to come out with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Arc<Value>>,
    /// Who answers it, where that was chosen for it or for an agent above it; none for the root's own route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
}

/// Who answers an agent's requests.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// A provider of models, or one of subagents.
    pub provider: String,
    /// The provider's name for what it runs.
    pub model: String,
}

/// How much of its parent's context an agent was born with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Context {
    /// None.
    Fresh,
    /// All of it.
    Fork,
}

impl Context {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Fork => "fork",
        }
    }
}

/// What an agent may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// The folder it works in; its paths stay inside.
    pub dir: String,
    /// What it may do there.
    pub access: Access,
    /// The tools it may use; the pipeline refuses every other.
    pub tools: Vec<String>,
    /// How many children it may spawn, its descendants' included; `None` is no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_spawn: Option<u32>,
}

/// What an agent may do in its folder.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read.
    Read,
    /// Read and write; shell commands after a question.
    Write,
    /// Everything.
    Full,
}

impl Access {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Full => "full",
        }
    }
}

/// See [`Fact::InboxWoken`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxWoken {
    /// The waking message.
    pub message: MessageId,
}

/// See [`Fact::InboxParked`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxParked {
    /// Why nothing of the queue opens a turn now.
    pub reason: ParkReason,
}

/// Why a queue is parked.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParkReason {
    /// A cancel asked for it.
    Cancelled,
    /// The turn before failed.
    Failed,
    /// The session was opened again; it goes on when it is told to.
    Reopened,
}

/// See [`Fact::TurnStopping`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnStopping {
    /// The open turn.
    pub turn: u32,
    /// Who, and why.
    pub cause: Cause,
    /// What becomes of the queue.
    pub queue: QueueRule,
}

/// What a cancel does with messages that wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueRule {
    /// The next one opens a turn: a person's interrupt of a root.
    Run,
    /// They wait for a waking message: a child's interrupt, the cancel of a tree.
    Park,
    /// They are thrown away: only when asked for.
    Discard,
}

/// See [`Fact::CallSettled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallSettled {
    /// The open turn.
    pub turn: u32,
    /// The open step.
    pub step: u32,
    /// Place among the calls of the step.
    pub index: u32,
    /// The result that `tool/result` will show.
    pub message: Arc<Message>,
    /// As in `tool/result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// As in `tool/result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// Whether the turn ends after this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub concludes: bool,
    /// What the turn was to come out with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// What joins the next step behind the results of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<Arc<Message>>,
}

/// See [`Fact::OutcomeReached`]. The text is where `text` points to, so that it is stored once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeReached {
    /// The turn that ended.
    pub turn: u32,
    /// How.
    pub kind: OutcomeKind,
    /// The `assistant/message` that holds the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Seq>,
    /// What it was to come out with, if anything was asked for and given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// What the agent spent so far.
    pub spent: Spent,
}

/// See [`Fact::TreeReserved`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeReserved {
    /// The child's id.
    pub child: AgentId,
    /// Who asked.
    pub parent: AgentId,
    /// The path it will have.
    pub path: AgentPath,
    /// What it is for.
    pub label: String,
    /// How it starts.
    pub context: Context,
    /// Whether the parent goes on meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The asking call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// How many descendants the child may have.
    #[serde(default)]
    pub may_spawn: u32,
    /// A number for its prompt: equal prompts have equal ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
}

/// See [`Fact::TreePublished`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeChild {
    /// The child.
    pub child: AgentId,
}

/// See [`Fact::TreeRefused`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeRefused {
    /// The child that never was.
    pub child: AgentId,
    /// Why.
    pub reason: String,
}

/// See [`Fact::TreeDelivered`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeDelivered {
    /// The child.
    pub child: AgentId,
    /// Whose outcome.
    pub turn: u32,
}

/// See [`Fact::TreeTombstoned`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeTombstoned {
    /// The top of the subtree.
    pub agent: AgentId,
    /// Counts the tombstones of this tree.
    pub epoch: u64,
    /// Who, and why.
    pub cause: Cause,
}

/// See [`Fact::TreeLifted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeLifted {
    /// The top of the subtree.
    pub agent: AgentId,
    /// Which tombstone.
    pub epoch: u64,
}

/// See [`Fact::BudgetDrawn`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetDrawn {
    /// Who has it.
    pub agent: AgentId,
    /// The budget, when it is given; none when only more of it is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How much is drawn from the accounts above, or held from the start by one that has none above.
    pub amount: Funds,
}

/// See [`Fact::BudgetReserved`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetReserved {
    /// Whose call.
    pub agent: AgentId,
    /// Which.
    pub charge: ChargeId,
    /// How much it may cost.
    pub amount: Funds,
}

/// See [`Fact::BudgetSettled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// Whose call.
    pub agent: AgentId,
    /// Which.
    pub charge: ChargeId,
    /// How much it cost.
    pub amount: Funds,
}

/// See [`Fact::BudgetRefunded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetRefunded {
    /// Who had it.
    pub agent: AgentId,
    /// How much goes back.
    pub amount: Funds,
}
