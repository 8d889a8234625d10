//! Time, ids, dice and the order of things: the world's, or those of a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use impresario_kernel::{AgentId, Millis};
use tokio::time::Instant;

/// Where a seeded runtime's time begins: a day after the epoch, so that nothing is mistaken for "never".
const BEGINNING: Millis = Millis(86_400_000);

/// How many turns of the scheduler a seeded runtime may let pass before an actor takes its next message.
const LATENESS: u64 = 4;

/// Where a runtime takes from what no log says.
#[derive(Debug)]
pub(crate) enum Chance {
    /// The world.
    World,
    /// A seed.
    Seeded {
        /// How far the dice are; each roll is another place of the same sequence.
        dice: AtomicU64,
        /// How many ids were made.
        minted: AtomicU64,
        /// When the runtime began.
        began: Instant,
    },
}

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        match seed {
            None => Self::World,
            Some(seed) => Self::Seeded { dice: AtomicU64::new(seed), minted: AtomicU64::new(0), began: Instant::now() },
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Millis {
        match self {
            Self::World => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            Self::Seeded { began, .. } => {
                Millis(BEGINNING.0 + u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
            }
        }
    }

    /// A new id: ordered by time, lower case, safe as a file name.
    pub(crate) fn mint(&self) -> AgentId {
        match self {
            Self::World => AgentId::new(uuid::Uuid::now_v7().simple().to_string()),
            Self::Seeded { minted, .. } => {
                let (now, count) = (self.now().0, minted.fetch_add(1, Ordering::Relaxed));
                AgentId::new(format!("{now:012x}{:04x}{:016x}", count % 0x1_0000, self.roll()))
            }
        }
    }

    /// Something that differs from agent to agent and from call to call.
    pub(crate) fn roll(&self) -> u64 {
        match self {
            Self::World => uuid::Uuid::now_v7().as_u64_pair().1,
            Self::Seeded { dice, .. } => {
                // SplitMix64.
                let step = 0x9e37_79b9_7f4a_7c15;
                let mut mixed = dice.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
        }
    }

    /// Lets others go first, if the seed says so: each seed is another order in which messages are handled.
    pub(crate) async fn linger(&self) {
        if let Self::Seeded { .. } = self {
            for _ in 0..self.roll() % LATENESS {
                tokio::task::yield_now().await;
            }
        }
    }
}
