//! An agent between two turns, written down: what spares folding its log from the beginning. Only a cache, which the log
//! makes again.

use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Ended};
use crate::event::{Birth, Lane, ParkReason, RequestContext, RequestHeader, TodoItem};
use crate::id::{CallId, MessageId, Millis, Seq};
use crate::inbox::Inbox;
use crate::log::Log;
use crate::message::Message;
use crate::outcome::{Outcome, Spent};
use crate::spec::Spec;
use crate::surface::Surface;
use crate::turn::Turn;
use crate::wire;

/// The version of what is written, and of what folding makes of a log: when either changes, so does this, and what was
/// written before is not used any more.
const VERSION: u32 = 1;

/// The most bytes that a version has.
const VERSION_BYTES: usize = 10;

/// What was written that cannot be used: the log is to be folded instead.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Not the JSON of a checkpoint.
    #[error("the checkpoint does not read")]
    Malformed(#[from] serde_json::Error),
    /// Of another version, or none of ours.
    #[error("the checkpoint has version {0:?}, and this program knows {VERSION}")]
    Version(String),
    /// Its last event does not read.
    #[error("the last event of the checkpoint does not read")]
    Event(#[from] wire::WireError),
}

/// What is behind the version, which has a line of its own: a long text need not be read to see that it is another.
#[derive(Serialize, Deserialize)]
struct Written {
    next: Seq,
    last: Option<(Seq, Millis, String)>,
    surface: Vec<(Seq, Option<Arc<Message>>)>,
    next_turn: Vec<Arc<Message>>,
    next_step: Vec<Arc<Message>>,
    turns: Vec<Seq>,
    last_turn: u32,
    turns_before: u32,
    header: Option<Arc<RequestHeader>>,
    header_is_fresh: bool,
    session_is_known: bool,
    route: Option<RequestContext>,
    context: Option<Arc<str>>,
    birth: Option<Birth>,
    awake: bool,
    parked: Option<ParkReason>,
    accepted: Vec<MessageId>,
    call_ids: Vec<CallId>,
    spent: Spent,
    todos: Arc<[TodoItem]>,
    ended: Option<Ended>,
    outcome: Option<Arc<Outcome>>,
}

impl Agent {
    /// This agent, written down; `None` while a turn is open.
    ///
    /// # Errors
    /// Those of JSON, which none of what an agent is made of gives.
    pub fn checkpoint(&self) -> Result<Option<Vec<u8>>, serde_json::Error> {
        if !self.turn.is_idle() {
            return Ok(None);
        }
        let last =
            self.log.last().map(|event| Ok::<_, serde_json::Error>((event.seq, event.time, wire::encode_row(event)?)));
        let lane = |lane| self.inbox.lane(lane).iter().cloned().collect();
        let written = Written {
            next: self.log.next_seq(),
            last: last.transpose()?,
            surface: self.surface.nodes().collect(),
            next_turn: lane(Lane::NextTurn),
            next_step: lane(Lane::NextStep),
            turns: self.turns.iter().copied().collect(),
            last_turn: self.last_turn,
            turns_before: self.turns_before,
            header: self.header.clone(),
            header_is_fresh: self.header_is_fresh,
            session_is_known: self.session_is_known,
            route: self.route.clone(),
            context: self.snapshot.clone(),
            birth: self.birth.clone(),
            awake: self.awake,
            parked: self.parked,
            accepted: self.accepted.iter().cloned().collect(),
            call_ids: self.call_ids.iter().cloned().collect(),
            spent: self.spent,
            todos: Arc::clone(&self.todos),
            ended: self.ended.clone(),
            outcome: self.outcome.clone(),
        };
        let mut bytes = format!("{VERSION}\n").into_bytes();
        serde_json::to_writer(&mut bytes, &written)?;
        Ok(Some(bytes))
    }

    /// The agent that was written down, with other settings. It is as the one that its log makes, but that its own log
    /// begins with the last event that it had then: see [`Log::begins_at`].
    ///
    /// # Errors
    /// [`Unusable`] for anything else.
    pub fn restore(spec: Arc<Spec>, bytes: &[u8]) -> Result<Self, Unusable> {
        let (version, text) =
            bytes.split_at(bytes.iter().take(VERSION_BYTES).position(|byte| *byte == b'\n').unwrap_or(0));
        if version != VERSION.to_string().as_bytes() {
            return Err(Unusable::Version(String::from_utf8_lossy(version).into_owned()));
        }
        let written: Written = serde_json::from_slice(text)?;
        let last = written.last.map(|(seq, time, line)| wire::decode(&line, seq, time).map(Arc::new)).transpose()?;
        Ok(Self {
            spec,
            log: Log::behind(written.next, last),
            surface: Surface::of(written.surface),
            inbox: Inbox::of(written.next_turn, written.next_step),
            turn: Turn::Idle,
            turns: written.turns.into_iter().collect(),
            last_turn: written.last_turn,
            turns_before: written.turns_before,
            header: written.header,
            header_is_fresh: written.header_is_fresh,
            session_is_known: written.session_is_known,
            route: written.route,
            snapshot: written.context,
            birth: written.birth,
            awake: written.awake,
            parked: written.parked,
            accepted: OrdSet::from_iter(written.accepted),
            call_ids: OrdSet::from_iter(written.call_ids),
            spent: written.spent,
            todos: written.todos,
            ended: written.ended,
            outcome: written.outcome,
        })
    }
}
