//! The header of a session: what is known when it is created.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, Millis};

/// The only format version there is.
pub const FORMAT_VERSION: u64 = 0;

/// Creation metadata, beside the log and never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionHeader {
    /// [`FORMAT_VERSION`].
    pub version: u64,
    /// The session's id.
    pub id: AgentId,
    /// When it was created.
    pub created_at: Millis,
    /// The folder it works in, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Who spawned or was forked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<AgentId>,
    /// How many leading events were inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_length: Option<u64>,
    /// `subagent`, or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// 0 for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation_depth: Option<u32>,
    /// The preset of another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_preset: Option<String>,
}

/// A header that breaks a rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// Written by a newer program.
    #[error("session header: version {0} was written by a newer program; upgrade to open it")]
    NewerVersion(u64),
    /// A rule of one field.
    #[error("session header: `{field}` {rule}")]
    Field {
        /// Which field.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
    },
}

impl SessionHeader {
    /// A root's header.
    pub fn new(id: AgentId, created_at: Millis) -> Self {
        Self {
            version: FORMAT_VERSION,
            id,
            created_at,
            cwd: None,
            parent_session: None,
            seed_length: None,
            origin: None,
            delegation_depth: None,
            agent_preset: None,
        }
    }

    /// Checks every rule.
    pub fn check(&self) -> Result<(), HeaderError> {
        let field = |field, rule| Err(HeaderError::Field { field, rule });
        if self.version > FORMAT_VERSION {
            return Err(HeaderError::NewerVersion(self.version));
        }
        if self.id.as_str().is_empty() {
            return field("id", "must not be empty");
        }
        if self.cwd.as_ref().is_some_and(|cwd| !is_absolute(cwd)) {
            return field("cwd", "must be an absolute path");
        }
        if self.origin.as_ref().is_some_and(|origin| origin != "subagent") {
            return field("origin", "must be `subagent` or absent");
        }
        Ok(())
    }
}

/// Absolute on any system: a log may come from another one. Placeholders of recorded logs pass.
fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
        || path.starts_with('\\')
        || path.starts_with("{{")
        || path.as_bytes().get(1).is_some_and(|&second| second == b':')
}
