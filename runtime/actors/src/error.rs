//! What can go wrong at the front door.

use impresario_kernel::AgentId;
use impresario_seams::StoreError;

/// Why a runtime did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No agent has this id.
    #[error("no agent {0} in this store")]
    UnknownAgent(AgentId),
    /// No model of the runtime serves this provider.
    #[error("no provider `{wanted}`; this runtime has: {known}")]
    UnknownProvider {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// A folder that an agent cannot work in.
    #[error("cannot work in {dir}: {why}")]
    Dir {
        /// Which folder.
        dir: String,
        /// What the system said.
        why: String,
    },
    /// A tool that the runtime does not have.
    #[error("no tool `{wanted}`; this runtime has: {known}")]
    UnknownTool {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// A limit or a rule said no.
    #[error("refused: {0}")]
    Refused(String),
    /// A session cannot be opened.
    #[error("session {id} cannot be opened: {why}")]
    Unreadable {
        /// Which.
        id: AgentId,
        /// Why.
        why: String,
    },
    /// The actor of an agent failed too often in a row.
    #[error("agent {agent} failed {panics} times in a row and is not started again by this runtime")]
    GaveUp {
        /// Which.
        agent: AgentId,
        /// How often.
        panics: u32,
    },
    /// The runtime is shutting down, or its actors are gone.
    #[error("the runtime is closed")]
    Closed,
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::Full { .. }) => "STORE_FULL",
            Self::Store(StoreError::Locked { .. }) => "STORE_LOCKED",
            Self::Store(StoreError::Newer { .. }) => "STORE_NEWER",
            Self::Store(StoreError::Foreign { .. }) => "STORE_FOREIGN",
            Self::Store(_) => "STORE",
            Self::UnknownAgent(_) => "UNKNOWN_AGENT",
            Self::UnknownProvider { .. } => "UNKNOWN_PROVIDER",
            Self::UnknownTool { .. } => "UNKNOWN_TOOL",
            Self::Dir { .. } => "DIR",
            Self::Refused(_) => "REFUSED",
            Self::Unreadable { .. } => "UNREADABLE",
            Self::GaveUp { .. } => "GAVE_UP",
            Self::Closed => "CLOSED",
        }
    }

    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}
