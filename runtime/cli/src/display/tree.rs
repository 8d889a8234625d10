//! Progress on a terminal: the tree, drawn again as it changes, its last state left on the screen.

use std::collections::HashMap;
use std::sync::Arc;

use impresario::kernel::{Outcome, OutcomeKind};
use indicatif::{ProgressBar, ProgressStyle};

use crate::figures;
use crate::print::{self, Paint};
use crate::tally::{self, AgentState, AgentView, Tally};

/// At most this many agents have a line of their own.
const LINES_MAX: usize = 20;
/// What turns while an agent runs.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// A line for each agent, children under their parent.
pub(super) struct DrawnTree {
    paint: Paint,
    /// By place in the tally; the first so many of it.
    bars: HashMap<usize, ProgressBar>,
    /// Places in the order of the screen.
    order: Vec<usize>,
    /// Counts those without a line.
    others: Option<ProgressBar>,
    turn: usize,
}

impl DrawnTree {
    pub(super) fn new(paint: Paint) -> Self {
        Self { paint, bars: HashMap::new(), order: Vec::new(), others: None, turn: 0 }
    }

    /// Gives each new agent its line, if there is room.
    fn grow(&mut self, tally: &Tally) {
        for place in self.order.len()..tally.agents().len().min(LINES_MAX) {
            let Some(agent) = tally.agents().get(place) else {
                return;
            };
            let at = self.position(tally, agent);
            let bar = ProgressBar::new_spinner().with_style(plain());
            let bar = match at.checked_sub(1).and_then(|before| self.bars.get(self.order.get(before)?)) {
                Some(before) => print::drawing().insert_after(before, bar),
                None => print::drawing().insert(0, bar),
            };
            self.order.insert(at, place);
            self.bars.insert(place, bar);
        }
    }

    /// Behind the last descendant of its parent.
    fn position(&self, tally: &Tally, agent: &AgentView) -> usize {
        let Some((above, _)) = agent.path.as_str().rsplit_once('/') else {
            return self.order.len();
        };
        let is_below = |place: &usize| {
            tally.agents().get(*place).is_some_and(|other| {
                let path = other.path.as_str();
                path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        self.order.iter().rposition(is_below).map_or(self.order.len(), |last| last + 1)
    }

    pub(super) fn tick(&mut self, tally: &Tally) {
        self.turn += 1;
        self.grow(tally);
        for (place, bar) in &self.bars {
            if let Some(agent) = tally.agents().get(*place) {
                bar.set_message(self.line(agent));
            }
        }
        if let Some(line) = self.line_of_others(tally) {
            let others =
                self.others.get_or_insert_with(|| print::drawing().add(ProgressBar::new_spinner().with_style(plain())));
            others.set_message(line);
        }
    }

    /// Replaces the drawing by its last state as plain lines: they stay, and what is said from here on follows them.
    pub(super) fn end(&mut self, tally: &Tally) {
        self.grow(tally);
        print::end_drawing();
        let agents = self.order.iter().filter_map(|place| tally.agents().get(*place));
        let others = self.line_of_others(tally).into_iter().chain(self.hidden_trouble(tally));
        agents.map(|agent| self.line(agent)).chain(others).for_each(|line| print::say(&line));
    }

    /// Agents without a line that did not complete: what went wrong must not hide in a number.
    fn hidden_trouble(&self, tally: &Tally) -> Vec<String> {
        let hidden = tally.agents().iter().skip(self.order.len());
        let trouble = hidden
            .filter_map(|agent| Some((agent, agent.outcome()?)))
            .filter(|(_, outcome)| outcome.kind != OutcomeKind::Completed);
        let line = |(agent, outcome): (&AgentView, &Arc<Outcome>)| {
            let (path, kind) = (print::one_line(agent.path.as_str(), 200), self.paint.word(outcome.kind.as_str()));
            format!("  ✗ {path}  {kind}  {}", tally::why(outcome))
        };
        trouble.take(LINES_MAX).map(line).collect()
    }

    fn line_of_others(&self, tally: &Tally) -> Option<String> {
        let all = tally.agents();
        let hidden = all.len().checked_sub(self.order.len()).filter(|hidden| *hidden > 0)?;
        let ended = all.iter().filter(|agent| agent.outcome().is_some()).count();
        Some(format!("… and {hidden} more; {} running, {ended} of {} ended", tally.running(), all.len()))
    }

    fn line(&self, agent: &AgentView) -> String {
        let indent = "  ".repeat(agent.depth());
        let name = self.paint.bold(&print::one_line(agent.path.segment(), 60));
        let since = figures::span(figures::now().0.saturating_sub(agent.since) / 100 * 100);
        match &agent.state {
            AgentState::Born => format!("{indent}· {name}"),
            AgentState::Queued => format!("{indent}· {name}  {} {}", self.paint.word("queued"), self.paint.dim(&since)),
            AgentState::Running => {
                let spinner = SPINNER[self.turn % SPINNER.len()];
                format!("{indent}{spinner} {name}  {} {}", print::one_line(&agent.doing, 60), self.paint.dim(&since))
            }
            AgentState::Ended(outcome, ms) => {
                let mark = if outcome.why().is_empty() { '✓' } else { '✗' };
                let kind = self.paint.word(outcome.kind.as_str());
                let rest = format!("{}, {}", figures::span(*ms), figures::tokens(&outcome.spent));
                let line = format!("{indent}{mark} {name}  {kind}  {}", self.paint.dim(&rest));
                format!("{line}  {}", tally::why(outcome)).trim_end().to_owned()
            }
        }
    }
}

fn plain() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}
