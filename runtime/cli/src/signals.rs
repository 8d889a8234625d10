//! Ctrl-C and SIGTERM as values.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Stop;
use crate::failed::Failed;

/// From here on the two signals end nothing by themselves.
pub(crate) struct Signals {
    int: Signal,
    term: Signal,
}

impl Signals {
    /// Takes the signals over.
    pub(crate) fn new() -> Result<Self, Failed> {
        let take = |kind| signal(kind).map_err(|error| Failed::io("listen for signals", &error));
        Ok(Self { int: take(SignalKind::interrupt())?, term: take(SignalKind::terminate())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.int.recv() => Stop::Sigint,
            _ = self.term.recv() => Stop::Sigterm,
        }
    }
}
