//! What several runs of one scenario gave.

use std::collections::BTreeMap;

use super::scenario::Scenario;
use super::spread::Spread;
use super::trial::{Setup, Trial};
use super::watch::Asked;

/// A scenario with its n, and its figures.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) scenario: &'static str,
    pub(crate) setup: Setup,
    pub(crate) figures: BTreeMap<&'static str, Spread>,
    /// Who asked when in the last run.
    pub(crate) asked: Vec<Asked>,
    /// Of all logs of the last run, where it was to be the same each time.
    pub(crate) hash: Option<u64>,
}

impl Row {
    pub(crate) fn of(scenario: Scenario, setup: &Setup, mut trials: Vec<Trial>) -> Self {
        let mut values: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (name, value) in trials.iter().flat_map(|trial| &trial.figures) {
            values.entry(name).or_default().push(*value);
        }
        let figures = values.into_iter().filter_map(|(name, values)| Some((name, Spread::of(values)?))).collect();
        let last = trials.pop().unwrap_or_default();
        Self { scenario: scenario.name, setup: setup.clone(), figures, asked: last.asked, hash: last.hash }
    }
}
