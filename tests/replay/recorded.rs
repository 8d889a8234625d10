//! What is recorded in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use impresario_kernel::{Block, Event, Fact, Seq, SessionHeader};
use impresario_stores::jsonl::read_dsh;
use serde_json::{Map, Value};

/// The sessions of a folder.
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) sessions: Vec<Session>,
}

/// One session.
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) header: SessionHeader,
    pub(crate) events: Vec<Arc<Event>>,
}

/// One answer of a model: what it thought and said, and the calls that it asked for, with their ids and arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) turn: u32,
    step: u32,
    said: Vec<String>,
    pub(crate) calls: Vec<(String, String, Value)>,
}

/// The folders of the recordings whose names contain `mark`.
pub(crate) fn folders(mark: &str) -> Vec<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let corpus = above.map(|folder| folder.join("shared/corpus/dsh")).find(|folder| folder.is_dir());
    let entries = corpus.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.is_dir() && name(path).contains(mark)).collect();
    found.sort();
    if found.is_empty() {
        eprintln!("SKIPPED: there are no recordings in `shared/corpus/dsh` beside the project");
    }
    found
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Recorded {
    /// Reads a folder; why it cannot be replayed.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let files = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect();
        files.sort();
        let mut sessions = vec![];
        for file in files {
            let (header, events, _) = read_dsh(&file).map_err(|error| error.to_string())?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            sessions.push(Session { name, header, events });
        }
        let recorded = Self { name: name(folder), sessions };
        let root = recorded.root().ok_or("there is no log of the parent, only what its model streamed")?;
        let first = answers(&root.events).first().map_or(1, |answer| answer.turn);
        if first > 1 {
            return Err(format!("the parent's first {} turns asked no model; here each turn does", first - 1));
        }
        Ok(recorded)
    }

    fn root(&self) -> Option<&Session> {
        self.sessions.iter().find(|session| session.is_root() && first_prompt(&session.events).is_some())
    }

    /// What a person said to the root, message by message.
    pub(crate) fn prompts(&self) -> Vec<String> {
        self.root().into_iter().flat_map(|root| prompts(&root.events)).collect()
    }

    /// All that happened in all sessions.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.sessions.iter().flat_map(|session| &session.events)
    }
}

impl Session {
    pub(crate) fn is_root(&self) -> bool {
        self.header.parent_session.is_none()
    }

    pub(crate) fn is_fork(&self) -> bool {
        self.header.seed_length.is_some_and(|length| length > 0)
    }

    /// What is not inherited.
    pub(crate) fn own(&self) -> &[Arc<Event>] {
        let seed = Seq(self.header.seed_length.unwrap_or(0));
        &self.events[self.events.iter().take_while(|event| event.seq < seed).count()..]
    }
}

fn prompts(events: &[Arc<Event>]) -> impl Iterator<Item = String> {
    events.iter().filter_map(|event| match &event.fact {
        Fact::UserMessage(message) if ["user", "coordinator"].contains(&message.source.kind.as_str()) => {
            Some(message.text())
        }
        _ => None,
    })
}

/// What an agent was first told.
pub(crate) fn first_prompt(events: &[Arc<Event>]) -> Option<String> {
    prompts(events).next()
}

/// The answers in a log, in order. Calls for subagents are told in the words of this program, whoever wrote the log.
pub(crate) fn answers(events: &[Arc<Event>]) -> Vec<Answer> {
    let answers = events.iter().filter_map(|event| match &event.fact {
        Fact::AssistantMessage(answer) => Some(answer),
        _ => None,
    });
    answers
        .map(|answer| {
            let (mut said, mut calls) = (vec![], vec![]);
            for block in &answer.message.content {
                match block {
                    Block::Text { text } => said.push(format!("said {text}")),
                    Block::Reasoning { text } => said.push(format!("thought {text}")),
                    Block::ToolCall { id, name, arguments } => {
                        let (name, arguments) = in_our_words(name, arguments);
                        calls.push((id.to_string(), name, arguments));
                    }
                    other => said.push(format!("{other:?}")),
                }
            }
            Answer { turn: answer.turn, step: answer.step, said, calls }
        })
        .collect()
}

fn in_our_words(name: &str, arguments: &str) -> (String, Value) {
    let Ok(mut said) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return (name.into(), arguments.into());
    };
    if !["subagent", "subagent_fork"].contains(&name) {
        return (name.into(), Value::Object(said));
    }
    // How many subagents it may have nobody says there.
    said.remove("may_spawn");
    if let Some(background) = said.remove("run_in_background") {
        said.insert("background".into(), background);
    }
    if name == "subagent_fork" {
        said.insert("context".into(), "fork".into());
    }
    ("subagent".into(), Value::Object(said))
}
