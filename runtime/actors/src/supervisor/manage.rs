//! What agents do to those below them: write, interrupt, stop, list.

use std::sync::Arc;

use impresario_kernel::event::{Lane, QueueRule};
use impresario_kernel::{AgentId, Block, CallKey, CallReport, Cause, MessageId};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::stop::CHILD_DEADLINE;
use super::tree::{Place, TreeState};
use super::{Stop, SupervisorMessage, SupervisorState};
use crate::agent::AgentMessage;
use crate::delegation::{self, Manage};
use crate::error::Error;
use crate::handle::AgentHandle;
use crate::receipt::Receipt;
use crate::runtime::wake;
use crate::shared::Shared;

/// Why a root reports to nobody.
const NOBODY: &str = "nobody gave you your task but the user, who reads your answer";

/// Why some are not written to.
const ONE_TURN: &str = "its provider runs one turn a subagent; start another one with all that it needs to know";

impl TreeState {
    /// Whether who runs the agent lets it have no other turn.
    fn has_one_turn(&self, shared: &Shared, agent: &AgentId) -> bool {
        let profile = self.agents.get(agent).map(|entry| &entry.profile).filter(|profile| profile.is_outside);
        let provider = profile.and_then(|profile| shared.subagents.get(&profile.route().provider));
        provider.is_some_and(|provider| !provider.capabilities().continuable)
    }
}

impl SupervisorState {
    pub(super) fn manage(&mut self, parent: AgentId, call: CallKey, what: Manage) {
        let shared = Arc::clone(&self.shared);
        let Some(tree) = self.tree_of(&parent) else { return };
        let whom = what.agent().map(|name| found(tree, &parent, name)).transpose();
        let report = match (what, whom) {
            (Manage::Read { agent, from, bytes }, Err(nobody)) => {
                let artifact = shared.store.artifact(agent);
                return self.perform(parent, call, async move {
                    match artifact.await {
                        Ok(Some(artifact)) => piece(&String::from_utf8_lossy(&artifact), from, bytes),
                        Ok(None) => *nobody,
                        Err(error) => CallReport::failed("ToolError", "STORE", &error.to_string()),
                    }
                });
            }
            (_, Err(report)) => *report,
            (Manage::Message { .. }, Ok(Some(agent))) if tree.has_one_turn(&shared, &agent) => {
                CallReport::failed("ToolDeniedError", "NOT_RESUMABLE", ONE_TURN)
            }
            (Manage::Message { text, lane, .. }, Ok(Some(agent))) => {
                let id = MessageId::new(format!("message:{parent}:{call}"));
                let message = delegation::message(&parent, id, &text);
                let told = async move {
                    match wake(&shared, &agent).await {
                        Ok(handle) => written(handle.tell(message, lane, true).await),
                        Err(error) => written(Err(error)),
                    }
                };
                return self.perform(parent, call, told);
            }
            (Manage::Stop { .. }, Ok(Some(agent))) => {
                let (reply, receipt) = oneshot::channel();
                let halt = self.shared.halt(&agent);
                self.stop(Stop { top: agent, cause: Cause::Parent, deadline: CHILD_DEADLINE, halt, reply });
                // Of a supervisor that fails the next one is asked again.
                return self.perform(parent, call, async move { stopped(receipt.await.unwrap_or(Err(Error::Closed))) });
            }
            (Manage::Interrupt { .. }, Ok(Some(agent))) => {
                let (cause, queue, deadline) = (Cause::Parent, QueueRule::Run, CHILD_DEADLINE);
                let is_told = self.shared.router.send(&agent, AgentMessage::Cancel { cause, queue, deadline }).is_ok();
                if is_told { said("interrupted; what it had comes as its outcome") } else { gone() }
            }
            (Manage::Read { from, bytes, .. }, Ok(Some(agent))) => read(tree, &agent, from, bytes),
            (Manage::Report { text, wakes }, _) => {
                let node = tree.tree.node(&parent).and_then(|node| Some((node.path.clone(), node.parent.clone()?)));
                let Some((path, above)) = node else {
                    return self.answer(&parent, call, CallReport::failed("ToolDeniedError", "UNAUTHORIZED", NOBODY));
                };
                let wakes = wakes && !tree.tree.is_stopped(&above);
                let message =
                    delegation::report(&parent, &path, MessageId::new(format!("report:{parent}:{call}")), &text);
                let handle = AgentHandle::new(above, Arc::clone(&self.shared));
                let told = async move { written(handle.tell(message, Lane::NextStep, wakes).await) };
                return self.perform(parent, call, told);
            }
            (Manage::List { subtree }, _) => listed(tree, &parent, subtree),
            (_, Ok(None)) => gone(),
        };
        self.answer(&parent, call, report);
    }

    /// The caller waits for this.
    fn answer(&self, caller: &AgentId, call: CallKey, report: CallReport) {
        let _ = self.shared.router.tell(caller, AgentMessage::CallEnded { call, report });
    }

    /// Does what takes a while, and tells the parent then; ends with the supervisor.
    fn perform(&mut self, parent: AgentId, call: CallKey, work: impl Future<Output = CallReport> + Send + 'static) {
        let (myself, to) = (self.myself.clone(), parent.clone());
        let task = tokio::spawn(async move {
            let report = Box::new(work.await);
            // The runtime may have been shut down meanwhile.
            let _ = myself.cast(SupervisorMessage::Managed { parent: to, call, report });
        });
        self.managing.insert((parent, call), AbortOnDropHandle::new(task));
    }

    pub(super) fn managed(&mut self, parent: AgentId, call: CallKey, report: CallReport) {
        if self.managing.remove(&(parent.clone(), call)).is_some() {
            let _ = self.shared.router.tell(&parent, AgentMessage::CallEnded { call, report });
        }
    }

    /// The caller's turn is cancelled: it is not waited for any more. Whether there was something to wait for.
    pub(super) fn stop_managing(&mut self, parent: &AgentId, call: CallKey) -> bool {
        let was = self.managing.remove(&(parent.clone(), call)).is_some();
        if was {
            let report = CallReport::failed("AbortError", "ABORTED", "cancelled; it may have been done");
            let _ = self.shared.router.tell(parent, AgentMessage::CallEnded { call, report });
        }
        was
    }
}

/// The agent below `parent` that is called so: by id or path, or, of its own children, by the last segment.
fn found(tree: &TreeState, parent: &AgentId, name: &str) -> Result<AgentId, Box<CallReport>> {
    let children = tree.tree.node(parent).map(|node| node.children.as_slice()).unwrap_or_default();
    let path = |id: &AgentId| tree.tree.node(id).map(|node| node.path.as_str());
    let is_below = |id: &&AgentId| *id != parent && (id.as_str() == name || path(id) == Some(name));
    let child = || children.iter().find(|id| tree.tree.node(id).is_some_and(|node| node.path.segment() == name));
    let below = tree.tree.subtree(parent);
    if let Some(found) = below.iter().find(is_below).or_else(child) {
        return Ok(found.clone());
    }
    let known = children.iter().filter_map(path).collect::<Vec<_>>().join(", ");
    let message = format!("there is no agent {name:?} below you; your own are: {known}");
    Err(CallReport::failed("ToolArgsError", "INVALID_ARGS", &message).into())
}

fn said(text: &str) -> CallReport {
    CallReport { content: vec![Block::text(text)], ..CallReport::default() }
}

fn gone() -> CallReport {
    let message = "it is not running in this process any more; start another one";
    CallReport::failed("AgentGoneError", "AGENT_GONE", message)
}

fn written(told: Result<(), Error>) -> CallReport {
    match told {
        Ok(()) => said("it has the message"),
        Err(Error::Closed) => gone(),
        Err(error) => CallReport::failed("ToolError", error.code(), &error.to_string()),
    }
}

fn stopped(receipt: Result<Receipt, Error>) -> CallReport {
    let receipt = match receipt {
        Ok(receipt) => receipt,
        Err(error) => return CallReport::failed("ToolError", error.code(), &error.to_string()),
    };
    let ends = receipt.agents.iter().map(|end| {
        let outcome = end.outcome.map_or("not begun", |outcome| outcome.as_str());
        let rest = if end.at_rest { "" } else { " (not at rest yet)" };
        format!("{} {outcome}{rest}", end.path)
    });
    said(&ends.collect::<Vec<_>>().join("\n"))
}

/// A piece of an agent's last answer.
fn read(tree: &TreeState, agent: &AgentId, from: usize, bytes: usize) -> CallReport {
    let Some(settled) = tree.settled(agent) else {
        return CallReport::failed("ToolArgsError", "NO_ANSWER", "it has not come to an end yet; wait for it");
    };
    piece(&settled.outcome.answer(), from, bytes)
}

/// A piece of a long text, and where in it that stands.
fn piece(text: &str, from: usize, bytes: usize) -> CallReport {
    let Some(rest) = text.get(from.min(text.len())..) else {
        let message = format!("byte {from} is in the middle of a character; go on where the last piece ended");
        return CallReport::failed("ToolArgsError", "INVALID_ARGS", &message);
    };
    let end = delegation::cut(rest, bytes);
    let place = format!("[bytes {from} to {} of {}]", from.min(text.len()) + end, text.len());
    said(&format!("{place}\n{}", &rest[..end]))
}

fn listed(tree: &TreeState, parent: &AgentId, subtree: bool) -> CallReport {
    let below = if subtree {
        tree.tree.subtree(parent).into_iter().filter(|id| id != parent).collect()
    } else {
        tree.tree.node(parent).map(|node| node.children.clone()).unwrap_or_default()
    };
    let entry = |id: AgentId| {
        let (node, entry) = (tree.tree.node(&id)?, tree.agents.get(&id)?);
        let state = match (entry.place, entry.rests.is_some()) {
            (Place::Failed, _) => "gone",
            (Place::Stored, _) | (Place::Live, true) => "idle",
            (Place::Live, false) => "working",
        };
        let outcome = entry.outcome.as_ref().map(|outcome| outcome.kind);
        Some(json!({"agent": id, "path": node.path, "state": state, "outcome": outcome}))
    };
    let agents: Vec<_> = below.into_iter().filter_map(entry).collect();
    said(&json!({ "agents": agents }).to_string())
}
