//! A disk that fails: what a commit has written so far is taken back.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::TryStreamExt as _;
use impresario_kernel::event::InboxWoken;
use impresario_kernel::{AgentPath, Event, Fact, Millis, Seq, SessionHeader};
use impresario_seams::{Batch, Commit, Head, NewSession, Store, StoreError};

use super::write::Disk;
use super::{Encoding, JsonlStore, read_dsh};

/// Has room for so many bytes more.
#[derive(Clone, Default)]
struct SmallDisk {
    room: Arc<AtomicU64>,
    keeps_what_it_has: Arc<AtomicBool>,
}

impl Disk for SmallDisk {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let room = self.room.load(Ordering::SeqCst);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        file.write_all(&bytes[..fits])?;
        self.room.store(room - fits as u64, Ordering::SeqCst);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&self, file: &mut File, len: u64) -> io::Result<()> {
        if self.keeps_what_it_has.load(Ordering::SeqCst) {
            return Err(io::Error::other("it keeps what it has"));
        }
        file.set_len(len)
    }
}

/// A folder of its own; in memory where that can be, for a thousand stores.
fn folder() -> tempfile::TempDir {
    let quick = tempfile::tempdir_in("/dev/shm");
    quick.or_else(|_| tempfile::tempdir()).unwrap()
}

fn mark(seq: u64) -> Arc<Event> {
    Arc::new(Event::new(Seq(seq), Millis(seq), Fact::InboxWoken(InboxWoken { message: format!("m{seq}").into() })))
}

fn batch(id: &str, is_new: bool, seq: u64) -> Batch {
    let header = SessionHeader { cwd: Some("/work".into()), ..SessionHeader::new(id.into(), Millis(1)) };
    let (root, path, label) = (id.into(), AgentPath::root(), String::new());
    let new = is_new.then(|| Arc::new(NewSession { header, root, path, label, fork: None }));
    Batch { session: id.into(), create: new, events: vec![mark(seq)], head: Head::default() }
}

async fn commit(store: &JsonlStore, batches: Vec<Batch>) -> Result<(), StoreError> {
    store.commit(Commit { lease: None, batches, ..Commit::default() }).await
}

fn second() -> Vec<Batch> {
    vec![batch("s", false, 1), batch("t", false, 1), batch("u", true, 0)]
}

#[tokio::test]
async fn b260_an_append_that_fails_anywhere_leaves_every_file_as_it_was_and_a_retry_leaves_no_gap() {
    for encoding in [Encoding::Raw, Encoding::Zstd] {
        for room in (0..).step_by(3) {
            let root = folder();
            let disk = SmallDisk::default();
            disk.room.store(u64::MAX, Ordering::SeqCst);
            let store = JsonlStore::open_on(root.path(), encoding, Box::new(disk.clone())).unwrap();
            commit(&store, vec![batch("s", true, 0), batch("t", true, 0)]).await.unwrap();
            let logs = ["s", "t"].map(|id| root.path().join("--work--").join(id).join(encoding.file_name()));
            let before = logs.clone().map(|log| fs::read(log).unwrap());
            disk.room.store(room, Ordering::SeqCst);
            let failed = commit(&store, second()).await;
            if failed.is_ok() {
                assert!(room > 500, "the commit is larger than that");
                break;
            }
            assert!(matches!(failed, Err(StoreError::Full { .. })), "{failed:?}");
            assert_eq!(logs.clone().map(|log| fs::read(log).unwrap()), before, "{room}");
            assert!(!root.path().join("--work--/u").exists());
            assert_eq!(store.info("u".into()).await.unwrap(), None);
            assert_eq!(store.info("s".into()).await.unwrap().unwrap().len, Seq(1));
            // Nor does the next process find it.
            let other = JsonlStore::open_read_only(root.path(), encoding).unwrap();
            assert_eq!(other.info("s".into()).await.unwrap().unwrap().len, Seq(1));
            disk.room.store(u64::MAX, Ordering::SeqCst);
            commit(&store, second()).await.unwrap();
            for log in &logs {
                assert_eq!(read_dsh(log).unwrap().1, [mark(0), mark(1)]);
            }
            let read: Vec<_> = store.read("u".into(), Seq(0)).try_collect().await.unwrap();
            assert_eq!(read, [mark(0)]);
        }
    }
}

#[tokio::test]
async fn b260_what_cannot_be_taken_back_is_said_too_and_taken_back_before_the_retry() {
    let (mut record, mut line) = (0, 0);
    // Once to know how much room it takes, and once without that.
    for is_full in [false, true] {
        let root = folder();
        let disk = SmallDisk::default();
        disk.room.store(u64::MAX, Ordering::SeqCst);
        let store = JsonlStore::open_on(root.path(), Encoding::Raw, Box::new(disk.clone())).unwrap();
        commit(&store, vec![batch("s", true, 0), batch("t", true, 0)]).await.unwrap();
        let len = |path: &str| fs::metadata(root.path().join(path)).unwrap().len();
        let before = (len(".impresario/commits"), len("--work--/s/session.jsonl"));
        if !is_full {
            commit(&store, second()).await.unwrap();
            record = len(".impresario/commits") - before.0;
            line = len("--work--/s/session.jsonl") - before.1;
            continue;
        }
        // The record, the first log, and a part of the second.
        disk.room.store(record + line + 5, Ordering::SeqCst);
        disk.keeps_what_it_has.store(true, Ordering::SeqCst);
        let said = commit(&store, second()).await.unwrap_err().to_string();
        assert!(said.contains("no space") && said.contains("taking it back"), "{said}");
        assert!(said.contains("keeps what it has"), "{said}");
        let again = commit(&store, second()).await.unwrap_err().to_string();
        assert!(again.contains("keeps what it has"), "{again}");
        disk.keeps_what_it_has.store(false, Ordering::SeqCst);
        assert!(commit(&store, vec![batch("s", false, 7)]).await.is_err(), "there is nothing of it");
        assert_eq!((len(".impresario/commits"), len("--work--/s/session.jsonl")), before);
        disk.room.store(u64::MAX, Ordering::SeqCst);
        commit(&store, second()).await.unwrap();
        for id in ["s", "t"] {
            let log = root.path().join("--work--").join(id).join("session.jsonl");
            assert_eq!(read_dsh(log).unwrap().1, [mark(0), mark(1)]);
        }
    }
}
