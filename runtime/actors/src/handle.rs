//! Addresses of agents.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use impresario_kernel::event::QueueRule;
use impresario_kernel::{
    AgentId, Boundary, Cause, Event, Fork, Lane, Message, MessageId, NoFork, Outcome, RequestHeader, Seq, Spec,
};
use tokio::sync::oneshot;

use crate::agent::{AgentMessage, Delivery};
use crate::error::Error;
use crate::follow::follow;
use crate::recovery;
use crate::router::Presence;
use crate::runtime::{plant, wake};
use crate::shared::Shared;

/// How long the real ends of interrupted calls are waited for before they are abandoned by name.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(10);

/// The address of an agent. It outlives the agent's actor; dropping it ends nothing.
#[derive(Clone)]
pub struct AgentHandle {
    id: AgentId,
    shared: Arc<Shared>,
}

impl AgentHandle {
    pub(crate) fn new(id: AgentId, shared: Arc<Shared>) -> Self {
        Self { id, shared }
    }

    /// Whose address this is.
    pub fn id(&self) -> &AgentId {
        &self.id
    }

    /// Gives the agent something to do after what it does now. Returns when the message is durable.
    ///
    /// # Errors
    /// [`Error::Refused`] for a text longer than [`crate::Limits::message_bytes_max`], [`Error::Closed`] when the agent
    /// is gone with its runtime.
    pub async fn followup(&self, text: &str) -> Result<MessageId, Error> {
        self.deliver(MessageId::new(format!("m-{}", self.shared.chance.mint())), Lane::NextTurn, true, text).await
    }

    /// Tells the agent something that it reads at its next step; opens a turn if none is open. Returns when the message
    /// is durable; errors as [`AgentHandle::followup`].
    pub async fn steer(&self, text: &str) -> Result<MessageId, Error> {
        self.deliver(MessageId::new(format!("m-{}", self.shared.chance.mint())), Lane::NextStep, true, text).await
    }

    /// Tells the agent something that it reads at its next step, whenever that is; opens nothing. Returns when the
    /// message is durable; errors as [`AgentHandle::followup`].
    pub async fn inject(&self, text: &str) -> Result<MessageId, Error> {
        self.deliver(MessageId::new(format!("m-{}", self.shared.chance.mint())), Lane::NextStep, false, text).await
    }

    /// As [`AgentHandle::followup`], under an id of the sender's: the same id again changes nothing, so a sender that
    /// is not sure may send again.
    pub async fn followup_as(&self, id: MessageId, text: &str) -> Result<MessageId, Error> {
        self.deliver(id, Lane::NextTurn, true, text).await
    }

    /// Takes a message back that was accepted and still waits; `false` when it was taken up already.
    pub async fn remove(&self, id: MessageId) -> Result<bool, Error> {
        self.ask(|reply| AgentMessage::Amend { id: id.clone(), with: None, reply }).await
    }

    /// Puts another text in the place of a message that still waits, and returns its new id; `None` when the message was
    /// taken up already.
    pub async fn replace(&self, id: MessageId, text: &str) -> Result<Option<MessageId>, Error> {
        self.check_size(text)?;
        let new = MessageId::new(format!("m-{}", self.shared.chance.mint()));
        let with = Some(Arc::new(Message::user(new.clone(), text)));
        let replaced = self.ask(|reply| AgentMessage::Amend { id: id.clone(), with: with.clone(), reply }).await?;
        Ok(replaced.then_some(new))
    }

    /// Ends the agent's turn; its background children go on. What waits in its inbox opens the next turn.
    ///
    /// Returns when the agent was told; [`AgentHandle::wait`] waits for the end. An agent that is only stored has no turn.
    ///
    /// # Errors
    /// [`Error::Closed`] when the agent is gone with its runtime.
    pub fn interrupt(&self, cause: Cause) -> Result<(), Error> {
        let message = AgentMessage::Cancel { cause, queue: QueueRule::Run, deadline: INTERRUPT_DEADLINE };
        let told = self.shared.router.send(&self.id, message);
        if told.is_err() && self.shared.router.is_passive(&self.id) { Ok(()) } else { told.map_err(|_| Error::Closed) }
    }

    /// Waits until the agent has nothing to do, and says how its last turn came out; `None` before the first.
    ///
    /// Its children may still run: [`crate::Runtime::quiesce`] waits for a whole tree.
    pub async fn wait(&self) -> Result<Option<Arc<Outcome>>, Error> {
        self.ask(AgentMessage::WhenIdle).await
    }

    /// How the last ended turn came out; `None` before the first.
    pub async fn outcome(&self) -> Result<Option<Arc<Outcome>>, Error> {
        self.ask(AgentMessage::TellOutcome).await
    }

    /// All that was said so far, as far as it is durable, inherited conversation included.
    pub async fn transcript(&self) -> Result<Vec<Arc<Message>>, Error> {
        self.shared.journal.catch_up().await;
        let events: Vec<_> = self.shared.store.read(self.id.clone(), Seq(0)).try_collect().await?;
        Ok(events.iter().filter_map(|event| event.fact.message().cloned()).collect())
    }

    /// Makes a root that goes on from behind the last turn that has ended: it has the whole conversation up to there, the
    /// settings and the rights of this agent, an id, an inbox and a plan of its own, and nothing that either of them does
    /// later concerns the other. The conversation is shared and not copied, in memory and in the store: a fork costs the
    /// same whatever its length.
    ///
    /// # Errors
    /// As [`AgentHandle::followup`].
    pub async fn fork(&self) -> Result<Self, Error> {
        self.fork_at(Boundary::Completed).await
    }

    /// As [`AgentHandle::fork`], from another place of its log.
    ///
    /// # Errors
    /// [`Error::Refused`] when there is no such boundary; else as [`AgentHandle::followup`].
    pub async fn fork_at(&self, boundary: Boundary) -> Result<Self, Error> {
        let fork = self.prefix(boundary).await?;
        plant(&self.shared, &self.id, None, fork).await
    }

    /// What a fork goes on from.
    pub(crate) async fn prefix(&self, boundary: Boundary) -> Result<Fork, Error> {
        let fork = self.ask(|reply| AgentMessage::Fork { boundary, reply }).await?;
        if matches!(fork, Err(NoFork::NotAtHand(_))) {
            // The fork gets the settings of its own.
            let any = Arc::new(Spec::new(RequestHeader::new("any", "any")));
            self.shared.journal.catch_up().await;
            return recovery::fork_stored(&self.shared, &self.id, any, boundary).await;
        }
        fork.map_err(|no| Error::Refused(format!("{} cannot be forked there: {no}", self.id)))
    }

    /// The events of the agent's log from `from` on, each as soon as it is durable; [`Seq`]`(0)` begins with what it
    /// inherited. It ends with the runtime, everything read. However slow its reader is, nobody waits for it and it misses
    /// nothing: it reads the store. For words as a model says them, see [`crate::Runtime::subscribe`].
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read; the next item tries again from there.
    pub fn subscribe(&self, from: Seq) -> impl Stream<Item = Result<Arc<Event>, Error>> + Send + Unpin + 'static {
        follow(&self.shared, &self.id, from)
    }

    async fn deliver(&self, id: MessageId, lane: Lane, wakes: bool, text: &str) -> Result<MessageId, Error> {
        self.tell(Arc::new(Message::user(id.clone(), text)), lane, wakes).await?;
        Ok(id)
    }

    /// Puts a message into the inbox; returns when it is durable.
    pub(crate) async fn tell(&self, message: Arc<Message>, lane: Lane, wakes: bool) -> Result<(), Error> {
        self.check_size(&message.text())?;
        // The same id again changes nothing, so it may be said twice to an actor and the one after it.
        self.ask(|reply| AgentMessage::Deliver(Delivery { message: Arc::clone(&message), lane, wakes, reply })).await?
    }

    /// Sends what `message` makes and waits for the answer. Of an actor that fails before it answers, the one that comes
    /// after it is asked.
    async fn ask<T>(&self, message: impl Fn(oneshot::Sender<T>) -> AgentMessage) -> Result<T, Error> {
        loop {
            let changed = self.shared.router.changed();
            let (reply, answer) = oneshot::channel();
            if self.shared.router.send(&self.id, message(reply)).is_ok()
                && let Ok(answer) = answer.await
            {
                return Ok(answer);
            }
            match self.shared.router.presence(&self.id) {
                Presence::Here => {}
                Presence::Coming => changed.await,
                Presence::Gone if self.shared.router.is_closed() => return Err(Error::Closed),
                Presence::Gone => match wake(&self.shared, &self.id).await {
                    Ok(_) => {}
                    Err(error @ (Error::Store(_) | Error::Unreadable { .. })) => return Err(error),
                    Err(_) => return Err(Error::Closed),
                },
            }
        }
    }

    fn check_size(&self, text: &str) -> Result<(), Error> {
        let max = self.shared.limits.message_bytes_max;
        if text.len() <= max {
            return Ok(());
        }
        let why = format!("the message has {} bytes and the limit is {max}; put it into a file", text.len());
        Err(Error::Refused(why))
    }
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentHandle").field(&self.id).finish()
    }
}
