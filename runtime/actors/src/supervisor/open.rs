//! Coming back: stored trees, and agents whose actor failed.

use std::sync::Arc;
use std::time::Duration;

use impresario_kernel::event::QueueRule;
use impresario_kernel::{Agent, AgentId, Cause, Seq, Spec};
use ractor::ActorId;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::spawn::Start;
use super::tree::{Place, TreeState};
use super::{Stop, SupervisorMessage, SupervisorState};
use crate::agent::AgentMessage;
use crate::error::Error;
use crate::profile::Profile;
use crate::receipt::Receipt;
use crate::recovery::{self, Loaded, Stored};
use crate::shared::Shared;
use crate::spec::AgentSpec;

/// A stored tree on its way.
pub(super) struct Opening {
    waiting: Vec<Opener>,
    _reader: AbortOnDropHandle<()>,
}

/// Who wants a tree to be open.
pub(super) enum Opener {
    /// A person.
    Person(oneshot::Sender<Result<AgentId, Error>>),
    /// Somebody who wants something of an agent in it.
    Waker(AgentId, oneshot::Sender<Result<(), Error>>),
    /// Somebody who waits for rest there.
    Quiescer(AgentId, oneshot::Sender<Result<Receipt, Error>>),
    /// Somebody who stops something there.
    Stopper(Stop),
}

impl Opener {
    /// Tells that the tree is not open.
    pub(super) fn refuse(self, error: Error) {
        // Who asked may have left.
        match self {
            Self::Person(reply) => drop(reply.send(Err(error))),
            Self::Waker(_, reply) => drop(reply.send(Err(error))),
            Self::Quiescer(_, reply) | Self::Stopper(Stop { reply, .. }) => drop(reply.send(Err(error))),
        }
    }
}

/// What the root of a tree is made of when that is opened.
#[derive(Clone)]
pub(crate) enum Frame {
    /// What somebody says.
    Given(Box<AgentSpec>),
    /// What it was made of when this runtime had it in memory.
    Kept(Arc<Profile>),
    /// What its log says.
    Logged,
}

impl SupervisorState {
    /// Opens a stored tree; without a spec as it was.
    pub(super) fn open(&mut self, id: AgentId, spec: Option<AgentSpec>, opener: Opener) {
        if let Some(error) = &self.lost {
            let error = Err(error.clone().into());
            return self.answer_opener(&id, opener, &error);
        }
        if self.deleting.contains_key(&id) {
            return self.answer_opener(&id, opener, &Err(Error::UnknownAgent(id.clone())));
        }
        if self.trees.contains_key(&id) {
            return self.answer_opener(&id, opener, &Ok(()));
        }
        // A second reader would take the first one's live tree for one whose process died.
        if let Some(opening) = self.opening.get_mut(&id) {
            opening.waiting.push(opener);
            return;
        }
        let frame = match (spec, self.shared.forgotten().get(&id).cloned()) {
            (Some(spec), _) => Frame::Given(Box::new(spec)),
            (None, Some(profile)) => Frame::Kept(profile),
            (None, None) => Frame::Logged,
        };
        let (shared, myself, opened) = (Arc::clone(&self.shared), self.myself.clone(), id.clone());
        let reader = tokio::spawn(async move {
            let load = || recovery::contained(&opened, recovery::load(&shared, &opened, frame.clone()));
            // A person can be told that the store fails; mail waits for it.
            let loaded = match frame {
                Frame::Given(_) => load().await,
                Frame::Kept(_) | Frame::Logged => recovery::patiently(load).await,
            };
            let loaded = Box::new(loaded);
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Opened { id: opened, loaded });
        });
        self.opening.insert(id, Opening { waiting: vec![opener], _reader: AbortOnDropHandle::new(reader) });
    }

    pub(super) fn loaded(&mut self, id: &AgentId, loaded: Result<Loaded, Error>) {
        let opened = loaded.and_then(|loaded| self.opened(loaded));
        let opening = self.opening.remove(id);
        for opener in opening.into_iter().flat_map(|opening| opening.waiting) {
            self.answer_opener(id, opener, &opened);
        }
    }

    fn answer_opener(&mut self, id: &AgentId, opener: Opener, opened: &Result<(), Error>) {
        match (opener, opened) {
            (opener, Err(error)) => opener.refuse(error.clone()),
            // Who asked may have left.
            (Opener::Person(reply), Ok(())) => drop(reply.send(Ok(id.clone()))),
            (Opener::Waker(agent, reply), Ok(())) => self.wake_here(&agent, reply),
            (Opener::Quiescer(top, reply), Ok(())) => self.quiesce(&top, reply),
            (Opener::Stopper(stop), Ok(())) => self.stop(stop),
        }
    }

    fn opened(&mut self, loaded: Loaded) -> Result<(), Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone().into());
        }
        let Loaded { tree, tree_next, root, title, profile, others } = loaded;
        let id = tree.root().clone();
        if self.trees.contains_key(&id) {
            return Ok(());
        }
        self.shared.forgotten().remove(&id);
        self.shared.roots().insert(id.clone(), Arc::clone(&profile));
        let mut state = TreeState::new(&self.shared, tree, tree_next);
        for (other, outcome) in others {
            self.root_of.insert(other.clone(), id.clone());
            state.add(other, Arc::clone(&profile), outcome, Place::Stored);
        }
        self.trees.insert(id.clone(), state);
        self.root_of.insert(id.clone(), id.clone());
        let durable = root.log().next_seq();
        let start = Start { durable, title, message: AgentMessage::Start };
        self.start_actor(&id, profile, root, start);
        Ok(())
    }

    /// An agent's actor failed: what it had handed to the journal is its log, and its life goes on from there, unless it
    /// failed too often.
    pub(super) fn actor_failed(&mut self, actor: ActorId) {
        let Some(id) = self.actors.remove(&actor) else { return };
        self.has_announced(&id);
        self.return_slot(&id);
        self.settle_all_but(&id, &[]);
        let Some(tree) = self.tree_of(&id) else { return };
        tree.set_rest(&id, None);
        tree.waits.retain(|wait| wait.parent != id);
        let Some(profile) = tree.agents.get(&id).map(|entry| Arc::clone(&entry.profile)) else { return };
        let panics = tree.count_panic(&id);
        let Some(delay) = profile.restarts.delay(panics) else {
            return self.revived(id.clone(), Err(Error::GaveUp { agent: id, panics }));
        };
        let (shared, myself) = (Arc::clone(&self.shared), self.myself.clone());
        let revived = id.clone();
        let reader = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let stored = Box::new(read_back(&shared, &revived, Arc::clone(&profile.spec)).await);
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Revived { id: revived, stored });
        });
        self.reviving.insert(id, AbortOnDropHandle::new(reader));
    }

    pub(super) fn revived(&mut self, id: AgentId, stored: Result<Stored, Error>) {
        self.reviving.remove(&id);
        let stored = match &self.lost {
            Some(error) => Err(error.clone().into()),
            None => stored,
        };
        let Some(tree) = self.tree_of(&id) else { return };
        let Some(mut entry) = tree.take(&id) else { return };
        match stored {
            Ok(Stored { agent, info }) => {
                let durable: Seq = agent.log().next_seq();
                let outcome = agent.outcome().cloned();
                // Who went to the store in this runtime goes on as if it had stayed.
                let is_ours = self.shared.router.is_passive(&id);
                let message = if is_ours { AgentMessage::Start } else { next_life(&agent) };
                let start = Start { durable, title: info.head.title, message };
                self.start_actor(&id, entry.profile, agent, start);
                // An outcome that was durable when the actor failed may not have been told.
                if let Some(outcome) = outcome {
                    self.turn_ended(&id, outcome);
                }
                self.send_held(&id);
            }
            Err(error) => {
                tracing::error!(agent = %id, %error, "a failed agent is not started again");
                entry.place = Place::Failed;
                let outcome = entry.outcome.clone();
                tree.agents.insert(id.clone(), entry);
                let root = tree.tree.root().clone();
                self.not_told(&id);
                self.shared.router.disconnect(&id);
                // Its parent must not wait for ever.
                self.turn_ended(&id, Arc::new(recovery::crashed(outcome.as_deref())));
                self.check_rest(&root);
            }
        }
    }
}

impl SupervisorState {
    /// An agent is not here to take the outcomes of its children; the next opening hands them on.
    pub(super) fn not_told(&mut self, id: &AgentId) {
        let Some(tree) = self.tree_of(id) else { return };
        let children = tree.tree.node(id).map(|node| node.children.clone()).unwrap_or_default();
        tree.undelivered.retain(|(child, _)| !children.contains(child));
    }
}

/// Reads an agent back behind all that it has handed to the journal.
pub(super) async fn read_back(shared: &Shared, id: &AgentId, spec: Arc<Spec>) -> Result<Stored, Error> {
    match shared.journal.flush().await {
        Ok(Ok(())) => {
            let read = || recovery::read_back(shared, id, Arc::clone(&spec));
            recovery::contained(id, recovery::patiently(read)).await
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Error::Closed),
    }
}

/// How the next life of an agent begins. A child that had not begun its task never will: it is owed an end, and so is its
/// parent.
fn next_life(agent: &Agent) -> AgentMessage {
    if agent.parent().is_some() && agent.wants_turn() {
        let (cause, queue, deadline) = (Cause::Disposed, QueueRule::Park, Duration::ZERO);
        return AgentMessage::Cancel { cause, queue, deadline };
    }
    AgentMessage::Recover
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::TryStreamExt;
    use impresario_kernel::invariant::check_log;
    use impresario_kernel::{OutcomeKind, Seq, SessionHeader};
    use impresario_models::scripted::ScriptedModel;
    use impresario_seams::{Observed, Store};
    use impresario_stores::MemoryStore;

    use crate::{AgentSpec, Limits, Runtime, Seen};

    /// A runtime on `store`, and a root that was told `prompt`.
    async fn begin(store: &Arc<MemoryStore>, prompt: &str) -> (Runtime, crate::AgentHandle, crate::Subscription) {
        let runtime = Runtime::builder(store.clone()).model(ScriptedModel::builtin()).build().await.unwrap();
        let seen = runtime.subscribe();
        let root = runtime.spawn(AgentSpec::new("scripted", "builtin", std::env::temp_dir())).await.unwrap();
        root.followup(prompt).await.unwrap();
        (runtime, root, seen)
    }

    #[tokio::test]
    async fn a_child_whose_actor_dies_crashes_and_the_rest_goes_on() {
        let store = Arc::new(MemoryStore::new());
        let prompt = "[[FANOUT n=3 tool=subagent leaf=\"latency=50\"]]";
        let (runtime, root, mut seen) = begin(&store, prompt).await;
        loop {
            let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
            if event.path.as_str() == "root/leaf-2" && matches!(event.what, Observed::TurnStarted { .. }) {
                runtime.shared().router.kill(&event.agent);
                break;
            }
        }
        let receipt = runtime.quiesce(root.id()).await.unwrap();
        assert!(receipt.at_rest(), "{receipt:?}");
        let crashed: Vec<&str> = receipt
            .agents
            .iter()
            .filter(|agent| agent.outcome == Some(OutcomeKind::Crashed))
            .map(|agent| agent.path.as_str())
            .collect();
        assert_eq!(crashed, ["root/leaf-2"]);
        assert_eq!(&*root.outcome().await.unwrap().unwrap().text, "fanout done results=2 failed=1");
        for agent in receipt.agents {
            let events: Vec<_> = store.read(agent.id.clone(), Seq(0)).try_collect().await.unwrap();
            assert_eq!(check_log(&SessionHeader::new(agent.id, impresario_kernel::Millis(0)), &events), []);
        }
        runtime.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_parent_whose_actor_dies_hears_of_its_children_in_its_next_life() {
        let store = Arc::new(MemoryStore::new());
        let prompt = "[[FANOUT n=3 tool=subagent leaf=\"latency=50\"]]";
        let (runtime, root, mut seen) = begin(&store, prompt).await;
        let mut started = 0;
        while started < 3 {
            let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
            let is_leaf = event.path.as_str() != "root";
            started += usize::from(is_leaf && matches!(event.what, Observed::TurnStarted { .. }));
        }
        runtime.shared().router.kill(root.id());
        let receipt = runtime.quiesce(root.id()).await.unwrap();
        assert!(receipt.at_rest(), "{receipt:?}");
        let log: Vec<_> = store.read(root.id().clone(), Seq(0)).try_collect().await.unwrap();
        let text: Vec<String> = log.iter().map(|event| format!("{:?}", event.fact)).collect();
        let notices =
            text.iter().filter(|fact| fact.starts_with("UserMessage") && fact.contains(" completed · agent "));
        assert_eq!(notices.count(), 3, "{text:#?}");
        runtime.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_fails_again_and_again_is_left_to_rest_and_nobody_waits_for_it() {
        let store = Arc::new(MemoryStore::new());
        let (runtime, root, mut seen) = begin(&store, "[[SAY well]]").await;
        runtime.quiesce(root.id()).await.unwrap();
        let mut lives = 0;
        while lives < 1 + Limits::default().restarts.max_restarts {
            let Some(Seen::Event(event)) = seen.next().await else { panic!("nothing was seen") };
            if matches!(event.what, Observed::Started { .. }) {
                lives += 1;
                runtime.shared().router.kill(&event.agent);
            }
        }
        while runtime.agent(root.id()).is_ok() {
            tokio::task::yield_now().await;
        }
        let receipt = runtime.quiesce(root.id()).await.unwrap();
        assert_eq!(receipt.agents[0].outcome, Some(OutcomeKind::Crashed), "{receipt:?}");
        assert!(root.followup("still there?").await.is_err(), "there is nobody any more");
        let log: Vec<_> = store.read(root.id().clone(), Seq(0)).try_collect().await.unwrap();
        assert_eq!(check_log(&SessionHeader::new(root.id().clone(), impresario_kernel::Millis(0)), &log), []);
        runtime.shutdown().await.unwrap();
    }
}
