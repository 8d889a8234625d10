//! When what was decided counts as written.

/// What may be lost of an agent's log, and of those below it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// Nothing: what follows from an event waits until the event is on the disk.
    #[default]
    Durable,
    /// The last moments before the end of the process: what follows from an event goes on at once, and the event is written
    /// with the next commit, which is not flushed to the disk. What is there after a crash is a beginning of the log that
    /// makes sense; a message whose sender was told that it was accepted may be missing, and what was done outside may be
    /// unknown to it. When the store falls far behind, or fails, it is as [`Durability::Durable`] until the store is back.
    Buffered,
}
