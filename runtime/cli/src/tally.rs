//! What is known of a running tree from what was seen of it: the read model of every display.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use impresario::kernel::{AgentId, AgentPath, Outcome, OutcomeKind, Spent};
use impresario::seams::{Observed, ObservedEvent};

use crate::print;

/// All agents seen so far, in the order in which they were born.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    agents: Vec<AgentView>,
    places: HashMap<AgentId, usize>,
}

/// One agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentView {
    /// Where it stands.
    pub(crate) path: AgentPath,
    /// Its parent; none for a root.
    pub(crate) parent: Option<AgentId>,
    /// How far it is.
    pub(crate) state: AgentState,
    /// When that began, in milliseconds of the epoch.
    pub(crate) since: u64,
    /// What it does now, in a few words.
    pub(crate) doing: String,
}

/// How far an agent is.
#[derive(Clone, Debug)]
pub(crate) enum AgentState {
    /// It is there.
    Born,
    /// It waits for a turn slot.
    Queued,
    /// A turn runs.
    Running,
    /// Its last turn came out as this, after so many milliseconds.
    Ended(Arc<Outcome>, u64),
}

impl Tally {
    /// Folds one event in.
    pub(crate) fn watch(&mut self, event: &ObservedEvent) {
        let place = match self.places.get(&event.agent) {
            Some(place) => *place,
            None => self.add(event),
        };
        if let Some(agent) = self.agents.get_mut(place) {
            agent.watch(event);
        }
    }

    fn add(&mut self, event: &ObservedEvent) -> usize {
        let place = self.agents.len();
        self.places.insert(event.agent.clone(), place);
        self.agents.push(AgentView {
            path: event.path.clone(),
            parent: event.parent.clone(),
            state: AgentState::Born,
            since: event.time.0,
            doing: String::new(),
        });
        place
    }

    /// All of them.
    pub(crate) fn agents(&self) -> &[AgentView] {
        &self.agents
    }

    /// How many have a turn open.
    pub(crate) fn running(&self) -> usize {
        self.agents.iter().filter(|agent| matches!(agent.state, AgentState::Running)).count()
    }

    /// What all of them spent.
    pub(crate) fn spent(&self) -> Spent {
        let mut spent = Spent::default();
        self.agents.iter().filter_map(AgentView::outcome).for_each(|outcome| spent.add(&outcome.spent));
        spent
    }

    /// How the children of all levels came out.
    pub(crate) fn children(&self) -> BTreeMap<OutcomeKind, u64> {
        let mut counts = BTreeMap::new();
        for outcome in self.agents.iter().filter(|agent| agent.parent.is_some()).filter_map(AgentView::outcome) {
            *counts.entry(outcome.kind).or_default() += 1;
        }
        counts
    }
}

impl AgentView {
    /// How deep it stands.
    pub(crate) fn depth(&self) -> usize {
        self.path.as_str().matches('/').count()
    }

    /// How its last turn came out, if it has ended.
    pub(crate) fn outcome(&self) -> Option<&Arc<Outcome>> {
        match &self.state {
            AgentState::Ended(outcome, _) => Some(outcome),
            AgentState::Born | AgentState::Queued | AgentState::Running => None,
        }
    }

    fn watch(&mut self, event: &ObservedEvent) {
        match &event.what {
            Observed::Started { .. } => {}
            Observed::Queued { .. } => self.enter(AgentState::Queued, event.time.0),
            Observed::TurnStarted { .. } => self.enter(AgentState::Running, event.time.0),
            Observed::Ended { outcome, duration_ms } => {
                self.enter(AgentState::Ended(Arc::clone(outcome), *duration_ms), event.time.0);
            }
            Observed::TextDelta { .. } | Observed::Message { .. } => self.doing.replace_range(.., "answering"),
            Observed::ToolStarted { tool, .. } => self.doing.replace_range(.., tool),
            Observed::ToolEnded { .. } => self.doing.replace_range(.., "thinking"),
            Observed::Retry { code, attempt, .. } => self.doing = format!("retry {attempt} after {code}"),
            Observed::LimitReached { limit, max, .. } => self.doing = format!("limit {limit} of {max} reached"),
            Observed::Stalled { .. } => self.doing.replace_range(.., "waiting for the store"),
        }
    }

    fn enter(&mut self, state: AgentState, time: u64) {
        self.state = state;
        self.since = time;
        self.doing.clear();
    }
}

/// Why an outcome is not `completed`, in a line that can stand behind its kind.
pub(crate) fn why(outcome: &Outcome) -> String {
    let why = outcome.why();
    print::one_line(why.strip_prefix("cancelled ").unwrap_or(&why), 400)
}
