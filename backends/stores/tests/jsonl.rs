//! What only a folder of logs can get wrong.
#![cfg(feature = "jsonl")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use impresario_kernel::event::{InboxWoken, TurnEnded, TurnStarted};
use impresario_kernel::outcome::TurnEnd;
use impresario_kernel::{AgentId, AgentPath, Event, Fact, Message, Millis, Seq, SessionHeader};
use impresario_seams::{
    Batch, Commit, ForkRef, Head, Lease, NewSession, SessionFilter, SessionInfo, Store, StoreError, TurnState,
};
use impresario_stores::JsonlStore;
use impresario_stores::jsonl::{DiagnosticKind, Encoding, export_dsh, find_dsh, read_dsh};

const BOTH: [Encoding; 2] = [Encoding::Raw, Encoding::Zstd];

/// A folder of its own; in memory where that can be, for a thousand stores.
fn folder() -> tempfile::TempDir {
    let quick = tempfile::tempdir_in("/dev/shm");
    quick.or_else(|_| tempfile::tempdir()).unwrap()
}

fn event(seq: u64, fact: Fact) -> Arc<Event> {
    Arc::new(Event::new(Seq(seq), Millis(seq + 10), fact))
}

fn mark(seq: u64) -> Arc<Event> {
    event(seq, Fact::InboxWoken(InboxWoken { message: format!("m{seq}").into() }))
}

fn marks(range: std::ops::Range<u64>) -> Vec<Arc<Event>> {
    range.map(mark).collect()
}

fn turn(seq: u64, turn: u32) -> Arc<Event> {
    event(seq, Fact::TurnStarted(TurnStarted { turn, rest: serde_json::Map::new() }))
}

fn header(id: &str) -> SessionHeader {
    SessionHeader { cwd: Some("/work".into()), ..SessionHeader::new(id.into(), Millis(1)) }
}

fn batch(id: &str, events: Vec<Arc<Event>>) -> Batch {
    Batch { session: id.into(), create: None, events, head: Head::default() }
}

fn begin_as(header: SessionHeader, fork: Option<ForkRef>, events: Vec<Arc<Event>>) -> Batch {
    let (session, root) = (header.id.clone(), header.parent_session.clone().unwrap_or_else(|| header.id.clone()));
    let new = NewSession { label: session.to_string(), header, root, path: AgentPath::root(), fork };
    Batch { session, create: Some(Arc::new(new)), events, head: Head::default() }
}

fn begin(id: &str, events: Vec<Arc<Event>>) -> Batch {
    begin_as(header(id), None, events)
}

async fn commit(store: &JsonlStore, batches: Vec<Batch>) -> Result<(), StoreError> {
    store.commit(Commit { lease: None, batches, ..Commit::default() }).await
}

async fn commit_under(store: &JsonlStore, lease: Lease, batches: Vec<Batch>) -> Result<(), StoreError> {
    store.commit(Commit { lease: Some(lease), batches, ..Commit::default() }).await
}

async fn try_read(store: &JsonlStore, id: &str) -> Result<Vec<Arc<Event>>, StoreError> {
    store.read(id.into(), Seq(0)).try_collect().await
}

async fn read(store: &JsonlStore, id: &str) -> Vec<Arc<Event>> {
    try_read(store, id).await.unwrap()
}

async fn info(store: &JsonlStore, id: &str) -> SessionInfo {
    store.info(id.into()).await.unwrap().unwrap()
}

fn log(root: &Path, id: &str, encoding: Encoding) -> PathBuf {
    root.join("--work--").join(id).join(encoding.file_name())
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut open) = (vec![], vec![folder.to_owned()]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.push((path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// A folder with these files: what a process leaves that ends without a word.
fn restore(files: &[(PathBuf, Vec<u8>)]) -> tempfile::TempDir {
    let root = folder();
    for (path, bytes) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    root
}

/// A root whose only log is `bytes`, without a word of ours beside it.
fn root_of(id: &str, bytes: &[u8], encoding: Encoding) -> tempfile::TempDir {
    restore(&[(log(Path::new(""), id, encoding), bytes.to_owned())])
}

const HEADER: &str = r#"{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/work"}"#;

fn row(seq: u64) -> String {
    impresario_kernel::wire::encode_row(&mark(seq)).unwrap()
}

#[tokio::test]
async fn b247_what_was_never_written_is_in_no_list_and_has_no_file() {
    let root = folder();
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    let refused = commit(&store, vec![begin("s", vec![mark(1)])]).await;
    assert!(matches!(refused, Err(StoreError::Diverged { .. })), "{refused:?}");
    assert_eq!(store.list(SessionFilter::default()).await.unwrap(), []);
    assert_eq!(find_dsh(root.path()), Vec::<PathBuf>::new());
    assert!(!root.path().join("--work--").exists());
}

#[tokio::test]
async fn b248_an_append_elsewhere_is_refused_and_changes_no_byte() {
    for encoding in BOTH {
        let root = folder();
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        commit(&store, vec![begin("s", marks(0..2)), begin("t", marks(0..1))]).await.unwrap();
        let before = files(root.path());
        for wrong in [mark(3), turn(1, 1)] {
            let refused = commit(&store, vec![batch("t", vec![mark(1)]), batch("s", vec![wrong])]).await;
            assert!(matches!(refused, Err(StoreError::Diverged { stored: Seq(2), .. })), "{refused:?}");
        }
        assert_eq!(files(root.path()), before);
    }
}

#[tokio::test]
async fn b252_a_torn_end_is_dropped_and_nothing_before_it() {
    for encoding in BOTH {
        let root = folder();
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        commit(&store, vec![begin("s", marks(0..3))]).await.unwrap();
        let kept = fs::read(log(root.path(), "s", encoding)).unwrap();
        commit(&store, vec![batch("s", vec![mark(3)])]).await.unwrap();
        let whole = fs::read(log(root.path(), "s", encoding)).unwrap();
        // The newline is not needed to know a record.
        let last = if encoding == Encoding::Raw { whole.len() - 1 } else { whole.len() };
        for end in kept.len() + 1..last {
            let root = root_of("s", &whole[..end], encoding);
            let store = JsonlStore::open(root.path(), encoding).unwrap();
            assert_eq!(info(&store, "s").await.len, Seq(3));
            assert_eq!(read(&store, "s").await, marks(0..3));
            let found = store.diagnose(&"s".into()).unwrap().unwrap();
            assert_eq!(found.iter().map(|found| found.kind).collect::<Vec<_>>(), [DiagnosticKind::TornTail]);
            assert_eq!(fs::read(log(root.path(), "s", encoding)).unwrap().len(), end, "reading repairs nothing");
            let answer = Arc::new(Event::new(Seq(3), Millis(99), turn(3, 1).fact.clone()));
            commit(&store, vec![batch("s", vec![Arc::clone(&answer), mark(4)])]).await.unwrap();
            let (_, events, found) = read_dsh(log(root.path(), "s", encoding)).unwrap();
            assert_eq!((events.len(), &events[3], found), (5, &answer, vec![]));
            assert_eq!(read(&store, "s").await, events);
        }
    }
}

#[tokio::test]
async fn b253_a_corrupt_line_before_a_later_end_of_a_turn_is_corruption() {
    let root = folder();
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    let ended = event(3, Fact::TurnEnded(TurnEnded { turn: 1, reason: TurnEnd::Completed }));
    commit(&store, vec![begin("s", vec![mark(0), turn(1, 1), mark(2), ended])]).await.unwrap();
    let mut bytes = fs::read(log(root.path(), "s", Encoding::Raw)).unwrap();
    let third = bytes.windows(2).position(|two| two == b"m2").unwrap();
    bytes[third + 2] = b'{';
    let root = root_of("s", &bytes, Encoding::Raw);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    let mut events = store.read("s".into(), Seq(0));
    let mut whole = vec![];
    let error = loop {
        match events.try_next().await {
            Ok(event) => whole.push(event.expect("the end is no end")),
            Err(error) => break error,
        }
    };
    assert_eq!(whole, [mark(0), turn(1, 1)], "what is before it can be read");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let refused = commit(&store, vec![batch("s", vec![mark(4)])]).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Damaged { what, .. }
        if what.contains("session.jsonl: line 4: ")),
        "{refused:?}"
    );
    assert_eq!(fs::read(log(root.path(), "s", Encoding::Raw)).unwrap(), bytes);
}

#[tokio::test]
async fn b254_a_newer_header_is_unsupported_and_no_corruption() {
    let newer = HEADER.replace("\"version\":0", "\"version\":1");
    let root = root_of("s", format!("{newer}\n{}\n", row(0)).as_bytes(), Encoding::Raw);
    let before = files(&root.path().join("--work--"));
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    for error in [
        store.info("s".into()).await.unwrap_err(),
        try_read(&store, "s").await.unwrap_err(),
        commit(&store, vec![batch("s", vec![mark(1)])]).await.unwrap_err(),
        read_dsh(log(root.path(), "s", Encoding::Raw)).unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Newer { found: 1, known: 0, .. }), "{error:?}");
        assert!(error.to_string().contains("upgrade"), "{error}");
    }
    // It hides itself and no other.
    commit(&store, vec![begin("t", vec![mark(0)])]).await.unwrap();
    assert_eq!(store.list(SessionFilter::default()).await.unwrap().len(), 1);
    assert_eq!(files(&root.path().join("--work--/s")), files(&restore(&before).path().join("s")));
}

#[tokio::test]
async fn b255_an_unknown_required_type_refuses_the_log_and_an_ignorable_one_does_not() {
    let unknown = r#"{"type":"x/later","seq":1,"time":5,"data":{"k":1}}"#;
    let ignorable = unknown.replace("}}", "},\"ignorable\":true}");
    let text = |line: &str| format!("{HEADER}\n{}\n{line}\n{}\n", row(0), row(2));
    let root = root_of("s", text(unknown).as_bytes(), Encoding::Raw);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    for error in [
        try_read(&store, "s").await.unwrap_err(),
        commit(&store, vec![batch("s", vec![mark(3)])]).await.unwrap_err(),
        read_dsh(log(root.path(), "s", Encoding::Raw)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("`x/later`") && error.to_string().contains("upgrade"), "{error}");
    }
    let root = root_of("s", text(&ignorable).as_bytes(), Encoding::Raw);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    assert_eq!(read(&store, "s").await.len(), 3);
    commit(&store, vec![batch("s", vec![mark(3)])]).await.unwrap();
    let kept = fs::read_to_string(log(root.path(), "s", Encoding::Raw)).unwrap();
    assert!(kept.contains(&ignorable), "it stays as it came");
}

#[tokio::test]
async fn b261_a_header_that_does_not_match_its_path_is_refused_before_any_repair() {
    let torn = format!("{HEADER}\n{}\n{{\"type", row(0));
    for (place, what) in [("--work--/other", "id"), ("--elsewhere--/s", "cwd"), ("--%none--/s", "cwd")] {
        let file = PathBuf::from(place).join("session.jsonl");
        let root = restore(&[(file.clone(), torn.clone().into_bytes())]);
        let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
        let id = if what == "id" { "other" } else { "s" };
        for error in [
            store.list(SessionFilter::default()).await.unwrap_err(),
            store.info(id.into()).await.unwrap_err(),
            try_read(&store, id).await.unwrap_err(),
            commit(&store, vec![batch(id, vec![mark(1)])]).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, StoreError::Damaged { what: said, .. }
                if said.contains(what) && said.contains("does not match")),
                "{error:?}"
            );
        }
        assert_eq!(fs::read(root.path().join(file)).unwrap(), torn.as_bytes());
    }
}

#[tokio::test]
async fn b266_seed_length_and_depth_come_back_also_out_of_an_export() {
    for encoding in BOTH {
        let root = folder();
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        let mut fork = header("fork");
        fork.parent_session = Some("s".into());
        fork.seed_length = Some(2);
        fork.delegation_depth = Some(3);
        fork.origin = Some("subagent".into());
        let share = ForkRef { session: "s".into(), until: Seq(2) };
        let child = begin_as(fork.clone(), Some(share.clone()), marks(2..4));
        commit(&store, vec![begin("s", marks(0..3)), child]).await.unwrap();
        drop(store);
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        let there = info(&store, "fork").await;
        assert_eq!((&there.new.header, &there.new.fork, there.len), (&fork, &Some(share.clone()), Seq(4)));
        // dsh's files are whole.
        let dsh = tempfile::tempdir().unwrap();
        let exported = export_dsh(&store, &"fork".into(), dsh.path(), encoding).await.unwrap();
        assert_eq!(read_dsh(&exported).unwrap(), (fork.clone(), marks(0..4), vec![]));
        assert!(export_dsh(&store, &"fork".into(), dsh.path(), encoding).await.is_err(), "nothing is replaced");
        assert_eq!(find_dsh(dsh.path()), [exported]);
        // And a folder of them is a store.
        let theirs = JsonlStore::open(dsh.path(), encoding).unwrap();
        assert_eq!(read(&theirs, "fork").await, marks(0..4));
        assert_eq!(info(&theirs, "fork").await.new.fork, None);
        // Without the file beside it, the log of a fork still says whose it is.
        fs::remove_file(root.path().join("--work--/fork/impresario.json")).unwrap();
        assert_eq!(info(&store, "fork").await.new.fork, Some(share));
        assert_eq!(read(&store, "fork").await, marks(0..4));
    }
}

/// Two sessions, and the folder before and after a second commit to both. The first is large in neither.
async fn before_and_after(encoding: Encoding) -> [Vec<(PathBuf, Vec<u8>)>; 2] {
    let root = folder();
    let store = JsonlStore::open(root.path(), encoding).unwrap();
    commit(&store, vec![begin("s", marks(0..2)), begin("t", marks(0..1))]).await.unwrap();
    let before = files(root.path());
    commit(&store, vec![batch("s", marks(2..4)), batch("t", marks(1..3)), begin("u", marks(0..2))]).await.unwrap();
    [before, files(root.path())]
}

fn find<'a>(files: &'a mut [(PathBuf, Vec<u8>)], path: &Path) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(there, _)| there == path).expect("it is there").1
}

async fn lengths(store: &JsonlStore) -> (usize, usize, Option<usize>) {
    let third = store.info("u".into()).await.unwrap();
    let third = if third.is_some() { Some(read(store, "u").await.len()) } else { None };
    (read(store, "s").await.len(), read(store, "t").await.len(), third)
}

#[tokio::test]
async fn a_commit_whose_record_is_cut_at_any_byte_never_was() {
    for encoding in BOTH {
        let [before, after] = before_and_after(encoding).await;
        let record = PathBuf::from(".impresario/commits");
        let whole = find(&mut after.clone(), &record).clone();
        let from = find(&mut before.clone(), &record).len();
        for end in from..=whole.len() {
            let mut left = before.clone();
            *find(&mut left, &record) = whole[..end].to_vec();
            let root = restore(&left);
            let store = JsonlStore::open(root.path(), encoding).unwrap();
            let expected = if end == whole.len() { (4, 3, Some(2)) } else { (2, 1, None) };
            assert_eq!(lengths(&store).await, expected, "{encoding}, {end} of {}", whole.len());
        }
    }
}

#[tokio::test]
async fn a_commit_that_was_recorded_is_finished_wherever_the_files_end() {
    for encoding in BOTH {
        let [before, after] = before_and_after(encoding).await;
        for id in ["s", "t", "u"] {
            let path = log(Path::new(""), id, encoding);
            let from = before.iter().find(|(there, _)| *there == path).map_or(0, |(_, bytes)| bytes.len());
            let until = find(&mut after.clone(), &path).len();
            for end in from..=until {
                let mut left = after.clone();
                find(&mut left, &path).truncate(end);
                // What says how long they are is written behind all logs.
                left.retain(|(path, _)| !path.ends_with("u/impresario.json"));
                let root = restore(&left);
                let store = JsonlStore::open_read_only(root.path(), encoding).unwrap();
                assert_eq!(lengths(&store).await, (4, 3, Some(2)), "{encoding}, {id} cut at {end}");
                let store = JsonlStore::open(root.path(), encoding).unwrap();
                commit(&store, vec![batch("s", vec![mark(4)]), batch("u", vec![mark(2)])]).await.unwrap();
                assert_eq!(lengths(&store).await, (5, 3, Some(3)));
            }
        }
    }
}

#[tokio::test]
async fn what_stands_where_a_commit_is_finished_is_put_aside() {
    let [before, mut after] = before_and_after(Encoding::Raw).await;
    let path = log(Path::new(""), "s", Encoding::Raw);
    let from = find(&mut before.clone(), &path).len();
    find(&mut after, &path).splice(from.., *b"somebody else's\n");
    let root = restore(&after);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    assert_eq!(lengths(&store).await, (4, 3, Some(2)));
    let aside = files(&root.path().join(".impresario/aside"));
    assert_eq!(aside.iter().map(|(_, bytes)| bytes.as_slice()).collect::<Vec<_>>(), [b"somebody else's\n"]);
}

#[tokio::test]
async fn a_log_alone_that_is_cut_at_any_byte_is_read_as_far_as_it_is_whole_and_goes_on() {
    for encoding in BOTH {
        let [_, after] = before_and_after(encoding).await;
        let bytes = find(&mut after.clone(), &log(Path::new(""), "s", encoding)).clone();
        let mut longest = 0;
        for end in 0..=bytes.len() {
            let root = root_of("s", &bytes[..end], encoding);
            let store = JsonlStore::open(root.path(), encoding).unwrap();
            let Ok(Some(there)) = store.info("s".into()).await else {
                assert_eq!(longest, 0, "a whole header is enough");
                assert_eq!(store.list(SessionFilter::default()).await.unwrap(), []);
                continue;
            };
            let events = read(&store, "s").await;
            assert!(events.len() >= longest && there.len == Seq(events.len() as u64));
            assert_eq!(events, marks(0..there.len.0));
            longest = events.len();
            commit(&store, vec![batch("s", vec![mark(there.len.0)])]).await.unwrap();
            let (_, again, found) = read_dsh(log(root.path(), "s", encoding)).unwrap();
            assert_eq!((again, found), (marks(0..there.len.0 + 1), vec![]), "{encoding} cut at {end}");
        }
        assert_eq!(longest, 4);
    }
}

#[tokio::test]
async fn no_changed_byte_of_a_compressed_log_is_a_panic_or_another_event() {
    let [_, after] = before_and_after(Encoding::Zstd).await;
    let bytes = find(&mut after.clone(), &log(Path::new(""), "s", Encoding::Zstd)).clone();
    let folder = folder();
    let path = folder.path().join("session.jsonl.zstd");
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            fs::write(&path, &changed).unwrap();
            let Ok((_, events, found)) = read_dsh(&path) else { continue };
            assert_eq!(events, marks(0..events.len() as u64), "byte {at}");
            assert!(events.len() == 4 || !found.is_empty(), "byte {at}: what is missing is said");
        }
    }
}

#[tokio::test]
async fn one_process_at_a_time_has_the_lease_and_can_be_taken_over_from() {
    let root = folder();
    let first = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    let lease = first.lease().await.unwrap();
    commit_under(&first, lease, vec![begin("s", vec![mark(0)])]).await.unwrap();
    let second = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    assert_eq!(JsonlStore::holder(root.path()), Some(std::process::id()));
    let locked = second.lease().await.unwrap_err();
    let here = root.path().display().to_string();
    assert!(matches!(&locked, StoreError::Locked { location, since: Some(_), .. } if *location == here), "{locked:?}");
    let newer = second.take_over().await.unwrap();
    assert!(newer.epoch > lease.epoch);
    let fenced = commit_under(&first, lease, vec![batch("s", vec![mark(1)])]).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    commit_under(&second, newer, vec![batch("s", vec![mark(1)])]).await.unwrap();
    drop(first);
    let third = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    assert!(matches!(third.lease().await, Err(StoreError::Locked { .. })));
}

#[tokio::test]
async fn a_process_that_hangs_in_a_commit_is_named_and_nothing_hangs() {
    let root = folder();
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    store.lease().await.unwrap();
    let held = fs::File::options().write(true).open(root.path().join(".impresario/lock")).unwrap();
    held.lock().unwrap();
    let locked = commit(&store, vec![begin("s", vec![mark(0)])]).await.unwrap_err();
    assert!(matches!(locked, StoreError::Locked { pid, .. } if pid == std::process::id()), "{locked:?}");
    drop(held);
    commit(&store, vec![begin("s", vec![mark(0)])]).await.unwrap();
}

#[tokio::test]
async fn two_stores_that_write_to_one_log_in_turn_see_each_other() {
    for encoding in BOTH {
        let root = folder();
        let stores =
            [JsonlStore::open(root.path(), encoding).unwrap(), JsonlStore::open(root.path(), encoding).unwrap()];
        commit(&stores[0], vec![begin("s", vec![])]).await.unwrap();
        for at in 0..40 {
            let (one, other) = (&stores[at as usize % 2], &stores[(at as usize + 1) % 2]);
            commit(one, vec![batch("s", vec![mark(at)])]).await.unwrap();
            assert_eq!(info(other, "s").await.len, Seq(at + 1));
            let late = commit(other, vec![batch("s", vec![turn(at, 1)])]).await;
            assert!(matches!(late, Err(StoreError::Diverged { .. })), "{late:?}");
        }
        assert_eq!(read(&stores[0], "s").await, marks(0..40));
        let reader = JsonlStore::open_read_only(root.path(), encoding).unwrap();
        assert_eq!(read(&reader, "s").await, marks(0..40));
        let refused = commit(&reader, vec![batch("s", vec![mark(40)])]).await.unwrap_err();
        assert!(refused.to_string().contains("reading only"), "{refused}");
    }
}

#[tokio::test]
async fn what_stands_beside_a_log_is_made_anew_when_it_is_gone_or_old() {
    for encoding in BOTH {
        let root = folder();
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        let said = event(1, Fact::UserMessage(Arc::new(Message::user("m", "count the  files"))));
        let mut child = header("child");
        child.parent_session = Some("s".into());
        let mut grandchild = header("grandchild");
        grandchild.parent_session = Some("child".into());
        let batches = vec![
            begin("s", vec![turn(0, 1), said]),
            begin_as(child, None, marks(0..1)),
            begin_as(grandchild, None, marks(0..1)),
        ];
        commit(&store, batches).await.unwrap();
        for id in ["s", "child", "grandchild"] {
            fs::remove_file(root.path().join("--work--").join(id).join("impresario.json")).unwrap();
        }
        let there = info(&store, "s").await;
        assert_eq!((there.len, there.updated_at, there.new.label.as_str()), (Seq(2), Millis(11), "s"));
        assert_eq!((there.head.state, there.head.turns), (TurnState::Open, 1));
        assert_eq!(there.head.title, "count the files");
        assert_eq!(info(&store, "grandchild").await.new.root, AgentId::from("s"));
        commit(&store, vec![batch("s", vec![mark(2)])]).await.unwrap();
        assert_eq!(read(&store, "s").await.len(), 3);
    }
}

#[tokio::test]
async fn reading_begins_anywhere_whoever_wrote_the_log_and_however_much_at_once() {
    for encoding in BOTH {
        let root = folder();
        let store = JsonlStore::open(root.path(), encoding).unwrap();
        commit(&store, vec![begin("s", marks(0..1))]).await.unwrap();
        for (from, until) in [(1, 2), (2, 1_500), (1_500, 1_501), (1_501, 2_200)] {
            commit(&store, vec![batch("s", marks(from..until))]).await.unwrap();
        }
        let other = JsonlStore::open_read_only(root.path(), encoding).unwrap();
        for from in [0, 1, 2, 255, 256, 257, 258, 700, 1_499, 1_500, 1_501, 1_757, 1_758, 2_199, 2_200, 9_999] {
            for store in [&store, &other] {
                let read: Vec<_> = store.read("s".into(), Seq(from)).try_collect().await.unwrap();
                assert_eq!(read, marks(from.min(2_200)..2_200), "{encoding}, from {from}");
            }
        }
        let path = log(root.path(), "s", encoding);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let there = info(&store, "s").await;
        assert_eq!(store.diagnose(&"s".into()).unwrap().unwrap().len(), 1);
        commit(&store, vec![batch("s", marks(there.len.0..there.len.0 + 1))]).await.unwrap();
        assert_eq!(store.diagnose(&"s".into()).unwrap(), Some(vec![]), "it was cut off");
    }
}

#[tokio::test]
async fn another_program_may_append_and_is_seen() {
    let root = folder();
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    commit(&store, vec![begin("s", marks(0..2))]).await.unwrap();
    let path = log(root.path(), "s", Encoding::Raw);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{}", row(2))).unwrap();
    assert_eq!(info(&store, "s").await.len, Seq(3));
    commit(&store, vec![batch("s", vec![mark(3)])]).await.unwrap();
    assert_eq!(read_dsh(&path).unwrap().1, marks(0..4), "a newline was put before it");
    drop(store);
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    assert_eq!(read(&store, "s").await, marks(0..4));
}

#[tokio::test]
async fn logs_of_both_encodings_and_a_session_that_is_there_twice_are_refused() {
    let text = format!("{HEADER}\n");
    let root = root_of("s", text.as_bytes(), Encoding::Raw);
    assert_eq!(JsonlStore::encoding_of(root.path()), Some(Encoding::Raw));
    for opened in
        [JsonlStore::open(root.path(), Encoding::Zstd), JsonlStore::open_read_only(root.path(), Encoding::Zstd)]
    {
        let error = opened.err().expect("it is kept raw");
        assert!(matches!(&error, StoreError::Foreign { found, .. } if found.contains("session.jsonl")), "{error:?}");
    }
    let store = JsonlStore::open(root.path(), Encoding::Raw).unwrap();
    fs::create_dir_all(root.path().join("--other--/s")).unwrap();
    fs::write(root.path().join("--other--/s/session.jsonl"), text).unwrap();
    for error in [
        JsonlStore::open(root.path(), Encoding::Raw).err().expect("it is there twice"),
        store.list(SessionFilter::default()).await.unwrap_err(),
        store.info("s".into()).await.unwrap_err(),
    ] {
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what.contains("twice")), "{error:?}");
    }
}

#[tokio::test]
async fn unusual_ids_and_folders_have_files_of_their_own() {
    let root = folder();
    let store = JsonlStore::open(root.path(), Encoding::Zstd).unwrap();
    let long = "x".repeat(400);
    let ids = ["../../up", "a/b", "a-b", "ü ~ %2F", long.as_str()];
    for (at, id) in ids.iter().enumerate() {
        let mut header = header(id);
        header.cwd = if at == 0 { None } else { Some(format!("/work/{}", "deep/".repeat(at * 20))) };
        commit(&store, vec![begin_as(header, None, vec![mark(0)])]).await.unwrap();
    }
    drop(store);
    let store = JsonlStore::open(root.path(), Encoding::Zstd).unwrap();
    assert_eq!(store.list(SessionFilter::default()).await.unwrap().len(), ids.len());
    for id in ids {
        assert_eq!(read(&store, id).await, [mark(0)]);
        assert!(store.log_path(&id.into()).unwrap().unwrap().starts_with(root.path()));
    }
    assert_eq!(find_dsh(root.path()).len(), ids.len());
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_followed_and_their_circles_end() {
    let root = folder();
    let store = JsonlStore::open(root.path().join("real"), Encoding::Raw).unwrap();
    commit(&store, vec![begin("s", vec![mark(0)]), begin("t", vec![mark(0)])]).await.unwrap();
    let home = root.path().join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(root.path().join("real"), home.join("sessions")).unwrap();
    std::os::unix::fs::symlink(&home, root.path().join("real/again")).unwrap();
    std::os::unix::fs::symlink(root.path().join("nowhere"), home.join("broken")).unwrap();
    let found = find_dsh(&home);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|path| path.starts_with(home.join("sessions"))), "{found:?}");
    let own = log(&root.path().join("real"), "s", Encoding::Raw);
    assert_eq!(find_dsh(&own), [own]);
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_can_read_the_logs() {
    use std::os::unix::fs::PermissionsExt;
    let root = folder();
    let store = JsonlStore::open(root.path().join("home"), Encoding::Raw).unwrap();
    commit(&store, vec![begin("s", vec![mark(0)])]).await.unwrap();
    store.put_artifact("s".into(), b"x".to_vec()).await.unwrap();
    for (path, _) in files(&root.path().join("home")) {
        let path = root.path().join("home").join(path);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700), "{}", path.display());
    }
}
