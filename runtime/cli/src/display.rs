//! What a person or a program sees of a run: JSON lines, or the answer on stdout and the tree on stderr.

use std::io;
use std::sync::Arc;

use impresario::kernel::{Access, AgentId, Budget, Outcome, OutcomeKind, Resource, Spent};
use impresario::{Limits, Price, Receipt, Seen, Subscription};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Duration, MissedTickBehavior};

use crate::exit::{Exit, Stop};
use crate::failed::Failed;
use crate::figures;
use crate::print::{self, Paint, Stream};
use crate::tally::{self, Tally};

pub(crate) mod json;
mod lines;
mod stream;
mod tree;

use json::JsonLines;
use lines::Lines;
use stream::Streamed;
use tree::DrawnTree;

/// How often what moves is drawn again.
const TICK: Duration = Duration::from_millis(100);
/// How long the last events may take to arrive once the runtime is gone.
const DRAIN: Duration = Duration::from_secs(2);

/// What is known when a run starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// `provider:model`
    pub(crate) model: String,
    /// The folder to work in, for people.
    pub(crate) dir: String,
    /// The folder of the store, or `memory`.
    pub(crate) home: String,
    /// What agents may do.
    pub(crate) access: Access,
    /// The bounds.
    pub(crate) limits: Limits,
    /// What the tree may spend.
    pub(crate) budget: Option<Budget>,
}

impl Start {
    /// The first line of stderr.
    pub(crate) fn line(&self) -> String {
        let Limits { depth_max, descendants_max, running_max, .. } = self.limits;
        let turn = self.limits.tokens_max.map(|max| format!("{} tokens a turn", figures::count(max)));
        let budget = self.budget.as_ref().map(|budget| format!("budget {}", crate::spend::show(budget)));
        let limits: Vec<String> = turn.into_iter().chain(budget).collect();
        let spending = if limits.is_empty() { "no spending limit".into() } else { limits.join(", ") };
        format!(
            "model {} · dir {} · access {} · limits depth {depth_max}, agents {descendants_max}, running {running_max}, \
             {spending}",
            self.model,
            self.dir,
            self.access.as_str()
        )
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// For the shell.
    pub(crate) exit: Exit,
    /// The root.
    pub(crate) root: Option<AgentId>,
    /// How the root's last turn came out.
    pub(crate) outcome: Option<Arc<Outcome>>,
    /// What ended.
    pub(crate) receipt: Option<Receipt>,
    /// Why the program stopped it.
    pub(crate) stop: Option<Stop>,
    /// What went wrong apart from the root's outcome.
    pub(crate) failure: Option<Failed>,
    /// How long it took.
    pub(crate) duration_ms: u64,
    /// Whether the final text went to a file.
    pub(crate) written: bool,
    /// Lines for stderr behind everything else.
    pub(crate) hints: Vec<String>,
    /// Whether all that was said is still to be shown. Not when leaving at once.
    pub(crate) drain: bool,
}

impl Ending {
    /// How the children came out: by the receipt, which misses nobody, else by what was seen.
    pub(crate) fn children(&self, tally: &Tally) -> std::collections::BTreeMap<OutcomeKind, u64> {
        let Some(receipt) = &self.receipt else {
            return tally.children();
        };
        let mut counts = std::collections::BTreeMap::new();
        for kind in
            receipt.agents.iter().filter(|end| Some(&end.id) != self.root.as_ref()).filter_map(|end| end.outcome)
        {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// What to hand out: nothing when the root failed.
    fn answer(&self) -> Option<Arc<str>> {
        let outcome = self.outcome.as_ref()?;
        matches!(outcome.kind, OutcomeKind::Completed | OutcomeKind::Partial).then(|| outcome.answer())
    }
}

/// What to show, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// JSON lines on stdout.
    pub(crate) json: bool,
    /// With each piece of text.
    pub(crate) deltas: bool,
    /// Say less on stderr.
    pub(crate) quiet: bool,
    /// Whether the answer goes to a file and not to stdout.
    pub(crate) to_file: bool,
    /// What the model costs, if that is known.
    pub(crate) price: Option<Price>,
    /// Colours of stderr.
    pub(crate) paint: Paint,
}

/// The display of one run, on a thread of its own: a reader that is slow or gone holds nothing else up.
pub(crate) struct Screen {
    ending: oneshot::Sender<Ending>,
    shown: JoinHandle<io::Result<()>>,
}

impl Screen {
    /// Shows what `subscription` sees. The receiver is told when nobody reads stdout any more.
    pub(crate) fn open(style: Style, start: Start, subscription: Subscription) -> (Self, oneshot::Receiver<()>) {
        let (ending, ended) = oneshot::channel();
        let (closed, is_closed) = oneshot::channel();
        let display = Display::new(style, closed);
        let handle = tokio::runtime::Handle::current();
        let shown = tokio::task::spawn_blocking(move || handle.block_on(display.show_all(start, subscription, ended)));
        (Self { ending, shown }, is_closed)
    }

    /// Shows the rest and the end.
    ///
    /// # Errors
    /// That stdout did not take all of it, for another reason than that nobody reads it; it was said on stderr.
    pub(crate) async fn close(self, ending: Ending) -> io::Result<()> {
        let patience = if ending.drain { DRAIN * 2 } else { DRAIN / 4 };
        // A display that is gone has nothing to show any more.
        let _ = self.ending.send(ending);
        match tokio::time::timeout(patience, self.shown).await {
            Ok(Ok(written)) => written,
            // A reader that does not read is not waited for.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }
}

struct Display {
    tally: Tally,
    out: Out,
    progress: Progress,
    style: Style,
    closed: Option<oneshot::Sender<()>>,
    /// Why stdout took no more, unless its reader went away.
    unwritten: io::Result<()>,
}

enum Out {
    Json(JsonLines),
    Stream(Streamed),
    Last,
    Gone,
}

enum Progress {
    Tree(DrawnTree),
    Lines(Lines),
    Quiet,
}

impl Display {
    fn new(style: Style, closed: oneshot::Sender<()>) -> Self {
        let out = match () {
            () if style.json => Out::Json(JsonLines::new(style.deltas, style.price)),
            () if style.to_file => Out::Last,
            () if Stream::Out.is_terminal() => Out::Stream(Streamed::default()),
            () => Out::Last,
        };
        let progress = match () {
            () if style.quiet || style.json => Progress::Quiet,
            () if Stream::Err.is_terminal() => Progress::Tree(DrawnTree::new(style.paint)),
            () => Progress::Lines(Lines::new(figures::now())),
        };
        Self { tally: Tally::default(), out, progress, style, closed: Some(closed), unwritten: Ok(()) }
    }

    async fn show_all(
        mut self,
        start: Start,
        mut seen: Subscription,
        mut ended: oneshot::Receiver<Ending>,
    ) -> io::Result<()> {
        if let Out::Json(json) = &mut self.out {
            let written = json.started(&start);
            self.check(written);
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let ending = loop {
            tokio::select! {
                ending = &mut ended => break ending.ok(),
                event = seen.next() => match event {
                    Some(event) => self.show(&event),
                    None => break (&mut ended).await.ok(),
                },
                _ = ticks.tick() => self.tick(),
            }
        };
        let Some(ending) = ending else {
            return self.unwritten;
        };
        if ending.drain {
            // The runtime is gone: what it said is in the ring, and nothing follows.
            let rest = async {
                while let Some(event) = seen.next().await {
                    self.show(&event);
                }
            };
            let _ = tokio::time::timeout(DRAIN, rest).await;
        }
        self.end(&ending);
        self.unwritten
    }

    fn show(&mut self, seen: &Seen) {
        if let Seen::Event(event) = seen {
            self.tally.watch(event);
        }
        let written = match (&mut self.out, seen) {
            (Out::Json(json), seen) => json.show(seen),
            (Out::Stream(stream), Seen::Event(event)) => stream.show(event),
            (Out::Stream(_), Seen::Missed(_)) | (Out::Last | Out::Gone, _) => Ok(()),
        };
        self.check(written);
        match (&mut self.progress, seen) {
            (Progress::Lines(lines), Seen::Event(event)) => lines.show(event, figures::now()),
            (Progress::Tree(_) | Progress::Lines(_), Seen::Missed(n)) => {
                print::say(&format!("{n} events went by too fast to be shown; the log has them"));
            }
            // The tree is drawn by the clock, not by the event.
            (Progress::Tree(_), Seen::Event(_)) | (Progress::Quiet, _) => {}
        }
    }

    fn tick(&mut self) {
        match &mut self.progress {
            Progress::Tree(tree) => tree.tick(&self.tally),
            Progress::Lines(lines) => lines.tick(&self.tally, figures::now()),
            Progress::Quiet => {}
        }
    }

    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.out = Out::Gone;
            if error.kind() != io::ErrorKind::BrokenPipe {
                print::say(&format!("error: stdout: {error}"));
                self.unwritten = Err(error);
            }
            if let Some(closed) = self.closed.take() {
                // The run may have ended by itself meanwhile.
                let _ = closed.send(());
            }
        }
    }

    fn end(&mut self, ending: &Ending) {
        match &mut self.progress {
            Progress::Tree(tree) => tree.end(&self.tally),
            Progress::Lines(lines) => lines.end(),
            Progress::Quiet => {}
        }
        let written = match &mut self.out {
            Out::Json(json) => json.ended(ending, &self.tally),
            Out::Stream(stream) => stream.end(ending.answer().as_deref()),
            Out::Last if ending.written => Ok(()),
            Out::Last => ending.answer().map_or(Ok(()), |text| print::out(&format!("{text}\n"))),
            Out::Gone => Ok(()),
        };
        self.check(written);
        self.say_the_end(ending);
    }

    fn say_the_end(&self, ending: &Ending) {
        if let Some(failure) = &ending.failure {
            print::say(&format!("{} {}", self.style.paint.word("error:"), print::printable(&failure.text)));
        }
        let failed = ending.outcome.as_ref().filter(|outcome| outcome.kind != OutcomeKind::Completed);
        // Nobody reads stdout: whoever closed it has seen enough.
        let unread = ending.stop == Some(Stop::OutputClosed);
        let never_ran = ending.failure.is_some() && ending.outcome.is_none();
        if !unread && !never_ran && (!self.style.json || failed.is_some()) && (!self.style.quiet || failed.is_some()) {
            print::say(&self.summary(ending));
        }
        if self.style.quiet || self.style.json {
            return;
        }
        ending.hints.iter().for_each(|hint| print::say(hint));
    }

    /// `completed · 5 agents · 41.2k tokens · 3.2 s · session 0193…`
    fn summary(&self, ending: &Ending) -> String {
        let mut parts = Vec::new();
        if let Some(outcome) = &ending.outcome {
            let why = tally::why(outcome);
            let word = self.style.paint.word(outcome.kind.as_str());
            parts.push(if why.is_empty() { word } else { format!("{word}: {why}") });
        }
        if let (Some(stop), Some(receipt)) = (ending.stop, &ending.receipt) {
            parts.push(receipt_line(stop, receipt));
        }
        // Leaving at once, what was not shown is not known.
        if ending.receipt.is_some() || ending.drain {
            let children: u64 = ending.children(&self.tally).values().sum();
            parts.push(figures::plural(usize::try_from(children).unwrap_or(usize::MAX).saturating_add(1), "agent"));
            let mut spent: Spent = self.tally.spent();
            if let (true, Some(outcome)) = (self.tally.agents().is_empty(), &ending.outcome) {
                spent = outcome.spent;
            }
            parts.push(figures::tokens(&spent));
            let cost = figures::cost(&spent, self.style.price);
            parts.extend(cost.map(|micro_usd| Resource::MicroUsd.show(micro_usd)));
        }
        parts.push(figures::span(ending.duration_ms));
        if let Some(root) = &ending.root {
            parts.push(format!("session {root}"));
        }
        parts.join(" · ")
    }
}

/// What a stop has stopped.
fn receipt_line(stop: Stop, receipt: &Receipt) -> String {
    let rest = receipt.agents.iter().filter(|end| end.at_rest).count();
    let mut line =
        format!("stopped by {}: {rest} of {} at rest", stop.reason(), figures::plural(receipt.agents.len(), "agent"));
    let late: Vec<&str> = receipt.agents.iter().filter(|end| !end.at_rest).map(|end| end.path.as_str()).collect();
    if !late.is_empty() {
        line.push_str(&format!(" (not: {})", late.join(", ")));
    }
    if receipt.refused > 0 {
        line.push_str(&format!(", {} refused", receipt.refused));
    }
    if receipt.parked > 0 {
        line.push_str(&format!(", {} parked", figures::plural(receipt.parked as usize, "message")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_model_folder_access_and_limits() {
        let start = Start {
            model: "deepseek:deepseek-chat".into(),
            dir: "~/x".into(),
            home: "memory".into(),
            access: Access::Read,
            limits: Limits::default(),
            budget: None,
        };
        assert_eq!(
            start.line(),
            "model deepseek:deepseek-chat · dir ~/x · access read · limits depth 3, agents 200, running 16, no spending limit"
        );
    }
}
