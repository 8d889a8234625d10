//! Asks the person at the terminal before a shell command runs.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use impresario::seams::{Approver, Question};

use crate::print;

/// One question at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminalApprover {
    asking: Arc<Mutex<()>>,
}

impl Approver for TerminalApprover {
    fn ask(&self, question: Question) -> BoxFuture<'static, bool> {
        let asking = Arc::clone(&self.asking);
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || {
                let _one = asking.lock().unwrap_or_else(PoisonError::into_inner);
                let _paused = print::Pause::begin();
                ask(&question)
            });
            // A question that could not be asked was not answered yes.
            asked.await.unwrap_or(false)
        })
    }
}

fn ask(question: &Question) -> bool {
    let what = &question.what;
    let text = format!("{} wants to run {}: {what}\nrun it? [y/N] ", question.path, question.tool);
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
