//! Subtrees in which nothing may start. Whoever stops a subtree trips this first and tells its agents then: a model that
//! is not asked yet is not asked any more, however many messages are before the cancel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use impresario_kernel::{AgentId, AgentPath};
use tokio::sync::Notify;

/// Where an agent stands: its root, and its path.
pub(crate) type Standing = (AgentId, AgentPath);

/// What stands still.
#[derive(Debug, Default)]
pub(crate) struct Halts {
    /// How many there are, so that asking costs next to nothing when there are none.
    count: AtomicUsize,
    tops: Mutex<BTreeMap<AgentId, Vec<AgentPath>>>,
    lifted: Notify,
}

/// A subtree stands still until this is dropped.
#[derive(Debug)]
pub(crate) struct Halt {
    halts: Arc<Halts>,
    top: Standing,
}

impl Halts {
    /// Lets nothing start at and below `top` any more.
    pub(crate) fn halt(self: &Arc<Self>, top: Standing) -> Halt {
        let mut tops = self.tops.lock().unwrap_or_else(PoisonError::into_inner);
        tops.entry(top.0.clone()).or_default().push(top.1.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        Halt { halts: Arc::clone(self), top }
    }

    /// Whether nothing may start there.
    pub(crate) fn is_halted(&self, root: &AgentId, path: &AgentPath) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let tops = self.tops.lock().unwrap_or_else(PoisonError::into_inner);
        tops.get(root).is_some_and(|tops| tops.iter().any(|top| is_within(path, top)))
    }

    /// Waits until something may start there.
    pub(crate) async fn lifted(&self, root: &AgentId, path: &AgentPath) {
        loop {
            let lifted = self.lifted.notified();
            if !self.is_halted(root, path) {
                return;
            }
            lifted.await;
        }
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        let (root, path) = &self.top;
        let mut tops = self.halts.tops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(halted) = tops.get_mut(root) {
            if let Some(at) = halted.iter().position(|top| top == path) {
                halted.swap_remove(at);
            }
            if halted.is_empty() {
                tops.remove(root);
            }
        }
        self.halts.count.fetch_sub(1, Ordering::SeqCst);
        drop(tops);
        self.halts.lifted.notify_waiters();
    }
}

fn is_within(path: &AgentPath, top: &AgentPath) -> bool {
    let below = path.as_str().strip_prefix(top.as_str());
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_for_its_subtree_and_as_long_as_it_is_held() {
        let halts = Arc::new(Halts::default());
        let (root, other) = (AgentId::from("r"), AgentId::from("q"));
        let (a, ab, abc) =
            (AgentPath::root().child("a"), AgentPath::root().child("ab"), AgentPath::root().child("a/c"));
        let halt = halts.halt((root.clone(), a.clone()));
        let again = halts.halt((root.clone(), a.clone()));
        assert!(halts.is_halted(&root, &a) && halts.is_halted(&root, &abc));
        assert!(!halts.is_halted(&root, &ab) && !halts.is_halted(&root, &AgentPath::root()));
        assert!(!halts.is_halted(&other, &a));
        drop(halt);
        assert!(halts.is_halted(&root, &a), "somebody else still holds it");
        drop(again);
        assert!(!halts.is_halted(&root, &a));
    }
}
