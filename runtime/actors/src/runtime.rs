//! The front door.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::{AgentId, Boundary, Cause, Fork, RequestHeader, Spec};
use impresario_seams::{SessionFilter, SessionInfo, Store, Subagents};
use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;

use crate::builder::RuntimeBuilder;
use crate::capacity::{Capacity, LiveLimits};
use crate::error::Error;
use crate::feed::Subscription;
use crate::handle::AgentHandle;
use crate::receipt::Receipt;
use crate::recovery;
use crate::root::{Root, RootMessage};
use crate::shared::Shared;
use crate::spec::AgentSpec;
use crate::supervisor::{ForkRoot, Stop, SupervisorMessage};

/// How long a shutdown waits for what runs.
const DRAIN: Duration = Duration::from_secs(30);

/// Trees of agents. Dropping it without [`Runtime::shutdown`] equals a crash, which loses nothing that was accepted.
pub struct Runtime {
    shared: Arc<Shared>,
    root: ActorRef<RootMessage>,
}

impl Runtime {
    /// What a runtime on `store` is made of, with nothing else yet; [`RuntimeBuilder::build`] starts it.
    pub fn builder(store: Arc<dyn Store>) -> RuntimeBuilder {
        RuntimeBuilder::new(store)
    }

    /// Starts the root of all actors.
    pub(crate) async fn start(shared: Shared) -> Result<Self, Error> {
        let shared = Arc::new(shared);
        let (root, _) = Root::spawn(None, Root, Arc::clone(&shared)).await.map_err(|_| Error::Closed)?;
        Ok(Self { shared, root })
    }

    /// All that happens from here on, in every tree.
    pub fn subscribe(&self) -> Subscription {
        self.shared.feed.subscribe()
    }

    /// Makes a new root agent; it is stored when this returns. It does nothing until it is told something.
    pub async fn spawn(&self, spec: AgentSpec) -> Result<AgentHandle, Error> {
        spawn(&self.shared, spec).await
    }

    /// Adds a provider of subagents to those that [`RuntimeBuilder::subagents`] has.
    ///
    /// # Errors
    /// [`Error::Refused`] when another provider has its name.
    pub fn add_subagents(&self, provider: impl Subagents) -> Result<(), Error> {
        let models = self.shared.models.keys().map(String::as_str);
        self.shared.subagents.add(Arc::new(provider), models)
    }

    /// Takes a provider of subagents away; whether it was there. What it runs goes on to the end of its turn, and a later
    /// turn of its subagents fails.
    pub fn remove_subagents(&self, name: &str) -> bool {
        self.shared.subagents.remove(name)
    }

    /// Opens a stored root and its tree again. What a crash left open is closed first, honestly; `spec` frames the
    /// requests from here on.
    pub async fn open(&self, id: &AgentId, spec: AgentSpec) -> Result<AgentHandle, Error> {
        let spec = Some(spec);
        let id = self.ask(|reply| SupervisorMessage::Open { id: id.clone(), spec: spec.clone(), reply }).await??;
        Ok(self.handle(id))
    }

    /// Opens a stored root and its tree again as it was: made of what its log says, or, where this runtime has had it in
    /// memory, of what it was made of then. Writing to an agent does this by itself ([`AgentHandle::followup`]).
    ///
    /// # Errors
    /// [`Error::UnknownProvider`] when this runtime does not have its model, [`Error::Unreadable`] when it never asked one.
    pub async fn reopen(&self, id: &AgentId) -> Result<AgentHandle, Error> {
        let id = self.ask(|reply| SupervisorMessage::Open { id: id.clone(), spec: None, reply }).await??;
        Ok(self.handle(id))
    }

    /// Takes a root, all below it and their logs out of the store. Nobody finds them from then on; forks of them stay whole.
    ///
    /// # Errors
    /// [`Error::Refused`] when something in the tree is at work, or for a subagent, which goes with its root.
    pub async fn delete(&self, root: &AgentId) -> Result<(), Error> {
        self.ask(|reply| SupervisorMessage::Delete { root: root.clone(), reply }).await?
    }

    /// Makes a root of `spec` that goes on from a copy of any agent, which is open here or only stored: a root or a child,
    /// whose log is not touched. The conversation is shared and not copied.
    ///
    /// # Errors
    /// [`Error::UnknownAgent`] when there is no such agent, [`Error::Refused`] when there is no such boundary.
    pub async fn fork(&self, id: &AgentId, boundary: Boundary, spec: AgentSpec) -> Result<AgentHandle, Error> {
        let fork = match self.agent(id) {
            Ok(handle) => handle.prefix(boundary).await?,
            Err(_) => {
                self.shared.journal.catch_up().await;
                let is_stored = !id.is_tree_log() && self.shared.store.info(id.clone()).await?.is_some();
                if !is_stored {
                    return Err(Error::UnknownAgent(id.clone()));
                }
                // Only what frames its requests from here on matters of its settings, and that is the fork's own.
                let any = Arc::new(Spec::new(RequestHeader::new(&spec.provider, &spec.model)));
                recovery::fork_stored(&self.shared, id, any, boundary).await?
            }
        };
        plant(&self.shared, id, Some(spec), fork).await
    }

    /// Ends an agent and everything below it, and says what ended. Past `deadline` it says what did not. Agents above
    /// and beside it go on.
    ///
    /// From the moment of this call no model is asked and no tool is started there, and nothing new is spawned until it
    /// returns. Messages that wait stay, parked; so do those that come meanwhile.
    ///
    /// # Errors
    /// [`Error::UnknownAgent`] when no tree that is open here has this agent.
    pub async fn stop(&self, top: &AgentId, cause: Cause, deadline: Duration) -> Result<Receipt, Error> {
        if self.shared.router.is_passive(top) {
            wake(&self.shared, top).await?;
        }
        // From here on nothing starts there, whatever is before this in anybody's mailbox.
        let halt = self.shared.halt(top);
        let stop = |reply| {
            let (top, cause, halt) = (top.clone(), cause.clone(), halt.clone());
            SupervisorMessage::Stop(Stop { top, cause, deadline, halt, reply })
        };
        self.ask(stop).await?
    }

    /// The address of an agent that is in memory here, or has been: a root, or any of its descendants.
    ///
    /// # Errors
    /// [`Error::UnknownAgent`] when there is none; [`Runtime::wake`] also finds those that are only stored.
    pub fn agent(&self, id: &AgentId) -> Result<AgentHandle, Error> {
        let router = &self.shared.router;
        let is_known = router.sent(id).is_some() || router.is_passive(id);
        if is_known { Ok(self.handle(id.clone())) } else { Err(Error::UnknownAgent(id.clone())) }
    }

    /// As [`Runtime::agent`]; an agent that is only stored comes back first, and those above it, who are told how it ends. A
    /// tree that is not open is opened as it was ([`Runtime::reopen`]).
    ///
    /// # Errors
    /// [`Error::UnknownAgent`] when the store has no such agent; [`Error::Store`] and [`Error::Unreadable`] when its log
    /// cannot be read; [`Error::GaveUp`] when its actor has failed too often.
    pub async fn wake(&self, id: &AgentId) -> Result<AgentHandle, Error> {
        wake(&self.shared, id).await
    }

    /// How many agents are in memory now; the others are only stored.
    pub fn resident(&self) -> usize {
        self.shared.router.resident_count()
    }

    /// How much of its bounds a tree has in use.
    ///
    /// # Errors
    /// [`Error::UnknownAgent`] when it is not the root of a tree that is open here.
    pub async fn capacity(&self, root: &AgentId) -> Result<Capacity, Error> {
        self.ask(|reply| SupervisorMessage::Capacity { root: root.clone(), reply }).await?
    }

    /// Replaces bounds of a tree while it runs, until the runtime ends. With fewer turns than run now none is ended, and
    /// none begins until there is room.
    ///
    /// # Errors
    /// As [`Runtime::capacity`].
    pub async fn set_limits(&self, root: &AgentId, limits: LiveLimits) -> Result<(), Error> {
        self.ask(|reply| SupervisorMessage::SetLimits { root: root.clone(), limits, reply }).await?
    }

    /// Stored agents that match, live or not, the newest first.
    pub async fn agents(&self, filter: SessionFilter) -> Result<Vec<SessionInfo>, Error> {
        self.shared.journal.catch_up().await;
        Ok(self.shared.store.list(filter).await?)
    }

    /// Waits until nothing at or below an agent runs, waits to run, or is on its way.
    ///
    /// # Errors
    /// As [`Runtime::stop`].
    pub async fn quiesce(&self, top: &AgentId) -> Result<Receipt, Error> {
        quiesce(&self.shared, top).await
    }

    /// Ends what runs (within 30 s), writes what is still to be written, takes workspaces away in which nothing was
    /// changed, and ends the actors.
    pub async fn shutdown(self) -> Result<(), Error> {
        let roots: Vec<AgentId> = self.shared.roots().keys().cloned().collect();
        for stopped in futures::future::join_all(roots.iter().map(|root| self.end(root))).await {
            match stopped {
                // It went to the store by itself.
                Ok(_) | Err(Error::UnknownAgent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.shared.journal.flush().await.map_err(|_| Error::Closed)??;
        self.shared.keeping.close();
        self.shared.keeping.wait().await;
        self.close_workspaces().await;
        self.shared.close();
        let stopped = self.root.stop_and_wait(Some("shutdown".into()), Some(DRAIN)).await;
        stopped.map_err(|_| Error::Closed)
    }

    /// Stops a tree that is open here.
    async fn end(&self, root: &AgentId) -> Result<Receipt, Error> {
        let halt = self.shared.halt(root);
        let stop = |reply| {
            let (top, cause, halt) = (root.clone(), Cause::Disposed, halt.clone());
            SupervisorMessage::Stop(Stop { top, cause, deadline: DRAIN, halt, reply })
        };
        self.ask(stop).await?
    }

    /// Takes away what was not used.
    async fn close_workspaces(&self) {
        let Some(workspaces) = &self.shared.workspaces else { return };
        // One after another: they may lock what they share.
        for root in self.shared.router.workspaces() {
            if let Err(why) = workspaces.close(root.clone().into()).await {
                tracing::warn!(root, why, "a workspace is left");
            }
        }
    }

    /// Ends the actor of an agent as a panic would: for tests of what follows.
    #[doc(hidden)]
    pub fn fail_agent(&self, id: &AgentId) {
        self.shared.router.kill(id);
    }

    /// Ends the supervisor as a panic would: for tests of what follows.
    #[doc(hidden)]
    pub fn fail_supervisor(&self) {
        self.shared.supervisor.kill();
    }

    /// Ends the journal's writer as a panic would: for tests of what follows.
    #[doc(hidden)]
    pub fn fail_writer(&self) {
        self.shared.journal.writer.kill();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn handle(&self, id: AgentId) -> AgentHandle {
        AgentHandle::new(id, Arc::clone(&self.shared))
    }

    async fn ask<T>(&self, message: impl Fn(oneshot::Sender<T>) -> SupervisorMessage) -> Result<T, Error> {
        ask(&self.shared, message).await
    }
}

/// As [`Runtime::spawn`].
pub(crate) async fn spawn(shared: &Arc<Shared>, spec: AgentSpec) -> Result<AgentHandle, Error> {
    let id = shared.chance.mint();
    let asked = |reply| SupervisorMessage::SpawnRoot { id: id.clone(), spec: spec.clone(), reply };
    let agent = AgentHandle::new(ask(shared, asked).await??, Arc::clone(shared));
    // Answered when all before it is durable.
    agent.outcome().await?;
    Ok(agent)
}

/// Makes a root that goes on from a copy of `from`; it is stored when this returns.
pub(crate) async fn plant(
    shared: &Arc<Shared>,
    from: &AgentId,
    spec: Option<AgentSpec>,
    fork: Fork,
) -> Result<AgentHandle, Error> {
    let id = shared.chance.mint();
    let asked = |reply| {
        let (id, from, spec, fork) = (id.clone(), from.clone(), spec.clone(), fork.clone());
        SupervisorMessage::ForkRoot(Box::new(ForkRoot { id, from, spec, fork, reply }))
    };
    let agent = AgentHandle::new(ask(shared, asked).await??, Arc::clone(shared));
    // Answered when all before it is durable.
    agent.outcome().await?;
    Ok(agent)
}

/// As [`Runtime::wake`].
pub(crate) async fn wake(shared: &Arc<Shared>, id: &AgentId) -> Result<AgentHandle, Error> {
    if shared.router.sent(id).is_none() {
        ask(shared, |reply| SupervisorMessage::Wake { id: id.clone(), reply }).await??;
    }
    Ok(AgentHandle::new(id.clone(), Arc::clone(shared)))
}

/// As [`Runtime::quiesce`].
pub(crate) async fn quiesce(shared: &Shared, top: &AgentId) -> Result<Receipt, Error> {
    ask(shared, |reply| SupervisorMessage::Quiesce { top: top.clone(), reply }).await?
}

/// Sends what `message` makes and waits for the answer. Of a supervisor that fails before it answers, the one that comes
/// after it is asked.
pub(crate) async fn ask<T>(
    shared: &Shared,
    message: impl Fn(oneshot::Sender<T>) -> SupervisorMessage,
) -> Result<T, Error> {
    loop {
        let changed = shared.router.changed();
        let (reply, answer) = oneshot::channel();
        shared.supervisor.cast(message(reply));
        if let Ok(answer) = answer.await {
            return Ok(answer);
        }
        if shared.router.is_closed() {
            return Err(Error::Closed);
        }
        changed.await;
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.close();
        self.root.stop(Some("dropped".into()));
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("store", &self.shared.store.location()).finish_non_exhaustive()
    }
}
