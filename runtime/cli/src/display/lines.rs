//! Progress in a pipe: a line for each start, end and retry of an agent, at most ten a second.

use impresario::kernel::Millis;
use impresario::seams::{Observed, ObservedEvent};

use crate::figures;
use crate::print;
use crate::tally::{self, Tally};

/// At most this many lines a second.
const LINES_MAX: u32 = 10;
/// After so many silent milliseconds there is a summary.
const SILENCE: u64 = 30_000;

/// How much was said lately.
#[derive(Debug)]
pub(super) struct Lines {
    pace: Pace,
    last: Millis,
}

impl Lines {
    pub(super) fn new(now: Millis) -> Self {
        Self { pace: Pace::default(), last: now }
    }

    pub(super) fn show(&mut self, event: &ObservedEvent, now: Millis) {
        let Some(line) = line(event) else {
            return;
        };
        self.say_more(now);
        if self.pace.admits(now) {
            self.last = now;
            print::say(&line);
        }
    }

    pub(super) fn tick(&mut self, tally: &Tally, now: Millis) {
        self.say_more(now);
        if now.0.saturating_sub(self.last.0) >= SILENCE {
            self.last = now;
            let (agents, tokens) = (figures::plural(tally.agents().len(), "agent"), figures::tokens(&tally.spent()));
            print::say(&format!("… {} of {agents} running, {tokens}", tally.running()));
        }
    }

    pub(super) fn end(&mut self) {
        let more = std::mem::take(&mut self.pace.held_back);
        if more > 0 {
            print::say(&format!("… and {more} more"));
        }
    }

    fn say_more(&mut self, now: Millis) {
        if let Some(more) = self.pace.turn(now) {
            self.last = now;
            print::say(&format!("… and {more} more"));
        }
    }
}

/// So many lines a second; the others are counted.
#[derive(Debug, Default)]
struct Pace {
    second: u64,
    said: u32,
    held_back: u64,
}

impl Pace {
    /// Begins the second of `now`; how many lines the one before held back.
    fn turn(&mut self, now: Millis) -> Option<u64> {
        let second = now.0 / 1000;
        if second == self.second {
            return None;
        }
        let more = std::mem::take(&mut self.held_back);
        self.second = second;
        self.said = u32::from(more > 0);
        (more > 0).then_some(more)
    }

    fn admits(&mut self, now: Millis) -> bool {
        debug_assert_eq!(self.second, now.0 / 1000);
        if self.said < LINES_MAX {
            self.said += 1;
            return true;
        }
        self.held_back += 1;
        false
    }
}

fn line(event: &ObservedEvent) -> Option<String> {
    let path = print::one_line(event.path.as_str(), 200);
    match &event.what {
        Observed::Started { label, context, model } => {
            let label = print::one_line(label, 60);
            let label = if event.path.segment() == label { String::new() } else { format!(" {label}") };
            Some(format!("{path}: started{label} ({}, {})", context.as_str(), print::one_line(model, 60)))
        }
        Observed::Ended { outcome, duration_ms } => {
            let why = tally::why(outcome);
            let why = if why.is_empty() { why } else { format!(": {why}") };
            let (took, tokens) = (figures::span(*duration_ms), figures::tokens(&outcome.spent));
            Some(format!("{path}: {} in {took}, {tokens}{why}", outcome.kind))
        }
        Observed::Retry { code, wait_ms, attempt } => {
            Some(format!("{path}: retry {attempt} in {} ({})", figures::span(*wait_ms), print::one_line(code, 60)))
        }
        Observed::LimitReached { limit, used, max } => {
            let reached = if used < max { "nearly reached" } else { "reached" };
            Some(format!("{path}: limit {} {reached}: {used} of {max}", print::one_line(limit, 60)))
        }
        Observed::Stalled { error } => Some(format!("{path}: waits for the store: {}", print::one_line(error, 200))),
        Observed::Queued { .. }
        | Observed::TurnStarted { .. }
        | Observed::TextDelta { .. }
        | Observed::Message { .. }
        | Observed::ToolStarted { .. }
        | Observed::ToolEnded { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_pass_and_the_others_are_counted() {
        let mut pace = Pace::default();
        assert_eq!(pace.turn(Millis(5_000)), None);
        let passed = (0..25).filter(|_| pace.admits(Millis(5_500))).count();
        assert_eq!(passed, 10);
        assert_eq!(pace.turn(Millis(5_999)), None);
        assert_eq!(pace.turn(Millis(6_000)), Some(15));
        let passed = (0..25).filter(|_| pace.admits(Millis(6_000))).count();
        assert_eq!(passed, 9, "the line that says how many counts too");
    }
}
