//! Where logs live.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use impresario_kernel::{AgentId, AgentPath, Event, Millis, OutcomeKind, Seq, SessionHeader, Spent};
use serde::{Deserialize, Serialize};

/// A store of session logs. Single writer a session; readers never block the writer.
///
/// Every method may be called from any task. A future that is dropped may or may not have taken effect.
pub trait Store: Send + Sync + 'static {
    /// Writes batches of many sessions in one transaction with one flush to disk, in order.
    ///
    /// All or nothing: on `Ok` every batch is durable, on `Err` none is. A batch that is already there with the same
    /// content counts as written; other content at the same place is [`StoreError::Diverged`].
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<(), StoreError>>;

    /// One session's header and summary; `None` if there is no such session.
    fn info(&self, id: AgentId) -> BoxFuture<'static, Result<Option<SessionInfo>, StoreError>>;

    /// The events of a session from `from` on, inherited ones included, in order. Streams; reads a fork's prefix from
    /// the session it was forked from.
    fn read(&self, id: AgentId, from: Seq) -> BoxStream<'static, Result<Arc<Event>, StoreError>>;

    /// Sessions that match, newest first.
    fn list(&self, filter: SessionFilter) -> BoxFuture<'static, Result<Vec<SessionInfo>, StoreError>>;

    /// Takes sessions away, all or none, with the logs of trees whose roots are among them: from then on nobody finds them,
    /// and what only they used is freed. What forks of them share stays for those until the last is gone. A session that is
    /// not there is no error.
    ///
    /// Whether somebody works in them the store does not know: that is for the caller, who has the lease.
    fn delete(&self, lease: Option<Lease>, sessions: Vec<AgentId>) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Keeps bytes under a name of their own content, as long as `owner` is there; returns the name.
    fn put_artifact(&self, owner: AgentId, bytes: Vec<u8>) -> BoxFuture<'static, Result<String, StoreError>>;

    /// The bytes of an artifact; `None` if there is none of that name.
    fn artifact(&self, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>>;

    /// Keeps what spares reading a log from its beginning, in the place of what was kept before. It is a cache: it need not
    /// be on the disk when this returns, it goes when its session goes, and a store that keeps none is as good.
    fn put_checkpoint(
        &self,
        lease: Option<Lease>,
        session: AgentId,
        checkpoint: Checkpoint,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let _ = (lease, session, checkpoint);
        Box::pin(async { Ok(()) })
    }

    /// What was kept last; `None` where there is nothing.
    fn checkpoint(&self, session: AgentId) -> BoxFuture<'static, Result<Option<Checkpoint>, StoreError>> {
        let _ = session;
        Box::pin(async { Ok(None) })
    }

    /// Where it is, for people: a path, or `memory`.
    fn location(&self) -> String;

    /// Says that this process is alive; the fence of its appends. Called once before the first commit.
    fn lease(&self) -> BoxFuture<'static, Result<Lease, StoreError>>;

    /// As [`Store::lease`], also where another process has the store and does not give it back: whatever that one wants to
    /// write from then on is refused as [`StoreError::Fenced`].
    fn take_over(&self) -> BoxFuture<'static, Result<Lease, StoreError>>;
}

/// The right of one process to write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Grows with every lease that a store gives out.
    pub epoch: u64,
}

/// An agent, written down: see [`impresario_kernel::Agent::checkpoint`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// How many events of its log it stands for.
    pub until: Seq,
    /// What was written.
    pub bytes: Vec<u8>,
}

/// What is written at once.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Under which lease: refused as [`StoreError::Fenced`] when a newer one was given out. A writer that nobody races, such
    /// as an import, may do without.
    pub lease: Option<Lease>,
    /// In order.
    pub batches: Vec<Batch>,
    /// Whether it need not be flushed to the disk: what the end of the process keeps, and a power failure may take. A later
    /// commit that is flushed takes it along, and never the later without the earlier.
    pub is_buffered: bool,
}

/// Events of one session that stand or fall together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The session.
    pub session: AgentId,
    /// Creates the session with this header first, if it is not there.
    pub create: Option<Arc<NewSession>>,
    /// Contiguous; the first must stand right behind what is stored.
    pub events: Vec<Arc<Event>>,
    /// What `list` says of the session from here on.
    pub head: Head,
}

/// How a session begins.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// The header.
    pub header: SessionHeader,
    /// The root of its tree.
    pub root: AgentId,
    /// Where it stands in its tree.
    pub path: AgentPath,
    /// What it is for.
    pub label: String,
    /// The first `seed` events are those of `session`: referenced, not copied.
    pub fork: Option<ForkRef>,
}

/// A shared prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForkRef {
    /// Whose events.
    pub session: AgentId,
    /// Up to here, exclusive.
    pub until: Seq,
}

/// What is known of a session without reading its log. A cache: the log wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// How far the current turn is.
    pub state: TurnState,
    /// Turns so far.
    pub turns: u32,
    /// How the last turn came out.
    pub outcome: Option<OutcomeKind>,
    /// What was spent so far.
    pub spent: Spent,
    /// The first words of the first prompt.
    pub title: String,
    /// An outcome that its parent does not have yet.
    pub undelivered: Option<u32>,
}

/// How far an agent's turn is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnState {
    /// None is open.
    #[default]
    Idle,
    /// One is open.
    Open,
}

/// A session as `list` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionInfo {
    /// How it began.
    pub new: NewSession,
    /// Where it is now.
    pub head: Head,
    /// How many events it has, inherited ones included.
    pub len: Seq,
    /// When its last event was accepted.
    pub updated_at: Millis,
}

impl SessionInfo {
    /// Its id.
    pub fn id(&self) -> &AgentId {
        &self.new.header.id
    }
}

/// Which sessions `list` returns. Tree logs are never among them.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Only roots.
    pub roots_only: bool,
    /// Only the tree of this root, the root included.
    pub root: Option<AgentId>,
    /// Only direct children of this agent.
    pub parent: Option<AgentId>,
    /// Only ids that begin with this.
    pub id_prefix: Option<String>,
    /// Only sessions that work in this folder.
    pub dir: Option<String>,
    /// Only what comes behind this session in the order of the list: how a long list is read in pieces.
    pub behind: Option<AgentId>,
    /// At most this many.
    pub limit: Option<usize>,
}

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The device or the file system failed; asking again may help.
    #[error("store {location}: {doing}")]
    Io {
        /// Which store.
        location: String,
        /// What was being done, and what the system said.
        doing: String,
    },
    /// There is no room.
    #[error("store {location}: no space left")]
    Full {
        /// Which store.
        location: String,
    },
    /// Another process writes.
    #[error("store {location} is in use by process {pid}{}; end it, take over from it, or use another --home", lasting(*.since))]
    Locked {
        /// Which store.
        location: String,
        /// Who.
        pid: u32,
        /// Since when, if that is known.
        since: Option<Millis>,
    },
    /// Another process has taken over; nothing was written.
    #[error("store {location} was taken over by another process")]
    Fenced {
        /// Which store.
        location: String,
    },
    /// Other content stands at this place, or the place is not the next one.
    #[error("session {session}: append at {at} does not continue what is stored ({stored} events)")]
    Diverged {
        /// Whose log.
        session: AgentId,
        /// Where.
        at: Seq,
        /// How many events are stored.
        stored: Seq,
    },
    /// Not one of our files.
    #[error("{location} is not a store of impresario: {found}")]
    Foreign {
        /// Which file.
        location: String,
        /// What it is instead.
        found: String,
    },
    /// A newer program wrote it.
    #[error("store {location} has schema version {found}, this program knows {known}; upgrade impresario")]
    Newer {
        /// Which store.
        location: String,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// What is stored does not make sense.
    #[error("session {session} is damaged: {what}")]
    Damaged {
        /// Whose log.
        session: AgentId,
        /// What is wrong, and where.
        what: String,
    },
}

/// ` since 3 h`, as far as it is known.
fn lasting(since: Option<Millis>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let Some(seconds) = since.map(|since| now.saturating_sub(since.0 / 1000)) else { return String::new() };
    match seconds {
        0..120 => format!(" since {seconds} s"),
        120..7_200 => format!(" since {} min", seconds / 60),
        7_200..172_800 => format!(" since {} h", seconds / 3_600),
        _ => format!(" since {} days", seconds / 86_400),
    }
}

impl StoreError {
    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Full { .. } => true,
            Self::Locked { .. }
            | Self::Fenced { .. }
            | Self::Diverged { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. } => false,
        }
    }
}
