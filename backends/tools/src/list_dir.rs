//! The tool `list_dir`: what is in folders, with sizes, and sums that hold for all of it.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, schema};
use crate::blocking::{blocking, go_on};
use crate::folder::{Folder, Kind, escaped, open_found};
use crate::smallest::Smallest;
use crate::walk::{Depth, Found, Starts, Unreadable, walk};

const ENTRIES_DEFAULT: u64 = 500;
const ENTRIES_MAX: u64 = 5_000;
const LARGEST: usize = 5;

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "list_dir",
        "Lists files and folders in the working folder, sorted by path, hidden ones included; .git and what \
         .gitignore excludes are left out, links are shown but not followed. The last line gives the totals of all of \
         it, also when the list was cut. With count_lines it also counts lines and names the largest files: the way \
         to measure a whole tree in one call is recursive and count_lines with a small max_entries.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The folder, relative to the working folder. Default \".\"."},
                "paths": {"type": "array", "items": {"type": "string"}, "description": "Several files or folders, instead of path."},
                "recursive": {"type": "boolean", "description": "Everything below, not just what is directly there. Default false."},
                "count_lines": {"type": "boolean", "description": "Count the lines of each file, as wc -l does. Default false."},
                "max_entries": {"type": "integer", "minimum": 1, "maximum": ENTRIES_MAX, "description": "How many entries to show at most; the totals are of all. Default 500."},
            },
            "additionalProperties": false,
        }),
    )
});

/// Lists what is in folders.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListDir;

impl Tool for ListDir {
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
            blocking(&ctx.cancel, move |stop| list(&ctx.dir, &call, stop)).await
        })
    }
}

struct Call {
    starts: Starts,
    depth: Depth,
    lines: Lines,
    entries_max: usize,
}

/// Whether lines are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lines {
    Counted,
    Uncounted,
}

impl Call {
    fn parse(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::parse(input)?;
        let starts = Starts::parse(&mut arguments)?;
        let recursive = arguments.optional_flag("recursive")?.unwrap_or(false);
        let count_lines = arguments.optional_flag("count_lines")?.unwrap_or(false);
        let entries_max = arguments.optional_count("max_entries")?.unwrap_or(ENTRIES_DEFAULT).min(ENTRIES_MAX) as usize;
        arguments.finish()?;
        Ok(Self {
            starts,
            depth: if recursive { Depth::All } else { Depth::Direct },
            lines: if count_lines { Lines::Counted } else { Lines::Uncounted },
            entries_max,
        })
    }
}

/// One line of the list. Compared by path, which comes first.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Entry {
    path: String,
    what: What,
}

#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum What {
    File { bytes: u64, lines: Option<u64> },
    Folder,
    Link { target: String },
    Special,
}

/// What holds for everything met, shown or not.
#[derive(Default)]
struct Totals {
    files: u64,
    lines: u64,
    bytes: u64,
    folders: u64,
    entries: u64,
}

fn list(dir: &Path, call: &Call, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let folder = Folder::new(dir);
    let starts = call.starts.locate(&folder)?;
    let mut unreadable = Unreadable::default();
    let mut totals = Totals::default();
    let mut entries = Smallest::new(call.entries_max);
    let mut largest = Smallest::new(LARGEST);
    let mut buffer = vec![0; 64 * 1024];
    walk(&folder, starts, call.depth, stop, &mut unreadable, |found, unreadable| {
        let what = look(&found, call.lines, &mut buffer, stop, unreadable)?;
        totals.add(&what);
        if let What::File { bytes, lines: Some(lines) } = what {
            largest.offer((Reverse(bytes), found.shown.clone(), lines));
        }
        entries.offer(Entry { path: found.shown, what });
        Ok(())
    })?;
    let entries = entries.into_sorted();
    let mut text: Vec<String> = entries.iter().map(Entry::line).collect();
    if (entries.len() as u64) < totals.entries {
        let (shown, all) = (entries.len(), totals.entries);
        text.push(format!(
            "[cut: the first {shown} of {all} entries are shown; the totals are of all; narrow the path or raise max_entries]"
        ));
    }
    text.extend(unreadable.line());
    let largest = largest.into_sorted();
    text.extend(largest.iter().map(|(bytes, path, lines)| format!("largest: {path} {} bytes {lines} lines", bytes.0)));
    text.push(totals.line(call.lines));
    let meta = json!({
        "entries": entries.iter().map(Entry::meta).collect::<Vec<_>>(),
        "files": totals.files,
        "bytes": totals.bytes,
        "folders": totals.folders,
        "lines": (call.lines == Lines::Counted).then_some(totals.lines),
    });
    Ok(ToolOutput { meta: Some(meta), ..ToolOutput::text(text.join("\n")) })
}

/// Looks at one thing, and into it if its lines are to be counted. What cannot be read still counts as a file.
fn look(
    found: &Found,
    lines: Lines,
    buffer: &mut [u8],
    stop: &CancellationToken,
    unreadable: &mut Unreadable,
) -> Result<What, ToolError> {
    let mut failed = |cause: io::Error| unreadable.add(|| format!("{}: {cause}", found.shown));
    Ok(match (found.kind, lines) {
        (Kind::Folder, _) => What::Folder,
        (Kind::Link, _) => {
            let target = fs::read_link(&found.path).map_err(&mut failed).unwrap_or_default();
            What::Link { target: escaped(&target.to_string_lossy()) }
        }
        (Kind::Special | Kind::Missing, _) => What::Special,
        (Kind::File, Lines::Uncounted) => {
            let bytes = fs::symlink_metadata(&found.path).map_or_else(
                |cause| {
                    failed(cause);
                    0
                },
                |metadata| metadata.len(),
            );
            What::File { bytes, lines: None }
        }
        (Kind::File, Lines::Counted) => match count(&found.path, buffer, stop)? {
            Ok((bytes, lines)) => What::File { bytes, lines: Some(lines) },
            Err(cause) => {
                failed(cause);
                let bytes = fs::symlink_metadata(&found.path).map_or(0, |metadata| metadata.len());
                What::File { bytes, lines: None }
            }
        },
    })
}

/// Bytes and line breaks of a file, read piece by piece.
fn count(path: &Path, buffer: &mut [u8], stop: &CancellationToken) -> Result<io::Result<(u64, u64)>, ToolError> {
    let mut file = match open_found(path) {
        Ok(file) => file,
        Err(cause) => return Ok(Err(cause)),
    };
    let (mut bytes, mut lines) = (0, 0);
    loop {
        go_on(stop)?;
        match file.read(buffer) {
            Ok(0) => return Ok(Ok((bytes, lines))),
            Ok(read) => {
                bytes += read as u64;
                lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Ok(Err(cause)),
        }
    }
}

impl Entry {
    fn line(&self) -> String {
        let path = &self.path;
        match &self.what {
            What::File { bytes, lines: Some(lines) } => format!("{path}  {lines} lines  {bytes} bytes"),
            What::File { bytes, lines: None } => format!("{path}  {bytes} bytes"),
            What::Folder => format!("{path}/"),
            What::Link { target } => format!("{path} -> {target}"),
            What::Special => format!("{path}  (special file)"),
        }
    }

    fn meta(&self) -> Value {
        let path = &self.path;
        match &self.what {
            What::File { bytes, lines: Some(lines) } => {
                json!({"path": path, "kind": "file", "bytes": bytes, "lines": lines})
            }
            What::File { bytes, lines: None } => json!({"path": path, "kind": "file", "bytes": bytes}),
            What::Folder => json!({"path": path, "kind": "folder"}),
            What::Link { target } => json!({"path": path, "kind": "link", "target": target}),
            What::Special => json!({"path": path, "kind": "special"}),
        }
    }
}

impl Totals {
    fn add(&mut self, what: &What) {
        self.entries += 1;
        match what {
            What::File { bytes, lines } => {
                self.files += 1;
                self.bytes += bytes;
                self.lines += lines.unwrap_or(0);
            }
            What::Folder => self.folders += 1,
            What::Link { .. } | What::Special => {}
        }
    }

    /// Lines that nobody counted are not told as 0.
    fn line(&self, counted: Lines) -> String {
        let Self { files, lines, bytes, folders, .. } = self;
        match counted {
            Lines::Counted => format!("total: {files} files, {lines} lines, {bytes} bytes, {folders} folders"),
            Lines::Uncounted => format!("total: {files} files, {bytes} bytes, {folders} folders"),
        }
    }
}
