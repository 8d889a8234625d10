//! Paying for what a turn does: a model call or a tool call of a budgeted agent starts only when it is paid for.

use std::io::Write;

use impresario_kernel::turn::Phase;
use impresario_kernel::{CallReport, ChargeId, Funds, Input, RequestHeader, RunKey, Usage, Want};

use super::{AgentState, SlotState};
use crate::delegation;
use crate::prices::{Price, cost};
use crate::supervisor::SupervisorMessage;

/// So many output tokens are reserved for a call whose request does not limit them.
const OUTPUT_TOKENS: u64 = 1_024;

/// So many bytes are taken for a token before the provider has counted.
const TOKEN_BYTES: u64 = 4;

/// How far the money for something is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Payment {
    /// It was asked for.
    Asked(Funds),
    /// Others must give something back first.
    Waits(Funds),
    /// It is there.
    Made(Funds),
}

/// What the supervisor says to a wish for funds.
pub(crate) enum Paid {
    Made,
    Waits,
    Refused { limit: &'static str, max: u64 },
}

impl AgentState {
    /// Whether `want` may start now as far as budgets go; asks for funds otherwise.
    pub(super) fn is_paid(&mut self, want: Want) -> bool {
        if !self.profile.is_budgeted {
            return true;
        }
        let Some(charge) = charge(want) else { return true };
        match self.payments.get(&want) {
            Some(Payment::Made(_)) => true,
            Some(Payment::Asked(_) | Payment::Waits(_)) => false,
            None => match self.price(want) {
                Some(amount) => {
                    self.payments.insert(want, Payment::Asked(amount));
                    self.reserve(charge, amount);
                    false
                }
                None => true,
            },
        }
    }

    fn reserve(&self, charge: ChargeId, amount: Funds) {
        self.shared.supervisor.cast(SupervisorMessage::Reserve { agent: self.id.clone(), charge, amount });
    }

    /// What `want` may cost; none for what costs nothing.
    fn price(&self, want: Want) -> Option<Funds> {
        match want {
            Want::Sample(_) => Some(self.sample_price()),
            Want::Run(call) => {
                let is_tool = !delegation::is_delegation(&self.agent.call(call)?.name);
                is_tool.then(|| Funds { tool_calls: 1, ..Funds::default() })
            }
            Want::Slot | Want::Judge(_) | Want::Retry(..) | Want::Stop(_) => None,
        }
    }

    fn sample_price(&self) -> Funds {
        let header = self.header();
        let messages = self.agent.messages();
        let bytes = messages.iter().map(|message| json_bytes(&**message)).sum::<u64>() + json_bytes(&**header);
        let (input, output) = (bytes / TOKEN_BYTES + 1, header.config.max_tokens.unwrap_or(OUTPUT_TOKENS));
        let tokens = input.saturating_add(output);
        // What has no price costs more than anybody has, where money is limited.
        let micro_usd = self.model_price().map_or(u64::MAX, |price| price.micro_usd(input, 0, output));
        Funds { tokens, micro_usd, tool_calls: 0 }
    }

    fn header(&self) -> &std::sync::Arc<RequestHeader> {
        self.agent.header().unwrap_or(&self.agent.spec().header)
    }

    fn model_price(&self) -> Option<Price> {
        let config = &self.header().config;
        self.shared.prices.price(&config.provider, &config.model)
    }

    /// The supervisor has answered.
    pub(super) fn paid(&mut self, charged: &ChargeId, paid: Paid) {
        let is_meant = |want: &&Want| charge(**want).as_ref() == Some(charged);
        let Some(want) = self.payments.keys().find(is_meant).copied() else { return };
        let Some(Payment::Asked(amount) | Payment::Waits(amount)) = self.payments.get(&want).copied() else { return };
        match paid {
            Paid::Waits => drop(self.payments.insert(want, Payment::Waits(amount))),
            Paid::Made => drop(self.payments.insert(want, Payment::Made(amount))),
            Paid::Refused { limit, max } => {
                self.payments.remove(&want);
                self.unpaid(want, limit, max);
            }
        }
    }

    fn unpaid(&mut self, want: Want, limit: &str, max: u64) {
        match want {
            Want::Sample(run) => self.input(Input::Unfunded { run, limit: limit.into(), max }),
            Want::Run(call) => {
                let message = format!("not run: the budget of {max} tool calls is spent; answer with what you have");
                let report = CallReport::failed("BudgetError", "BUDGET", &message);
                self.input(Input::CallSettled { call, report });
            }
            Want::Slot | Want::Judge(_) | Want::Retry(..) | Want::Stop(_) => {}
        }
    }

    /// The attempt that runs is over or will be cut off: what it has cost is settled. What a provider does not say is
    /// taken for all that was reserved, unless nothing of an answer has come.
    pub(super) fn settle_payment(&mut self) {
        let Some(open) = self.agent.turn().open() else { return };
        let (Some(run), Phase::Sampling(sampling)) = (open.run(), &open.phase) else { return };
        let Some(Payment::Made(reserved)) = self.payments.get(&Want::Sample(run)).copied() else { return };
        let usage: Option<Usage> = sampling.assembler.usage();
        let has_begun = !sampling.sources.is_empty();
        let amount = match usage {
            Some(usage) => cost(self.model_price(), &usage),
            None if has_begun => reserved,
            None => Funds::default(),
        };
        self.settle(run, amount);
    }

    fn settle(&mut self, run: RunKey, amount: Funds) {
        let want = Want::Sample(run);
        self.payments.remove(&want);
        let Some(charge) = charge(want) else { return };
        let agent = self.id.clone();
        self.shared.supervisor.cast(SupervisorMessage::Settle { agent, charge, amount });
    }

    /// What is no longer wanted is not paid for any more.
    pub(super) fn drop_payment(&mut self, want: Want) {
        match (want, self.payments.remove(&want)) {
            // Settled in full, if it was not before: it ended in a way that nobody looked at.
            (Want::Sample(run), Some(Payment::Made(reserved))) => self.settle(run, reserved),
            (Want::Sample(run), Some(Payment::Asked(_) | Payment::Waits(_))) => self.settle(run, Funds::default()),
            (Want::Run(_), Some(Payment::Asked(_) | Payment::Waits(_))) => {
                let (Some(charge), agent) = (charge(want), self.id.clone()) else { return };
                self.shared.supervisor.cast(SupervisorMessage::Settle { agent, charge, amount: Funds::default() });
            }
            _ => {}
        }
    }

    /// Whether all that it could do waits until others have given funds back.
    pub(super) fn waits_for_funds(&self) -> bool {
        let is_waiting = self.payments.values().any(|payment| matches!(payment, Payment::Waits(_)));
        is_waiting && self.slot == SlotState::Held && !self.tasks.keys().any(|want| self.works(*want))
    }

    fn works(&self, want: Want) -> bool {
        match want {
            Want::Sample(_) => true,
            Want::Run(call) => self.agent.call(call).is_some_and(|call| !delegation::is_delegation(&call.name)),
            Want::Slot | Want::Judge(_) | Want::Retry(..) | Want::Stop(_) => false,
        }
    }

    /// Asks a new supervisor again for the funds that were asked for, and says which charges are in flight.
    pub(super) fn reserve_again(&self) -> Vec<ChargeId> {
        let mut in_flight = vec![];
        for (want, payment) in &self.payments {
            let Some(charge) = charge(*want) else { continue };
            if let Payment::Asked(amount) | Payment::Waits(amount) = payment {
                self.reserve(charge.clone(), *amount);
            }
            in_flight.push(charge);
        }
        in_flight
    }
}

/// Under which name something is paid for.
fn charge(want: Want) -> Option<ChargeId> {
    match want {
        Want::Sample(run) => Some(run.to_string().into()),
        Want::Run(call) => Some(call.to_string().into()),
        Want::Slot | Want::Judge(_) | Want::Retry(..) | Want::Stop(_) => None,
    }
}

/// How long something is as JSON.
fn json_bytes(value: &impl serde::Serialize) -> u64 {
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Nothing that is a message fails to be written.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
