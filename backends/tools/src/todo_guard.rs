//! The completion guard: a model that is done while its own list says otherwise is told so, once.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use impresario_kernel::{TodoItem, TodoStatus};
use impresario_seams::{Hook, Notice, Point, TurnStops};

/// What it is called in logs.
const NAME: &str = "todo-completion-guard";

/// Looks at the todo list when a turn would end. If the list was written in this very turn and still has items that are
/// not completed, the model is told which, once in a turn, and may finish them, rewrite the list, or say why they stay
/// open. It advises: the turn ends the next time whatever the model did. A turn whose answer ran into the output limit
/// is left alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct TodoGuard;

impl Hook for TodoGuard {
    fn name(&self) -> &str {
        NAME
    }

    fn points(&self) -> &[Point] {
        &[Point::TurnStopping]
    }

    fn judges_calls(&self) -> bool {
        false
    }

    fn turn_stopping(&self, turn: Arc<TurnStops>) -> BoxFuture<'static, Option<Notice>> {
        ready(notice(&turn)).boxed()
    }
}

fn notice(turn: &TurnStops) -> Option<Notice> {
    let is_done = |item: &&TodoItem| item.status == TodoStatus::Completed;
    let todos = turn.todos.as_ref().filter(|_| !turn.is_cut && turn.steered.iter().all(|hook| hook != NAME))?;
    let open: Vec<&TodoItem> = todos.iter().filter(|item| !is_done(item)).collect();
    if open.is_empty() {
        return None;
    }
    let lines: String = open.iter().map(|item| format!("- [{}] {}\n", status(item.status), item.content)).collect();
    let text = format!(
        "You are about to end your turn, and the todo list that you wrote in it still has open items:\n{lines}\
         Finish them; or write the list again as it now is, with one line that says why; or say why they stay open. \
         You will not be asked again in this turn."
    );
    let summary = format!("{} of {} todo items are open", open.len(), todos.len());
    Some(Notice { text, summary: Some(summary) })
}

fn status(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Pending => "pending",
        TodoStatus::InProgress => "in_progress",
        TodoStatus::Completed => "completed",
    }
}
