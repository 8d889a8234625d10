//! Why a command did not do what it was asked.

use std::fmt;

use crate::exit::Exit;

/// What went wrong, for people and for the shell.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// For programs.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) text: String,
}

impl Failed {
    /// The command line or the configuration makes no sense.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: "USAGE", text: text.into() }
    }

    /// The system said no.
    pub(crate) fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self { exit: Exit::Failed, code: "IO", text: format!("{doing}: {error}") }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}
