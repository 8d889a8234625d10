//! What was recorded comes again, and nothing else does.
#![cfg(feature = "replay")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};
use impresario_kernel::{AgentPath, Block, CallId, Chunk, Failure, FinishReason, Message, RequestHeader, Role, Source};
use impresario_models::replay::{MISS, Recorder, Recording, RecordingError, ReplayModel};
use impresario_models::scripted::{Answer, Latency, ScriptedModel, View};
use impresario_seams::{ChunkStream, Model, ModelRequest, ModelScope};

const ONE: &str = "01a22fcf8c90736099b1bd146992f8ec";
const OTHER: &str = "01a22fcf8c9173609aaaaaaaaaaaaaaa";

fn request(path: &str, step: u32, attempt: u32, messages: &[Message]) -> ModelRequest {
    let header = RequestHeader { system: Some("be brief".into()), ..RequestHeader::new("scripted", "any") };
    let scope = ModelScope { agent: path.into(), path: AgentPath::new(path), turn: 1, step, attempt };
    ModelRequest { header: Arc::new(header), messages: messages.iter().cloned().map(Arc::new).collect(), scope }
}

fn prompt(text: &str) -> Vec<Message> {
    vec![Message::user("p", text)]
}

/// All that comes, up to what ends it.
async fn said(answer: Result<ChunkStream, Failure>) -> (Vec<Chunk>, Option<Failure>) {
    let mut chunks = vec![];
    let mut stream = match answer {
        Ok(stream) => stream,
        Err(failure) => return (chunks, Some(failure)),
    };
    while let Some(next) = stream.next().await {
        match next {
            Ok(chunk) => {
                let is_last = matches!(chunk, Chunk::Finish { .. });
                chunks.push(chunk);
                if is_last {
                    break;
                }
            }
            Err(failure) => return (chunks, Some(failure)),
        }
    }
    (chunks, None)
}

async fn ask(model: &dyn Model, request: ModelRequest) -> (Vec<Chunk>, Option<Failure>) {
    said(model.stream(request).await).await
}

fn recorded(folder: &Path, decide: impl Fn(&View<'_>) -> Answer + Send + Sync + 'static) -> impl Model {
    Recorder::open(folder).unwrap().record(Arc::new(ScriptedModel::from_fn(decide)))
}

fn replay(folder: &Path) -> ReplayModel {
    ReplayModel::new(Recording::open(folder).unwrap())
}

fn many(view: &View<'_>) -> Answer {
    let scope = view.scope();
    match (scope.path.as_str(), scope.attempt) {
        ("root/fails", 0) => Answer::failure(Failure {
            status: Some(429),
            provider_retry_after_ms: Some(50),
            ..Failure::new("RATE_LIMIT", "slowly")
        }),
        ("root/breaks", 0) => {
            Answer { text: "half of it".into(), ..Answer::failure(Failure::new("STREAM_CLOSED", "x")) }
        }
        _ => Answer {
            reasoning: "I think about it for some time.".into(),
            ..Answer::calls(format!("I am {}", scope.path), vec![("ls".into(), r#"{"path":"."}"#.into())])
        },
    }
}

#[tokio::test]
async fn answers_reasoning_calls_usage_and_failures_come_again_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let asked = [("root", 0), ("root/fails", 0), ("root/fails", 1), ("root/breaks", 0), ("root/breaks", 1)];
    let mut came = vec![];
    let model = recorded(folder.path(), many);
    for (path, attempt) in asked {
        came.push(ask(&model, request(path, 1, attempt, &prompt(path))).await);
    }
    drop(model);
    assert!(came[0].0.iter().any(|chunk| matches!(chunk, Chunk::Usage { usage } if usage.output_tokens > 0)));
    assert_eq!(came[1].1.as_ref().and_then(|failure| failure.provider_retry_after_ms), Some(50));
    assert!(!came[3].0.is_empty() && came[3].1.is_some());
    let replay = replay(folder.path());
    for ((path, attempt), came) in asked.into_iter().zip(came) {
        assert_eq!(ask(&replay, request(path, 1, attempt, &prompt(path))).await, came, "{path} {attempt}");
    }
    assert_eq!((replay.recording().len(), replay.recording().providers()), (5, &["scripted".to_owned()][..]));
}

#[tokio::test]
async fn siblings_get_their_own_answers_in_whatever_order_they_ask() {
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| format!("root/a{n}");
    let model = recorded(folder.path(), many);
    for n in 0..20 {
        ask(&model, request(&path(n), 1, 0, &prompt("the same for all"))).await;
    }
    drop(model);
    let replay = replay(folder.path());
    for first in 0..20 {
        let order = (0..20).map(|n| (n * 7 + first) % 20);
        let asked = order.map(|n| {
            ask(&replay, request(&path(n), 1, 0, &prompt("the same for all"))).map(move |(chunks, _)| (n, chunks))
        });
        for (n, chunks) in futures::future::join_all(asked).await {
            assert!(format!("{chunks:?}").contains(&format!("root/a{n}\"")), "{n}: {chunks:?}");
        }
    }
}

#[tokio::test]
async fn what_is_not_recorded_fails_by_name_and_asks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let model = recorded(folder.path(), move |view| {
        counter.fetch_add(1, Ordering::SeqCst);
        many(view)
    });
    ask(&model, request("root/a", 1, 0, &prompt("Look at a.txt, please"))).await;
    drop(model);
    let replay = replay(folder.path());
    let miss = async |request| {
        let (chunks, failure) = ask(&replay, request).await;
        let failure = failure.unwrap();
        assert!(chunks.is_empty() && failure.code == MISS && !failure.is_retryable(), "{failure}");
        failure.message
    };
    assert_eq!(
        miss(request("root/a", 1, 0, &prompt("Look at b.txt, please"))).await,
        "replay of root/a, turn 1, step 1, attempt 0: the request is not the recorded one: they differ from byte 29 on \
         (part 2), recorded in user \"Look at a.txt, please\", asked in user \"Look at b.txt, please\""
    );
    assert_eq!(
        miss(request("root/a", 2, 0, &prompt("Look at a.txt, please"))).await,
        "replay of root/a, turn 1, step 2, attempt 0: nothing is recorded of it then; the last that is recorded is turn 1, \
         step 1, attempt 0"
    );
    assert_eq!(
        miss(request("root/b", 1, 0, &prompt("Look at a.txt, please"))).await,
        "replay of root/b, turn 1, step 1, attempt 0: nothing is recorded of it; there are root/a"
    );
    let mut other = request("root/a", 1, 0, &prompt("Look at a.txt, please"));
    Arc::make_mut(&mut other.header).system = Some("be long".into());
    assert!(miss(other).await.contains("asked in system \"be long\""));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_the_runtime_says_about_itself_and_names_that_are_new_each_time_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let conversation = |id: &str, run: &str| {
        let call: CallId = format!("call-{run}").into();
        let content = vec![Block::ToolCall { id: call.clone(), name: "subagent".into(), arguments: "{}".into() }];
        let text = format!("[root/a started · agent {id}]");
        vec![
            Message::context(format!("{run}-0"), format!("Folder: {run}"), Source::plugin("runtime", "snapshot")),
            Message::user(format!("{run}-1"), "go"),
            Message { id: run.into(), role: Role::Assistant, content, source: Source::model(run, run) },
            Message::tool_result(format!("{run}-2"), &call, vec![Block::text(text)], false),
        ]
    };
    let model = recorded(folder.path(), |view| {
        let id = view.answered(0)[0].text.clone();
        let id = id.rsplit(' ').next().unwrap_or_default().trim_end_matches(']').to_owned();
        Answer::calls(
            format!("I told {id} twice: {id}."),
            vec![("message_agent".into(), format!(r#"{{"agent":"{id}"}}"#))],
        )
    });
    let came = ask(&model, request("root", 2, 0, &conversation(ONE, "one"))).await;
    assert!(format!("{came:?}").contains(&format!(r#"{{\"agent\":\"{}"#, &ONE[..3])), "{came:?}");
    drop(model);
    let replay = replay(folder.path());
    let mut again = request("root", 2, 0, &conversation(OTHER, "other"));
    Arc::make_mut(&mut again.header).config = RequestHeader::new("replay", "elsewhere").config;
    let (chunks, failure) = ask(&replay, again).await;
    assert_eq!(failure, None);
    let mut answer = impresario_kernel::assembler::Assembler::default();
    chunks.iter().for_each(|chunk| answer.push(chunk));
    let call = Block::ToolCall {
        id: "call_1_2_0".into(),
        name: "message_agent".into(),
        arguments: format!(r#"{{"agent":"{OTHER}"}}"#).into(),
    };
    assert_eq!(answer.blocks(), [Block::text(format!("I told {OTHER} twice: {OTHER}.")), call]);
}

#[tokio::test]
async fn an_attempt_that_was_broken_off_says_what_it_had_said_and_stays_silent() {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded(folder.path(), |_| Answer::text("word ".repeat(50)));
    let mut stream = model.stream(request("root", 1, 0, &prompt("talk"))).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    drop((stream, model));
    let mut again = replay(folder.path()).stream(request("root", 1, 0, &prompt("talk"))).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap(), first);
    assert!(again.next().now_or_never().is_none());
}

#[tokio::test]
async fn steps_of_one_agent_say_only_what_is_new_and_half_a_last_line_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let long = "a long prompt ".repeat(1000);
    let conversation: Vec<Message> =
        (0..20).map(|n| Message::user(format!("m{n}"), format!("{n} {}", if n == 0 { &long } else { "" }))).collect();
    let model = recorded(folder.path(), |_| Answer::text("so"));
    for step in 1..=20 {
        ask(&model, request("root", step, 0, &conversation[..step as usize])).await;
    }
    drop(model);
    let file = folder.path().join("recording.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.len() < 2 * long.len(), "{} bytes", text.len());
    let half = &text[..text.len() - 7];
    fs::write(&file, half).unwrap();
    assert_eq!(Recording::open(folder.path()).unwrap().len(), 19);
    // Whoever records on takes the half line away.
    let model = recorded(folder.path(), |_| Answer::text("so"));
    ask(&model, request("root", 20, 0, &conversation)).await;
    drop(model);
    let replay = replay(folder.path());
    for step in 1..=20 {
        let (_, failure) = ask(&replay, request("root", step, 0, &conversation[..step as usize])).await;
        assert_eq!(failure, None, "{step}");
    }
}

#[tokio::test]
async fn files_that_are_no_recordings_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.jsonl");
    let said = |error: RecordingError| error.to_string();
    assert!(said(Recording::open(folder.path()).unwrap_err()).contains("there is no recording.jsonl in it"));
    for (text, wrong) in [
        ("a list of records\nwithout end", "it does not begin as a recording does, but with \"a list of records"),
        ("{\"type\":\"session\"}\n", "does not begin as a recording does"),
        ("half", "does not begin as a recording does"),
        ("{\"recording\":\"impresario\",\"version\":2}\n", "it has version 2, and this program knows 1"),
    ] {
        fs::write(&file, text).unwrap();
        assert!(said(Recording::open(folder.path()).unwrap_err()).contains(wrong), "{text}");
        assert!(said(Recorder::open(folder.path()).unwrap_err()).contains(wrong), "{text}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    fs::write(&file, "{\"recording\":\"impresario\",\"version\":1}\n{\"path\":1}\n").unwrap();
    let error = said(Recording::open(folder.path()).unwrap_err());
    assert!(error.contains("line 2: ") && error.contains("recording.jsonl"), "{error}");
    fs::remove_file(&file).unwrap();
    let first = Recorder::open(folder.path()).unwrap();
    assert!(said(Recorder::open(folder.path()).unwrap_err()).contains("another process records there"));
    drop(first);
    assert!(Recording::open(folder.path()).unwrap().is_empty());
    // Half of its own first line is made whole.
    let head = fs::read_to_string(&file).unwrap();
    fs::write(&file, head.trim_end()).unwrap();
    drop(Recorder::open(folder.path()).unwrap());
    assert_eq!(fs::read_to_string(&file).unwrap(), head);
}

#[tokio::test]
async fn a_recording_that_was_cut_anywhere_has_what_was_whole() {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded(folder.path(), many);
    for n in 0..4 {
        ask(&model, request(&format!("root/a{n}"), 1, 0, &prompt("x"))).await;
    }
    drop(model);
    let file = folder.path().join("recording.jsonl");
    let whole = fs::read(&file).unwrap();
    let head = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for end in 0..=whole.len() {
        fs::write(&file, &whole[..end]).unwrap();
        let lines = whole[..end].iter().filter(|byte| **byte == b'\n').count();
        match Recording::open(folder.path()) {
            Ok(recording) => assert_eq!(recording.len(), lines.saturating_sub(1), "{end}"),
            Err(error) => assert!(end < head && matches!(error, RecordingError::Foreign { .. }), "{end}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_changed_line_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded(folder.path(), |_| Answer::text("so"));
    ask(&model, request("root", 1, 0, &prompt("Look at a.txt"))).await;
    drop(model);
    let file = folder.path().join("recording.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("a.txt", "b.txt")).unwrap();
    let error = Recording::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("line 2: what it asked has another digest than it says"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn latencies_of_a_replay_are_drawn_for_each_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded(folder.path(), |_| Answer::text("a".repeat(48)));
    ask(&model, request("root", 1, 0, &prompt("x"))).await;
    drop(model);
    let latency: Latency = "1..2s + 1 tok/s".parse().unwrap();
    let replay = replay(folder.path()).with_latency(latency, 7);
    // Twelve tokens, and the end behind them.
    let expected = latency.draw(7, &request("root", 1, 0, &[]).scope).until(13);
    let before = tokio::time::Instant::now();
    let (chunks, _) = ask(&replay, request("root", 1, 0, &prompt("x"))).await;
    let took = before.elapsed();
    assert!(took >= expected && took.as_millis() <= expected.as_millis() + 1, "{took:?} {expected:?}");
    assert!(matches!(chunks.last(), Some(Chunk::Finish { reason: FinishReason::Stop, .. })));
}
