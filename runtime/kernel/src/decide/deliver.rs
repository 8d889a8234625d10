//! A message arrives.

use std::sync::Arc;

use super::Draft;
use crate::agent::Agent;
use crate::event::{Event, Fact, InboxParked, InboxWoken, Lane, ParkReason};
use crate::id::Millis;
use crate::inbox::insertion;
use crate::message::Message;

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
            Lane::NextTurn if !wakes && self.turn.is_idle() && !self.awake => {
                let reason = self.parked.unwrap_or(ParkReason::Cancelled);
                draft.say(Fact::InboxParked(InboxParked { reason }));
            }
            Lane::NextStep | Lane::NextTurn => {}
        }
        draft.done()
    }
}
