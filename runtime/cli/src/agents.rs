//! The agents of a home, from outside of the process that runs them: waiting, looking, and what only that process can do.

use std::time::{Duration, Instant};

use futures::TryStreamExt;
use impresario::kernel::{Event, Fact, OutcomeKind, Seq};
use impresario::seams::{SessionInfo, TurnState};
use serde_json::json;

use crate::args::{AgentArgs, Common, LogsArgs, WaitArgs};
use crate::exit::{Exit, Stop};
use crate::failed::Failed;
use crate::home::Home;
use crate::sessions::transcript::Transcript;
use crate::sessions::{Archive, find};
use crate::signals::Signals;
use crate::{backend, figures, home, print};

/// Why nothing runs in the background.
pub(crate) const NO_SERVICE: &str =
    "there is no service yet that agents could run in; say --foreground, and it runs here until it is at rest";

/// How often a store is looked at that another process writes to.
const LOOK: Duration = Duration::from_millis(100);

/// `impresario wait`
pub(crate) async fn wait(common: &Common, args: &WaitArgs) -> Result<Exit, Failed> {
    let began = Instant::now();
    let mut signals = Signals::new()?;
    loop {
        let archive = Archive::open(common)?;
        let session = find::session(archive.store(), &args.id, &home::work_dir(common)?).await?;
        if is_at_rest(&session) || !archive.is_live() {
            return answer(common, &archive, &session).await;
        }
        let left = args.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            print::say(&format!("{} is {} still", session.id(), archive.state(&session)));
            return Ok(Stop::Timeout.exit());
        }
        tokio::select! {
            () = tokio::time::sleep(left.map_or(LOOK, |left| left.min(LOOK))) => {}
            stop = signals.next() => return Ok(stop.exit()),
        }
    }
}

fn is_at_rest(session: &SessionInfo) -> bool {
    session.head.state == TurnState::Idle && session.head.outcome.is_some()
}

async fn answer(common: &Common, archive: &Archive, session: &SessionInfo) -> Result<Exit, Failed> {
    let events: Vec<_> = archive.store().read(session.id().clone(), Seq(0)).try_collect().await?;
    let transcript = Transcript::of(&events, session.new.header.seed_length.unwrap_or(0));
    let state = archive.state(session);
    let is_done = matches!(session.head.outcome, Some(OutcomeKind::Completed | OutcomeKind::Partial));
    let text = transcript.last().filter(|_| is_done && is_at_rest(session));
    if common.json {
        let id = session.id().as_str();
        print::answer(&format!("{}\n", json!({ "session": id, "state": state, "text": text })))?;
    } else if let Some(text) = text {
        print::answer(&format!("{}\n", print::printable(text)))?;
    } else if !common.quiet {
        print::say(&format!("{} is {state}", session.id()));
    }
    Ok(match session.head.outcome.filter(|_| is_at_rest(session)) {
        Some(OutcomeKind::Completed) => Exit::Completed,
        Some(OutcomeKind::Partial) => Exit::Partial,
        Some(OutcomeKind::Refused) => Exit::Refused,
        Some(OutcomeKind::Failed | OutcomeKind::Cancelled | OutcomeKind::Crashed) | None => Exit::Failed,
    })
}

/// `impresario interrupt` and `impresario stop`: only the process that runs an agent can end it.
pub(crate) async fn interrupt(common: &Common, args: &AgentArgs) -> Result<Exit, Failed> {
    let archive = Archive::open(common)?;
    let session = find::session(archive.store(), &args.id, &home::work_dir(common)?).await?;
    let (id, state) = (session.id(), archive.state(&session));
    let Some(holder) = backend::holder(&Home::of(common)?) else {
        print::say(&format!("no process runs agents of this home; {id} is {state}"));
        return Ok(Exit::Completed);
    };
    if is_at_rest(&session) {
        print::say(&format!("{id} is at rest: {state}"));
        return Ok(Exit::Completed);
    }
    Err(Failed::usage(format!(
        "{id} is {state} in the process {holder}, and there is no service yet that could pass this on: press Ctrl-C there, \
         or kill -INT {holder}; all that it runs ends with a receipt"
    )))
}

/// `impresario logs`
pub(crate) async fn logs(common: &Common, args: &LogsArgs) -> Result<Exit, Failed> {
    let mut from = Seq(args.from);
    let mut signals = Signals::new()?;
    loop {
        let archive = Archive::open(common)?;
        let session = find::session(archive.store(), &args.id, &home::work_dir(common)?).await?;
        let mut events = archive.store().read(session.id().clone(), from);
        while let Some(event) = events.try_next().await? {
            from = event.next_seq();
            print::answer(&line(common, &event))?;
        }
        if !args.follow || !archive.is_live() {
            return Ok(Exit::Completed);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            stop = signals.next() => return Ok(stop.exit()),
        }
    }
}

fn line(common: &Common, event: &Event) -> String {
    let (seq, time, kind) = (event.seq, figures::rfc3339(event.time), event.fact.kind());
    let brief = brief(&event.fact);
    if common.json {
        return format!("{}\n", json!({ "seq": seq, "ts": time, "kind": kind, "brief": brief }));
    }
    format!("{seq:>6}  {time}  {kind:<20}  {}\n", print::one_line(&brief, 120))
}

/// What an event says, in a few words.
fn brief(fact: &Fact) -> String {
    match fact {
        Fact::Chunks(run) => run.deltas.concat(),
        Fact::ToolCalled(called) => format!("{} {}", called.name, called.arguments),
        Fact::TurnStarted(turn) => format!("turn {}", turn.turn),
        Fact::TurnEnded(turn) => format!("turn {} {}", turn.turn, OutcomeKind::of(&turn.reason)),
        Fact::StepStarted(mark) | Fact::StepEnded(mark) => format!("step {}.{}", mark.turn, mark.step),
        Fact::AgentBorn(birth) => birth.path.to_string(),
        Fact::RetryScheduled(retry) => retry.failure.to_string(),
        other => other.message().map(|message| message.text()).unwrap_or_default(),
    }
}
