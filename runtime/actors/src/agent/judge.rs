//! What hooks are asked about a turn.

use std::sync::Arc;

use impresario_kernel::turn::{Open, Phase};
use impresario_kernel::{Failure, HookAsked, Point};
use impresario_seams::{Beginning, Place};
use ractor::ActorRef;

use super::work::own;
use super::{AgentMessage, AgentState, Task};
use crate::hooks::{Question, judge};

impl AgentState {
    /// Asks the hooks. Their answer is a message like any other.
    pub(super) fn start_judge(&self, myself: &ActorRef<AgentMessage>, asked: HookAsked) -> Task {
        let Some(open) = self.agent.turn().open() else { return Task::Delegated };
        let question = self.question(asked, open);
        let place =
            Place { agent: self.id.clone(), path: self.profile.birth.path.clone(), turn: asked.turn, step: asked.step };
        let (hooks, myself) = (Arc::clone(&self.profile.hooks), myself.clone());
        own(async move {
            let judgement = judge(hooks, place, question).await;
            // The actor may be gone; then nobody waits for this.
            let _ = myself.cast(AgentMessage::Judged { asked, judgement });
        })
    }

    fn question(&self, asked: HookAsked, open: &Open) -> Question {
        let attempt = asked.attempt;
        match asked.point {
            Point::SessionStart => {
                let is_new = self.agent.own_turns() <= 1;
                Question::SessionStart(if is_new { Beginning::Startup } else { Beginning::Resume })
            }
            Point::PreStep => Question::PreStep(open.claimed.iter().map(|(_, message)| Arc::clone(message)).collect()),
            Point::Request => Question::Request { attempt, config: self.agent.spec().header.config.clone() },
            Point::RequestError => {
                let header = self.agent.header().unwrap_or(&self.agent.spec().header);
                Question::RequestError { attempt, config: header.config.clone(), failure: failure_of(open) }
            }
            Point::TurnStopping => Question::TurnStopping {
                text: open.text.as_ref().map(|said| said.message.text().into()),
                todos: open.wrote_todos.then(|| self.agent.todos().to_vec()),
                is_cut: open.max_tokens,
                steered: open.steered.iter().cloned().collect(),
            },
        }
    }
}

/// Why the attempt failed.
fn failure_of(open: &Open) -> Failure {
    let failure = match &open.phase {
        Phase::Sampling(sampling) => sampling.assembler.failure(),
        Phase::Between | Phase::Backoff(_) | Phase::Calling(_) => None,
    };
    failure.cloned().unwrap_or_else(|| Failure::new("UNKNOWN", "the request failed"))
}
