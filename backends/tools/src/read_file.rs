//! The tool `read_file`: a bounded piece of a text file.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, schema};
use crate::blocking::{blocking, go_on};
use crate::folder::{Folder, fault};

const LINES_DEFAULT: u64 = 2_000;
const BYTES_MAX: usize = 64 * 1024;
/// How much of the start is looked at for zero bytes, which texts do not have.
const SNIFFED: usize = 8 * 1024;
/// Up to this size the lines of the rest are counted, to say how many there are.
const COUNTED_MAX: u64 = 256 * 1024 * 1024;

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "read_file",
        "Reads a text file in the working folder. Gives at most 2,000 lines and 64 KiB a call; a last line in brackets \
         says how to go on when there is more. Binary files are refused.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the working folder."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1. Default 1."},
                "limit": {"type": "integer", "minimum": 1, "maximum": LINES_DEFAULT, "description": "How many lines to read at most. Default 2000."},
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
    )
});

/// Reads a text file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFile;

impl Tool for ReadFile {
    fn schema(&self) -> Arc<ToolSchema> {
        SCHEMA.clone()
    }

    fn overlap(&self) -> Overlap {
        Overlap::Parallel
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let call = Call::parse(input)?;
            blocking(&ctx.cancel, move |stop| read(&ctx.dir, &call, stop)).await
        })
    }
}

struct Call {
    path: String,
    offset: u64,
    limit: u64,
}

impl Call {
    fn parse(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::parse(input)?;
        let path = arguments.string("path")?;
        let offset = arguments.optional_count("offset")?.unwrap_or(1);
        let limit = arguments.optional_count("limit")?.unwrap_or(LINES_DEFAULT).min(LINES_DEFAULT);
        arguments.finish()?;
        Ok(Self { path, offset, limit })
    }
}

fn read(dir: &Path, call: &Call, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let folder = Folder::new(dir);
    let place = folder.locate_existing("path", &call.path)?;
    let file = folder.open(&place)?;
    let failed = |cause: io::Error| fault("read", &place.shown, &cause);
    let size = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::with_capacity(BYTES_MAX, file);
    if reader.fill_buf().map_err(failed)?.iter().take(SNIFFED).any(|byte| *byte == 0) {
        let shown = &place.shown;
        return Err(ToolError::new(format!(
            "{shown} is a binary file ({size} bytes), not text; look at it with a shell command such as `file` or `xxd`"
        )));
    }
    let mut piece = Piece { size, ..Piece::default() };
    let mut line = Line::default();
    loop {
        go_on(stop)?;
        if piece.is_full(call) && size > COUNTED_MAX {
            piece.counted = false;
            break;
        }
        if !line.read(&mut reader).map_err(failed)? {
            break;
        }
        piece.offer(&line, call);
    }
    if call.offset > 1 && piece.lines < call.offset {
        let (shown, lines) = (&place.shown, piece.lines);
        let offset = call.offset;
        return Err(ToolError::invalid(format!("`offset` {offset} is behind the end: {shown} has {lines} lines")));
    }
    Ok(ToolOutput::text(piece.told(call)))
}

/// One line: its start, which is all that may be shown of it, and its whole length.
#[derive(Default)]
struct Line {
    start: Vec<u8>,
    length: u64,
}

impl Line {
    /// Reads the next line whole, line break included. False at the end.
    fn read(&mut self, reader: &mut impl BufRead) -> io::Result<bool> {
        self.start.clear();
        self.length = 0;
        loop {
            let buffered = reader.fill_buf()?;
            let end = buffered.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let piece = &buffered[..end.unwrap_or(buffered.len())];
            let room = BYTES_MAX - self.start.len();
            self.start.extend_from_slice(&piece[..piece.len().min(room)]);
            self.length += piece.len() as u64;
            let read = piece.len();
            reader.consume(read);
            if end.is_some() || read == 0 {
                return Ok(self.length > 0);
            }
        }
    }

    /// Whether only a part of it may be shown.
    fn is_overlong(&self) -> bool {
        self.length > self.start.len() as u64
    }
}

/// The lines that are shown, and what is to be said about the others.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Size of the file.
    size: u64,
    /// Lines met, shown or not.
    lines: u64,
    /// Lines shown.
    shown: u64,
    /// Whether no more may be shown, though there is more.
    closed: bool,
    /// The whole length of the only line shown, when it did not fit.
    overlong: Option<u64>,
    /// Whether `lines` are all of the file.
    counted: bool,
}

impl Piece {
    fn offer(&mut self, line: &Line, call: &Call) {
        self.lines += 1;
        self.counted = true;
        if self.lines < call.offset || self.is_full(call) {
            return;
        }
        if self.bytes.len() + line.start.len() > BYTES_MAX || (line.is_overlong() && self.shown > 0) {
            self.closed = true;
            return;
        }
        self.bytes.extend_from_slice(&line.start);
        self.shown += 1;
        if line.is_overlong() {
            self.overlong = Some(line.length);
            self.closed = true;
        }
    }

    fn is_full(&self, call: &Call) -> bool {
        self.closed || self.shown == call.limit
    }

    fn told(&self, call: &Call) -> String {
        if self.lines == 0 {
            return "[the file is empty]".into();
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let is_lossy = matches!(text, std::borrow::Cow::Owned(_));
        // Some servers refuse zero characters.
        let mut text = text.replace('\0', "\u{fffd}");
        let mut notes = Vec::new();
        if is_lossy {
            notes.push("[some bytes are not UTF-8 and shown as \u{fffd}]".to_owned());
        }
        let next = call.offset + self.shown;
        if let Some(length) = self.overlong {
            let line = call.offset;
            notes.push(format!(
                "[line {line} has {length} bytes; only its first {BYTES_MAX} are shown, get the rest with a shell command such as `cut -c`]"
            ));
        }
        if !self.counted {
            notes.push(format!("[the file has {} bytes; go on with offset {next} if there is more]", self.size));
        } else if next <= self.lines {
            notes.push(format!("[lines {} to {} of {}; go on with offset {next}]", call.offset, next - 1, self.lines));
        }
        if !notes.is_empty() {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&notes.join("\n"));
        }
        text
    }
}
