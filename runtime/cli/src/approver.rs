//! Asks the person at the terminal before a shell command runs.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use futures::future::BoxFuture;
use impresario::seams::{Approver, Question};
use tokio::sync::Semaphore;

use crate::print;

/// One question at a time; the others wait without holding a thread.
#[derive(Clone, Debug)]
pub(crate) struct TerminalApprover {
    turn: Arc<Semaphore>,
}

impl Default for TerminalApprover {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Approver for TerminalApprover {
    fn ask(&self, question: Question) -> BoxFuture<'static, bool> {
        let turn = Arc::clone(&self.turn);
        Box::pin(async move {
            // Nobody closes it; if somebody did, a question that could not be asked was not answered yes.
            let Ok(turn) = turn.acquire_owned().await else { return false };
            let asked = tokio::task::spawn_blocking(move || {
                // Until the person has answered, also when nobody waits for this answer any more.
                let _turn = turn;
                let _paused = print::Pause::begin();
                ask(&question)
            });
            asked.await.unwrap_or(false)
        })
    }
}

fn ask(question: &Question) -> bool {
    let what = &question.what;
    yes(&format!("{} wants to run {}: {what}\nrun it?", question.path, question.tool))
}

/// Asks the person at the terminal; no answer is no.
pub(crate) fn yes(question: &str) -> bool {
    let text = format!("{question} [y/N] ");
    // The lock of stderr must not be held while a person thinks.
    if io::stderr().write_all(print::printable(&text).as_bytes()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes(" YES \n"));
        assert!(!is_yes("") && !is_yes("\n") && !is_yes("yep") && !is_yes("n"));
    }
}
