//! What a command writes: read as it comes, the last part kept.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout, timeout_at};

/// How much of the end is kept.
pub(crate) const KEPT: usize = 64_000;

/// The reading end of the pipe that stdout and stderr share, and the last bytes that came out of it.
pub(crate) struct Output {
    pipe: Option<pipe::Receiver>,
    buffer: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Output {
    /// Reads from the pipe.
    pub(crate) fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe: Some(pipe), buffer: vec![0; KEPT], tail: Vec::new(), total: 0 }
    }

    /// Whether every writer is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Reads what comes next. Waits for ever once closed, for use beside other things that are waited for.
    /// Loses nothing when it is dropped half way.
    pub(crate) async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.read(&mut self.buffer).await {
            Ok(0) => self.pipe = None,
            Ok(read) => self.keep(read),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }

    /// Reads to the end, but not for longer than this.
    pub(crate) async fn drain(&mut self, longest: Duration) {
        let end = Instant::now() + longest;
        while !self.is_closed() && timeout_at(end, self.read()).await.is_ok() && Instant::now() < end {}
    }

    /// Reads what already stands in the pipe, when nobody writes any more who matters.
    pub(crate) async fn drain_rest(&mut self) {
        let end = Instant::now() + Duration::from_secs(1);
        while !self.is_closed() && Instant::now() < end && timeout(Duration::from_millis(50), self.read()).await.is_ok()
        {
        }
    }

    fn keep(&mut self, read: usize) {
        self.total += read as u64;
        self.tail.extend_from_slice(&self.buffer[..read]);
        // Twice as much is allowed to stand, so that bytes are moved once and not with every read.
        if self.tail.len() > 2 * KEPT {
            self.tail.drain(..self.tail.len() - KEPT);
        }
    }

    /// The end of the output as a text, and a line before it that says what was cut.
    pub(crate) fn text(&self) -> String {
        let mut tail = &self.tail[self.tail.len().saturating_sub(KEPT)..];
        let is_cut = self.total > tail.len() as u64;
        if is_cut {
            let broken = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            tail = &tail[broken..];
        }
        let text = String::from_utf8_lossy(tail);
        let is_lossy = matches!(text, std::borrow::Cow::Owned(_));
        let mut told = String::with_capacity(text.len() + 128);
        if is_cut {
            let cut = self.total - tail.len() as u64;
            told.push_str(&format!("[cut: the first {cut} of {} bytes of output are left out]\n", self.total));
        }
        if is_lossy {
            told.push_str("[some bytes are not UTF-8 and shown as \u{fffd}]\n");
        }
        // Some servers refuse zero characters.
        told.push_str(&text.replace('\0', "\u{fffd}"));
        told
    }

    /// How many bytes came.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}
