//! The file of a recording: read whole, added to line by line. Its form is in the documentation of [`super`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use impresario_kernel::{AgentId, AgentPath, Chunk, Failure};
use serde::{Deserialize, Serialize};

use super::asked::{Asked, Sight};

/// The name of the file in its folder.
pub(super) const NAME: &str = "recording.jsonl";

/// The version that is written.
const VERSION: u32 = 1;

/// A recording that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system said no.
    #[error("recording {}: {doing}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// There is none.
    #[error("recording {}: there is no {NAME} in it", path.display())]
    None {
        /// The folder.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("recording {}: it does not begin as a recording does, but with {found}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// Written by a newer program.
    #[error("recording {}: it has version {found}, and this program knows {VERSION}; upgrade to read it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A line in the middle is not what it must be.
    #[error("recording {}: line {line}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Another process records there.
    #[error("recording {}: another process records there", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// The first line.
#[derive(Debug, Deserialize, Serialize)]
struct Head {
    recording: String,
    version: u32,
}

/// One attempt, as it is written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) agent: AgentId,
    pub(super) path: AgentPath,
    pub(super) turn: u32,
    pub(super) step: u32,
    pub(super) attempt: u32,
    #[serde(default)]
    pub(super) provider: String,
    #[serde(default)]
    pub(super) model: String,
    digest: String,
    kept: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    of: usize,
    pub(super) asked: Vec<Arc<str>>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) end: End,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum End {
    /// It said all.
    Finished,
    /// It failed.
    Failed,
    /// Whoever asked went away.
    Dropped,
}

impl Line {
    /// A line that asks all of `asked` anew.
    pub(super) fn new(who: (AgentId, AgentPath), when: (u32, u32, u32), route: (&str, &str), asked: Asked) -> Self {
        Self {
            agent: who.0,
            path: who.1,
            turn: when.0,
            step: when.1,
            attempt: when.2,
            provider: route.0.into(),
            model: route.1.into(),
            digest: digest(&asked),
            kept: 0,
            of: 0,
            asked: asked.0,
            chunks: vec![],
            end: End::Dropped,
            failure: None,
        }
    }

    /// The same with what came of it.
    pub(super) fn ended(self, chunks: Vec<Chunk>, end: End, failure: Option<Failure>) -> Self {
        Self { chunks, end, failure, ..self }
    }
}

fn digest(asked: &Asked) -> String {
    format!("{:016x}", asked.numbered(Sight::Whole).digest)
}

/// All attempts of a file, each with all that it asked.
pub(super) fn read(folder: &Path) -> Result<Vec<Line>, RecordingError> {
    let path = folder.join(NAME);
    let io = |doing| move |source| RecordingError::Io { path: folder.join(NAME), doing, source };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(RecordingError::None { path: folder.to_owned() });
        }
        opened => opened.map_err(io("open it"))?,
    };
    let mut reader = BufReader::new(file);
    let mut text = vec![];
    reader.read_until(b'\n', &mut text).map_err(io("read it"))?;
    check_head(&path, &text)?;
    let mut lines: Vec<Line> = vec![];
    for number in 2.. {
        text.clear();
        reader.read_until(b'\n', &mut text).map_err(io("read it"))?;
        if text.last() != Some(&b'\n') {
            break;
        }
        let damaged = |what| RecordingError::Damaged { path: path.clone(), line: number, what };
        lines.push(line(&text, &lines).map_err(damaged)?);
    }
    Ok(lines)
}

fn check_head(path: &Path, text: &[u8]) -> Result<(), RecordingError> {
    match serde_json::from_slice::<Head>(text) {
        Ok(head) if head.recording == "impresario" && head.version <= VERSION => Ok(()),
        Ok(head) if head.recording == "impresario" => {
            Err(RecordingError::Newer { path: path.to_owned(), found: head.version })
        }
        Ok(_) | Err(_) => {
            let beginning: String = String::from_utf8_lossy(text).chars().take(60).collect();
            Err(RecordingError::Foreign { path: path.to_owned(), found: format!("{beginning:?}") })
        }
    }
}

/// A line, with what it keeps of an earlier one.
fn line(text: &[u8], before: &[Line]) -> Result<Line, String> {
    let mut line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if line.kept > 0 {
        // The first attempt is in the second line of the file.
        let base = line.of.checked_sub(2).and_then(|at| before.get(at)).and_then(|base| base.asked.get(..line.kept));
        let base =
            base.ok_or_else(|| format!("it keeps {} parts of line {}, where these are not", line.kept, line.of))?;
        line.asked = base.iter().cloned().chain(line.asked).collect();
        (line.kept, line.of) = (0, 0);
    }
    if digest(&Asked(line.asked.clone())) != line.digest {
        return Err("what it asked has another digest than it says".into());
    }
    match (line.end, &line.failure) {
        (End::Failed, None) => Err("it failed, and does not say why".into()),
        _ => Ok(line),
    }
}

/// Adds attempts to a file.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    file: File,
    /// How many lines there are, and how long they are.
    lines: usize,
    length: u64,
    /// What each agent asked last, and in which line.
    last: HashMap<AgentId, (usize, Vec<Arc<str>>)>,
    /// Who wrote the last line: another agent's first request has the same frame.
    previous: Option<AgentId>,
}

impl Writer {
    /// A recording in `folder`, which is made if it is not there. What is recorded there already stays; half a last
    /// line goes.
    pub(super) fn open(folder: &Path) -> Result<Self, RecordingError> {
        let path = folder.join(NAME);
        let io = |doing| move |source| RecordingError::Io { path: folder.join(NAME), doing, source };
        fs::create_dir_all(folder).map_err(io("make its folder"))?;
        let mut options = File::options();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        {
            // Prompts and answers are in it.
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let mut file = options.open(&path).map_err(io("open it"))?;
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => return Err(RecordingError::Busy { path }),
            Err(fs::TryLockError::Error(error)) => return Err(io("lock it")(error)),
            Ok(()) => {}
        }
        let (head, mut lines, mut length) = whole_lines(&file).map_err(io("read it"))?;
        if !head.is_empty() {
            check_head(&path, &head)?;
            file.set_len(length).map_err(io("take half a line from its end"))?;
        }
        if lines == 0 {
            let head = Head { recording: "impresario".into(), version: VERSION };
            (lines, length) = (1, put(&mut file, &head).map_err(io("write it"))?);
        }
        Ok(Self { path, file, lines, length, last: HashMap::new(), previous: None })
    }

    /// Adds an attempt, and gives it to the system at once.
    pub(super) fn add(&mut self, mut line: Line) -> Result<(), RecordingError> {
        let bases =
            [Some(&line.agent), self.previous.as_ref()].into_iter().flatten().filter_map(|of| self.last.get(of));
        let kept = |asked: &[Arc<str>]| asked.iter().zip(&line.asked).take_while(|(one, other)| one == other).count();
        let bases = bases.map(|(number, asked)| (kept(asked), *number));
        (line.kept, line.of) = bases.filter(|(kept, _)| *kept > 0).max().unwrap_or_default();
        let asked = line.asked.clone();
        line.asked.drain(..line.kept);
        match put(&mut self.file, &line) {
            Ok(written) => self.length += written,
            Err(source) => {
                // What is written next must not stand behind half a line. If that fails, too, the reader will say so.
                let _ = self.file.set_len(self.length);
                return Err(RecordingError::Io { path: self.path.clone(), doing: "write it", source });
            }
        }
        self.lines += 1;
        self.previous = Some(line.agent.clone());
        self.last.insert(line.agent, (self.lines, asked));
        Ok(())
    }
}

/// One write a line, so that two never mix and a crash leaves at most one half.
fn put(file: &mut File, value: &impl Serialize) -> io::Result<u64> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    file.write_all(&text)?;
    Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

/// The first line of a file, how many whole lines it has, and how long these are.
fn whole_lines(file: &File) -> io::Result<(Vec<u8>, usize, u64)> {
    let (mut reader, mut line) = (BufReader::new(file), vec![]);
    let (mut head, mut lines, mut length) = (vec![], 0, 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if lines == 0 {
            head.clone_from(&line);
        }
        if line.last() != Some(&b'\n') {
            return Ok((head, lines, length));
        }
        lines += 1;
        length += u64::try_from(read).unwrap_or(u64::MAX);
    }
}
