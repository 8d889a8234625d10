//! A whole log, read once: how long it is, where its records are, what is wrong with it, and what its head should say.

use std::path::Path;
use std::sync::Arc;

use impresario_kernel::{AgentPath, Event, Fact, Millis, OutcomeKind, Seq, SessionHeader, Spent};
use impresario_seams::{Head, TurnState};

use super::Encoding;
use super::diagnosis::Diagnostic;
use super::follow::{Follow, NoHeader, header, named};
use super::line::{Lines, Next, Place};

/// How many events apart the places are that a reader may begin at.
const MARK_EVERY: u64 = 256;

/// How many characters of a prompt make a title.
const TITLE_MAX: usize = 80;

/// What reading a log through has shown.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    pub(super) header: SessionHeader,
    /// Where its own events begin; `None` if it has none.
    pub(super) begins: Option<Seq>,
    /// Where the next event goes.
    pub(super) next: Seq,
    pub(super) last_time: Option<Millis>,
    /// Where the next append goes: what is behind it is a fragment.
    pub(super) end: u64,
    pub(super) lacks_newline: bool,
    /// How many lines there are.
    pub(super) lines: u64,
    pub(super) marks: Marks,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) told: Told,
}

/// What the events say that a head says too.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    turn: Option<(u32, TurnState)>,
    outcome: Option<(OutcomeKind, Spent)>,
    title: Option<String>,
    /// Where its agent stands in the tree.
    pub(super) path: Option<AgentPath>,
}

/// Places in a log that reading may begin at, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Vec<(Seq, Place)>);

impl Marks {
    /// Remembers that `seq` is at `place`, unless one nearby is known.
    pub(super) fn add(&mut self, seq: Seq, place: Place) {
        if self.0.last().is_none_or(|(last, _)| seq.0 >= last.0 + MARK_EVERY) {
            self.0.push((seq, place));
        }
    }

    /// The nearest place at or before `seq`.
    pub(super) fn before(&self, seq: Seq) -> Option<(Seq, Place)> {
        let behind = self.0.partition_point(|(at, _)| *at <= seq);
        behind.checked_sub(1).and_then(|at| self.0.get(at)).copied()
    }
}

impl Scan {
    /// Reads the log in `path`, of which `end` bytes are looked at. `fork` is where its own events begin, if that is
    /// known.
    pub(super) fn read(path: &Path, encoding: Encoding, end: u64, fork: Option<Seq>) -> Result<Self, NoHeader> {
        let mut lines = Lines::open(path, encoding, Place::default(), end).map_err(NoHeader::Io)?;
        let header = header(&mut lines)?;
        let lacks_newline = !lines.is_ended();
        let (next, or_begins) = match fork {
            Some(fork) => (fork, None),
            None => (Seq(0), header.seed_length.filter(|seed| *seed > 0).map(Seq)),
        };
        let follow = Follow::new(next, or_begins, header.created_at);
        let told = Told::default();
        let scan = Self {
            header,
            begins: None,
            next,
            last_time: None,
            end,
            lacks_newline,
            lines: 1,
            marks: Marks::default(),
            diagnostics: vec![],
            told,
        };
        scan.follow(lines, follow)
    }

    fn follow(mut self, mut lines: Lines, mut follow: Follow) -> Result<Self, NoHeader> {
        // The last place that a line began at.
        let mut last = None;
        loop {
            let next = lines.next().map_err(NoHeader::Io)?;
            // A reader can begin with the first line of a frame only.
            let mut begins = None;
            if let Next::Line(line) = &next {
                self.lines = line.number;
                if last != Some(line.offset) {
                    begins = Some(Place { offset: line.offset, lines: line.number - 1 });
                    last = Some(line.offset);
                }
            }
            let goes_on = follow.feed(next);
            let is_level = follow.is_level();
            while let Some((offset, event)) = follow.ready() {
                self.begins.get_or_insert(event.seq);
                self.last_time = Some(event.time);
                self.told.note(&event);
                if let Some(place) = begins.filter(|place| is_level && place.offset == offset) {
                    self.marks.add(event.seq, place);
                }
            }
            self.diagnostics.extend(follow.take_diagnostics());
            if !goes_on {
                break;
            }
        }
        self.next = follow.next();
        self.lacks_newline |= follow.lacks_newline();
        self.end = follow.fragment().unwrap_or(self.end);
        Ok(self)
    }

    /// Why nothing may be appended to the log in `path`.
    pub(super) fn refusal(&self, path: &Path) -> Option<String> {
        self.diagnostics.iter().find(|found| found.kind.forbids_append()).map(|found| named(path, found))
    }
}

impl Told {
    fn note(&mut self, event: &Arc<Event>) {
        match &event.fact {
            Fact::TurnStarted(turn) => self.turn = Some((turn.turn, TurnState::Open)),
            Fact::TurnEnded(turn) => self.turn = Some((turn.turn, TurnState::Idle)),
            Fact::OutcomeReached(reached) => self.outcome = Some((reached.kind, reached.spent)),
            Fact::AgentBorn(birth) => self.path = Some(birth.path.clone()),
            Fact::UserMessage(message) if self.title.is_none() => {
                let text = message.content.iter().find_map(|block| block.as_text()).unwrap_or_default();
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                self.title = Some(words.chars().take(TITLE_MAX).collect());
            }
            _ => {}
        }
    }

    /// What a head that is older than the log, or none, becomes: the log wins.
    pub(super) fn correct(&self, head: Head) -> Head {
        let mut head = head;
        if let Some((turns, state)) = self.turn {
            (head.turns, head.state) = (turns, state);
        }
        if let Some((kind, spent)) = &self.outcome {
            (head.outcome, head.spent) = (Some(*kind), *spent);
        }
        if let Some(title) = self.title.as_ref().filter(|_| head.title.is_empty()) {
            head.title.clone_from(title);
        }
        head
    }
}
