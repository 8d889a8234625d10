//! What every store must do, run against each of them; then what only a file can get wrong.

use std::sync::Arc;

use futures::TryStreamExt;
use impresario_kernel::chunk::{ChunkRun, RunKind};
use impresario_kernel::event::{InboxWoken, SeedEnded, SeqRanges, SurfaceOp};
use impresario_kernel::{AgentId, AgentPath, Event, Fact, Message, Millis, OutcomeKind, Seq, SessionHeader};
use impresario_seams::{Batch, Checkpoint, Commit, ForkRef, Head, Lease, NewSession, SessionFilter, Store, StoreError};
use impresario_stores::jsonl::Encoding;
use impresario_stores::{JsonlStore, MemoryStore, SqliteStore};

fn new_session(id: &str, parent: Option<&str>, fork: Option<ForkRef>, at: u64) -> Arc<NewSession> {
    let mut header = SessionHeader::new(id.into(), Millis(at));
    header.cwd = Some("/work".into());
    header.parent_session = parent.map(Into::into);
    header.seed_length = fork.as_ref().map(|fork| fork.until.0);
    let root = parent.unwrap_or(id).into();
    Arc::new(NewSession { header, root, path: AgentPath::root(), label: id.into(), fork })
}

fn mark(seq: u64) -> Arc<Event> {
    let fact = Fact::InboxWoken(InboxWoken { message: format!("m{seq}").into() });
    Arc::new(Event::new(Seq(seq), Millis(seq), fact))
}

fn run(seq: u64, deltas: &[&str]) -> Arc<Event> {
    let deltas: Vec<String> = deltas.iter().map(|&delta| delta.into()).collect();
    let gaps = (1..deltas.len() as i64).collect();
    let run = ChunkRun { turn: 1, step: 1, index: 0, kind: RunKind::Text, deltas, gaps };
    Arc::new(Event::new(Seq(seq), Millis(100), Fact::Chunks(run)))
}

fn batch(id: &str, create: Option<Arc<NewSession>>, events: Vec<Arc<Event>>) -> Batch {
    Batch { session: id.into(), create, events, head: Head::default() }
}

fn begin(id: &str, events: Vec<Arc<Event>>) -> Batch {
    batch(id, Some(new_session(id, None, None, 1)), events)
}

async fn commit(store: &dyn Store, batches: Vec<Batch>) -> Result<(), StoreError> {
    store.commit(Commit { lease: None, batches, ..Commit::default() }).await
}

async fn commit_under(store: &dyn Store, lease: Lease, batches: Vec<Batch>) -> Result<(), StoreError> {
    store.commit(Commit { lease: Some(lease), batches, ..Commit::default() }).await
}

async fn read(store: &dyn Store, id: &str, from: u64) -> Vec<Arc<Event>> {
    store.read(id.into(), Seq(from)).try_collect().await.unwrap()
}

async fn reads_back_what_was_written(store: &dyn Store) {
    let mut message = Event::new(Seq(1), Millis(5), Fact::UserMessage(Arc::new(Message::user("m", "hi \u{0} ü"))));
    message.surface = Some(SurfaceOp::Replace { start: Seq(0), end: Seq(0) });
    message.sources = Some(SeqRanges::span(Seq(0), Seq(1)));
    let events = vec![mark(0), Arc::new(message), run(2, &["a", "b", "c"]), mark(5)];
    commit(store, vec![begin("exact", events.clone())]).await.unwrap();
    assert_eq!(read(store, "exact", 0).await, events);
    let info = store.info("exact".into()).await.unwrap().unwrap();
    assert_eq!((info.len, info.updated_at), (Seq(6), Millis(5)));
    assert_eq!(*new_session("exact", None, None, 1), info.new);
    assert_eq!(store.info("nobody".into()).await.unwrap(), None);
}

async fn reads_from_the_middle_of_a_run(store: &dyn Store) {
    commit(store, vec![begin("middle", vec![mark(0), run(1, &["a", "b", "c"]), mark(4)])]).await.unwrap();
    let events = read(store, "middle", 2).await;
    assert_eq!(events.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [2, 4]);
    let Fact::Chunks(rest) = &events[0].fact else { panic!("the rest of the run is missing") };
    assert_eq!((rest.deltas.as_slice(), rest.gaps.as_slice()), (&["b".into(), "c".into()][..], &[2][..]));
    assert_eq!(events[0].time, Millis(101));
}

async fn pages_through_long_logs(store: &dyn Store) {
    let events: Vec<_> = (0..2_500).map(mark).collect();
    commit(store, vec![begin("long", events.clone())]).await.unwrap();
    assert_eq!(read(store, "long", 0).await, events);
    assert_eq!(read(store, "long", 2_400).await, events[2_400..]);
}

/// Whatever a store reads at once, a log may be just as long, or a fork begin just there.
async fn reads_each_event_once_whatever_the_length(store: &dyn Store) {
    for len in [1, 2, 99, 100, 127, 128, 255, 256, 499, 500, 511, 512, 513, 1_000, 1_023, 1_024, 1_025, 2_048] {
        let (name, fork) = (format!("of-{len}"), format!("fork-{len}"));
        let events: Vec<_> = (0..len).map(mark).collect();
        commit(store, vec![begin(&name, events.clone())]).await.unwrap();
        assert_eq!(read(store, &name, 0).await, events, "{len}");
        assert_eq!(read(store, &name, len - 1).await, events[len as usize - 1..], "{len}");
        assert_eq!(read(store, &name, len).await, [], "{len}");
        let until = Some(ForkRef { session: name.as_str().into(), until: Seq(len) });
        let new = new_session(&fork, Some(&name), until, 2);
        commit(store, vec![batch(&fork, Some(new), vec![mark(len)])]).await.unwrap();
        let all: Vec<_> = (0..=len).map(mark).collect();
        assert_eq!(read(store, &fork, 0).await, all, "{len}");
    }
}

async fn a_second_identical_append_is_success(store: &dyn Store) {
    commit(store, vec![begin("twice", vec![mark(0), mark(1)])]).await.unwrap();
    commit(store, vec![begin("twice", vec![mark(0), mark(1), mark(2)])]).await.unwrap();
    assert_eq!(read(store, "twice", 0).await.len(), 3);
}

async fn other_content_and_gaps_are_refused_and_nothing_is_written(store: &dyn Store) {
    commit(store, vec![begin("strict", vec![mark(0)])]).await.unwrap();
    let other = Arc::new(Event::new(Seq(0), Millis(0), Fact::SeedEnded(SeedEnded {})));
    let diverged = commit(store, vec![batch("strict", None, vec![other])]).await;
    assert!(matches!(diverged, Err(StoreError::Diverged { at: Seq(0), .. })), "{diverged:?}");
    let gap = commit(store, vec![begin("innocent", vec![mark(0)]), batch("strict", None, vec![mark(2)])]).await;
    assert!(matches!(gap, Err(StoreError::Diverged { at: Seq(2), stored: Seq(1), .. })), "{gap:?}");
    assert_eq!(store.info("innocent".into()).await.unwrap(), None, "all or nothing");
    let unknown = commit(store, vec![batch("ghost", None, vec![mark(0)])]).await;
    assert!(matches!(unknown, Err(StoreError::Damaged { .. })), "{unknown:?}");
    let missing: Result<Vec<_>, _> = store.read("ghost".into(), Seq(0)).try_collect().await;
    assert!(missing.is_err(), "an empty log would be a lie");
}

async fn forks_share_their_prefix(store: &dyn Store) {
    commit(store, vec![begin("top", vec![mark(0), run(1, &["a", "b", "c"]), mark(4)])]).await.unwrap();
    let fork = ForkRef { session: "top".into(), until: Seq(3) };
    let child = batch("mid", Some(new_session("mid", Some("top"), Some(fork), 2)), vec![mark(3), mark(4)]);
    let fork = ForkRef { session: "mid".into(), until: Seq(4) };
    let grandchild = batch("low", Some(new_session("low", Some("mid"), Some(fork), 3)), vec![mark(4)]);
    commit(store, vec![child, grandchild]).await.unwrap();
    let events = read(store, "low", 0).await;
    assert_eq!(
        events.iter().map(|event| (event.seq.0, event.len())).collect::<Vec<_>>(),
        [(0, 1), (1, 2), (3, 1), (4, 1)]
    );
    assert_eq!(read(store, "low", 2).await.first().map(|event| (event.seq, event.len())), Some((Seq(2), 1)));
    assert_eq!(read(store, "low", 4).await, [mark(4)]);
    // What the parent adds later is none of its forks' business.
    commit(store, vec![batch("top", None, vec![mark(5)])]).await.unwrap();
    assert_eq!(read(store, "mid", 0).await.last(), Some(&mark(4)));
}

async fn lists_what_is_asked_for(store: &dyn Store) {
    let tree = Batch { session: "list-a.tree".into(), ..begin("list-a.tree", vec![mark(0)]) };
    let old = batch("list-a", Some(new_session("list-a", None, None, 1_000)), vec![]);
    let new = batch("list-b", Some(new_session("list-b", None, None, 2_000)), vec![]);
    let child = batch("list-c", Some(new_session("list-c", Some("list-a"), None, 3_000)), vec![]);
    commit(store, vec![old, new, child, tree]).await.unwrap();
    let ids = |filter: SessionFilter| async move {
        let found = store.list(filter).await.unwrap();
        found.iter().map(|info| info.id().to_string()).collect::<Vec<_>>()
    };
    let prefix = || SessionFilter { id_prefix: Some("list-".into()), ..SessionFilter::default() };
    assert_eq!(ids(prefix()).await, ["list-c", "list-b", "list-a"]);
    assert_eq!(ids(SessionFilter { roots_only: true, ..prefix() }).await, ["list-b", "list-a"]);
    assert_eq!(ids(SessionFilter { limit: Some(1), ..prefix() }).await, ["list-c"]);
    assert_eq!(ids(SessionFilter { parent: Some("list-a".into()), ..SessionFilter::default() }).await, ["list-c"]);
    assert_eq!(
        ids(SessionFilter { root: Some("list-a".into()), ..SessionFilter::default() }).await,
        ["list-c", "list-a"]
    );
    let behind = |id: &str| SessionFilter { behind: Some(id.into()), limit: Some(1), ..prefix() };
    assert_eq!(ids(behind("list-c")).await, ["list-b"]);
    assert_eq!(ids(behind("list-b")).await, ["list-a"]);
    assert_eq!(ids(behind("list-a")).await, Vec::<String>::new());
    assert_eq!(ids(SessionFilter { dir: Some("/elsewhere".into()), ..prefix() }).await, Vec::<String>::new());
}

async fn keeps_the_newest_head(store: &dyn Store) {
    commit(store, vec![begin("head", vec![mark(0)])]).await.unwrap();
    let head = Head { turns: 3, outcome: Some(OutcomeKind::Partial), title: "t".into(), ..Head::default() };
    let update = Batch { head: head.clone(), ..batch("head", None, vec![mark(1)]) };
    commit(store, vec![update]).await.unwrap();
    assert_eq!(store.info("head".into()).await.unwrap().unwrap().head, head);
}

async fn keeps_artifacts_by_content(store: &dyn Store) {
    let owner = AgentId::from("a");
    let name = store.put_artifact(owner.clone(), b"bytes".to_vec()).await.unwrap();
    assert_eq!(store.put_artifact(owner, b"bytes".to_vec()).await.unwrap(), name);
    assert_eq!(store.artifact(name).await.unwrap(), Some(b"bytes".to_vec()));
    assert_eq!(store.artifact("nothing".into()).await.unwrap(), None);
}

/// The runtime before this one may still be writing when the next one has begun to read.
async fn an_older_lease_writes_nothing(store: &dyn Store) {
    let older = store.lease().await.unwrap();
    commit_under(store, older, vec![begin("leased", vec![mark(0)])]).await.unwrap();
    let newer = store.lease().await.unwrap();
    let fenced = commit_under(store, older, vec![batch("leased", None, vec![mark(1)])]).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert_eq!(read(store, "leased", 0).await, [mark(0)]);
    commit_under(store, newer, vec![batch("leased", None, vec![mark(1)])]).await.unwrap();
}

/// What was deleted is gone for everybody but its forks, and gone for good with the last of them.
async fn deletes_and_breaks_no_fork(store: &dyn Store) {
    let owner = AgentId::from("del");
    let tree = Batch { session: owner.tree_log(), ..begin("del.tree", vec![mark(0)]) };
    commit(store, vec![begin("del", vec![mark(0), mark(1)]), tree]).await.unwrap();
    let fork = |of: &str, until| Some(ForkRef { session: of.into(), until: Seq(until) });
    let child = batch("del-fork", Some(new_session("del-fork", None, fork("del", 2), 2)), vec![mark(2)]);
    let grandchild = batch("del-forks", Some(new_session("del-forks", None, fork("del-fork", 3), 3)), vec![mark(3)]);
    commit(store, vec![child, grandchild]).await.unwrap();
    let shared = store.put_artifact(owner.clone(), b"shared".to_vec()).await.unwrap();
    store.put_artifact("del-fork".into(), b"shared".to_vec()).await.unwrap();
    let own = store.put_artifact(owner.clone(), b"own".to_vec()).await.unwrap();

    store.delete(None, vec![owner.clone(), "nobody".into()]).await.unwrap();
    assert_eq!(store.info(owner.clone()).await.unwrap(), None);
    assert_eq!(store.info(owner.tree_log()).await.unwrap(), None);
    assert!(store.read(owner.clone(), Seq(0)).try_collect::<Vec<_>>().await.is_err());
    let listed = store.list(SessionFilter { id_prefix: Some("del".into()), ..SessionFilter::default() }).await.unwrap();
    assert_eq!(listed.iter().map(|info| info.id().as_str()).collect::<Vec<_>>(), ["del-forks", "del-fork"]);
    let again = commit(store, vec![begin("del", vec![mark(0)])]).await;
    assert!(matches!(again, Err(StoreError::Damaged { .. })), "an id is not given again: {again:?}");
    let late = batch("del-late", Some(new_session("del-late", None, fork("del", 1), 4)), vec![]);
    assert!(matches!(commit(store, vec![late]).await, Err(StoreError::Damaged { .. })));
    // Its forks read on, and can be forked.
    let all: Vec<_> = (0..4).map(mark).collect();
    assert_eq!(read(store, "del-forks", 0).await, all);
    let more = batch("del-more", Some(new_session("del-more", None, fork("del-forks", 4), 5)), vec![mark(4)]);
    commit(store, vec![more]).await.unwrap();
    store.delete(None, vec!["del-fork".into(), "del-forks".into()]).await.unwrap();
    assert_eq!(read(store, "del-more", 0).await.len(), 5);
    assert!(store.artifact(own.clone()).await.unwrap().is_some(), "its owner is still needed");
    // With the last of them all goes, and the place is free.
    store.delete(None, vec!["del-more".into()]).await.unwrap();
    assert_eq!((store.artifact(own).await.unwrap(), store.artifact(shared).await.unwrap()), (None, None));
    commit(store, vec![begin("del", vec![mark(0)])]).await.unwrap();
    assert_eq!(read(store, "del", 0).await, [mark(0)]);
}

async fn an_older_lease_deletes_nothing(store: &dyn Store) {
    let older = store.lease().await.unwrap();
    commit_under(store, older, vec![begin("stays", vec![mark(0)])]).await.unwrap();
    let newer = store.take_over().await.unwrap();
    let fenced = store.delete(Some(older), vec!["stays".into()]).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert_eq!(read(store, "stays", 0).await, [mark(0)]);
    store.delete(Some(newer), vec!["stays".into()]).await.unwrap();
    assert_eq!(store.info("stays".into()).await.unwrap(), None);
}

async fn keeps_checkpoints_as_long_as_their_sessions_or_none(store: &dyn Store) {
    commit(store, vec![begin("long", vec![mark(0)])]).await.unwrap();
    assert_eq!(store.checkpoint("long".into()).await.unwrap(), None);
    let first = Checkpoint { until: Seq(1), bytes: b"first".into() };
    let second = Checkpoint { until: Seq(1), bytes: b"second".into() };
    store.put_checkpoint(None, "long".into(), first).await.unwrap();
    store.put_checkpoint(None, "long".into(), second.clone()).await.unwrap();
    let kept = store.checkpoint("long".into()).await.unwrap();
    assert!(kept.as_ref().is_none_or(|kept| *kept == second), "{kept:?}");
    store.put_checkpoint(None, "nobody".into(), second.clone()).await.unwrap();
    assert_eq!(store.checkpoint("nobody".into()).await.unwrap(), None);
    let old = store.lease().await.unwrap();
    store.take_over().await.unwrap();
    let third = Checkpoint { until: Seq(1), bytes: b"third".into() };
    let fenced = store.put_checkpoint(Some(old), "long".into(), third).await;
    assert!(matches!(fenced, Ok(()) | Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert_eq!(store.checkpoint("long".into()).await.unwrap(), kept, "who was fenced keeps nothing");
    store.delete(None, vec!["long".into()]).await.unwrap();
    assert_eq!(store.checkpoint("long".into()).await.unwrap(), None);
}

async fn keeps_the_contract(store: &dyn Store) {
    an_older_lease_writes_nothing(store).await;
    reads_back_what_was_written(store).await;
    reads_from_the_middle_of_a_run(store).await;
    pages_through_long_logs(store).await;
    reads_each_event_once_whatever_the_length(store).await;
    a_second_identical_append_is_success(store).await;
    other_content_and_gaps_are_refused_and_nothing_is_written(store).await;
    forks_share_their_prefix(store).await;
    lists_what_is_asked_for(store).await;
    keeps_the_newest_head(store).await;
    keeps_artifacts_by_content(store).await;
    keeps_checkpoints_as_long_as_their_sessions_or_none(store).await;
    deletes_and_breaks_no_fork(store).await;
    an_older_lease_deletes_nothing(store).await;
}

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::new()).await;
}

#[tokio::test]
async fn the_sqlite_store_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("home/store.sqlite")).unwrap();
    keeps_the_contract(&store).await;
    assert_eq!(store.integrity().unwrap(), Vec::<String>::new());
    assert!(store.size_bytes() > 0);
}

#[tokio::test]
async fn the_jsonl_store_keeps_the_contract() {
    for encoding in [Encoding::Raw, Encoding::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        let store = JsonlStore::open(folder.path().join("home/logs"), encoding).unwrap();
        keeps_the_contract(&store).await;
    }
}

#[tokio::test]
async fn what_was_committed_is_there_after_the_store_was_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    commit(&SqliteStore::open(&path).unwrap(), vec![begin("kept", vec![mark(0)])]).await.unwrap();
    assert_eq!(read(&SqliteStore::open(&path).unwrap(), "kept", 0).await, [mark(0)]);
}

#[tokio::test]
async fn readers_work_while_another_store_writes_and_may_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let writer = SqliteStore::open(&path).unwrap();
    commit(&writer, vec![begin("seen", vec![mark(0)])]).await.unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(read(&reader, "seen", 0).await, [mark(0)]);
    commit(&writer, vec![batch("seen", None, vec![mark(1)])]).await.unwrap();
    assert_eq!(read(&reader, "seen", 0).await.len(), 2);
    let refused = commit(&reader, vec![batch("seen", None, vec![mark(2)])]).await.unwrap_err();
    assert!(refused.to_string().contains("reading only"), "{refused}");
}

#[tokio::test]
async fn one_process_at_a_time_has_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let first = SqliteStore::open(&path).unwrap();
    let epoch = first.lease().await.unwrap().epoch;
    let second = SqliteStore::open(&path).unwrap();
    assert_eq!(SqliteStore::holder(&path), Some(std::process::id()));
    let locked = second.lease().await.unwrap_err();
    assert!(matches!(locked, StoreError::Locked { pid, .. } if pid == std::process::id()), "{locked:?}");
    drop(first);
    assert_eq!(SqliteStore::holder(&path), None);
    assert!(second.lease().await.unwrap().epoch > epoch);
}

#[tokio::test]
async fn who_was_taken_over_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let first = SqliteStore::open(&path).unwrap();
    let lease = first.lease().await.unwrap();
    commit_under(&first, lease, vec![begin("mine", vec![mark(0)])]).await.unwrap();
    // As if the lock had been lost: another host, another mount.
    std::fs::remove_file(folder.path().join("store.sqlite.lock")).unwrap();
    let second = SqliteStore::open(&path).unwrap();
    second.lease().await.unwrap();
    let fenced = commit_under(&first, lease, vec![batch("mine", None, vec![mark(1)])]).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert_eq!(read(&second, "mine", 0).await, [mark(0)]);
}

#[tokio::test]
async fn a_process_that_hangs_is_taken_over_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let first = SqliteStore::open(&path).unwrap();
    let lease = first.lease().await.unwrap();
    commit_under(&first, lease, vec![begin("mine", vec![mark(0)])]).await.unwrap();
    let second = SqliteStore::open(&path).unwrap();
    let locked = second.lease().await.unwrap_err();
    assert!(matches!(locked, StoreError::Locked { since: Some(_), .. }), "{locked:?}");
    assert!(locked.to_string().contains("since"), "{locked}");
    let newer = second.take_over().await.unwrap();
    let fenced = commit_under(&first, lease, vec![batch("mine", None, vec![mark(1)])]).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    commit_under(&second, newer, vec![batch("mine", None, vec![mark(1)])]).await.unwrap();
    // The end of the first is not the end of the second's right.
    drop(first);
    let third = SqliteStore::open(&path).unwrap();
    assert!(matches!(third.lease().await, Err(StoreError::Locked { .. })));
}

#[tokio::test]
async fn a_process_that_hangs_in_a_transaction_is_named_and_nothing_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let first = SqliteStore::open(&path).unwrap();
    first.lease().await.unwrap();
    let second = SqliteStore::open(&path).unwrap();
    let stopped = rusqlite::Connection::open(&path).unwrap();
    stopped.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = second.take_over().await.unwrap_err();
    assert!(matches!(locked, StoreError::Locked { pid, .. } if pid == std::process::id()), "{locked:?}");
    assert_eq!(SqliteStore::holder(&path), Some(std::process::id()), "the first has its lock");
    stopped.execute_batch("ROLLBACK").unwrap();
    second.take_over().await.unwrap();
}

/// Makes of a store what an older version of this program wrote.
fn make_old(path: &std::path::Path, version: i64) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let second = "ALTER TABLE sessions ADD COLUMN head TEXT NOT NULL DEFAULT '{}'; \
                  ALTER TABLE sessions ADD COLUMN len INTEGER NOT NULL DEFAULT 0; \
                  ALTER TABLE sessions ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0; \
                  UPDATE sessions SET (head, len, updated_at) = \
                      (SELECT heads.head, heads.len, heads.updated_at FROM heads WHERE session = key); \
                  DROP TABLE heads; DROP TABLE checkpoints; PRAGMA user_version = 2;";
    let first = "DROP INDEX sessions_fork; DROP INDEX sessions_deleted; ALTER TABLE sessions DROP COLUMN deleted_at; \
                 DROP TABLE artifact_owners; PRAGMA user_version = 1;";
    connection.execute_batch(second).unwrap();
    if version == 1 {
        connection.execute_batch(first).unwrap();
    }
}

#[tokio::test]
async fn a_file_of_an_older_version_is_copied_and_made_one_of_this() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.migrated(), None);
    commit(&store, vec![begin("kept", vec![mark(0)])]).await.unwrap();
    drop(store);
    make_old(&path, 1);
    // Whoever only reads changes nothing.
    assert_eq!(read(&SqliteStore::open_read_only(&path).unwrap(), "kept", 0).await, [mark(0)]);

    let lock =
        std::fs::File::options().write(true).create(true).truncate(false).open(folder.path().join("store.sqlite.lock"));
    let held = lock.unwrap();
    held.lock().unwrap();
    let busy = SqliteStore::open(&path).err().expect("somebody has it open");
    assert!(matches!(busy, StoreError::Locked { .. }), "{busy:?}");
    drop(held);

    let store = SqliteStore::open(&path).unwrap();
    let migrated = store.migrated().expect("it was migrated").clone();
    assert_eq!((migrated.from, migrated.to), (1, 3));
    assert_eq!(migrated.copy, folder.path().join("store.sqlite.v1"));
    deletes_and_breaks_no_fork(&store).await;
    assert_eq!(read(&store, "kept", 0).await, [mark(0)]);
    assert_eq!(store.integrity().unwrap(), Vec::<String>::new());
    drop(store);
    assert_eq!(SqliteStore::open(&path).unwrap().migrated(), None);
    // The copy is what it was, and a second one has a name of its own.
    let copy = rusqlite::Connection::open(&migrated.copy).unwrap();
    assert_eq!(copy.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 1);
    make_old(&path, 1);
    let again = SqliteStore::open(&path).unwrap();
    assert_eq!(again.migrated().unwrap().copy, folder.path().join("store.sqlite.v1-2"));
    drop(again);
    let before = SqliteStore::open(&path).unwrap().list(SessionFilter::default()).await.unwrap();
    make_old(&path, 2);
    assert_eq!(read(&SqliteStore::open_read_only(&path).unwrap(), "kept", 0).await, [mark(0)]);
    let again = SqliteStore::open(&path).unwrap();
    assert_eq!(again.migrated().unwrap().copy, folder.path().join("store.sqlite.v2"));
    assert_eq!(again.list(SessionFilter::default()).await.unwrap(), before);
}

#[tokio::test]
async fn a_backup_is_whole_while_the_store_is_written_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store.sqlite"), folder.path().join("copy.sqlite"));
    let store = SqliteStore::open(&path).unwrap();
    let lease = store.lease().await.unwrap();
    commit_under(&store, lease, vec![begin("kept", (0..1_000).map(mark).collect())]).await.unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    let (done, writing) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), path.clone());
    let backup = std::thread::spawn({
        let (done, copy) = (Arc::clone(&done), copy.clone());
        move || {
            let result = reader.backup(copy);
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            (result, writing)
        }
    });
    let mut at = 1_000;
    while !done.load(std::sync::atomic::Ordering::SeqCst) {
        commit_under(&store, lease, vec![batch("kept", None, vec![mark(at)])]).await.unwrap();
        at += 1;
    }
    backup.join().unwrap().0.unwrap();
    let kept = read(&SqliteStore::open(&copy).unwrap(), "kept", 0).await;
    assert!((1_000..=at as usize).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept, (0..kept.len() as u64).map(mark).collect::<Vec<_>>());
    let before = std::fs::read(&copy).unwrap();
    assert!(store.backup(&copy).is_err());
    assert_eq!(std::fs::read(&copy).unwrap(), before);
}

#[test]
fn a_file_of_somebody_else_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "these are my notes, and they are longer than a sqlite header would be, by far").unwrap();
    let before = std::fs::read(&text).unwrap();
    assert!(matches!(SqliteStore::open(&text), Err(StoreError::Foreign { .. })));
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let theirs = folder.path().join("theirs.sqlite");
    let connection = rusqlite::Connection::open(&theirs).unwrap();
    connection.execute_batch("CREATE TABLE t (x); PRAGMA user_version = 7;").unwrap();
    drop(connection);
    let before = std::fs::read(&theirs).unwrap();
    assert!(matches!(SqliteStore::open(&theirs), Err(StoreError::Foreign { .. })));
    assert_eq!(std::fs::read(&theirs).unwrap(), before);
}

#[test]
fn a_file_of_a_later_version_is_refused_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    drop(SqliteStore::open(&path).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::Newer { found: 99, .. })));
    assert!(matches!(SqliteStore::open_read_only(&path), Err(StoreError::Newer { found: 99, .. })));
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("home/store.sqlite");
    drop(SqliteStore::open(&path).unwrap());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn a_missing_file_is_not_created_by_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    assert!(matches!(SqliteStore::open_read_only(&path), Err(StoreError::Io { .. })));
    assert!(!path.exists());
}
