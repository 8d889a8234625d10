//! What follows when the log is durable.

use std::sync::Arc;

use impresario_kernel::{AgentId, Boundary, ChargeId, Fork, NoFork, Outcome, Seq};
use impresario_seams::{Head, Observed, TurnState};
use tokio::sync::oneshot;

use super::{AgentState, SlotState};
use crate::error::Error;
use crate::supervisor::SupervisorMessage;

/// Something that may be done only when all that was decided before it is durable.
pub(super) enum Effect {
    /// The sender of a message is told that it was accepted.
    Accepted(oneshot::Sender<Result<(), Error>>),
    /// Somebody is told whether a message still waited.
    Amended(oneshot::Sender<bool>, bool),
    /// Somebody is told the last outcome.
    Tell(oneshot::Sender<Option<Arc<Outcome>>>),
    /// Somebody is given a copy.
    Fork(Boundary, oneshot::Sender<Result<Fork, NoFork>>),
    /// A turn ended: observers and the supervisor are told.
    TurnEnded(Arc<Outcome>),
    /// A new supervisor has been asked again for everything, and is told how the last turn came out.
    Announced(Option<Arc<Outcome>>, Vec<ChargeId>),
    /// A turn will begin, and it is not the first.
    BeginsAgain,
    /// A child's outcome is in this log.
    Delivered { child: AgentId, turn: u32 },
}

impl AgentState {
    pub(super) fn head(&self) -> Head {
        let outcome = self.agent.outcome();
        Head {
            state: if self.agent.turn().is_idle() { TurnState::Idle } else { TurnState::Open },
            turns: self.agent.own_turns(),
            outcome: outcome.map(|outcome| outcome.kind),
            spent: self.agent.spent(),
            title: self.title.clone(),
            undelivered: outcome.filter(|_| self.agent.parent().is_some()).map(|outcome| outcome.turn),
        }
    }

    /// Does `effect` when all that was decided so far is durable.
    pub(super) fn follow(&mut self, effect: Effect) {
        self.write_held();
        let at = self.agent.log().next_seq();
        if self.durable >= at && self.effects.is_empty() {
            self.perform(effect);
        } else {
            self.effects.push_back((at, effect));
        }
    }

    pub(super) fn durable_until(&mut self, until: Seq) {
        self.durable = self.durable.max(until);
        while let Some((_, effect)) = self.effects.pop_front_if(|(at, _)| *at <= self.durable) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // Whoever asked may have given up.
            Effect::Accepted(reply) => {
                let _ = reply.send(Ok(()));
            }
            Effect::Amended(reply, waited) => {
                let _ = reply.send(waited);
            }
            Effect::Tell(reply) => {
                let _ = reply.send(self.agent.outcome().cloned());
            }
            Effect::Fork(boundary, reply) => {
                let _ = reply.send(self.agent.fork_at(boundary, self.rested.as_ref()));
            }
            Effect::TurnEnded(outcome) => {
                let duration_ms = self.shared.chance.now().0.saturating_sub(self.turn_started.0);
                self.say(Observed::Ended { outcome: Arc::clone(&outcome), duration_ms });
                self.turn_ended(outcome);
            }
            Effect::Announced(outcome, in_flight) => {
                let (agent, has_slot) = (self.id.clone(), self.slot == SlotState::Held);
                // It has handled one message more, so it says again, behind this, whether it is at rest.
                self.shared.supervisor.cast(SupervisorMessage::Announced { agent, outcome, has_slot, in_flight });
            }
            Effect::BeginsAgain => {
                self.shared.supervisor.cast(SupervisorMessage::BeginsAgain { agent: self.id.clone() })
            }
            Effect::Delivered { child, turn } => {
                self.shared.supervisor.cast(SupervisorMessage::Delivered { child, turn });
            }
        }
    }

    pub(super) fn slot_granted(&mut self) {
        self.slot = SlotState::Held;
        if self.agent.wants_turn() {
            self.input(impresario_kernel::Input::SlotGranted);
        }
    }
}
