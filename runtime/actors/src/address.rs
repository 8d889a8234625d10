//! Where an actor is that may be replaced while others go on.

use std::sync::{PoisonError, RwLock};

use ractor::{ActorId, ActorRef, Message};

/// The address of an actor that is replaced when it fails.
#[derive(Debug)]
pub(crate) struct Address<M>(RwLock<Option<ActorRef<M>>>);

impl<M> Default for Address<M> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl<M: Message> Address<M> {
    /// Sends a message; it is gone if nobody is here just now.
    pub(crate) fn cast(&self, message: M) {
        if let Some(actor) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            // Whoever comes next asks for what it must know.
            let _ = actor.cast(message);
        }
    }

    /// Somebody new is here.
    pub(crate) fn set(&self, actor: ActorRef<M>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }

    /// Whether it is this actor that is here, or was last.
    pub(crate) fn is(&self, actor: ActorId) -> bool {
        let here = self.0.read().unwrap_or_else(PoisonError::into_inner);
        here.as_ref().is_some_and(|here| here.get_id() == actor)
    }

    /// Ends whoever is here without a word, as a failure would.
    pub(crate) fn kill(&self) {
        if let Some(actor) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            actor.kill();
        }
    }
}
