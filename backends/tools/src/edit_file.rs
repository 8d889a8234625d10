//! The tool `edit_file`: one exact text of a file replaced by another.

use std::borrow::Cow;
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
use crate::folder::{Folder, fault};

const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// How many lines with matches an error names.
const LINES_NAMED: usize = 10;

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "edit_file",
        "Replaces an exact piece of text in a file in the working folder. `old` must stand there exactly once, with \
         the same spaces and line breaks; give enough of the surrounding text, or set replace_all.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the working folder."},
                "old": {"type": "string", "description": "The text to replace, exactly as it stands in the file."},
                "new": {"type": "string", "description": "What to put there; empty to delete."},
                "replace_all": {"type": "boolean", "description": "Replace every match, not just a single one. Default false."},
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false,
        }),
    )
});

/// Replaces text in a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditFile;

impl Tool for EditFile {
    fn schema(&self) -> Arc<ToolSchema> {
        SCHEMA.clone()
    }

    fn overlap(&self) -> Overlap {
        Overlap::Exclusive
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, input: Value, ctx: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let call = Call::parse(input)?;
            blocking(&ctx.cancel, move |stop| edit(&ctx.dir, &call, stop)).await
        })
    }
}

struct Call {
    path: String,
    old: String,
    new: String,
    replace: Replace,
}

/// Which matches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Replace {
    Only,
    All,
}

impl Call {
    fn parse(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::parse(input)?;
        let path = arguments.string("path")?;
        let old = arguments.string("old")?;
        let new = arguments.string("new")?;
        let replace = if arguments.optional_flag("replace_all")? == Some(true) { Replace::All } else { Replace::Only };
        arguments.finish()?;
        if old.is_empty() {
            return Err(ToolError::invalid(
                "`old` is empty; give the text to replace, or use write_file for a whole file",
            ));
        }
        if old == new {
            return Err(ToolError::invalid("`old` and `new` are the same; nothing would change"));
        }
        Ok(Self { path, old, new, replace })
    }
}

fn edit(dir: &Path, call: &Call, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let folder = Folder::new(dir);
    let place = folder.locate_existing("path", &call.path)?;
    let shown = &place.shown;
    let failed = |cause: io::Error| fault("read", shown, &cause);
    let mut content = Vec::new();
    folder.open(&place)?.take(BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > BYTES_MAX {
        return Err(ToolError::new(format!("{shown} is larger than {BYTES_MAX} bytes; edit it with a shell command")));
    }
    let (old, new) = match breaks_with_carriage_returns(&content) {
        true => (with_carriage_returns(&call.old), with_carriage_returns(&call.new)),
        false => (Cow::Borrowed(call.old.as_str()), Cow::Borrowed(call.new.as_str())),
    };
    let starts = matches(&content, old.as_bytes());
    let lines = lines_of(&content, &starts);
    match (starts.len(), call.replace) {
        (0, _) => return Err(not_found(&content, call, shown)),
        (1, _) | (_, Replace::All) => {}
        (count, Replace::Only) => {
            let lines = named(&lines);
            return Err(ToolError::new(format!(
                "`old` matches {count} times in {shown} ({lines}); give more of the surrounding text so that it \
                 matches once, or set replace_all to true"
            )));
        }
    }
    go_on(stop)?;
    folder.write(&place, &replaced(&content, &starts, old.len(), new.as_bytes()))?;
    Ok(ToolOutput::text(match starts.len() {
        1 => format!("replaced 1 match in {shown} ({})", named(&lines)),
        count => format!("replaced {count} matches in {shown} ({})", named(&lines)),
    }))
}

/// Whether each line of the file ends with CR LF. Models write LF, and the file is to stay as it is.
fn breaks_with_carriage_returns(content: &[u8]) -> bool {
    let mut before = 0;
    let mut breaks = 0;
    for (at, byte) in content.iter().enumerate() {
        if *byte == b'\n' {
            breaks += 1;
            if at == 0 || before != b'\r' {
                return false;
            }
        }
        before = *byte;
    }
    breaks > 0
}

fn with_carriage_returns(text: &str) -> Cow<'_, str> {
    if text.contains('\n') { text.replace("\r\n", "\n").replace('\n', "\r\n").into() } else { text.into() }
}

/// Where `wanted` starts, matches not overlapping.
fn matches(content: &[u8], wanted: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(found) = find(&content[at..], wanted) {
        starts.push(at + found);
        at += found + wanted.len();
    }
    starts
}

/// The first match. Goes from first byte to first byte, which is fast for what is in files.
fn find(content: &[u8], wanted: &[u8]) -> Option<usize> {
    let (first, rest) = wanted.split_first()?;
    let mut at = 0;
    loop {
        at += content[at..].iter().position(|byte| byte == first)?;
        if content[at + 1..].starts_with(rest) {
            return Some(at);
        }
        at += 1;
    }
}

/// The line of each start, from 1.
fn lines_of(content: &[u8], starts: &[usize]) -> Vec<u64> {
    let mut line = 1;
    let mut at = 0;
    let numbers = starts.iter().map(|start| {
        line += content[at..*start].iter().filter(|byte| **byte == b'\n').count() as u64;
        at = *start;
        line
    });
    numbers.collect()
}

fn named(lines: &[u64]) -> String {
    let shown = lines.iter().take(LINES_NAMED).map(u64::to_string).collect::<Vec<_>>().join(", ");
    match lines.len() {
        1 => format!("line {shown}"),
        count if count > LINES_NAMED => format!("lines {shown}, …"),
        _ => format!("lines {shown}"),
    }
}

/// Says what to do, and where something like it stands.
fn not_found(content: &[u8], call: &Call, shown: &str) -> ToolError {
    let mut message = format!(
        "`old` matches 0 times in {shown}; it must be exactly what stands there, spaces and line breaks included: \
         read the file again and copy the text from it"
    );
    let wanted = call.old.lines().map(str::trim).find(|line| !line.is_empty());
    let similar = wanted.map(|wanted| lines_of(content, &matches(content, wanted.as_bytes()))).unwrap_or_default();
    if !similar.is_empty() {
        message.push_str(&format!(" (its first line, without the spaces around it, is in {})", named(&similar)));
    }
    ToolError::new(message)
}

fn replaced(content: &[u8], starts: &[usize], length: usize, new: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(content.len() + starts.len() * new.len());
    let mut at = 0;
    for start in starts {
        result.extend_from_slice(&content[at..*start]);
        result.extend_from_slice(new);
        at = start + length;
    }
    result.extend_from_slice(&content[at..]);
    result
}
