//! The results of a batch: one line for each task that has settled. The file is all that a batch remembers of finished
//! tasks, so it is only ever added to.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::Deserialize;

use crate::failed::Failed;

/// How each line begins: what ends in the middle and does not begin so is not ours to take away.
const HEAD: &str = "{\"v\":1,\"type\":\"agent.ended\",";

/// What an earlier run wrote of a task.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Earlier {
    task: String,
    pub(crate) task_hash: String,
    pub(crate) outcome: String,
    session: Option<String>,
}

/// The file of results, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Results {
    file: File,
    shown: String,
    earlier: HashMap<String, Earlier>,
    sessions: HashSet<String>,
}

impl Results {
    /// Opens or makes the file, for this process alone. A last line that was cut off is taken away.
    pub(crate) fn open(path: &Path) -> Result<Self, Failed> {
        let shown = path.display().to_string();
        let failed = |doing: &str, error: &std::io::Error| Failed::usage(format!("results {shown}: {doing}: {error}"));
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| failed("open", &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failed::usage(format!("results {shown}: another batch writes to it now")));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| failed("read", &error))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            let half = String::from_utf8_lossy(&text[whole..]);
            if !half.starts_with(HEAD) && !HEAD.starts_with(&*half) {
                let why = "its last line is not a result of a batch; name another -o";
                return Err(Failed::usage(format!("results {shown}: {why}")));
            }
            tracing::warn!("{shown}: its last line was cut off, and is taken away; its task runs again");
            file.set_len(whole as u64).map_err(|error| failed("cut off", &error))?;
            file.seek(SeekFrom::End(0)).map_err(|error| failed("seek", &error))?;
        }
        let mut results = Self { file, shown, earlier: HashMap::new(), sessions: HashSet::new() };
        for (at, line) in String::from_utf8_lossy(&text[..whole]).lines().enumerate() {
            results.remember(at + 1, line)?;
        }
        Ok(results)
    }

    fn remember(&mut self, at: usize, line: &str) -> Result<(), Failed> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let earlier: Earlier = serde_json::from_str(line).map_err(|error| {
            let shown = &self.shown;
            Failed::usage(format!("results {shown}, line {at}: not a result of a batch ({error}); name another -o"))
        })?;
        self.sessions.extend(earlier.session.clone());
        self.earlier.insert(earlier.task.clone(), earlier);
        Ok(())
    }

    /// What is known of a task: the last line of its id.
    pub(crate) fn earlier(&self, id: &str) -> Option<&Earlier> {
        self.earlier.get(id)
    }

    /// Whether a session has its line.
    pub(crate) fn has_session(&self, id: &str) -> bool {
        self.sessions.contains(id)
    }

    /// Adds a line, in one write, and waits until it is on the disk.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), Failed> {
        let written = self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Failed::io(format!("write {}", self.shown), &error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn line(task: &str, outcome: &str) -> String {
        let rest =
            serde_json::json!({"task": task, "task_hash": "h", "outcome": outcome, "session": format!("s-{task}")});
        format!("{HEAD}{}", &rest.to_string()[1..])
    }

    #[test]
    fn what_was_written_is_known_again_and_the_last_line_of_an_id_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("r.jsonl");
        let mut results = Results::open(&path).expect("a new file");
        for (task, outcome) in [("a", "failed"), ("b", "completed"), ("a", "completed")] {
            results.add(&line(task, outcome)).expect("a line");
        }
        assert!(Results::open(&path).expect_err("it is held").text.contains("another batch"));
        drop(results);
        // Cut in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
        file.write_all(b"{\"v\":1,\"type\":\"agent.en").expect("half a line");
        let mut results = Results::open(&path).expect("the file");
        assert_eq!(results.earlier("a").map(|earlier| earlier.outcome.as_str()), Some("completed"));
        assert!(results.has_session("s-b") && results.earlier("c").is_none());
        results.add(&line("c", "completed")).expect("a line");
        let text = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(text.lines().count(), 4);
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    }

    #[test]
    fn a_file_of_something_else_is_not_touched() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("letter.txt");
        std::fs::write(&path, "Dear Sir\n").expect("a letter");
        assert!(Results::open(&path).expect_err("it is a letter").text.contains("line 1"));
        assert_eq!(std::fs::read_to_string(&path).expect("the letter"), "Dear Sir\n");
        // A first line without an end, too.
        std::fs::write(&path, "Dear Sir").expect("a letter");
        assert!(Results::open(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("the letter"), "Dear Sir");
    }
}
