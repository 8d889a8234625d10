//! The root's text on a terminal, line by line as it arrives: whole lines do not disturb the tree.

use std::io;

use impresario::kernel::AgentId;
use impresario::seams::{Observed, ObservedEvent};

use crate::print;

/// What was streamed so far.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    /// Whose.
    root: Option<AgentId>,
    /// The text of this message that is not on the screen yet.
    line: String,
    /// How much of this message is on the screen or in `line`.
    message: String,
    /// The last message that is on the screen, whole.
    last: String,
}

impl Streamed {
    pub(super) fn show(&mut self, event: &ObservedEvent) -> io::Result<()> {
        if event.parent.is_some() || self.root.get_or_insert_with(|| event.agent.clone()) != &event.agent {
            return Ok(());
        }
        match &event.what {
            Observed::TextDelta { text } => {
                self.message.push_str(text);
                self.line.push_str(text);
                self.flush_lines()
            }
            Observed::Message { text } => {
                if !self.message.is_empty() && *self.message != **text {
                    // Pieces were missed or belong to a failed attempt: show it whole.
                    self.line = format!("\n{text}");
                } else if self.message.is_empty() {
                    self.line.push_str(text);
                }
                self.message.clear();
                self.last = text.to_string();
                if self.line.is_empty() { Ok(()) } else { self.flush_all() }
            }
            _ => Ok(()),
        }
    }

    /// The end: what is not on the screen yet.
    pub(super) fn end(&mut self, text: Option<&str>) -> io::Result<()> {
        if !self.line.is_empty() {
            self.flush_all()?;
        }
        match text {
            Some(text) if !text.is_empty() && text != self.last => print::out(&format!("{}\n", print::printable(text))),
            _ => Ok(()),
        }
    }

    fn flush_lines(&mut self) -> io::Result<()> {
        let Some(end) = self.line.rfind('\n') else {
            return Ok(());
        };
        let rest = self.line.split_off(end + 1);
        let lines = std::mem::replace(&mut self.line, rest);
        print::out(&print::printable(&lines))
    }

    fn flush_all(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        print::out(&format!("{}\n", print::printable(&line)))
    }
}
