//! Names of things: sessions, messages, calls, positions in a log.
//!
//! Text ids come from outside (the shell mints them, providers invent them) and clone for free.
//! Number ids are positions that follow from the log, so nobody has to mint them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    };
}

text_id!(
    /// An agent and its session: one agent, one session, one id. Time-ordered, lower case, safe as a file name.
    AgentId
);
text_id!(
    /// One message. Delivering the same id twice to one agent changes nothing the second time.
    MessageId
);
text_id!(
    /// One tool call as the model (or its provider) named it, made unique within the session.
    CallId
);
text_id!(
    /// Something that costs, by its place in an agent's log: `run_1.2.0` or `call_1.2.0`.
    ChargeId
);
text_id!(
    /// Where an agent stands in its tree, `root/audit-3`: what scripted models and replays are keyed by.
    AgentPath
);

impl AgentId {
    /// The session in which the supervisor keeps the facts about the tree of this root.
    #[must_use]
    pub fn tree_log(&self) -> Self {
        Self::new(format!("{}.tree", self.as_str()))
    }

    /// Whether this id names a tree log and not an agent.
    pub fn is_tree_log(&self) -> bool {
        self.as_str().ends_with(".tree")
    }
}

impl AgentPath {
    /// The path of every root.
    #[must_use]
    pub fn root() -> Self {
        Self::new("root")
    }

    /// The path of a child whose (unique) label is `segment`.
    #[must_use]
    pub fn child(&self, segment: &str) -> Self {
        Self::new(format!("{}/{segment}", self.as_str()))
    }

    /// The last segment.
    pub fn segment(&self) -> &str {
        self.as_str().rsplit('/').next().unwrap_or_default()
    }
}

/// A position in a log: contiguous from 0.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position `n` events later.
    #[must_use]
    pub fn plus(self, n: u64) -> Self {
        Self(self.0 + n)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since the Unix epoch, as the shell's clock said.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// One request to a model: fences late reports of earlier ones.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RunKey {
    /// Turn number, from 1.
    pub turn: u32,
    /// Step in the turn, from 1.
    pub step: u32,
    /// Attempt in the step, from 0; each retry is one more.
    pub attempt: u32,
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run_{}.{}.{}", self.turn, self.step, self.attempt)
    }
}

/// One tool call by its place: fences late reports.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallKey {
    /// Turn number, from 1.
    pub turn: u32,
    /// Step in the turn, from 1.
    pub step: u32,
    /// Place among the calls of the step, from 0, in the model's order.
    pub index: u32,
}

impl CallKey {
    /// The call at a place, from 0, of a step.
    pub(crate) fn at(turn: u32, step: u32, index: usize) -> Self {
        Self { turn, step, index: u32::try_from(index).unwrap_or(u32::MAX) }
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call_{}.{}.{}", self.turn, self.step, self.index)
    }
}
