//! Exit codes: one table, shown by `--help`, used everywhere.

use std::fmt::Write as _;

use impresario::kernel::{Cause, Outcome, OutcomeKind, TurnEnd};

use crate::failed::Failed;

/// How the program ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    /// The root completed.
    Completed,
    /// It failed or crashed.
    Failed,
    /// The command line, the configuration or an id makes no sense.
    Usage,
    /// A ceiling was reached.
    Partial,
    /// A limit or a rule said no.
    Refused,
    /// No request to the provider can work.
    Provider,
    /// The store cannot be used.
    Store,
    /// `--timeout` ran out.
    Timeout,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

/// Every code and what it means.
pub(crate) const TABLE: [(Exit, &str); 10] = [
    (Exit::Completed, "completed"),
    (Exit::Failed, "failed or crashed"),
    (Exit::Usage, "usage, configuration, or an unknown or ambiguous id"),
    (Exit::Partial, "partial: a ceiling was reached"),
    (Exit::Refused, "refused: a limit or a rule said no"),
    (Exit::Provider, "provider unusable: key, payment, unknown model, unreachable after retries"),
    (Exit::Store, "store: held by another process, damaged, full, or newer than this program"),
    (Exit::Timeout, "--timeout ran out"),
    (Exit::Interrupted, "interrupted (SIGINT)"),
    (Exit::Terminated, "terminated (SIGTERM)"),
];

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Partial => 3,
            Self::Refused => 4,
            Self::Provider => 5,
            Self::Store => 6,
            Self::Timeout => 124,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// What the root's outcome means for the shell. `stop` is why the program itself stopped the tree, if it did.
    pub(crate) fn of(outcome: Option<&Outcome>, stop: Option<Stop>) -> Self {
        let Some(outcome) = outcome else {
            return stop.map_or(Self::Failed, Stop::exit);
        };
        match outcome.kind {
            OutcomeKind::Completed => Self::Completed,
            OutcomeKind::Partial => Self::Partial,
            OutcomeKind::Refused => Self::Refused,
            OutcomeKind::Cancelled => stop.or_else(|| Stop::named(&outcome.end)).map_or(Self::Failed, Stop::exit),
            OutcomeKind::Failed | OutcomeKind::Crashed => {
                let unusable = outcome.failure().is_some_and(|failure| failure.is_provider_unusable());
                if unusable { Self::Provider } else { Self::Failed }
            }
        }
    }
}

/// Why the program stops the tree that it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// Ctrl-C.
    Sigint,
    /// SIGTERM.
    Sigterm,
    /// `--timeout`.
    Timeout,
    /// Nobody reads stdout any more.
    OutputClosed,
}

impl Stop {
    const ALL: [Self; 4] = [Self::Sigint, Self::Sigterm, Self::Timeout, Self::OutputClosed];

    /// The reason that is written into the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Sigint => "SIGINT",
            Self::Sigterm => "SIGTERM",
            Self::Timeout => "timeout",
            Self::OutputClosed => "output_closed",
        }
    }

    /// The exit code of a tree that was stopped for it.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Sigint => Exit::Interrupted,
            Self::Sigterm => Exit::Terminated,
            Self::Timeout => Exit::Timeout,
            Self::OutputClosed => Exit::Failed,
        }
    }

    fn named(end: &TurnEnd) -> Option<Self> {
        match end {
            TurnEnd::Aborted { reason: Cause::User { reason: Some(reason) } } => {
                Self::ALL.into_iter().find(|stop| stop.reason() == reason)
            }
            _ => None,
        }
    }
}

/// The table as `--help` shows it.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning) in TABLE {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {:>3}  {meaning}", exit.code());
    }
    text
}

/// What an error of the runtime means for the shell.
pub(crate) fn of_error(error: &impresario::Error) -> Exit {
    match error {
        impresario::Error::Store(_) | impresario::Error::Unreadable { .. } => Exit::Store,
        impresario::Error::UnknownAgent(_)
        | impresario::Error::UnknownProvider { .. }
        | impresario::Error::UnknownTool { .. }
        | impresario::Error::Dir { .. } => Exit::Usage,
        impresario::Error::Refused(_) => Exit::Refused,
        _ => Exit::Failed,
    }
}

impl From<impresario::Error> for Failed {
    fn from(error: impresario::Error) -> Self {
        Self { exit: of_error(&error), code: error.code(), text: error.to_string() }
    }
}

impl From<impresario::seams::StoreError> for Failed {
    fn from(error: impresario::seams::StoreError) -> Self {
        impresario::Error::Store(error).into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use impresario::kernel::{Failure, Spent};

    use super::*;

    fn outcome(end: TurnEnd) -> Outcome {
        Outcome {
            turn: 1,
            kind: OutcomeKind::of(&end),
            end,
            text: Arc::from(""),
            output: None,
            spent: Spent::default(),
        }
    }

    #[test]
    fn each_way_to_end_has_its_own_code() {
        let mut codes: Vec<u8> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        codes.dedup();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 124, 130, 143]);
        assert!(help().contains("124  --timeout ran out"));
    }

    #[test]
    fn an_outcome_decides_the_code() {
        let of = |end| Exit::of(Some(&outcome(end)), None);
        assert_eq!(of(TurnEnd::Completed), Exit::Completed);
        assert_eq!(of(TurnEnd::MaxTokens), Exit::Partial);
        assert_eq!(of(TurnEnd::Blocked { reason: None }), Exit::Refused);
        assert_eq!(of(TurnEnd::Interrupted), Exit::Failed);
        assert_eq!(of(TurnEnd::Error { step: None, error: Failure::new("AUTH", "no") }), Exit::Provider);
        assert_eq!(of(TurnEnd::Error { step: None, error: Failure::new("BAD_REQUEST", "no") }), Exit::Failed);
    }

    #[test]
    fn a_cancel_exits_with_the_code_of_its_cause() {
        let cancelled = |reason| outcome(TurnEnd::Aborted { reason: Cause::user(reason) });
        assert_eq!(Exit::of(Some(&cancelled("SIGTERM")), None), Exit::Terminated);
        assert_eq!(Exit::of(Some(&cancelled("timeout")), None), Exit::Timeout);
        assert_eq!(Exit::of(Some(&cancelled("bored")), None), Exit::Failed);
        assert_eq!(Exit::of(None, Some(Stop::Sigint)), Exit::Interrupted);
    }

    #[test]
    fn a_root_that_completed_before_the_stop_still_exits_with_zero() {
        assert_eq!(Exit::of(Some(&outcome(TurnEnd::Completed)), Some(Stop::OutputClosed)), Exit::Completed);
    }
}
