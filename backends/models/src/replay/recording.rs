//! What was recorded, by who asked and when.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use impresario_kernel::{AgentPath, Chunk, Failure};
use impresario_seams::ModelScope;

use super::asked::{Asked, Numbered, Sight};
use super::file::{self, End, Line, RecordingError};

/// How many paths a miss names.
const PATHS_SHOWN: usize = 5;

/// Answers of models, each with the request that it is the answer to.
#[derive(Debug, Default)]
pub struct Recording {
    pub(super) sight: Sight,
    agents: BTreeMap<AgentPath, BTreeMap<When, Vec<Arc<Attempt>>>>,
    /// Whom the requests went to.
    providers: Vec<String>,
}

/// Turn, step and attempt.
type When = (u32, u32, u32);

/// One attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) asked: Numbered,
    pub(super) chunks: Vec<Chunk>,
    pub(super) end: Ended,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It said all.
    Finished,
    /// It failed.
    Failed(Failure),
    /// Whoever asked went away before it ended.
    Dropped,
}

impl Recording {
    /// Reads what [`RecordingModel`](super::RecordingModel) has written into `folder`.
    ///
    /// # Errors
    /// [`RecordingError`], with the line, for what is no recording.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Self::read(folder.as_ref(), Sight::Whole)
    }

    /// As [`Recording::open`], for a server: thoughts, settings and whether a call failed do not come over HTTP, so they
    /// are not compared.
    ///
    /// # Errors
    /// As there.
    pub fn open_served(folder: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Self::read(folder.as_ref(), Sight::Served)
    }

    fn read(folder: &Path, sight: Sight) -> Result<Self, RecordingError> {
        let mut recording = Self::of(sight);
        for line in file::read(folder)? {
            recording.add(line);
        }
        Ok(recording)
    }

    /// Whether [`Recording::open`] is what reads `folder`.
    pub fn is_at(folder: impl AsRef<Path>) -> bool {
        folder.as_ref().join(file::NAME).is_file()
    }

    pub(super) fn of(sight: Sight) -> Self {
        Self { sight, ..Self::default() }
    }

    /// How many attempts there are.
    pub fn len(&self) -> usize {
        self.agents.values().flat_map(BTreeMap::values).map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Whom the requests went to: calls may ask for subagents on one of these.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    pub(super) fn add(&mut self, line: Line) {
        let end = match (line.end, line.failure) {
            (End::Failed, Some(failure)) => Ended::Failed(failure),
            (End::Dropped | End::Failed, _) => Ended::Dropped,
            (End::Finished, _) => Ended::Finished,
        };
        if !line.provider.is_empty() && !self.providers.contains(&line.provider) {
            self.providers.push(line.provider);
        }
        let asked = Asked(line.asked).numbered(self.sight);
        let attempt = Arc::new(Attempt { asked, chunks: line.chunks, end });
        let when = (line.turn, line.step, line.attempt);
        self.agents.entry(line.path).or_default().entry(when).or_default().push(attempt);
    }

    /// The attempt at the place of `scope` that was the answer to what is asked; where several were, the first.
    pub(super) fn find(&self, scope: &ModelScope, asked: &Numbered) -> Result<Arc<Attempt>, Failure> {
        let Some(agent) = self.agents.get(&scope.path) else {
            return Err(miss(scope, &format!("nothing is recorded of it; {}", self.paths())));
        };
        let Some(attempts) = agent.get(&(scope.turn, scope.step, scope.attempt)) else {
            let (turn, step, attempt) = agent.last_key_value().map_or((0, 0, 0), |(when, _)| *when);
            let last = format!("turn {turn}, step {step}, attempt {attempt}");
            return Err(miss(scope, &format!("nothing is recorded of it then; the last that is recorded is {last}")));
        };
        if let Some(attempt) = attempts.iter().find(|attempt| attempt.asked.is(asked)) {
            return Ok(Arc::clone(attempt));
        }
        let differences = attempts.iter().map(|attempt| asked.difference(&attempt.asked));
        let nearest = differences.max_by_key(|difference| difference.total);
        let nearest = nearest.map_or_else(String::new, |difference| difference.to_string());
        let which = if attempts.len() == 1 {
            "the recorded one".into()
        } else {
            format!("one of the {} recorded ones", attempts.len())
        };
        Err(miss(scope, &format!("the request is not {which}: {nearest}")))
    }

    /// The paths that there are, or some of them.
    fn paths(&self) -> String {
        let shown: Vec<&str> = self.agents.keys().take(PATHS_SHOWN).map(AgentPath::as_str).collect();
        match self.agents.len() {
            0 => "the recording is empty".into(),
            all if all > PATHS_SHOWN => format!("there are {} and {} more", shown.join(", "), all - PATHS_SHOWN),
            _ => format!("there are {}", shown.join(", ")),
        }
    }
}

fn miss(scope: &ModelScope, why: &str) -> Failure {
    let ModelScope { path, turn, step, attempt, .. } = scope;
    Failure::new(super::MISS, format!("replay of {path}, turn {turn}, step {step}, attempt {attempt}: {why}"))
}
