//! What the runtime says by itself: it stands among the messages of the user and is no prompt.

/// The kinds of the sources of such messages.
pub(crate) const KINDS: [&str; 2] = ["plugin", "subagent-settled"];
