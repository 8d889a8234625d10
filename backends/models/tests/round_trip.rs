//! The real adapter against the served script.
#![cfg(all(feature = "openai", feature = "serve"))]

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use impresario_kernel::assembler::Assembler;
use impresario_kernel::event::{ToolSchema, Tools};
use impresario_kernel::{AgentPath, Block, Chunk, Failure, FinishReason, Message, RequestHeader, Role, Source};
use impresario_models::openai::{OpenAiModel, OpenAiOptions};
use impresario_models::scripted::{Answer, ScriptedModel};
use impresario_models::serve::serve;
use impresario_seams::{Model, ModelRequest, ModelScope};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

struct Served {
    base: String,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn start(model: ScriptedModel) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, Arc::new(model), None, async {
        let _ = stopped.await;
    }));
    Served { base, stop, server }
}

impl Served {
    fn client(&self) -> OpenAiModel {
        OpenAiModel::new(OpenAiOptions {
            provider: "openai".into(),
            base_url: format!("{}/v1", self.base),
            api_key: Some("k".into()),
            idle_timeout: Duration::from_secs(20),
        })
    }

    async fn stats(&self) -> Value {
        let text = reqwest::get(format!("{}/stats", self.base)).await.unwrap().text().await.unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let header = RequestHeader { system: Some("be brief".into()), ..RequestHeader::new("openai", "any") };
    let scope = ModelScope { agent: "a".into(), path: AgentPath::root(), turn: 1, step: 1, attempt: 0 };
    let messages = messages.into_iter().map(Arc::new).collect();
    ModelRequest { header: Arc::new(header), messages, scope }
}

async fn ask(model: &OpenAiModel, messages: Vec<Message>) -> Result<Assembler, Failure> {
    let chunks: Vec<Chunk> = model.stream(request(messages)).await?.try_collect().await?;
    let mut answer = Assembler::default();
    chunks.iter().for_each(|chunk| answer.push(chunk));
    Ok(answer)
}

#[tokio::test]
async fn a_fan_out_goes_round_through_http() {
    let served = start(ScriptedModel::builtin()).await;
    let client = served.client();
    let prompt = Message::user("1", "[[FANOUT n=3 tool=subagent]]");
    let first = ask(&client, vec![prompt.clone()]).await.unwrap();
    assert_eq!(first.finish(), Some(&FinishReason::ToolCalls));
    assert!(first.usage().is_some_and(|usage| usage.output_tokens > 0));
    let blocks = first.blocks();
    let content = blocks.clone();
    let mut messages =
        vec![prompt, Message { id: "2".into(), role: Role::Assistant, content, source: Source::of("model") }];
    for (at, block) in blocks.iter().enumerate() {
        let Block::ToolCall { id, arguments, .. } = block else { continue };
        assert!(arguments.contains(&format!("[[LEAF {at}]]")), "{arguments}");
        let failed = at == 2;
        let text = if failed { "[root/leaf-2 failed · agent x]\nno" } else { "[root/leaf completed · agent x]\nok" };
        messages.push(Message::tool_result(format!("r{at}"), id, vec![Block::text(text)], failed));
    }
    let last = ask(&client, messages).await.unwrap();
    assert_eq!(last.blocks(), [Block::text("fanout done results=2 failed=1")]);
    let stats = served.stats().await;
    assert_eq!(
        (&stats["requests"], &stats["completed_streams"], &stats["open_streams"]),
        (&2.into(), &2.into(), &0.into())
    );
}

#[tokio::test]
async fn failures_keep_their_code_and_their_wait() {
    let failure = |view: &impresario_models::scripted::View<'_>| {
        let (_, prompt) = view.prompt().unwrap_or_default();
        let failure = Failure::new(&prompt, "as asked");
        Answer::failure(Failure { provider_retry_after_ms: Some(3_000), ..failure })
    };
    let served = start(ScriptedModel::from_fn(failure)).await;
    for code in ["RATE_LIMIT", "AUTH", "QUOTA", "UNKNOWN_MODEL", "SERVER"] {
        let failure = ask(&served.client(), vec![Message::user("1", code)]).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.provider_retry_after_ms), (code, Some(3_000)));
        assert!(failure.message.contains("as asked"), "{}", failure.message);
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let text = "word ".repeat(2_000_000);
    let served = start(ScriptedModel::from_fn(move |_| Answer::text(text.clone()))).await;
    let mut stream = served.client().stream(request(vec![Message::user("1", "talk")])).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    while served.stats().await["aborted_streams"] != 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.stats().await["open_streams"], 0);
}

#[tokio::test]
async fn nobody_at_the_address_is_a_transport_failure_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let options = OpenAiOptions {
        provider: "openai".into(),
        base_url: base_url.clone(),
        api_key: None,
        idle_timeout: Duration::from_secs(5),
    };
    let failure = ask(&OpenAiModel::new(options), vec![Message::user("1", "x")]).await.unwrap_err();
    assert_eq!(failure.code, "TRANSPORT");
    assert!(failure.message.contains(&base_url) && failure.is_retryable(), "{}", failure.message);
}

/// A server of one request that answers `body` and keeps the connection open until the returned end is dropped.
async fn answers(body: &'static str, idle_timeout: Duration) -> (OpenAiModel, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (hold, held) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = vec![];
        while !request.ends_with(b"}") {
            socket.read_buf(&mut request).await.unwrap();
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let _ = held.await;
    });
    let options = OpenAiOptions { provider: "openai".into(), base_url, api_key: None, idle_timeout };
    (OpenAiModel::new(options), hold)
}

#[tokio::test]
async fn an_answer_ends_where_the_server_says_done_though_the_connection_stays_open() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (model, _hold) = answers(body, Duration::from_secs(3600)).await;
    let answer = ask(&model, vec![Message::user("1", "x")]).await.unwrap();
    assert_eq!((answer.blocks(), answer.finish()), (vec![Block::text("hi")], Some(&FinishReason::Stop)));
}

#[tokio::test]
async fn a_server_that_falls_silent_in_the_middle_is_a_time_out_that_may_be_retried() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    let (model, _hold) = answers(body, Duration::from_millis(50)).await;
    let failure = ask(&model, vec![Message::user("1", "x")]).await.unwrap_err();
    assert!(failure.code == "TIMEOUT" && failure.is_retryable(), "{failure}");
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_is_refused_without_showing_it() {
    let options = OpenAiOptions {
        provider: "openai".into(),
        base_url: "http://127.0.0.1:9/v1".into(),
        api_key: Some("secret\nkey".into()),
        idle_timeout: Duration::from_secs(5),
    };
    let failure = ask(&OpenAiModel::new(options), vec![Message::user("1", "x")]).await.unwrap_err();
    assert!(failure.code == "INVALID_CREDENTIAL" && !failure.message.contains("secret"), "{failure}");
}

#[tokio::test]
async fn a_failure_in_the_middle_comes_behind_what_was_said() {
    let answer = Answer { text: "half".into(), ..Answer::failure(Failure::new("SERVER", "as asked")) };
    let served = start(ScriptedModel::from_fn(move |_| answer.clone())).await;
    let mut stream = served.client().stream(request(vec![Message::user("1", "x")])).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Chunk::TextDelta { index: 1, text: "half".into() });
    let failure = stream.next().await.unwrap().unwrap_err();
    assert!(failure.code == "SERVER" && failure.message.contains("as asked"), "{failure}");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn shutting_the_server_down_breaks_off_answers_that_are_under_way() {
    let slow = Answer { latency: Some(Duration::from_secs(3600)), ..Answer::text("late") };
    let served = start(ScriptedModel::from_fn(move |_| slow.clone())).await;
    let client = served.client();
    let asked = tokio::spawn(async move { ask(&client, vec![Message::user("1", "x")]).await });
    while served.stats().await["open_streams"] != 1 {
        tokio::task::yield_now().await;
    }
    served.stop.send(()).unwrap();
    assert!(asked.await.unwrap().is_err_and(|failure| failure.is_retryable()));
    served.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_script_sees_tools_and_system_text_of_a_request_and_text_that_looks_like_an_end_is_text() {
    let served = start(ScriptedModel::from_fn(|view| {
        let system = view.header().system.as_deref().unwrap_or_default();
        Answer::text(format!("[DONE] {system} {} {}", view.offers("ls"), view.offers("rm")))
    }))
    .await;
    let mut request = request(vec![Message::user("1", "x")]);
    let schema = ToolSchema { name: "ls".into(), description: "lists".into(), parameters: serde_json::json!({}) };
    Arc::make_mut(&mut request.header).tools = Some(Tools::Schemas(vec![Arc::new(schema)]));
    let chunks: Vec<Chunk> = served.client().stream(request).await.unwrap().try_collect().await.unwrap();
    let mut answer = Assembler::default();
    chunks.iter().for_each(|chunk| answer.push(chunk));
    assert_eq!(answer.blocks(), [Block::text("[DONE] be brief true false")]);
}
