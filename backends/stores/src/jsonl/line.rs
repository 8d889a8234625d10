//! The lines of a log, one at a time, out of a raw file or out of frames.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Take};
use std::path::Path;

use super::Encoding;
use super::frame::{Content, Frame, frame_at};

/// Where to begin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Place {
    /// A byte at which a line begins (raw), or the frame in which one does.
    pub(super) offset: u64,
    /// How many lines are before it.
    pub(super) lines: u64,
}

/// What comes next in a log.
#[derive(Debug)]
pub(super) enum Next {
    /// A line, whole or not.
    Line(Line),
    /// Bytes that hold no lines.
    Bad {
        /// Where they begin.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Nothing more. `torn` is where a frame begins that the file does not hold the end of.
    End {
        /// See above.
        torn: Option<u64>,
    },
}

/// One line.
#[derive(Debug)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    /// Where it begins, or the frame that it begins in.
    pub(super) offset: u64,
    /// Without the newline.
    pub(super) bytes: Vec<u8>,
    /// Whether it had one.
    pub(super) is_ended: bool,
}

/// A log that is read line by line, up to `end`.
pub(super) struct Lines {
    file: File,
    end: u64,
    /// Where the next line begins (raw), or the next frame.
    at: u64,
    lines: u64,
    source: Source,
    /// What was found behind a line that has no end.
    waiting: Option<Next>,
    is_over: bool,
    is_ended: bool,
}

enum Source {
    Raw(BufReader<Take<File>>),
    Frame {
        start: u64,
        content: Box<BufReader<Content>>,
    },
    /// Compressed, and between two frames.
    Between,
}

impl Lines {
    /// Opens the log in `path` at a place where a line begins.
    pub(super) fn open(path: &Path, encoding: Encoding, from: Place, end: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let source = match encoding {
            Encoding::Raw => {
                file.seek(SeekFrom::Start(from.offset))?;
                let length = end.saturating_sub(from.offset);
                Source::Raw(BufReader::with_capacity(1 << 16, file.try_clone()?.take(length)))
            }
            Encoding::Zstd => Source::Between,
        };
        Ok(Self {
            file,
            end,
            at: from.offset,
            lines: from.lines,
            source,
            waiting: None,
            is_over: false,
            is_ended: true,
        })
    }

    /// Whether the line before had a newline.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The next line, or why there is none.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        if let Some(waiting) = self.waiting.take() {
            return Ok(waiting);
        }
        let mut partial = Vec::new();
        let mut begins = None;
        loop {
            if let Source::Between = self.source {
                match self.open_frame()? {
                    None => {}
                    Some(end_or_bad) if !partial.is_empty() => {
                        self.waiting = Some(end_or_bad);
                        return Ok(Next::Line(self.line(begins.unwrap_or(self.at), partial, false)));
                    }
                    Some(end_or_bad) => return Ok(end_or_bad),
                }
            }
            let (start, read) = match &mut self.source {
                Source::Raw(file) => (self.at, file.read_until(b'\n', &mut partial)),
                Source::Frame { start, content } => (*start, content.read_until(b'\n', &mut partial)),
                Source::Between => continue,
            };
            let offset = *begins.get_or_insert(start);
            let read = match read {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.source = Source::Between;
                    return Ok(Next::Bad { offset: start, what: format!("a frame does not decompress: {error}") });
                }
                Err(error) => return Err(error),
            };
            if partial.last() == Some(&b'\n') {
                partial.pop();
                self.passed(read);
                return Ok(Next::Line(self.line(offset, partial, true)));
            }
            match self.source {
                Source::Raw(_) if partial.is_empty() => return Ok(Next::End { torn: None }),
                Source::Raw(_) => {
                    self.passed(read);
                    return Ok(Next::Line(self.line(offset, partial, false)));
                }
                // A line may go on in the next frame.
                Source::Frame { .. } | Source::Between => {
                    self.source = Source::Between;
                    begins = begins.filter(|_| !partial.is_empty());
                }
            }
        }
    }

    fn passed(&mut self, bytes: usize) {
        if let Source::Raw(_) = self.source {
            self.at += bytes as u64;
        }
    }

    fn line(&mut self, offset: u64, bytes: Vec<u8>, is_ended: bool) -> Line {
        self.lines += 1;
        self.is_ended = is_ended;
        Line { number: self.lines, offset, bytes, is_ended }
    }

    /// Opens the next frame; something else if there is none.
    fn open_frame(&mut self) -> io::Result<Option<Next>> {
        while self.at < self.end && !self.is_over {
            let start = self.at;
            match frame_at(&mut self.file, start, self.end)? {
                Frame::Skippable(length) => self.at += length,
                Frame::Torn => return Ok(Some(Next::End { torn: Some(start) })),
                Frame::Foreign => {
                    self.is_over = true;
                    return Ok(Some(Next::Bad { offset: start, what: "no frame begins here".into() }));
                }
                Frame::Whole(length) => {
                    self.at += length;
                    match Content::check(&self.file, start, length) {
                        Ok(content) => {
                            let content = Box::new(BufReader::with_capacity(1 << 16, content));
                            self.source = Source::Frame { start, content };
                            return Ok(None);
                        }
                        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                            return Ok(Some(Next::Bad { offset: start, what: error.to_string() }));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(Some(Next::End { torn: None }))
    }
}
