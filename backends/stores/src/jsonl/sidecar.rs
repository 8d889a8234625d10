//! What we know of a session and a log in dsh's form has no place for: a small file beside the log, replaced as a
//! whole.
//!
//! A cache as far as the log says the same: when it is missing, or says that the log is of another length than it is,
//! it is made anew from the log. What only it knows (the label, which prefix a fork shares, that a session was
//! deleted) is then as good as can be told.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use impresario_kernel::{AgentId, AgentPath, Millis, Seq, SessionHeader};
use impresario_seams::{ForkRef, Head, NewSession, SessionInfo};
use serde::{Deserialize, Serialize};

use super::scan::Scan;

/// Its name in the folder of the session.
pub(super) const NAME: &str = "impresario.json";

/// The version of its form.
pub(super) const VERSION: u32 = 1;

/// The content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sidecar {
    pub(super) version: u32,
    pub(super) id: AgentId,
    pub(super) root: AgentId,
    pub(super) path: AgentPath,
    pub(super) label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fork: Option<Fork>,
    pub(super) head: Head,
    pub(super) len: Seq,
    pub(super) updated_at: Millis,
    /// How long the log is that this is of, in bytes.
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deleted_at: Option<Millis>,
}

/// See [`ForkRef`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Fork {
    session: AgentId,
    until: Seq,
}

/// By what a change of the file is seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    file: u64,
}

impl Stamp {
    /// Of the file that is there now, if one is.
    pub(super) fn of(path: &Path) -> Self {
        let Ok(meta) = std::fs::metadata(path) else { return Self::default() };
        #[cfg(unix)]
        let file = std::os::unix::fs::MetadataExt::ino(&meta);
        #[cfg(not(unix))]
        let file = 0;
        Self { modified: meta.modified().ok(), bytes: meta.len(), file }
    }
}

impl Sidecar {
    /// What is said of a session whose log has so many bytes.
    pub(super) fn new(info: &SessionInfo, bytes: u64, deleted_at: Option<Millis>) -> Self {
        let fork = info.new.fork.as_ref();
        Self {
            version: VERSION,
            id: info.id().clone(),
            root: info.new.root.clone(),
            path: info.new.path.clone(),
            label: info.new.label.clone(),
            fork: fork.map(|fork| Fork { session: fork.session.clone(), until: fork.until }),
            head: info.head.clone(),
            len: info.len,
            updated_at: info.updated_at,
            bytes,
            deleted_at,
        }
    }

    /// Reads the file; `None` if there is none, or what is there is none.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The session, if this is of the log as it is.
    pub(super) fn info(&self, header: SessionHeader) -> SessionInfo {
        SessionInfo {
            new: self.new_session(header),
            head: self.head.clone(),
            len: self.len,
            updated_at: self.updated_at,
        }
    }

    pub(super) fn until(&self) -> Option<Seq> {
        self.fork.as_ref().map(|fork| fork.until)
    }

    fn new_session(&self, header: SessionHeader) -> NewSession {
        let fork = self.fork.as_ref();
        let fork = fork.map(|fork| ForkRef { session: fork.session.clone(), until: fork.until });
        let (root, path, label) = (self.root.clone(), self.path.clone(), self.label.clone());
        NewSession { header, root, path, label, fork }
    }
}

/// The session as the log tells it, with what an older sidecar knows beside it. `root` is the one that it was found to
/// have.
pub(super) fn rebuilt(scan: &Scan, older: Option<&Sidecar>, root: AgentId) -> SessionInfo {
    let header = scan.header.clone();
    let seed = header.seed_length.filter(|seed| *seed > 0).map(Seq);
    let new = match older {
        Some(older) => older.new_session(header.clone()),
        None => {
            // A log that does not begin with its prefix is one of ours, and its prefix that of the session above it.
            let is_fork = scan.begins.is_none() || scan.begins == seed;
            let parent = header.parent_session.clone();
            let fork = parent.zip(seed.filter(|_| is_fork)).map(|(session, until)| ForkRef { session, until });
            let below = || AgentPath::root().child(header.id.as_str());
            let path = match (&scan.told.path, &header.parent_session) {
                (Some(path), _) => path.clone(),
                (None, None) => AgentPath::root(),
                (None, Some(_)) => below(),
            };
            let label = header.id.to_string();
            NewSession { header: header.clone(), root, path, label, fork }
        }
    };
    let until = new.fork.as_ref().map_or(Seq(0), |fork| fork.until);
    let head = scan.told.correct(older.map(|older| older.head.clone()).unwrap_or_default());
    let updated_at = scan.last_time.unwrap_or(header.created_at);
    SessionInfo { new, head, len: scan.next.max(until), updated_at }
}
