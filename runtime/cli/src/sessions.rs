//! `sessions …`: what is stored, read without disturbing whoever writes.

use std::sync::Arc;

use futures::TryStreamExt;
use impresario::kernel::ledger::Ledger;
use impresario::kernel::tree::Tree;
use impresario::kernel::{AgentId, Seq};
use impresario::seams::{SessionFilter, SessionInfo, Store, TurnState};

use crate::args::{Common, Sessions};
use crate::backend;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::home::Home;

mod export;
pub(crate) mod find;
pub(crate) mod import;
mod list;
mod show;
pub(crate) mod transcript;
pub(crate) mod tree;
mod verify;

/// A store that is only read.
pub(crate) struct Archive {
    store: Arc<dyn Store>,
    /// Whether a process writes to it now.
    is_live: bool,
}

/// `impresario sessions …`
pub(crate) async fn sessions(common: &Common, command: Sessions) -> Result<Exit, Failed> {
    let archive = Archive::open(common)?;
    match command {
        Sessions::Ls(args) => list::ls(common, &archive, &args).await,
        Sessions::Show(args) => show::show(common, &archive, &args).await,
        Sessions::Tree(args) => tree::tree(common, &archive, &args).await,
        Sessions::Verify(args) => verify::verify(common, &archive, &args).await,
        Sessions::Export(args) => export::export(common, &archive, &args).await,
        Sessions::Import(args) => import::import(common, &args).await,
        Sessions::Rm(args) => crate::keep::remove(common, &args).await,
    }
}

impl Archive {
    /// The store of the home; an empty one if there is none yet.
    pub(crate) fn open(common: &Common) -> Result<Self, Failed> {
        let home = Home::of(common)?;
        let store = backend::stored(&home)?.unwrap_or_else(backend::memory);
        Ok(Self { store, is_live: backend::holder(&home).is_some() })
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether a process writes to it now.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// All of the tree of `root`, parents before children.
    async fn tree(&self, root: &SessionInfo) -> Result<Vec<SessionInfo>, Failed> {
        let filter = SessionFilter { root: Some(root.new.root.clone()), ..SessionFilter::default() };
        let mut sessions = self.store.list(filter).await?;
        sessions.sort_by(|a, b| a.id().cmp(b.id()));
        sessions.sort_by_key(|session| session.new.path.as_str().matches('/').count());
        Ok(sessions)
    }

    /// Who may spend what in the tree of `root`, and what they have spent, as far as that can be read.
    async fn ledger(&self, root: &AgentId) -> Result<Ledger, Failed> {
        let (log, mut tree) = (root.tree_log(), Tree::new(root.clone()));
        if self.store.info(log.clone()).await?.is_some() {
            let mut events = self.store.read(log, Seq(0));
            while let Some(event) = events.try_next().await? {
                tree.apply(&event.fact, event.time);
            }
        }
        Ok(tree.ledger().clone())
    }

    /// How far a session is, in a word or a few.
    pub(crate) fn state(&self, session: &SessionInfo) -> &'static str {
        match (session.head.state, session.head.outcome) {
            (TurnState::Open, _) if self.is_live => "running",
            (TurnState::Open, _) => "crashed (not closed yet)",
            (TurnState::Idle, Some(outcome)) => outcome.as_str(),
            // A child always has a task, and a live one would have it in hand.
            (TurnState::Idle, None) if session.new.header.parent_session.is_some() => {
                if self.is_live {
                    "queued"
                } else {
                    "not started"
                }
            }
            (TurnState::Idle, None) => "idle",
        }
    }
}
