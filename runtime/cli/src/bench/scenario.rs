//! What is measured: scenarios by name.

use impresario::models::scripted::ScriptedModel;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// How it is asked for.
    pub(crate) name: &'static str,
    /// One line on what it does with its n.
    pub(crate) about: &'static str,
    /// How it is run.
    pub(crate) work: Work,
    /// Who answers, if not [`super::model`].
    pub(crate) model: Option<&'static ScriptedModel>,
}

impl Scenario {
    const fn of(name: &'static str, about: &'static str, work: Work) -> Self {
        Self { name, about, work, model: None }
    }
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A root is told this and its tree comes to rest.
    Tree(fn(u32) -> String),
    /// The same, with the words of a file.
    Told(&'static str),
    /// A tree of n agents is stopped while all of them wait for their model.
    Cancel,
    /// n agents that have had a turn each.
    Idle,
    /// n agents are written to, again and again.
    Messages,
    /// A tree of n agents is opened again that was dropped as it was.
    Recover,
    /// An agent is forked that has had n turns.
    Fork,
}

/// All of them.
pub(crate) const ALL: [Scenario; 14] = [
    Scenario::of("fan-out", "a root and n children at once", Work::Tree(|n| format!("rounds {n} | work"))),
    Scenario::of(
        "chain",
        "a root, its child, that one's child, n deep",
        Work::Tree(|n| "rounds 1 | ".repeat(n as usize) + "work"),
    ),
    Scenario::of(
        "tree",
        "three levels of children, n in all on the lowest, about as many to each parent",
        Work::Tree(|n| {
            let width = f64::from(n).cbrt().round().max(1.0) as u32;
            let lowest = n.div_ceil(width * width).max(1);
            format!("rounds {width} | rounds {width} | rounds {lowest} | work")
        }),
    ),
    Scenario::of(
        "map-reduce",
        "n children at once, then one that puts their answers together",
        Work::Tree(|n| format!("rounds {n},1 | work")),
    ),
    Scenario::of(
        "pipeline",
        "n children, one after another",
        Work::Tree(|n| format!("rounds {} | work", vec!["1"; n as usize].join(","))),
    ),
    Scenario::of("debate", "n children at once, three times", Work::Tree(|n| format!("rounds {n},{n},{n} | work"))),
    Scenario::of(
        "stream",
        "n children at once that say five hundred words each; --latency '0ms + 100 tok/s' says how fast",
        Work::Tree(|n| format!("rounds {n} | speak")),
    ),
    Scenario::of(
        "race",
        "n children in the background; the first answer wins and the others are stopped",
        Work::Tree(|n| format!("race {n} | work")),
    ),
    Scenario::of(
        "background",
        "n children in the background, then all of them are waited for",
        Work::Tree(|n| format!("gather {n} | work")),
    ),
    Scenario::of("cancel-storm", "a tree of n children is stopped while all of them ask their model", Work::Cancel),
    Scenario::of("idle", "n agents in memory that have had a turn each", Work::Idle),
    Scenario::of("message-storm", "n agents get sixteen messages each, as fast as they are accepted", Work::Messages),
    Scenario::of("recover", "a tree of n children is opened again whose runtime was dropped as it was", Work::Recover),
    Scenario::of("fork", "an agent is forked that has had n turns", Work::Fork),
];

/// What is run when nothing is asked for.
pub(crate) const DEFAULT: [&str; 3] = ["fan-out", "chain", "cancel-storm"];

/// The scenario of this name.
pub(crate) fn named(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}
