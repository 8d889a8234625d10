//! Two processes, one session: each believes that it is the only one, takes over when it was fenced, and tries again. No
//! gap, nothing twice, and what is there is what they were told that they had written.
//!
//! `ATTEMPTS=10000 cargo test -p impresario-stores --test fencing` tries as often as one likes. This is a program and not a
//! list of tests: it calls itself for each of the writers.

// Each writer tells what it has written, and the first process what it has seen.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use impresario_kernel::event::{Fact, InboxWoken};
use impresario_kernel::{AgentId, AgentPath, Event, Millis, Seq, SessionHeader};
use impresario_seams::{Batch, Commit, Head, Lease, NewSession, Store, StoreError};
use impresario_stores::jsonl::Encoding;
use impresario_stores::{JsonlStore, SqliteStore};

const SESSION: &str = "both";

fn open(kind: &str, path: &Path) -> Arc<dyn Store> {
    match kind {
        "sqlite" => Arc::new(SqliteStore::open(path).expect("a store")),
        _ => Arc::new(JsonlStore::open(path, Encoding::Raw).expect("a store")),
    }
}

async fn append(
    store: &dyn Store,
    lease: Option<Lease>,
    create: bool,
    events: Vec<Arc<Event>>,
) -> Result<(), StoreError> {
    let session = AgentId::new(SESSION);
    let create = create.then(|| {
        let (header, root, path) = (SessionHeader::new(session.clone(), Millis(1)), session.clone(), AgentPath::root());
        Arc::new(NewSession { header, root, path, label: "root".into(), fork: None })
    });
    let batches = vec![Batch { session, create, events, head: Head::default() }];
    store.commit(Commit { lease, batches, ..Commit::default() }).await
}

async fn len(store: &dyn Store) -> Seq {
    store.info(SESSION.into()).await.expect("it can be read").expect("it is there").len
}

/// Prints each of its texts that it was told is written; at the end, how often it was fenced.
async fn write(store: &dyn Store, name: &str, attempts: u64) {
    let mut lease = store.take_over().await.expect("a lease");
    let (mut at, mut fenced) = (len(store).await, 0);
    for n in 0..attempts {
        // Often enough that the other one is fenced all the time.
        if n % 3 == 0 {
            lease = store.take_over().await.expect("a lease");
        }
        let text = format!("{name}-{n}");
        let fact = Fact::InboxWoken(InboxWoken { message: text.as_str().into() });
        match append(store, Some(lease), false, vec![Arc::new(Event::new(at, Millis(n), fact))]).await {
            Ok(()) => {
                println!("{text}");
                at = Seq(at.0 + 1);
                // The other one waits for the file in ever longer steps, and would hardly get it.
                std::thread::sleep(Duration::from_micros(500));
            }
            Err(StoreError::Fenced { .. }) => {
                fenced += 1;
                lease = store.take_over().await.expect("a lease");
                at = len(store).await;
            }
            // The other one has written between the lease and the look.
            Err(StoreError::Diverged { stored, .. }) => at = stored,
            Err(error) => panic!("{error}"),
        }
    }
    println!("fenced {fenced}");
}

fn writer(kind: &str, path: &Path, name: &str, attempts: u64) -> Child {
    let this = std::env::current_exe().expect("this program");
    let (path, attempts) = (path.to_str().expect("a name in UTF-8"), attempts.to_string());
    let mut command = Command::new(this);
    command.args(["--writer", kind, path, name, &attempts]).stdout(Stdio::piped());
    command.spawn().expect("a second process")
}

async fn race(kind: &str, attempts: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = open(kind, &path);
    append(&*store, None, true, vec![]).await.expect("it begins");
    let writers = ["one", "two"].map(|name| writer(kind, &path, name, attempts / 2));
    let (mut told, mut fenced) = (BTreeSet::new(), 0);
    for writer in writers {
        let output = writer.wait_with_output().expect("its end");
        assert!(output.status.success(), "{kind}: a writer failed: {}", output.status);
        let text = String::from_utf8(output.stdout).expect("text");
        for line in text.lines() {
            match line.strip_prefix("fenced ") {
                Some(count) => fenced += count.parse::<u64>().expect("a number"),
                None => assert!(told.insert(line.to_owned()), "{kind}: {line} was written twice"),
            }
        }
    }
    // As it is in the files, and not as this process may remember it.
    let log: Vec<Arc<Event>> = open(kind, &path).read(SESSION.into(), Seq(0)).try_collect().await.expect("a log");
    let seqs: Vec<u64> = log.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (0..log.len() as u64).collect::<Vec<_>>(), "{kind}: a gap or an overlap");
    let text = |event: &Arc<Event>| match &event.fact {
        Fact::InboxWoken(woken) => woken.message.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(log.iter().map(text).collect::<BTreeSet<_>>(), told, "{kind}: told and written are not the same");
    assert!(fenced > 0, "{kind}: nobody was ever fenced, so nothing was tried");
    println!(
        "{kind}: {attempts} attempts of two processes, {} written, {fenced} times fenced: no gap, no overlap",
        log.len()
    );
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    if let [_, flag, kind, path, name, attempts] = &args[..]
        && flag == "--writer"
    {
        let store = open(kind, &PathBuf::from(path));
        runtime.block_on(write(&*store, name, attempts.parse().expect("a number")));
        return ExitCode::SUCCESS;
    }
    let attempts = std::env::var("ATTEMPTS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    for kind in ["sqlite", "jsonl"] {
        runtime.block_on(race(kind, attempts));
    }
    ExitCode::SUCCESS
}
