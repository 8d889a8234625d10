//! A message arrives.

use std::sync::Arc;

use super::Draft;
use crate::agent::Agent;
use crate::event::{Event, Fact, InboxParked, InboxSpliced, InboxWoken, Lane, ParkReason, QueueRule, SpliceOutcome};
use crate::id::{MessageId, Millis};
use crate::inbox::insertion;
use crate::message::Message;
use crate::turn::Stopping;

impl Agent {
    pub(super) fn decide_deliver(
        &self,
        lane: Lane,
        wakes: bool,
        message: Arc<Message>,
        now: Millis,
    ) -> Vec<Arc<Event>> {
        if self.has_accepted(&message.id) {
            return vec![];
        }
        let mut draft = Draft::new(self, now);
        let id = message.id.clone();
        draft.say(Fact::InboxSpliced(insertion(&self.inbox, lane, message)));
        match lane {
            Lane::NextStep if wakes => draft.say(Fact::InboxWoken(InboxWoken { message: id })),
            // This lane wakes by itself; whoever must not wake says so in the same append.
            Lane::NextTurn if !wakes && self.is_not_to_wake() => {
                let reason = self.parked.unwrap_or(ParkReason::Cancelled);
                draft.say(Fact::InboxParked(InboxParked { reason }));
            }
            Lane::NextStep | Lane::NextTurn => {}
        }
        draft.done()
    }

    /// Whether what waits here is to wait on, and so must what joins it without waking anybody.
    fn is_not_to_wake(&self) -> bool {
        match self.turn.open() {
            None => !self.awake,
            Some(open) => {
                let parks = |stopping: &Stopping| stopping.queue == QueueRule::Park && !stopping.woken;
                open.stopping.as_ref().is_some_and(parks)
            }
        }
    }

    pub(super) fn decide_amend(&self, id: &MessageId, with: Option<Arc<Message>>, now: Millis) -> Vec<Arc<Event>> {
        let with: Vec<Arc<Message>> = with.into_iter().filter(|message| !self.has_accepted(&message.id)).collect();
        let mut draft = Draft::new(self, now);
        for target in [Lane::NextStep, Lane::NextTurn] {
            // Only what a person said: tasks and outcomes of agents are somebody else's to take back.
            let is_meant = |message: &Arc<Message>| message.id == *id && message.source.kind == "user";
            let Some(start) = self.inbox.lane(target).iter().position(is_meant) else { continue };
            let outcome = Some(SpliceOutcome::Canceled);
            let inserted = with.clone();
            draft.say(Fact::InboxSpliced(InboxSpliced { target, start, removed_count: 1, inserted, outcome }));
        }
        draft.done()
    }
}
