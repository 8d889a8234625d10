//! What a torture came to: numbers for people, and what was found wrong.

use std::fmt;

/// The numbers, and the faults by kind.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) kills: u64,
    pub(crate) restarts: u64,
    pub(crate) ended: u64,
    pub(crate) agents: u64,
    /// Children whose first prompt still waits: there is no turn yet that could have an outcome.
    pub(crate) not_begun: u64,
    pub(crate) accepted: u64,
    pub(crate) acknowledged: u64,
    pub(crate) consumed: u64,
    pub(crate) waiting: u64,
    pub(crate) refused: u64,
    pub(crate) outcomes: u64,
    pub(crate) told: u64,
    pub(crate) superseded: u64,
    pub(crate) not_started: u64,
    pub(crate) unknown: u64,
    pub(crate) run: u64,
    pub(crate) losses: Vec<String>,
    pub(crate) duplicates: Vec<String>,
    pub(crate) violations: Vec<String>,
}

impl Figures {
    /// Fails the test if anything was found, and says all of it.
    pub(crate) fn are_clean(&self, seed: u64) {
        let faults = [&self.losses, &self.duplicates, &self.violations];
        let all: String = faults.into_iter().flatten().map(|fault| format!("\n  {fault}")).collect();
        assert!(all.is_empty(), "SEED={seed} shows:{all}");
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = |faults: &[String]| faults.len() as u64;
        let rows = [
            ("kills", self.kills),
            ("restarts", self.restarts),
            ("commands that ended by themselves", self.ended),
            ("agents", self.agents),
            ("  that had not begun and wait", self.not_begun),
            ("messages accepted, by whomever", self.accepted),
            ("  told by a command and acknowledged", self.acknowledged),
            ("  consumed", self.consumed),
            ("  waiting", self.waiting),
            ("messages refused: store in use", self.refused),
            ("outcomes", self.outcomes),
            ("  told to a parent", self.told),
            ("  superseded by a later one", self.superseded),
            ("tool calls not started", self.not_started),
            ("tool calls whose outcome is unknown", self.unknown),
            ("tool calls run", self.run),
            ("losses", len(&self.losses)),
            ("duplicates", len(&self.duplicates)),
            ("violations", len(&self.violations)),
        ];
        rows.iter().try_for_each(|(name, number)| writeln!(to, "{name:<38}{number:>7}"))
    }
}
