//! Session logs of dsh as recordings. Its agents have no paths, and some of its tools have other names here.

use std::sync::Arc;

use impresario_kernel::{AgentPath, Block, Event, Fact, Message, Seq, SessionHeader};
use serde_json::{Map, Value};

use super::asked::Sight;
use super::log::{Placed, Session, lines};
use super::recording::Recording;

/// Gives a task to a fresh agent, there and here.
const SUBAGENT: &str = "subagent";
/// Gives a task to an agent that has the conversation; here it is a `context` of the other.
const SUBAGENT_FORK: &str = "subagent_fork";

impl Recording {
    pub(super) fn of_dsh(mut sessions: Vec<Session>) -> Self {
        sessions.sort_by_key(|(header, _)| header.created_at);
        let mut recording = Self::of(Sight::Spoken);
        let is_root = |(header, _): &Session| {
            header.parent_session.as_ref().is_none_or(|parent| !sessions.iter().any(|(other, _)| other.id == *parent))
        };
        let mut placed: Vec<(usize, AgentPath)> =
            (0..sessions.len()).filter(|&at| is_root(&sessions[at])).map(|at| (at, AgentPath::root())).collect();
        let mut next = 0;
        while let Some((at, path)) = placed.get(next).cloned() {
            next += 1;
            let mut families = Families { sessions: &sessions, placed: &mut placed };
            let events = families.place_children(at, &path);
            let (header, _) = &sessions[at];
            let session = Placed { id: header.id.clone(), path, own: own(header), events };
            lines(&session, Sight::Spoken).into_iter().for_each(|line| recording.add(line));
        }
        recording
    }
}

/// Where a session's own events begin.
fn own(header: &SessionHeader) -> Seq {
    Seq(header.seed_length.unwrap_or(0))
}

/// Who is whose child.
struct Families<'a> {
    sessions: &'a [Session],
    /// The sessions that have a path, by their numbers.
    placed: &'a mut Vec<(usize, AgentPath)>,
}

impl Families<'_> {
    /// Gives the children of a session their paths; its log, with its calls for subagents in our words.
    fn place_children(&mut self, at: usize, path: &AgentPath) -> Vec<Arc<Event>> {
        let (header, events) = &self.sessions[at];
        let mut asked = 0;
        let mut ours = vec![];
        for event in events {
            let Fact::AssistantMessage(answer) = &event.fact else {
                ours.push(Arc::clone(event));
                continue;
            };
            let mut content = vec![];
            for block in &answer.message.content {
                let call = call_of(block);
                if event.seq >= own(header)
                    && let Some((_, prompt)) = &call
                {
                    asked += 1;
                    if let Some(child) = self.child(at, prompt) {
                        self.placed.push((child, path.child(&format!("a{asked}"))));
                    }
                }
                content.push(match call {
                    Some((arguments, prompt)) => translated(block, arguments, self.spawned_below(at, &prompt, 0)),
                    None => block.clone(),
                });
            }
            let message = Arc::new(Message { content, ..(*answer.message).clone() });
            let answer = impresario_kernel::AssistantMessage { message, ..answer.clone() };
            ours.push(Arc::new(Event { fact: Fact::AssistantMessage(answer), ..(**event).clone() }));
        }
        ours
    }

    /// The first child of a session that was given this task and has no path yet.
    fn child(&self, parent: usize, prompt: &str) -> Option<usize> {
        let is_free = |at: &usize| !self.placed.iter().any(|(placed, _)| placed == at);
        (0..self.sessions.len()).filter(is_free).find(|&at| self.is_child(at, parent, prompt))
    }

    fn is_child(&self, at: usize, parent: usize, prompt: &str) -> bool {
        let (header, events) = &self.sessions[at];
        let prompts = events.iter().filter(|event| event.seq >= own(header)).filter_map(|event| match &event.fact {
            Fact::UserMessage(message) if message.source.kind == "user" => Some(message.text()),
            _ => None,
        });
        at != parent
            && header.parent_session.as_ref() == Some(&self.sessions[parent].0.id)
            && prompts.take(1).any(|first| first == prompt)
    }

    /// How many subagents the child asks for that was given this task, those of its own children included: there every
    /// child may have some, here only as many as its parent grants.
    fn spawned_below(&self, parent: usize, prompt: &str, depth: usize) -> usize {
        let child = (0..self.sessions.len()).find(|&at| self.is_child(at, parent, prompt));
        let Some(child) = child.filter(|_| depth < self.sessions.len()) else { return 0 };
        let (header, events) = &self.sessions[child];
        let blocks = events.iter().filter(|event| event.seq >= own(header)).filter_map(|event| match &event.fact {
            Fact::AssistantMessage(answer) => Some(&answer.message.content),
            _ => None,
        });
        let calls = blocks.flatten().filter_map(call_of);
        calls.map(|(_, prompt)| 1 + self.spawned_below(child, &prompt, depth + 1)).sum()
    }
}

/// The arguments of a call for a subagent, and its prompt.
fn call_of(block: &Block) -> Option<(Map<String, Value>, String)> {
    let Block::ToolCall { name, arguments, .. } = block else { return None };
    if ![SUBAGENT, SUBAGENT_FORK].contains(&&**name) {
        return None;
    }
    let arguments: Map<String, Value> = serde_json::from_str(arguments).ok()?;
    let prompt = arguments.get("prompt")?.as_str()?.to_owned();
    Some((arguments, prompt))
}

/// The same call as the tool of this name here takes it.
fn translated(block: &Block, mut arguments: Map<String, Value>, may_spawn: usize) -> Block {
    let Block::ToolCall { id, name, .. } = block else { return block.clone() };
    if let Some(background) = arguments.remove("run_in_background") {
        arguments.insert("background".into(), background);
    }
    if &**name == SUBAGENT_FORK {
        arguments.insert("context".into(), "fork".into());
    }
    if may_spawn > 0 {
        arguments.insert("may_spawn".into(), may_spawn.into());
    }
    Block::ToolCall { id: id.clone(), name: SUBAGENT.into(), arguments: Value::Object(arguments).to_string().into() }
}
