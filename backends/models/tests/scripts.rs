//! A script says the same in the process and over HTTP, whatever it makes fail, and to each agent the same whenever it asks.
#![cfg(all(feature = "openai", feature = "serve"))]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use impresario_kernel::assembler::Assembler;
use impresario_kernel::event::{ToolSchema, Tools};
use impresario_kernel::{AgentPath, Block, CallId, Failure, FinishReason, Message, RequestHeader, Role, Source, Usage};
use impresario_models::openai::{OpenAiModel, OpenAiOptions};
use impresario_models::scripted::ScriptedModel;
use impresario_models::serve::serve;
use impresario_seams::{Model, ModelRequest, ModelScope};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::time::Instant;

/// What came of an attempt: what was said until its end, and that.
#[derive(Debug, PartialEq)]
struct Came {
    blocks: Vec<Block>,
    end: Result<(FinishReason, Option<Usage>), Failed>,
}

/// Code, status, and how long to wait.
type Failed = (String, Option<u16>, Option<u64>);

async fn ask(model: &dyn Model, request: ModelRequest) -> Came {
    let mut answer = Assembler::default();
    let failed = |failure: Failure| (failure.code, failure.status, failure.provider_retry_after_ms);
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(failure) => return Came { blocks: vec![], end: Err(failed(failure)) },
    };
    while let Some(next) = stream.next().await {
        match next {
            Ok(chunk) => answer.push(&chunk),
            // A call that was cut off is nobody's business, and the adapter may hold it back.
            Err(failure) => return Came { blocks: answer.visible_blocks(), end: Err(failed(failure)) },
        }
        if let Some(reason) = answer.finish() {
            return Came { blocks: answer.blocks(), end: Ok((reason.clone(), answer.usage())) };
        }
    }
    panic!("a stream without an end");
}

fn request(path: &str, turn: u32, step: u32, attempt: u32) -> ModelRequest {
    let mut header = RequestHeader { system: Some("be brief".into()), ..RequestHeader::new("openai", "any") };
    let schema = ToolSchema { name: "ls".into(), description: "lists".into(), parameters: serde_json::json!({}) };
    header.tools = Some(Tools::Schemas(vec![Arc::new(schema)]));
    let call: CallId = "call_0".into();
    let content = vec![Block::ToolCall { id: call.clone(), name: "ls".into(), arguments: r#"{"path":"src"}"#.into() }];
    let messages = vec![
        Message::user("p", "Look around"),
        Message { id: "a".into(), role: Role::Assistant, content, source: Source::of("model") },
        Message::tool_result("r", &call, vec![Block::text("ants.rs")], false),
    ];
    let scope = ModelScope { agent: "x".into(), path: AgentPath::new(path), turn, step, attempt };
    ModelRequest { header: Arc::new(header), messages: messages.into_iter().map(Arc::new).collect(), scope }
}

/// What each of the requests gets from a script in this process, on a clock that waits for nothing.
fn in_process(script: &str, requests: Vec<ModelRequest>) -> Vec<Came> {
    let model = ScriptedModel::from_toml(script).unwrap();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime
        .block_on(async { futures::future::join_all(requests.into_iter().map(|request| ask(&model, request))).await })
}

/// The same over HTTP.
fn over_http(script: &str, requests: Vec<ModelRequest>) -> Vec<Came> {
    let model = ScriptedModel::from_toml(script).unwrap().silent_for_ever();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let server = tokio::spawn(serve(listener, Arc::new(model), None, std::future::pending()));
        let idle_timeout = Duration::from_millis(300);
        let client =
            OpenAiModel::new(OpenAiOptions { provider: "openai".into(), base_url, api_key: None, idle_timeout });
        let came = futures::future::join_all(requests.into_iter().map(|request| ask(&client, request))).await;
        server.abort();
        came
    })
}

const ANSWER: &str = r#"
[[rule]]
reasoning = "I think about it for as long as it takes."
text = "There are ants in it, and bees, and more of them than I can count, as far as I see."
calls = [{ name = "ls", arguments = { path = "{{result 0}}" } }]
"#;

#[test]
fn every_way_to_fail_is_the_same_in_the_process_and_over_http() {
    for (fail, code, status) in [
        (r#"{ kind = "rate_limit" }"#, "RATE_LIMIT", Some(429)),
        (r#"{ kind = "rate_limit", retry_after_ms = 1500 }"#, "RATE_LIMIT", Some(429)),
        (r#"{ kind = "rate_limit", after = 2 }"#, "RATE_LIMIT", None),
        (r#"{ kind = "server" }"#, "SERVER", Some(503)),
        (r#"{ kind = "server", status = 500, retry_after_ms = 2000 }"#, "SERVER", Some(500)),
        (r#"{ kind = "server", after = 4 }"#, "SERVER", None),
        (r#"{ kind = "reset" }"#, "STREAM_CLOSED", None),
        (r#"{ kind = "reset", after = 0 }"#, "STREAM_CLOSED", None),
        (r#"{ kind = "reset", after = 3 }"#, "STREAM_CLOSED", None),
        (r#"{ kind = "reset", after = 1000 }"#, "STREAM_CLOSED", None),
        (r#"{ kind = "stall" }"#, "TIMEOUT", None),
        (r#"{ kind = "stall", after = 0 }"#, "TIMEOUT", None),
        (r#"{ kind = "stall", after = 5 }"#, "TIMEOUT", None),
        (r#"{ kind = "malformed" }"#, "MALFORMED_RESPONSE", None),
        (r#"{ kind = "malformed", after = 0 }"#, "MALFORMED_RESPONSE", None),
        (r#"{ kind = "malformed", after = 3 }"#, "MALFORMED_RESPONSE", None),
        (r#"{ code = "AUTH", status = 401 }"#, "AUTH", Some(401)),
        (r#"{ code = "QUOTA", status = 402 }"#, "QUOTA", Some(402)),
    ] {
        let script = format!("{ANSWER}fail = {fail}\n");
        let here = in_process(&script, vec![request("root", 1, 2, 0)]);
        assert_eq!(over_http(&script, vec![request("root", 1, 2, 0)]), here, "{fail}");
        let end = here[0].end.as_ref().unwrap_err();
        assert_eq!((end.0.as_str(), end.1), (code, status), "{fail}");
        assert_eq!(
            here[0].blocks.is_empty(),
            !fail.contains("after = ") && status.is_some() || fail.contains("after = 0")
        );
    }
}

#[test]
fn conditions_usage_and_pace_are_the_same_in_the_process_and_over_http() {
    let script = r#"
        [defaults]
        usage = { input = 900, cached = 100, output = 60, reasoning = 20 }
        latency = "1ms + 100000 tok/s"

        [[rule]]
        path = "root/a*"
        turn = 2
        step = 3
        attempt = 1
        text = "by place"
        max_tokens = true

        [[rule]]
        path = "root/b"
        system_contains = "brief"
        request_contains = "src"
        last_result_contains = "ants"
        has_tool = "ls"
        contains = "Look"
        text = "by content"
        usage = { input = 1 }

        [[rule]]
        has_tool = "rm"
        text = "never"

        [[rule]]
        system_contains = "long"
        text = "never"

        [[rule]]
        last_result_contains = "bees"
        text = "never"
    "#;
    let asked = || {
        vec![
            request("root/a-1", 2, 3, 1),
            request("root/b", 1, 2, 0),
            request("root/a-1", 2, 3, 0),
            request("root", 1, 2, 0),
        ]
    };
    let here = in_process(script, asked());
    assert_eq!(over_http(script, asked()), here);
    let said: Vec<String> = here.iter().map(|came| format!("{:?}", came.blocks)).collect();
    assert!(
        said[0].contains("by place") && said[1].contains("by content") && said[3].contains("Look around"),
        "{said:?}"
    );
    assert!(!said.concat().contains("never") && !said[2].contains("by place"));
    let usage = Usage {
        input_tokens: 900,
        output_tokens: 60,
        cache_read_tokens: Some(100),
        reasoning_tokens: Some(20),
        ..Usage::default()
    };
    assert_eq!(here[0].end, Ok((FinishReason::MaxTokens, Some(usage))));
    assert_eq!(here[1].end, Ok((FinishReason::Stop, Some(Usage { input_tokens: 1, ..Usage::default() }))));
}

const CHANCE: &str = r#"
seed = 7
[defaults]
latency = "lognormal(200ms, 1) + 50 tok/s"
fail = [
    { kind = "rate_limit", times = 1, probability = 0.3 },
    { kind = "reset", after = 2, probability = 0.2 },
]
[[rule]]
text = "That is what there is to say of it, and I say it in some more words."
"#;

#[test]
fn siblings_get_the_same_answers_failures_and_latencies_in_whatever_order_they_ask() {
    let model = ScriptedModel::from_toml(CHANCE).unwrap();
    let ask_all = |order: &[usize]| {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut came = runtime.block_on(async {
            let asked = order.iter().map(|&n| {
                let model = model.clone();
                tokio::spawn(async move {
                    let began = Instant::now();
                    let attempts = [0, 1].map(|attempt| request(&format!("root/a{n}"), 1, 1, attempt));
                    let [first, second] = attempts;
                    let first = (ask(&model, first).await, began.elapsed());
                    (n, first, ask(&model, second).await, began.elapsed())
                })
            });
            futures::future::try_join_all(asked).await.unwrap()
        });
        came.sort_by_key(|(n, ..)| *n);
        came
    };
    let in_order: Vec<usize> = (0..40).collect();
    let expected = ask_all(&in_order);
    for stride in [7, 11, 13, 39] {
        let order: Vec<usize> = in_order.iter().map(|n| (n * stride + 5) % 40).collect();
        assert_eq!(ask_all(&order), expected, "stride {stride}");
    }
    let codes =
        |code: &str| expected.iter().filter(|came| came.1.0.end.as_ref().is_err_and(|end| end.0 == code)).count();
    let (limited, reset) = (codes("RATE_LIMIT"), codes("STREAM_CLOSED"));
    assert!((4..=20).contains(&limited) && (1..=15).contains(&reset), "{limited} {reset}");
    // The limit is for first attempts only.
    let is_through = |came: &Came| came.end.as_ref().err().is_none_or(|end| end.0 == "STREAM_CLOSED");
    assert!(expected.iter().all(|came| is_through(&came.2)));
    let firsts: Vec<Duration> = expected.iter().map(|came| came.1.1).collect();
    assert!(firsts.iter().collect::<std::collections::BTreeSet<_>>().len() > 30, "{firsts:?}");
    // Another seed is another story.
    let other = ScriptedModel::from_toml(&CHANCE.replace("seed = 7", "seed = 8")).unwrap();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let differs = (0..40).any(|n| {
        runtime.block_on(async { ask(&other, request(&format!("root/a{n}"), 1, 1, 0)).await }) != expected[n].1.0
    });
    assert!(differs);
}

#[test]
fn an_answer_begins_with_its_latency_and_goes_on_at_its_rate() {
    let script = "[[rule]]\ntext = \"twenty-four bytes in all twenty-four bytes in all\"\nlatency = \"2s + 4 tok/s\"\n";
    let model = ScriptedModel::from_toml(script).unwrap();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let times: Vec<u128> = runtime.block_on(async {
        let began = Instant::now();
        let stream = model.stream(request("root", 1, 1, 0)).await.unwrap();
        stream.map(|_| began.elapsed().as_millis()).collect().await
    });
    // Three pieces, which begin with the first, the seventh and the thirteenth token, the usage and the finish.
    assert_eq!(times, [2000, 3500, 5000, 5000, 5000]);
}

#[test]
fn a_failure_in_the_first_attempts_only_lets_a_later_one_through() {
    let script =
        format!("{ANSWER}fail = [{{ kind = \"server\", times = 1 }}, {{ kind = \"rate_limit\", times = 3 }}]\n");
    let came = in_process(&script, (0..4).map(|attempt| request("root", 1, 2, attempt)).collect());
    let codes: Vec<&str> =
        came.iter().map(|came| came.end.as_ref().map_or_else(|end| end.0.as_str(), |_| "ok")).collect();
    assert_eq!(codes, ["SERVER", "RATE_LIMIT", "RATE_LIMIT", "ok"]);
}

#[test]
fn defaults_hold_for_directives_too_and_a_rule_may_have_no_failures() {
    let script = r#"
        [defaults]
        fail = { kind = "server", times = 1 }
        usage = { input = 7, output = 8 }

        [[rule]]
        path = "root/quiet"
        text = "all is well"
        fail = []
    "#;
    let asked = vec![request("root", 1, 2, 0), request("root", 1, 2, 1), request("root/quiet", 1, 2, 0)];
    let came = in_process(script, asked);
    let usage = Usage { input_tokens: 7, output_tokens: 8, ..Usage::default() };
    assert!(came[0].end.as_ref().is_err_and(|end| end.0 == "SERVER"));
    assert_eq!(came[1].end, Ok((FinishReason::Stop, Some(usage))));
    assert_eq!(came[2].blocks, [Block::text("all is well")]);
}

#[test]
fn what_the_runtime_says_by_itself_is_no_prompt_over_http_either() {
    let script = "[[rule]]\ncontains = \"Look\"\ntext = \"{{prompt}}, {{result 0}}\"\n";
    let mut asked = request("root/übung", 1, 2, 0);
    let aside = |id: &str, text: &str, source| Arc::new(Message::context(id, text, source));
    asked.messages.insert(0, aside("s", "Your place: root", Source::plugin("runtime", "snapshot")));
    asked.messages.push(aside("e", "", Source::plugin("hook", "context")));
    asked.messages.push(aside("n", "[root/a completed]", Source::settled(&"a".into(), "root/a completed")));
    asked.messages.push(aside("c", "Think of the tests", Source::plugin("todo", "notice")));
    let here = in_process(script, vec![asked.clone()]);
    assert_eq!(here[0].blocks, [Block::text("Look around, ants.rs")]);
    assert_eq!(over_http(script, vec![asked]), here);
}
