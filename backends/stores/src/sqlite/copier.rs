//! Copying the write-ahead log into the file, beside the writer and not in its way.

use std::path::Path;
use std::sync::mpsc::{self, SyncSender};

use impresario_seams::StoreError;
use rusqlite::OpenFlags;

use super::connect;
use crate::file::io_error;

/// After how many bytes of events the log is copied.
const BYTES: usize = 8 << 20;

/// After how many pages of the log the writer copies it itself: when it writes without a pause, the log never ends while
/// somebody else copies it, and so would never begin anew. Most of it has been copied by then.
pub(super) const PAGES_MAX: i64 = 16_384;

/// A thread that copies when it is asked to; it ends with whoever asks.
pub(super) struct Copier {
    requests: SyncSender<()>,
    written: usize,
}

impl Copier {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let (requests, waiting) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("impresario-copy".into()).spawn(move || {
            for () in waiting {
                // What cannot be copied now stays where it is and is copied next time.
                if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
                    tracing::debug!(%error, "the write-ahead log was not copied");
                }
            }
        });
        thread.map_err(|error| io_error(path, "starting the copier of", path, &error))?;
        Ok(Self { requests, written: 0 })
    }

    /// The writer has written this much more.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= BYTES {
            self.written = 0;
            // One that is on its way does for this as well.
            let _ = self.requests.try_send(());
        }
    }
}
