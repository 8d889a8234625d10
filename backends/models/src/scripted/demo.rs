//! The script of `impresario demo`: a lead that delegates over a real folder, and its subagents.
//!
//! Only the model is scripted. Every figure in the report was read from results of real tools that are in the request;
//! where a result is missing, the report says so.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Answer;
use super::view::{Answered, View};

/// What is looked for.
const PATTERN: &str = "TODO|FIXME";

/// The least and the most subagents that the parts of a folder are given to.
const PARTS: std::ops::RangeInclusive<usize> = 3..=12;

/// The most files that parts name one by one.
const FILES_NAMED: usize = 200;

/// How a listing says that there is more than it could read.
const UNREADABLE: &str = "unreadable: ";

/// How many comments a part and the report list.
const TODOS_SHOWN: usize = 20;

/// What is looked for in the whole folder when it has too few parts.
const ASPECTS: [&str; 3] = ["todo-comments", "largest-files", "overview"];

/// How many of the largest files the report lists.
const LARGEST_SHOWN: usize = 5;

/// Between 150 and 400 ms, the same for the same agent and step.
pub(super) fn latency(view: &View<'_>) -> Duration {
    let scope = view.scope();
    let seed = scope
        .path
        .as_str()
        .bytes()
        .fold(u64::from(scope.step), |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Duration::from_millis(150 + seed % 250)
}

pub(super) fn answer(view: &View<'_>) -> Answer {
    match view.last_with("DEMO-TASK ") {
        Some((at, text)) => match task(&text) {
            Some(Task::Part(part)) => look_at_part(&part, &view.answered(at)),
            Some(Task::Check) => check(view, at),
            None => Answer::text("I cannot read my task."),
        },
        None => lead(view),
    }
}

/// A part of the folder.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    label: String,
    paths: Vec<String>,
    recursive: bool,
    /// It looks at the whole folder for one thing; its figures are not added up.
    is_aspect: bool,
}

enum Task {
    Part(Part),
    Check,
}

impl Part {
    fn prompt(&self) -> String {
        let what = if self.is_aspect {
            "Look at the whole folder, apart from the others' parts.".to_owned()
        } else {
            format!("Your part of the folder: {}.", shown(&self.paths))
        };
        let task = json!({
            "label": self.label, "paths": self.paths, "recursive": self.recursive, "aspect": self.is_aspect,
        });
        format!(
            "{what} Count its files, lines and bytes, list its TODO and FIXME comments with file and line, and name \
             its largest files. Report figures that you read from your tools.\nDEMO-TASK {task}"
        )
    }
}

fn shown(paths: &[String]) -> String {
    let first = paths.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    if paths.len() > 4 { format!("{first} and {} more", paths.len() - 4) } else { first }
}

fn task(text: &str) -> Option<Task> {
    let line = text.lines().find_map(|line| line.strip_prefix("DEMO-TASK "))?;
    let task: Value = serde_json::from_str(line).ok()?;
    if task["check"] == true {
        return Some(Task::Check);
    }
    let strings = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(|path| path.as_str().map(str::to_owned)).collect()
    };
    Some(Task::Part(Part {
        label: task["label"].as_str()?.to_owned(),
        paths: strings(&task["paths"]),
        recursive: task["recursive"] == true,
        is_aspect: task["aspect"] == true,
    }))
}

fn call(tool: &str, arguments: Value) -> (String, String) {
    (tool.to_owned(), arguments.to_string())
}

// The lead.

fn lead(view: &View<'_>) -> Answer {
    let at = view.prompt().map_or(0, |(at, _)| at);
    let answered = view.answered(at);
    let subagents: Vec<&Answered<'_>> = answered.iter().filter(|answered| answered.tool == "subagent").collect();
    let is_check = |answered: &&&Answered<'_>| {
        serde_json::from_str::<Value>(answered.arguments).is_ok_and(|arguments| arguments["context"] == "fork")
    };
    let (checks, parts): (Vec<&Answered<'_>>, Vec<&Answered<'_>>) =
        subagents.iter().partition(|answered| is_check(answered));
    if let Some(missing) = ["list_dir", "search", "todo_write", "subagent"].iter().find(|tool| !view.offers(tool)) {
        return Answer::text(format!("This demonstration needs the tool {missing}, which I may not use here."));
    }
    let Some(listing) = answered.iter().find(|answered| answered.tool == "list_dir") else {
        let arguments = json!({"path": ".", "recursive": false, "max_entries": 5000});
        return Answer::calls("I look at the folder first.", vec![call("list_dir", arguments)]);
    };
    if listing.is_error {
        return Answer::text(format!("I could not look at the folder.\n{}", listing.text));
    }
    if parts.is_empty() {
        return delegate(&split(&listing.text));
    }
    if checks.is_empty() {
        let text = format!("All {} parts are in. A fork of me, with all that I know, checks them.", parts.len());
        return Answer::calls(text, vec![todos(2), check_call()]);
    }
    Answer::text(report(&parts, checks[0]))
}

fn delegate(parts: &[Part]) -> Answer {
    let mut calls = vec![todos(1)];
    calls.extend(parts.iter().map(|part| {
        let description = format!("look at {}", part.label);
        call("subagent", json!({"description": description, "label": part.label, "prompt": part.prompt()}))
    }));
    Answer::calls(format!("I give its {} parts to {} subagents at once.", parts.len(), parts.len()), calls)
}

/// The plan, with everything before `current` done.
fn todos(current: usize) -> (String, String) {
    let steps = ["Look at the folder", "Give each part to a subagent", "Have a fork check the findings", "Report"];
    let status = |at: usize| match at.cmp(&current) {
        std::cmp::Ordering::Less => "completed",
        std::cmp::Ordering::Equal => "in_progress",
        std::cmp::Ordering::Greater => "pending",
    };
    let items: Vec<Value> =
        steps.iter().enumerate().map(|(at, step)| json!({"content": step, "status": status(at)})).collect();
    call("todo_write", json!({"todos": items}))
}

fn check_call() -> (String, String) {
    let prompt = format!(
        "Check the findings of the others, which you have seen: count the whole folder yourself and compare the sums.\n\
         DEMO-TASK {}",
        json!({"check": true})
    );
    call(
        "subagent",
        json!({"description": "check the findings", "label": "check", "context": "fork", "prompt": prompt}),
    )
}

/// Cuts a folder into parts: one for each folder in it, one for the files directly in it; joined when there are too
/// many, split or joined by aspects when there are too few.
fn split(listing: &str) -> Vec<Part> {
    let (mut folders, mut files) = (vec![], vec![]);
    let is_cut = listing.lines().any(|line| line.starts_with("[cut: "));
    for line in listing.lines().filter(|line| !line.starts_with("total: ") && !line.starts_with("largest: ")) {
        // A line of the listing: `name/`, `name  N bytes` or `name -> target`, which is not followed.
        if let Some(folder) = line.strip_suffix('/') {
            folders.push(folder.to_owned());
        } else if let Some((file, _)) = line.rsplit_once("  ").filter(|(_, size)| size.ends_with(" bytes")) {
            files.push(file.to_owned());
        }
    }
    // A name that a line cannot show as it is cannot be asked for either: its folder is looked at as a whole.
    let is_odd = |names: &[String]| names.iter().any(|name| name.contains(['\\', '\u{fffd}']));
    if is_odd(&folders) {
        return Vec::from(ASPECTS.map(aspect));
    }
    let reserved = usize::from(!files.is_empty());
    let mut parts = grouped(&folders, *PARTS.end() - reserved, true);
    let wanted = PARTS.start().saturating_sub(parts.len()).max(1);
    if !files.is_empty() && (wanted == 1 || is_cut || files.len() > FILES_NAMED || is_odd(&files)) {
        parts.push(Part { label: "files".into(), paths: vec![".".into()], recursive: false, is_aspect: false });
    } else if !files.is_empty() {
        parts.extend(grouped(&files, wanted, false));
    }
    let missing = PARTS.start().saturating_sub(parts.len());
    parts.extend(ASPECTS.into_iter().take(missing).map(aspect));
    parts
}

/// The whole folder, looked at for one thing.
fn aspect(label: &str) -> Part {
    Part { label: label.into(), paths: vec![".".into()], recursive: true, is_aspect: true }
}

/// At most `most` parts of neighbours, as equal in number as they can be.
fn grouped(names: &[String], most: usize, are_folders: bool) -> Vec<Part> {
    let count = most.min(names.len()).max(1);
    let (each, more) = (names.len() / count, names.len() % count);
    let mut rest = names;
    let mut parts = vec![];
    for at in 0..count.min(names.len()) {
        let (paths, behind) = rest.split_at(each + usize::from(at < more));
        rest = behind;
        let label = match (are_folders, paths) {
            (true, [folder]) => folder.clone(),
            (true, _) => format!("{}-and-{}-more", paths[0], paths.len() - 1),
            (false, _) => format!("files-{}", at + 1),
        };
        parts.push(Part { label, paths: paths.to_vec(), recursive: are_folders, is_aspect: false });
    }
    parts
}

// A subagent with a part.

fn look_at_part(part: &Part, answered: &[Answered<'_>]) -> Answer {
    let find = |tool: &str| answered.iter().find(|answered| answered.tool == tool);
    let (Some(listing), Some(search)) = (find("list_dir"), find("search")) else {
        let (paths, recursive) = (&part.paths, part.recursive);
        let list = json!({"paths": paths, "recursive": recursive, "count_lines": true, "max_entries": 20});
        let search = json!({"pattern": PATTERN, "paths": paths, "recursive": recursive, "max_matches": 200});
        let text = format!("I count {} and search it.", shown(paths));
        return Answer::calls(text, vec![call("list_dir", list), call("search", search)]);
    };
    if let Some(failed) = [listing, search].iter().find(|answered| answered.is_error) {
        return Answer::text(format!("I could not look at {}.\n{}", shown(&part.paths), failed.text));
    }
    let (Some(total), Some(matches)) = (Total::of(&listing.text), matches(&search.text)) else {
        return Answer::text(format!("I could not read what my tools said about {}.", shown(&part.paths)));
    };
    let todos = todo_lines(&search.text).into_iter().take(TODOS_SHOWN).map(|line| format!("todo {line}"));
    let largest = listing.text.lines().filter_map(|line| line.strip_prefix("largest: "));
    let largest = largest.map(|line| format!("largest {line}"));
    let unread = listing.text.lines().filter(|line| line.starts_with(UNREADABLE)).map(str::to_owned);
    let lines: Vec<String> = total.lines(matches).into_iter().chain(todos).chain(largest).chain(unread).collect();
    Answer::text(lines.join("\n"))
}

/// Figures of a part or of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    files: u64,
    lines: u64,
    bytes: u64,
}

impl Total {
    /// From the last line of a listing: `total: 3 files, 40 lines, 1200 bytes, 1 folders`.
    fn of(listing: &str) -> Option<Self> {
        let line = listing.lines().rev().find_map(|line| line.strip_prefix("total: "))?;
        Some(Self { files: figure(line, "files")?, lines: figure(line, "lines")?, bytes: figure(line, "bytes")? })
    }

    fn lines(self, todos: u64) -> Vec<String> {
        vec![
            format!("files: {}", self.files),
            format!("lines: {}", self.lines),
            format!("bytes: {}", self.bytes),
            format!("todo_fixme: {todos}"),
        ]
    }
}

/// The number before a word: `3 files`, `1 file`.
fn figure(line: &str, word: &str) -> Option<u64> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    line.split(", ").find_map(|part| {
        let (number, unit) = part.split_once(' ')?;
        (unit == word || unit == singular).then(|| number.replace(',', "").parse().ok()).flatten()
    })
}

/// From the last line of a search: `total: 4 matching lines in 2 files`.
fn matches(search: &str) -> Option<u64> {
    let line = search.lines().rev().find_map(|line| line.strip_prefix("total: "))?;
    line.split(' ').next()?.parse().ok()
}

fn todo_lines(search: &str) -> Vec<String> {
    search.lines().filter(|line| is_hit(line)).map(str::to_owned).collect()
}

/// `path:line:text`; a path may contain colons.
fn is_hit(line: &str) -> bool {
    let parts: Vec<&str> = line.split(':').collect();
    parts.len() > 2 && parts[1..parts.len() - 1].iter().any(|part| part.parse::<u64>().is_ok())
}

// The fork that checks.

fn check(view: &View<'_>, at: usize) -> Answer {
    let answered = view.answered(at);
    let find = |tool: &str| answered.iter().find(|answered| answered.tool == tool);
    let (Some(listing), Some(search)) = (find("list_dir"), find("search")) else {
        let list = json!({"path": ".", "recursive": true, "count_lines": true, "max_entries": 1});
        let search = json!({"pattern": PATTERN, "path": ".", "max_matches": 1});
        return Answer::calls("I count everything once more.", vec![call("list_dir", list), call("search", search)]);
    };
    let (Some(total), Some(todos)) = (Total::of(&listing.text), matches(&search.text)) else {
        return Answer::text("not checked: my own count failed.");
    };
    // What the lead saw is what its fork sees.
    let parts = view.answered(0);
    let parts: Vec<&Answered<'_>> = parts.iter().filter(|answered| answered.tool == "subagent").collect();
    let sums = Sums::of(&parts);
    let theirs = (sums.total.files, sums.total.lines, sums.total.bytes, sums.todos);
    let ours = (total.files, total.lines, total.bytes, todos);
    if sums.added == 0 {
        return Answer::text(format!(
            "checked: files {}, lines {}, todo_fixme {} (no part to compare)",
            ours.0, ours.1, ours.3
        ));
    }
    if theirs == ours {
        return Answer::text(format!(
            "checked: sums agree (files {}, lines {}, todo_fixme {})",
            ours.0, ours.1, ours.3
        ));
    }
    Answer::text(format!(
        "checked: sums differ: the parts have files {}, lines {}, bytes {}, todo_fixme {}; the whole has files {}, \
         lines {}, bytes {}, todo_fixme {} (the folder may have changed meanwhile)",
        theirs.0, theirs.1, theirs.2, theirs.3, ours.0, ours.1, ours.2, ours.3
    ))
}

/// What the parts found, added up.
#[derive(Default)]
struct Sums {
    total: Total,
    todos: u64,
    /// How many parts are in the sums.
    added: usize,
    /// Figures of an aspect: of the whole folder.
    whole: Option<(Total, u64)>,
    hits: Vec<String>,
    largest: Vec<(u64, String)>,
    rows: Vec<String>,
    failed: Vec<String>,
    /// What tools could not read.
    unread: Vec<String>,
}

impl Sums {
    fn of(parts: &[&Answered<'_>]) -> Self {
        let mut sums = Self::default();
        for answered in parts {
            let arguments: Value = serde_json::from_str(answered.arguments).unwrap_or_default();
            if arguments["context"] == "fork" {
                continue;
            }
            let label = arguments["label"].as_str().unwrap_or("?").to_owned();
            let part = arguments["prompt"].as_str().and_then(task);
            let is_aspect = matches!(part, Some(Task::Part(Part { is_aspect: true, .. })));
            sums.take(&label, answered, is_aspect);
        }
        sums.hits.sort();
        sums.hits.dedup();
        sums.largest.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        sums.largest.dedup();
        sums
    }

    fn take(&mut self, label: &str, answered: &Answered<'_>, is_aspect: bool) {
        let figures: BTreeMap<&str, u64> = answered
            .text
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter_map(|(key, value)| Some((key, value.parse().ok()?)))
            .collect();
        let figure = |key: &str| figures.get(key).copied();
        let read = (figure("files"), figure("lines"), figure("bytes"), figure("todo_fixme"));
        let (Some(files), Some(lines), Some(bytes), Some(todos)) = read else {
            let why = answered.text.lines().take(2).collect::<Vec<_>>().join(" ");
            return self.failed.push(format!("{label}: {why}"));
        };
        self.hits.extend(answered.text.lines().filter_map(|line| line.strip_prefix("todo ")).map(str::to_owned));
        self.largest.extend(answered.text.lines().filter_map(|line| line.strip_prefix("largest ")).filter_map(sized));
        let unread = answered.text.lines().filter_map(|line| line.strip_prefix(UNREADABLE));
        self.unread.extend(unread.map(|line| format!("{label}: {line}")));
        if is_aspect {
            self.whole = Some((Total { files, lines, bytes }, todos));
            self.rows.push(format!("  {label}: the whole folder"));
            return;
        }
        self.total.files += files;
        self.total.lines += lines;
        self.total.bytes += bytes;
        self.todos += todos;
        self.added += 1;
        self.rows.push(format!("  {label}: {files} files, {lines} lines, {todos} comments"));
    }
}

/// `path N bytes N lines` with its size.
fn sized(line: &str) -> Option<(u64, String)> {
    let words: Vec<&str> = line.rsplitn(5, ' ').collect();
    let at = words.iter().position(|word| *word == "bytes")?;
    let bytes = words.get(at + 1)?.parse().ok()?;
    Some((bytes, line.to_owned()))
}

// The report.

fn report(parts: &[&Answered<'_>], check: &Answered<'_>) -> String {
    let sums = Sums::of(parts);
    let (total, todos) = match (sums.added, sums.whole) {
        (0, Some(whole)) => whole,
        _ => (sums.total, sums.todos),
    };
    let mut lines = vec![format!("I looked at this folder with {} subagents.", parts.len() + 1), String::new()];
    lines.extend(total.lines(todos));
    lines.push(String::new());
    lines.push("parts:".into());
    lines.extend(sums.rows);
    if !sums.failed.is_empty() {
        lines.push("NOT IN THESE FIGURES, because they failed:".into());
        lines.extend(sums.failed.iter().map(|failed| format!("  {failed}")));
    }
    if !sums.unread.is_empty() {
        lines.push("COULD NOT BE READ, so their lines and comments are not counted:".into());
        lines.extend(sums.unread.iter().map(|unread| format!("  {unread}")));
    }
    lines.push(String::new());
    lines.push("TODO and FIXME comments:".into());
    let hits = sums.hits.len();
    lines.extend(sums.hits.into_iter().take(TODOS_SHOWN).map(|hit| format!("  {hit}")));
    let shown = u64::try_from(hits.min(TODOS_SHOWN)).unwrap_or(u64::MAX);
    match todos.saturating_sub(shown) {
        0 if todos == 0 => lines.push("  none".into()),
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    lines.push(String::new());
    lines.push("largest files:".into());
    lines.extend(sums.largest.into_iter().take(LARGEST_SHOWN).map(|(_, line)| format!("  {line}")));
    lines.push(String::new());
    lines.push(check_line(check));
    lines.push(
        "The same figures from a shell: find . -type f | wc -l; find . -type f -exec cat {} + | wc -l; \
         grep -rnIE 'TODO|FIXME' . | wc -l. What .git holds and .gitignore excludes is not counted."
            .into(),
    );
    lines.join("\n")
}

fn check_line(check: &Answered<'_>) -> String {
    let found = check.text.lines().find(|line| line.starts_with("checked: "));
    match found {
        Some(line) => format!("check: {}", line.trim_start_matches("checked: ")),
        None => format!("check: failed. {}", check.text.lines().take(2).collect::<Vec<_>>().join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use impresario_kernel::{AgentPath, Block, Message, RequestHeader, Role, Source};
    use impresario_seams::{ModelRequest, ModelScope};

    use super::*;

    /// A folder of `folder/file` or `file` names; each file has 2 lines, 10 bytes and one TODO.
    const FOLDER: [&str; 6] = ["README", "fork/a", "fork/b", "lib/c", "lib/d", "src/e"];

    /// Plays an agent with tools that read [`FOLDER`], and its subagents; the one labelled `failing` fails.
    fn play(mut messages: Vec<Message>, failing: &str) -> String {
        let header = Arc::new(RequestHeader::new("scripted", "demo"));
        for step in 1..9 {
            let scope = ModelScope { agent: "a".into(), path: AgentPath::root(), turn: 1, step, attempt: 0 };
            let surface = messages.iter().cloned().map(Arc::new).collect();
            let request = ModelRequest { header: header.clone(), messages: surface, scope };
            let said = answer(&View::new(&request));
            if said.calls.is_empty() {
                return said.text;
            }
            let before = messages.clone();
            let depth = messages.len();
            let call = |at: usize| format!("c{depth}-{at}").into();
            let asked = said.calls.iter().enumerate().map(|(at, (name, arguments))| Block::ToolCall {
                id: call(at),
                name: name.as_str().into(),
                arguments: arguments.as_str().into(),
            });
            let (role, source) = (Role::Assistant, Source::of("model"));
            messages.push(Message { id: format!("m{depth}").into(), role, content: asked.collect(), source });
            for (at, (name, arguments)) in said.calls.iter().enumerate() {
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                let (text, is_error) = perform(name, &arguments, &before, failing);
                let result =
                    Message::tool_result(format!("r{depth}-{at}"), &call(at), vec![Block::text(text)], is_error);
                messages.push(result);
            }
        }
        panic!("it does not come to an end");
    }

    fn perform(tool: &str, arguments: &Value, before: &[Message], failing: &str) -> (String, bool) {
        let paths: Vec<&str> = match arguments["paths"].as_array() {
            Some(paths) => paths.iter().filter_map(Value::as_str).collect(),
            None => vec!["."],
        };
        let recursive = arguments["recursive"].as_bool().unwrap_or(tool == "search");
        let is_in = |file: &&&str| {
            paths.iter().any(|path| match *path {
                "." => recursive || !file.contains('/'),
                path => **file == path || file.starts_with(&format!("{path}/")),
            })
        };
        let files: Vec<&&str> = FOLDER.iter().filter(is_in).collect();
        let count = files.len();
        match tool {
            "list_dir" if arguments["count_lines"] == true => {
                let largest: String =
                    files.iter().take(2).map(|file| format!("largest: {file} 10 bytes 2 lines\n")).collect();
                (format!("{largest}total: {count} files, {} lines, {} bytes, 0 folders", count * 2, count * 10), false)
            }
            "list_dir" => ("README  10 bytes\nfork/\nlib/\nsrc/\ntotal: 1 files, 10 bytes, 3 folders".into(), false),
            "search" => {
                let hits: String = files.iter().map(|file| format!("{file}:1:TODO: it\n")).collect();
                (format!("{hits}total: {count} matching lines in {count} files"), false)
            }
            "subagent" => {
                let (label, prompt) = (arguments["label"].as_str().unwrap(), arguments["prompt"].as_str().unwrap());
                if label == failing {
                    return (format!("[root/{label} failed · agent x]\nSERVER: down"), true);
                }
                let mut messages = if arguments["context"] == "fork" { before.to_vec() } else { vec![] };
                messages.push(Message::context("task", prompt, Source::of("coordinator")));
                (format!("[root/{label} completed · agent x]\n{}", play(messages, failing)), false)
            }
            _ => ("ok".into(), false),
        }
    }

    #[test]
    fn the_report_has_the_sums_of_all_parts_and_a_fork_that_checked_them() {
        let report = play(vec![Message::user("p", "look")], "nobody");
        for line in ["files: 6", "lines: 12", "bytes: 60", "todo_fixme: 6", "  fork: 2 files, 4 lines, 2 comments"] {
            assert!(report.lines().any(|other| other == line), "no `{line}` in\n{report}");
        }
        assert!(report.contains("check: sums agree (files 6, lines 12, todo_fixme 6)"), "{report}");
        assert!(report.contains("  lib/d:1:TODO: it") && !report.contains("NOT IN THESE FIGURES"), "{report}");
    }

    #[test]
    fn a_part_that_failed_is_named_and_missing_in_the_sums() {
        let report = play(vec![Message::user("p", "look")], "lib");
        assert!(report.lines().any(|line| line == "files: 4"), "{report}");
        assert!(report.contains("NOT IN THESE FIGURES") && report.contains("lib: [root/lib failed"), "{report}");
        assert!(report.contains("check: sums differ"), "{report}");
    }

    fn listing(folders: usize, files: usize) -> String {
        let mut lines: Vec<String> = (0..folders).map(|n| format!("folder{n}/")).collect();
        lines.extend((0..files).map(|n| format!("file {n}.txt  {n} bytes")));
        lines.push("link -> elsewhere".into());
        lines.push(format!("total: {files} files, 0 bytes, {folders} folders"));
        lines.join("\n")
    }

    #[test]
    fn any_folder_has_three_to_twelve_parts_that_cover_it_once() {
        for (folders, files) in
            [(0, 0), (0, 1), (0, 9), (1, 0), (1, 4), (2, 0), (3, 1), (11, 1), (12, 0), (12, 5), (90, 7), (0, 900)]
        {
            let parts = split(&listing(folders, files));
            assert!(PARTS.contains(&parts.len()), "{folders} folders, {files} files: {} parts", parts.len());
            let covered: usize = parts
                .iter()
                .filter(|part| !part.is_aspect)
                .map(|part| if part.paths == ["."] { files } else { part.paths.len() })
                .sum();
            assert_eq!(covered, folders + files, "{folders} folders, {files} files");
        }
    }

    #[test]
    fn figures_are_read_from_what_the_tools_print() {
        let total = Total::of("a  1 lines  2 bytes\ntotal: 3 files, 40 lines, 1200 bytes, 1 folders").unwrap();
        assert_eq!(total, Total { files: 3, lines: 40, bytes: 1200 });
        assert_eq!(matches("a.rs:3:// TODO\ntotal: 4 matching lines in 2 files"), Some(4));
        assert!(is_hit("a.rs:3:// TODO: x") && !is_hit("total: 4 matching lines"));
        assert_eq!(sized("src/a b.rs 120 bytes 4 lines"), Some((120, "src/a b.rs 120 bytes 4 lines".into())));
    }
}
