//! The tool `search`: lines that match a pattern, in files.

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use impresario_kernel::{Access, ToolSchema};
use impresario_seams::{Overlap, Tool, ToolContext, ToolError, ToolOutput};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, schema};
use crate::blocking::blocking;
use crate::folder::{Folder, Kind, open_found};
use crate::smallest::Smallest;
use crate::walk::{Depth, Found, Starts, Unreadable, walk};

const MATCHES_DEFAULT: u64 = 200;
const MATCHES_MAX: u64 = 2_000;
const TEXT_MAX: usize = 300;
/// The longest line that is searched.
const LINE_MAX: usize = 64 * 1024 * 1024;

static SCHEMA: LazyLock<Arc<ToolSchema>> = LazyLock::new(|| {
    schema(
        "search",
        "Searches the lines of files in the working folder for a regular expression. Gives path:line:text, sorted, and \
         last a line with the totals of all matches, also when the list was cut. Hidden files are searched; binary \
         files, .git and what .gitignore excludes are not.",
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "A regular expression, matched within single lines."},
                "path": {"type": "string", "description": "The file or folder, relative to the working folder. Default \".\"."},
                "paths": {"type": "array", "items": {"type": "string"}, "description": "Several files or folders, instead of path."},
                "glob": {"type": "string", "description": "Only files whose name matches, such as *.rs, or whose path does, such as src/**/*.rs. A ! before it turns it round."},
                "case_insensitive": {"type": "boolean", "description": "Upper and lower case are the same. Default false."},
                "recursive": {"type": "boolean", "description": "Everything below a folder, not just the files directly in it. Default true."},
                "max_matches": {"type": "integer", "minimum": 1, "maximum": MATCHES_MAX, "description": "How many lines to show at most; the totals are of all. Default 200."},
            },
            "required": ["pattern"],
            "additionalProperties": false,
        }),
    )
});

/// Searches in files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search;

impl Tool for Search {
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
            blocking(&ctx.cancel, move |stop| search(&ctx.dir, &call, stop)).await
        })
    }
}

struct Call {
    matcher: RegexMatcher,
    starts: Starts,
    filter: Option<Filter>,
    depth: Depth,
    matches_max: usize,
}

impl Call {
    fn parse(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::parse(input)?;
        let pattern = arguments.string("pattern")?;
        let starts = Starts::parse(&mut arguments)?;
        let filter = arguments.optional_string("glob")?.map(|glob| Filter::new(&glob)).transpose()?;
        let case_insensitive = arguments.optional_flag("case_insensitive")?.unwrap_or(false);
        let recursive = arguments.optional_flag("recursive")?.unwrap_or(true);
        let matches_max = arguments.optional_count("max_matches")?.unwrap_or(MATCHES_DEFAULT).min(MATCHES_MAX) as usize;
        arguments.finish()?;
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(case_insensitive)
            .multi_line(true)
            .line_terminator(Some(b'\n'))
            .build(&pattern)
            .map_err(|cause| ToolError::invalid(format!("`pattern` is not a regular expression for lines: {cause}")))?;
        let depth = if recursive { Depth::All } else { Depth::Direct };
        Ok(Self { matcher, starts, filter, depth, matches_max })
    }
}

/// Which files, by name or, when there is a slash in it, by path.
struct Filter {
    glob: GlobMatcher,
    by_path: bool,
    inverted: bool,
}

impl Filter {
    fn new(given: &str) -> Result<Self, ToolError> {
        let (inverted, glob) = given.strip_prefix('!').map_or((false, given), |rest| (true, rest));
        let by_path = glob.contains('/');
        let anchored = glob.trim_start_matches("./").trim_start_matches('/');
        let glob = GlobBuilder::new(anchored).literal_separator(true).build();
        let glob =
            glob.map_err(|cause| ToolError::invalid(format!("`glob` is not a glob: {cause}")))?.compile_matcher();
        Ok(Self { glob, by_path, inverted })
    }

    fn takes(&self, found: &Found) -> bool {
        let matched = match self.by_path {
            true => self.glob.is_match(&found.shown),
            false => found.path.file_name().is_some_and(|name| self.glob.is_match(name)),
        };
        matched != self.inverted
    }
}

/// One matching line. Compared by path, then line, which come first.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Match {
    path: Arc<str>,
    line: u64,
    text: String,
}

fn search(dir: &Path, call: &Call, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let folder = Folder::new(dir);
    let starts = call.starts.locate(&folder)?;
    let mut unreadable = Unreadable::default();
    let mut kept = Smallest::new(call.matches_max);
    let (mut lines, mut files) = (0, 0);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .bom_sniffing(false)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_MAX))
        .build();
    walk(&folder, starts, call.depth, stop, &mut unreadable, |found, unreadable| {
        let is_wanted = found.named || call.filter.as_ref().is_none_or(|filter| filter.takes(&found));
        if found.kind != Kind::File || !is_wanted {
            return Ok(());
        }
        let mut lines_found = LinesFound::new(&found.shown, call.matches_max, stop);
        let searched =
            open_found(&found.path).and_then(|file| searcher.search_file(&call.matcher, &file, &mut lines_found));
        if stop.is_cancelled() {
            return Err(ToolError::aborted());
        }
        if let Err(cause) = searched {
            unreadable.add(|| format!("{}: {cause}", found.shown));
        }
        if lines_found.count > 0 && !lines_found.is_binary {
            files += 1;
            lines += lines_found.count;
            lines_found.first.into_iter().for_each(|line| kept.offer(line));
        }
        Ok(())
    })?;
    let kept = kept.into_sorted();
    let mut text: Vec<String> = kept.iter().map(|Match { path, line, text }| format!("{path}:{line}:{text}")).collect();
    if (kept.len() as u64) < lines {
        let shown = kept.len();
        text.push(format!(
            "[cut: the first {shown} of {lines} matching lines are shown; narrow pattern, path or glob, or raise max_matches]"
        ));
    }
    text.extend(unreadable.line());
    text.push(format!("total: {lines} matching lines in {files} files"));
    let meta = json!({"matches": lines, "files": files, "shown": kept.len()});
    Ok(ToolOutput { meta: Some(meta), ..ToolOutput::text(text.join("\n")) })
}

/// Takes the matching lines of one file.
struct LinesFound<'a> {
    path: Arc<str>,
    max: usize,
    stop: &'a CancellationToken,
    first: Vec<Match>,
    count: u64,
    /// A file with a zero byte is no text; its lines are dropped, as `grep -I` does.
    is_binary: bool,
}

impl<'a> LinesFound<'a> {
    fn new(path: &str, max: usize, stop: &'a CancellationToken) -> Self {
        Self { path: path.into(), max, stop, first: Vec::new(), count: 0, is_binary: false }
    }
}

impl Sink for LinesFound<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        if self.first.len() < self.max {
            let line = found.line_number().unwrap_or(0);
            self.first.push(Match { path: self.path.clone(), line, text: trimmed(found.bytes()) });
        }
        Ok(!self.stop.is_cancelled())
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }
}

/// A line without its break, cut to what is shown.
fn trimmed(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A few more bytes, so that a character that crosses the bound is not taken for broken.
    let start = String::from_utf8_lossy(&line[..line.len().min(TEXT_MAX + 4)]);
    let mut text = start[..start.floor_char_boundary(TEXT_MAX)].replace('\0', "\u{fffd}");
    if line.len() > TEXT_MAX {
        text.push('…');
    }
    text
}
