//! The inbox: what an agent was told and has not taken up yet.

use std::sync::Arc;

use imbl::Vector;

use crate::event::{InboxSpliced, Lane};
use crate::message::Message;

/// Two lanes of messages. Changed only by folding splices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inbox {
    next_turn: Vector<Arc<Message>>,
    next_step: Vector<Arc<Message>>,
}

/// A splice that does not fit the lane.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("inbox splice removes {removed} at {start} of a lane of {len}")]
pub struct BadSplice {
    start: usize,
    removed: usize,
    len: usize,
}

impl Inbox {
    /// One in which these wait.
    pub(crate) fn of(next_turn: Vec<Arc<Message>>, next_step: Vec<Arc<Message>>) -> Self {
        Self { next_turn: next_turn.into(), next_step: next_step.into() }
    }

    /// Folds one splice in.
    pub fn apply(&mut self, splice: &InboxSpliced) -> Result<(), BadSplice> {
        let lane = match splice.target {
            Lane::NextTurn => &mut self.next_turn,
            Lane::NextStep => &mut self.next_step,
        };
        let (start, removed, len) = (splice.start, splice.removed_count, lane.len());
        if start > len || removed > len - start {
            return Err(BadSplice { start, removed, len });
        }
        let mut behind = lane.split_off(start);
        let behind = behind.split_off(removed);
        lane.extend(splice.inserted.iter().cloned());
        lane.append(behind);
        Ok(())
    }

    /// The messages of a lane, in order.
    pub fn lane(&self, lane: Lane) -> &Vector<Arc<Message>> {
        match lane {
            Lane::NextTurn => &self.next_turn,
            Lane::NextStep => &self.next_step,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.next_turn.is_empty() && self.next_step.is_empty()
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.next_turn.len() + self.next_step.len()
    }
}

/// The splice that puts `message` at the end of a lane.
pub(crate) fn insertion(inbox: &Inbox, lane: Lane, message: Arc<Message>) -> InboxSpliced {
    let start = inbox.lane(lane).len();
    InboxSpliced { target: lane, start, removed_count: 0, inserted: vec![message], outcome: None }
}

/// The splice that takes the first `count` messages of a lane.
pub(crate) fn claim(lane: Lane, count: usize) -> InboxSpliced {
    InboxSpliced { target: lane, start: 0, removed_count: count, inserted: vec![], outcome: None }
}
