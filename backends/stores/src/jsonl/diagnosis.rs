//! What is wrong with a log.

use std::fmt;

/// Something that a log should not have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// In which line, from 1; in a compressed log, of its text. `None` where no line is.
    pub line: Option<u64>,
    /// What.
    pub kind: DiagnosticKind,
    /// The same for people.
    pub note: String,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiagnosticKind {
    /// The last record, or the last frame, was not written to its end. The next append cuts it off.
    TornTail,
    /// Zeros where a record could be, as a file system leaves them behind a power cut.
    NulBytes,
    /// The same record twice, with the same content.
    DuplicateRecord,
    /// A record stands behind one that comes later.
    OutOfOrder,
    /// A line that is no JSON, or not that of an event.
    Unparseable,
    /// JSON, but no object.
    NotARecord,
    /// Bytes that are no text.
    InvalidUtf8,
    /// A frame that does not decompress, or bytes that are no frame.
    BadFrame,
    /// Two records of one place with different content: two programs wrote to one log.
    SeqConflict,
    /// Records are missing.
    SeqGap,
    /// A type that this version does not know and may not skip.
    UnknownType,
}

impl DiagnosticKind {
    /// Whether a log with it is only read: what is behind the damage would be lost to other readers, or is not what it
    /// says.
    pub fn forbids_append(self) -> bool {
        match self {
            Self::TornTail | Self::NulBytes | Self::DuplicateRecord => false,
            Self::OutOfOrder
            | Self::Unparseable
            | Self::NotARecord
            | Self::InvalidUtf8
            | Self::BadFrame
            | Self::SeqConflict
            | Self::SeqGap
            | Self::UnknownType => true,
        }
    }

    /// Whether a reader that goes on behind it would tell another story than the one that was written.
    pub fn loses_events(self) -> bool {
        matches!(self, Self::SeqConflict | Self::SeqGap | Self::UnknownType)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.note),
            None => f.write_str(&self.note),
        }
    }
}
