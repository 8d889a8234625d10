//! How much of a tree's bounds is in use, and other bounds while it runs.

use serde::Serialize;

/// What a tree has in use, and of how much.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Capacity {
    /// Turns that run.
    pub running: usize,
    /// Turns that wait until others have ended, or wait for something themselves.
    pub queued: usize,
    /// How many may run at once.
    pub running_max: usize,
    /// Descendants that the root has had.
    pub descendants: u32,
    /// How many it may have.
    pub descendants_max: u32,
    /// How deep the tree may grow.
    pub depth_max: u32,
}

/// Bounds of a tree that replace the runtime's from here on; what is `None` stays. What is there already goes on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LiveLimits {
    /// As [`crate::Limits::running_max`].
    pub running_max: Option<usize>,
    /// As [`crate::Limits::descendants_max`].
    pub descendants_max: Option<u32>,
    /// As [`crate::Limits::depth_max`].
    pub depth_max: Option<u32>,
}

impl LiveLimits {
    /// These where they say something, and `before` where they do not.
    pub(crate) fn over(self, before: Self) -> Self {
        Self {
            running_max: self.running_max.or(before.running_max),
            descendants_max: self.descendants_max.or(before.descendants_max),
            depth_max: self.depth_max.or(before.depth_max),
        }
    }
}
