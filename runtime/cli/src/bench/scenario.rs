//! What is measured: scenarios by name.

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// How it is asked for.
    pub(crate) name: &'static str,
    /// One line on what it does with its n.
    pub(crate) about: &'static str,
    /// How it is run.
    pub(crate) work: Work,
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A root is told this and its tree comes to rest.
    Tree(fn(u32) -> String),
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
    Scenario {
        name: "fan-out",
        about: "a root and n children at once",
        work: Work::Tree(|n| format!("rounds {n} | work")),
    },
    Scenario {
        name: "chain",
        about: "a root, its child, that one's child, n deep",
        work: Work::Tree(|n| "rounds 1 | ".repeat(n as usize) + "work"),
    },
    Scenario {
        name: "tree",
        about: "three levels of children, n in all on the lowest, about as many to each parent",
        work: Work::Tree(|n| {
            let width = f64::from(n).cbrt().round().max(1.0) as u32;
            let lowest = n.div_ceil(width * width).max(1);
            format!("rounds {width} | rounds {width} | rounds {lowest} | work")
        }),
    },
    Scenario {
        name: "map-reduce",
        about: "n children at once, then one that puts their answers together",
        work: Work::Tree(|n| format!("rounds {n},1 | work")),
    },
    Scenario {
        name: "pipeline",
        about: "n children, one after another",
        work: Work::Tree(|n| format!("rounds {} | work", vec!["1"; n as usize].join(","))),
    },
    Scenario {
        name: "debate",
        about: "n children at once, three times",
        work: Work::Tree(|n| format!("rounds {n},{n},{n} | work")),
    },
    Scenario {
        name: "stream",
        about: "n children at once that say five hundred words each; --latency '0ms + 100 tok/s' says how fast",
        work: Work::Tree(|n| format!("rounds {n} | speak")),
    },
    Scenario {
        name: "race",
        about: "n children in the background; the first answer wins and the others are stopped",
        work: Work::Tree(|n| format!("race {n} | work")),
    },
    Scenario {
        name: "background",
        about: "n children in the background, then all of them are waited for",
        work: Work::Tree(|n| format!("gather {n} | work")),
    },
    Scenario {
        name: "cancel-storm",
        about: "a tree of n children is stopped while all of them ask their model",
        work: Work::Cancel,
    },
    Scenario { name: "idle", about: "n agents in memory that have had a turn each", work: Work::Idle },
    Scenario {
        name: "message-storm",
        about: "n agents get sixteen messages each, as fast as they are accepted",
        work: Work::Messages,
    },
    Scenario {
        name: "recover",
        about: "a tree of n children is opened again whose runtime was dropped as it was",
        work: Work::Recover,
    },
    Scenario { name: "fork", about: "an agent is forked that has had n turns", work: Work::Fork },
];

/// What is run when nothing is asked for.
pub(crate) const DEFAULT: [&str; 3] = ["fan-out", "chain", "cancel-storm"];

/// The scenario of this name.
pub(crate) fn named(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}
