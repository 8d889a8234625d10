//! Recordings: where `--record` keeps them, and what `--model replay:…` answers from.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario::kernel::{Event, Seq, SessionHeader};
use impresario::models::replay::{Recorder, Recording, RecordingError, ReplayModel};
use impresario::models::scripted::Latency;
use impresario::seams::{Model, SessionFilter};
use impresario::stores::jsonl::{find_dsh, read_dsh};

use crate::args::Common;
use crate::failed::Failed;
use crate::home::{self, Home};
use crate::provider::Source;
use crate::sessions::find;
use crate::{backend, print};

type Log = (SessionHeader, Vec<Arc<Event>>);

/// The same models, whose answers are kept in `folder`.
pub(crate) fn recorded(models: Vec<Arc<dyn Model>>, folder: &Path) -> Result<Vec<Arc<dyn Model>>, Failed> {
    let recorder = Recorder::open(folder).map_err(|error| failed(&error))?;
    Ok(models.into_iter().map(|model| Arc::new(recorder.record(model)) as Arc<dyn Model>).collect())
}

/// The model that answers from what `--record` has kept in `folder`, for a server.
pub(crate) fn served(folder: &Path, latency: Latency, seed: u64) -> Result<Arc<dyn Model>, Failed> {
    let recording = Recording::open_served(folder).map_err(|error| failed(&error))?;
    Ok(Arc::new(ReplayModel::new(recording).with_latency(latency, seed)))
}

/// The model that answers from a recording, under its own name and under those of the providers that are recorded.
pub(crate) async fn models(common: &Common, source: &Source) -> Result<Vec<Arc<dyn Model>>, Failed> {
    let (recording, shown) = match source {
        Source::Path(path) => (of_path(path)?, home::quoted(path)),
        Source::Session(id) => (of_session(common, id).await?, format!("session/{id}")),
    };
    if recording.is_empty() {
        return Err(Failed::usage(format!("replay:{shown}: no model has said anything in it")));
    }
    let replay = ReplayModel::new(recording);
    let names: Vec<String> = replay.recording().providers().iter().filter(|name| *name != "replay").cloned().collect();
    let under = names.iter().map(|name| Arc::new(replay.under(name)) as Arc<dyn Model>);
    Ok([Arc::new(replay.clone()) as Arc<dyn Model>].into_iter().chain(under).collect())
}

/// A folder with a recording or with session logs, or one log.
fn of_path(path: &Path) -> Result<Recording, Failed> {
    let wrong = |what: String| Failed::usage(format!("replay:{}: {what}", home::quoted(path)));
    if Recording::is_at(path) {
        return Recording::open(path).map_err(|error| failed(&error));
    }
    let files = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => vec![path.to_owned()],
        Ok(_) => find_dsh(path),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if files.is_empty() {
        return Err(wrong("there is neither a recording.jsonl in it nor a session.jsonl of dsh".into()));
    }
    let logs = files.iter().map(log).collect::<Result<Vec<_>, String>>();
    Ok(Recording::of_logs(logs.map_err(wrong)?))
}

fn log(file: &PathBuf) -> Result<Log, String> {
    let shown = home::quoted(file);
    let (header, events, found) = read_dsh(file).map_err(|error| format!("{shown}: {error}"))?;
    match found.iter().find(|found| found.kind.loses_events()) {
        Some(lost) => Err(format!("{shown}: {lost}; what is behind it would tell another story")),
        None => Ok((header, events)),
    }
}

/// The tree of a stored root.
async fn of_session(common: &Common, id: &str) -> Result<Recording, Failed> {
    let home = Home::of(common)?;
    let Some(store) = backend::stored(&home)? else {
        let home = home.dir().display();
        return Err(Failed::usage(format!("replay:session/{}: nothing is stored in {home}", print::one_line(id, 80))));
    };
    let root = find::root(&store, id, &home::work_dir(common)?).await?;
    let filter = SessionFilter { root: Some(root.id().clone()), ..SessionFilter::default() };
    let mut logs: Vec<Log> = vec![];
    for session in store.list(filter).await? {
        let events = store.read(session.id().clone(), Seq(0)).try_collect().await?;
        logs.push((session.new.header, events));
    }
    Ok(Recording::of_logs(logs))
}

fn failed(error: &RecordingError) -> Failed {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    Failed::usage(format!("{error}{source}"))
}
