//! Workspaces: one for a child before it is asked for, and what a turn has left in the agent's own.

use std::path::PathBuf;
use std::sync::Arc;

use impresario_kernel::{CallKey, CallReport, Outcome};
use impresario_seams::Workspace;
use ractor::ActorRef;

use super::work::own;
use super::{AgentMessage, AgentState};
use crate::delegation::{Isolation, SubagentArgs};
use crate::supervisor::SupervisorMessage;

impl AgentState {
    /// Whether the child gets a folder of its own, which is being made; it is asked for when that is there.
    pub(super) fn opens_workspace(
        &mut self,
        myself: &ActorRef<AgentMessage>,
        call: CallKey,
        args: &SubagentArgs,
        is_again: bool,
    ) -> Result<bool, Box<CallReport>> {
        if args.isolation == Isolation::None {
            return Ok(false);
        }
        let Some(workspaces) = &self.shared.workspaces else {
            let message = "subagent: this runtime has no worktrees; leave `isolation` out";
            return Err(Box::new(CallReport::failed("ToolArgsError", "UNSUPPORTED_CAPABILITY", message)));
        };
        // The same call again is the same workspace.
        let name = format!("{}-{}.{}.{}", self.id, call.turn, call.step, call.index);
        let opening = workspaces.open(self.profile.dir.clone(), name);
        let myself = myself.clone();
        let opening = own(async move {
            let opened = opening.await;
            // The actor may be gone.
            let _ = myself.cast(AgentMessage::WorkspaceOpened { call, opened, is_again });
        });
        self.opening.insert(call, opening);
        Ok(true)
    }

    pub(super) fn workspace_opened(
        &mut self,
        myself: &ActorRef<AgentMessage>,
        key: CallKey,
        opened: Result<Workspace, String>,
        is_again: bool,
    ) {
        if self.opening.remove(&key).is_none() {
            return;
        }
        let Some(call) = self.agent.call(key).cloned() else { return };
        let asked = match opened {
            Ok(workspace) => self.ask_for_child(key, &call.id, &call.arguments, Some(workspace), is_again),
            Err(why) => Err(Box::new(CallReport::failed("WorkspaceError", "WORKSPACE", &format!("subagent: {why}")))),
        };
        if let Err(report) = asked {
            let _ = myself.cast(AgentMessage::CallEnded { call: key, report: *report });
        }
    }

    /// A turn has ended, durably. In a workspace of its own it is looked first at what it has left there.
    pub(super) fn turn_ended(&mut self, outcome: Arc<Outcome>) {
        let (Some(workspaces), Some(root)) = (&self.shared.workspaces, &self.profile.birth.workspace) else {
            return self.tell_ended(outcome, None);
        };
        let (root, dir) = (PathBuf::from(root), self.profile.dir.display().to_string());
        let looking = workspaces.changes(root);
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        self.looking = Some(own(async move {
            let left = match looking.await {
                Ok(None) => format!("[nothing was changed in its worktree {dir}]"),
                Ok(Some(changes)) => format!("[changed in its worktree {dir}, which stays:\n{}]", changes.trim_end()),
                Err(why) => format!("[its worktree {dir} cannot be looked at: {why}]"),
            };
            // The actor may be gone; its next life tells its outcome without this.
            let _ = shared.router.tell(&id, AgentMessage::WorkspaceSeen { outcome, left: left.into() });
        }));
    }

    pub(super) fn workspace_seen(&mut self, outcome: Arc<Outcome>, left: Arc<str>) {
        self.looking = None;
        self.tell_ended(outcome, Some(left));
    }

    fn tell_ended(&self, outcome: Arc<Outcome>, left: Option<Arc<str>>) {
        self.shared.supervisor.cast(SupervisorMessage::TurnEnded { agent: self.id.clone(), outcome, left });
    }
}
