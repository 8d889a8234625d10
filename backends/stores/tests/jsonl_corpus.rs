//! Recorded sessions of the reference go through every store and out again without a changed value. The recordings
//! are not part of the project; without them this says so and passes.
#![cfg(all(feature = "jsonl", feature = "sqlite"))]
// A test that has nothing to read says so.
#![allow(clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use impresario_kernel::{AgentPath, Event, SessionHeader};
use impresario_seams::{Batch, Commit, Head, NewSession, Store};
use impresario_stores::jsonl::{Diagnostic, Encoding, export_dsh, find_dsh, read_dsh};
use impresario_stores::{JsonlStore, SqliteStore};
use serde_json::Value;

fn recordings() -> Vec<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = above.map(|folder| folder.join("shared/corpus/dsh")).find(|folder| folder.is_dir());
    let mut found = folder.as_ref().map(find_dsh).unwrap_or_default();
    // Recordings of other kinds are named otherwise.
    for recording in folder.iter().flat_map(fs::read_dir).flatten().flatten() {
        let files = fs::read_dir(recording.path()).into_iter().flatten().flatten().map(|file| file.path());
        found.extend(files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")));
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        eprintln!("SKIPPED: there are no recordings in `shared/corpus/dsh` beside the project");
    }
    found
}

/// Whether the recording is of an older form, whose messages have no id. It is not guessed at.
fn is_older(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let messages = text.lines().filter(|line| line.contains("\"type\":\"user/message\""));
    messages.map(data).any(|message| message.get("id").is_none())
}

fn data(line: &str) -> Value {
    serde_json::from_str::<Value>(line).map(|mut line| line["data"].take()).unwrap_or_default()
}

fn all_data(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(data).collect()
}

async fn through(store: &dyn Store, header: &SessionHeader, events: &[Arc<Event>], encoding: Encoding) -> PathBuf {
    let root = header.parent_session.clone().unwrap_or_else(|| header.id.clone());
    let (path, label) = (AgentPath::root(), header.id.to_string());
    let new = NewSession { header: header.clone(), root, path, label, fork: None };
    let batch = Batch {
        session: header.id.clone(),
        create: Some(Arc::new(new)),
        events: events.to_vec(),
        head: Head::default(),
    };
    store.commit(Commit { lease: None, batches: vec![batch], ..Commit::default() }).await.unwrap();
    let root = tempfile::tempdir().unwrap().keep();
    export_dsh(store, &header.id, &root, encoding).await.unwrap()
}

#[tokio::test]
async fn recorded_sessions_go_through_every_store_and_out_again_unchanged() {
    let (mut whole, mut older) = (0, 0);
    let recordings = recordings();
    for path in &recordings {
        if is_older(path) {
            older += 1;
            continue;
        }
        let read @ (header, events, diagnostics) = &read_dsh(path).unwrap();
        assert_eq!(*diagnostics, Vec::<Diagnostic>::new(), "{}", path.display());
        let home = tempfile::tempdir().unwrap();
        let raw = JsonlStore::open(home.path().join("raw"), Encoding::Raw).unwrap();
        let zstd = JsonlStore::open(home.path().join("zstd"), Encoding::Zstd).unwrap();
        let sqlite = SqliteStore::open(home.path().join("store.sqlite")).unwrap();
        let stores: [(&dyn Store, Encoding); 3] =
            [(&raw, Encoding::Zstd), (&zstd, Encoding::Raw), (&sqlite, Encoding::Raw)];
        for (store, encoding) in stores {
            let exported = through(store, header, events, encoding).await;
            assert_eq!(read_dsh(&exported).unwrap(), *read, "{}", path.display());
            if encoding == Encoding::Raw {
                assert_eq!(all_data(&exported), all_data(path), "{}", path.display());
            }
            fs::remove_dir_all(exported.ancestors().nth(3).unwrap()).unwrap();
        }
        whole += 1;
    }
    assert!(recordings.is_empty() || whole > 90, "{whole} were read, {older} are of an older form");
}
