//! What an agent runs with: constant while it lives, given by the shell, never folded from the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::RequestHeader;
use crate::judge::Point;

/// How calls of a tool may overlap with others of the same answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overlap {
    /// Runs alone: it changes things that others see.
    Exclusive,
    /// Runs beside others.
    Parallel,
    /// Runs beside others and does not count against the pool of parallel calls: it only waits for other agents.
    Delegation,
}

/// What an agent runs with.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What frames its requests from here on.
    pub header: Arc<RequestHeader>,
    /// How its tools overlap, by name; a name that is not there is exclusive.
    pub overlap: Arc<BTreeMap<String, Overlap>>,
    /// What the runtime tells the model about itself; said again when it changes.
    pub context: Option<Arc<str>>,
    /// The ceilings of a turn.
    pub limits: TurnLimits,
    /// When and how often a failed model call is tried again.
    pub retry: RetryPolicy,
    /// Whether a turn is not complete without an output; what that must be, the shell checks.
    pub requires_output: bool,
    /// The points at which somebody wants a say.
    pub asked_at: Arc<BTreeSet<Point>>,
}

impl Spec {
    /// A frame with the default ceilings and retries; every tool is exclusive.
    pub fn new(header: RequestHeader) -> Self {
        Self {
            header: Arc::new(header),
            overlap: Arc::default(),
            context: None,
            limits: TurnLimits::default(),
            retry: RetryPolicy::default(),
            requires_output: false,
            asked_at: Arc::default(),
        }
    }

    /// How calls of `tool` may overlap.
    pub(crate) fn overlap_of(&self, tool: &str) -> Overlap {
        self.overlap.get(tool).copied().unwrap_or(Overlap::Exclusive)
    }
}

/// The ceilings of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TurnLimits {
    /// Steps.
    pub steps: u32,
    /// Calls that run at once, those that only wait for other agents apart.
    pub parallel_calls: usize,
    /// Calls that one answer may ask for; an answer that asks for more is a failed one.
    pub answer_calls: usize,
    /// How often hooks may let the turn go on when the model is done.
    pub continuations: u32,
    /// Tokens, input and output; looked at between steps.
    pub tokens: Option<u64>,
    /// Tool calls; looked at between steps.
    pub calls: Option<u64>,
    /// Milliseconds from the turn's start; looked at between steps.
    pub wall_ms: Option<u64>,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            steps: 100,
            parallel_calls: 10,
            answer_calls: 16_384,
            continuations: 8,
            tokens: None,
            calls: None,
            wall_ms: None,
        }
    }
}

/// When and how often a failed model call is tried again: the reference's figures (`behaviour` 6.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RetryPolicy {
    /// How often, in one step.
    pub max_retries: u32,
    /// The wait before the first retry, in milliseconds; doubles with each.
    pub initial_ms: u64,
    /// The longest wait, in milliseconds. A provider that asks for more is not waited for.
    pub max_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 5, initial_ms: 500, max_ms: 10_000 }
    }
}

impl RetryPolicy {
    /// How long to wait before retry number `retry` (from 1), or `None` to give up.
    ///
    /// `dice` is anything: its spread makes waits of many agents differ by up to a tenth.
    pub fn delay(&self, retry: u32, asked_ms: Option<u64>, dice: u64) -> Option<u64> {
        if retry > self.max_retries {
            return None;
        }
        match asked_ms {
            Some(asked) if asked <= self.max_ms => Some(asked),
            Some(_) => None,
            None => {
                let doubled = doubled(self.initial_ms, retry.saturating_sub(1), self.max_ms);
                // 900 to 1100 thousandths.
                let thousandths = 900 + dice % 201;
                Some((doubled.saturating_mul(thousandths) / 1000).min(self.max_ms))
            }
        }
    }
}

/// `initial`, doubled so many times, and at most `max`.
fn doubled(initial: u64, times: u32, max: u64) -> u64 {
    initial.saturating_mul(1 << times.min(32)).min(max)
}

/// How often an agent whose actor panics is started again, and after which wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RestartPolicy {
    /// How often in a row; 0 is never. A turn that ends by itself in between begins a new row.
    pub max_restarts: u32,
    /// The wait before the second restart, in milliseconds; the first comes at once, and each later wait is twice the
    /// one before.
    pub initial_ms: u64,
    /// The longest wait, in milliseconds.
    pub max_ms: u64,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { max_restarts: 5, initial_ms: 100, max_ms: 10_000 }
    }
}

impl RestartPolicy {
    /// A panic is the end.
    pub const NEVER: Self = Self { max_restarts: 0, initial_ms: 0, max_ms: 0 };

    /// How long to wait after panic number `panics` (from 1) of a row, or `None` to give up.
    pub fn delay(&self, panics: u32) -> Option<u64> {
        match panics {
            _ if panics > self.max_restarts => None,
            0 | 1 => Some(0),
            _ => Some(doubled(self.initial_ms, panics - 2, self.max_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_come_at_once_then_later_and_later_and_then_no_more() {
        let policy = RestartPolicy { max_ms: 300, ..RestartPolicy::default() };
        let delays: Vec<_> = (1..=6).map(|panics| policy.delay(panics)).collect();
        assert_eq!(delays, [Some(0), Some(100), Some(200), Some(300), Some(300), None]);
        assert_eq!(RestartPolicy { max_restarts: 0, ..policy }.delay(1), None);
    }

    #[test]
    fn waits_double_within_a_tenth_and_never_pass_the_longest() {
        let policy = RetryPolicy::default();
        for dice in 0..1000 {
            let first = policy.delay(1, None, dice).unwrap();
            assert!((450..=550).contains(&first), "{first}");
            let fifth = policy.delay(5, None, dice).unwrap();
            assert!((7_200..=8_800).contains(&fifth), "{fifth}");
        }
        assert_eq!(policy.delay(6, None, 0), None);
    }

    #[test]
    fn a_wait_that_the_provider_asks_for_is_taken_as_it_is_or_not_at_all() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, Some(7), 99), Some(7));
        assert_eq!(policy.delay(1, Some(10_001), 99), None);
    }
}
