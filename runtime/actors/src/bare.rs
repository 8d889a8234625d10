//! Actors with nothing in them: beside what they cost, what an agent costs can be judged. For benchmarks.

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

/// How many messages each gets in its life.
const MESSAGES: u64 = 10;

struct Bare;

impl Actor for Bare {
    type Msg = u64;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<u64>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<u64>, _: u64, (): &mut ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// Bare actors that run.
pub struct BareActors(Vec<(ActorRef<u64>, JoinHandle<()>)>);

impl std::fmt::Debug for BareActors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BareActors").field(&self.0.len()).finish()
    }
}

impl BareActors {
    /// Starts `n` of them.
    pub async fn spawn(n: usize) -> Self {
        let mut actors = Vec::with_capacity(n);
        for _ in 0..n {
            // One without a name is always started.
            actors.extend(Actor::spawn(None, Bare, ()).await.ok());
        }
        Self(actors)
    }

    /// Sends each of them ten messages.
    pub fn tell(&self) {
        for (actor, _) in &self.0 {
            // They are there until they are stopped.
            (0..MESSAGES).for_each(|message| drop(actor.cast(message)));
        }
    }

    /// Ends all of them, and returns when they have ended.
    pub async fn stop(self) {
        self.0.iter().for_each(|(actor, _)| actor.stop(None));
        for (_, ended) in self.0 {
            // One that panicked has ended as well.
            let _ = ended.await;
        }
    }
}
