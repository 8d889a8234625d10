//! The only way to stdout and stderr. A reader that goes away is an error value, never a panic.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressDrawTarget};

use crate::args::Color;
use crate::exit::Exit;
use crate::failed::Failed;

/// The tree that is being drawn on stderr, if there is one: lines must go above it.
static DRAWN: OnceLock<MultiProgress> = OnceLock::new();

/// The drawing of this process; the first call makes it.
pub(crate) fn drawing() -> &'static MultiProgress {
    DRAWN.get_or_init(MultiProgress::new)
}

/// Runs `write` while nothing is being drawn.
pub(crate) fn undisturbed<T>(write: impl FnOnce() -> T) -> T {
    match DRAWN.get() {
        Some(drawn) => drawn.suspend(write),
        None => write(),
    }
}

/// Takes the drawing off the screen for good.
pub(crate) fn end_drawing() {
    if let Some(drawn) = DRAWN.get() {
        // A drawing that cannot be cleared is only ugly.
        let _ = drawn.clear();
        drawn.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// Takes the drawing off the screen while a person answers; dropping it draws again. Holds no lock meanwhile.
pub(crate) struct Pause(());

impl Pause {
    pub(crate) fn begin() -> Self {
        end_drawing();
        Self(())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(drawn) = DRAWN.get() {
            drawn.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

/// Writes `text` to stdout as it is, and flushes.
pub(crate) fn out(text: &str) -> io::Result<()> {
    undisturbed(|| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    })
}

/// Writes a line to stderr. Nobody can be told when that fails.
pub(crate) fn say(line: &str) {
    undisturbed(|| {
        let _ = writeln!(io::stderr().lock(), "{line}");
    });
}

/// Writes the answer of a command to stdout; a reader that went away has seen what it wanted.
pub(crate) fn answer(text: &str) -> Result<Exit, Failed> {
    match out(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failed::io("stdout", &error)),
        Ok(()) | Err(_) => Ok(Exit::Completed),
    }
}

/// Where the program's own log goes.
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        undisturbed(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// `text` with control characters made visible: what a model writes must not steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => {}
            c if c.is_control() || is_bidi(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Marks that reorder what stands on a line.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first line of `text` that says something, at most `max` characters of it.
pub(crate) fn first_line(text: &str, max: usize) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    shorten(&printable(line), max)
}

/// `text` on one line, at most `max` characters of it.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let words = text.split_whitespace().take(max).collect::<Vec<_>>().join(" ");
    shorten(&printable(&words), max)
}

fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Which stream is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    /// stdin
    In,
    /// stdout
    Out,
    /// stderr
    Err,
}

impl Stream {
    /// Whether a person is at the other end.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::In => io::stdin().is_terminal(),
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// What `--color`, `NO_COLOR` and `TERM` say of `stream`.
    pub(crate) fn of(color: Color, stream: Stream) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stream.is_terminal() && !set("NO_COLOR") && !dumb,
        };
        Self { on }
    }

    /// `text` in the colour of what it says.
    pub(crate) fn word(self, text: &str) -> String {
        let color = match text.split(' ').next().unwrap_or_default() {
            "completed" => AnsiColor::Green,
            "failed" | "crashed" | "refused" | "error:" => AnsiColor::Red,
            "cancelled" | "partial" => AnsiColor::Yellow,
            "running" | "queued" => AnsiColor::Cyan,
            _ => return text.to_owned(),
        };
        self.with(Style::new().fg_color(Some(color.into())), text)
    }

    /// `text` in the background of attention.
    pub(crate) fn dim(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// `text` set apart.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.on && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_shown_instead() {
        assert_eq!(printable("a\u{1b}[2Jb\n\tc\r"), "a\\u{1b}[2Jb\n\tc");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        assert_eq!(first_line("\n  äöüß  \nmore", 3), "äö…");
        assert_eq!(one_line("a\n b\tc", 80), "a b c");
    }
}
