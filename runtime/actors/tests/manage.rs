//! What a model can do to its subagents: write to them, interrupt them, stop them, list them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentSpec, Limits, Receipt, Runtime};
use impresario_kernel::{Access, Block, Message, OutcomeKind, Overlap, ToolSchema};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Tool, ToolContext, ToolError, ToolOutput};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

/// Calls of the root, one a step; then it says all their results, one a line.
async fn ran(calls: Vec<(&'static str, Value)>) -> (Vec<String>, Receipt) {
    let model = ScriptedModel::from_fn(move |view: &View<'_>| {
        let scope = view.scope();
        if scope.path.as_str() != "root" {
            return child(view);
        }
        let step = usize::try_from(scope.step).unwrap() - 1;
        match calls.get(step).filter(|_| scope.turn == 1) {
            Some((tool, arguments)) => Answer::calls("", vec![((*tool).to_owned(), arguments.to_string())]),
            None => Answer::text(view.messages().iter().filter_map(said).collect::<Vec<_>>().join("\u{1}")),
        }
    });
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    let outcome = root.outcome().await.unwrap().unwrap();
    assert_eq!(outcome.kind, OutcomeKind::Completed, "{outcome:?}");
    runtime.shutdown().await.unwrap();
    (outcome.text.split('\u{1}').map(str::to_owned).collect(), receipt)
}

/// Says all that it was told. What is called slow takes a minute to say the first word of its first turn.
fn child(view: &View<'_>) -> Answer {
    let prompts = view.messages().iter().filter(|message| message.source.kind == "coordinator");
    let told: Vec<String> = prompts.map(|message| message.text()).collect();
    if view.scope().path.segment().starts_with("long") {
        return Answer::text("é".repeat(10_000));
    }
    let is_slow = view.scope().path.segment().starts_with("slow") && view.scope().turn == 1;
    let latency = is_slow.then_some(Duration::from_secs(60));
    Answer { latency, ..Answer::text(told.join("+")) }
}

fn said(message: &Arc<Message>) -> Option<String> {
    let Block::ToolResult { content, .. } = message.content.first()? else { return None };
    Some(content.iter().filter_map(|block| block.as_text()).collect())
}

fn spawn(label: &str) -> (&'static str, Value) {
    ("subagent", json!({"prompt": "first", "label": label, "background": true}))
}

fn wait() -> (&'static str, Value) {
    ("wait_agents", json!({}))
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("not JSON: {text}"))
}

#[tokio::test]
async fn a_child_that_is_done_can_be_written_to_and_its_next_answer_is_waited_for() {
    let (said, receipt) = ran(vec![
        spawn("worker"),
        wait(),
        ("message_agent", json!({"agent": "worker", "message": "second"})),
        wait(),
        ("message_agent", json!({"agent": "root/worker", "message": "third", "when": "now"})),
        wait(),
    ])
    .await;
    assert_eq!(json_of(&said[1])["done"][0]["text"], "first");
    assert_eq!(said[2], "it has the message");
    assert_eq!(json_of(&said[3])["done"][0]["text"], "first+second");
    assert_eq!(json_of(&said[5])["done"][0]["text"], "first+second+third");
    assert!(receipt.at_rest() && receipt.parked == 0, "{receipt:?}");
}

#[tokio::test]
async fn an_interrupted_child_goes_on_with_what_waits_for_it() {
    let (said, _) = ran(vec![
        spawn("slow"),
        ("message_agent", json!({"agent": "slow", "message": "second"})),
        ("interrupt_agent", json!({"agent": "slow"})),
        wait(),
        wait(),
    ])
    .await;
    let all = said.join("\n");
    assert!(all.contains("first+second"), "{all}");
}

#[tokio::test]
async fn a_child_is_stopped_with_a_receipt_and_listed_before_and_after() {
    let list = ("list_agents", json!({}));
    let (said, receipt) = ran(vec![
        spawn("slow"),
        spawn("worker"),
        ("wait_agents", json!({"agents": ["worker"]})),
        list.clone(),
        ("stop_agent", json!({"agent": "slow"})),
        list,
    ])
    .await;
    let states = |text: &str| {
        let agents = json_of(text)["agents"].as_array().unwrap().clone();
        agents.iter().map(|agent| (agent["state"].clone(), agent["outcome"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(states(&said[3])[0], (json!("working"), Value::Null));
    assert_eq!(states(&said[3])[1].1, json!("completed"));
    assert_eq!(said[4], "root/slow cancelled");
    assert_eq!(states(&said[5]), [(json!("idle"), json!("cancelled")), (json!("idle"), json!("completed"))]);
    assert_eq!(receipt.agents.iter().filter(|end| end.outcome == Some(OutcomeKind::Cancelled)).count(), 1);
}

#[tokio::test]
async fn nobody_manages_who_is_not_below_and_wrong_arguments_are_said() {
    let (said, receipt) = ran(vec![
        spawn("worker"),
        ("stop_agent", json!({"agent": "root"})),
        ("interrupt_agent", json!({"agent": "root/nobody"})),
        ("message_agent", json!({"agent": "worker", "message": " "})),
        ("list_agents", json!({"scope": "all"})),
    ])
    .await;
    assert!(said[1].contains("no agent \"root\" below you; your own are: root/worker"), "{said:#?}");
    assert!(said[2].contains("root/nobody"), "{said:#?}");
    assert!(said[3].contains("empty"), "{said:#?}");
    assert!(said[4].contains("unknown variant"), "{said:#?}");
    assert!(receipt.agents.iter().all(|end| end.outcome == Some(OutcomeKind::Completed)), "{receipt:?}");
}

#[tokio::test]
async fn a_long_answer_is_cut_and_read_to_its_end() {
    let piece = |from: usize| ("read_artifact", json!({"artifact": "long", "from_byte": from}));
    let (said, _) = ran(vec![
        spawn("long"),
        wait(),
        piece(16_384),
        piece(20_000),
        piece(16_383),
        ("read_artifact", json!({"artifact": "long", "max_bytes": 5})),
    ])
    .await;
    let text = json_of(&said[1])["done"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("[… 3616 more bytes: read_artifact {"), "{}", &text[text.len() - 120..]);
    assert_eq!(said[2], format!("[bytes 16384 to 20000 of 20000]\n{}", "é".repeat(1_808)));
    assert_eq!(said[3], "[bytes 20000 to 20000 of 20000]\n");
    assert!(said[4].contains("middle of a character"), "{}", said[4]);
    assert_eq!(said[5], "[bytes 0 to 4 of 20000]\néé");
}

#[tokio::test]
async fn two_hundred_long_answers_do_not_overflow_their_parent() {
    let model = ScriptedModel::from_fn(|view: &View<'_>| {
        let scope = view.scope();
        match (scope.path.as_str(), scope.step) {
            ("root", 1) => {
                let call = |n| ("subagent".to_owned(), json!({"prompt": "go", "label": format!("c{n}")}).to_string());
                Answer::calls("", (0..200).map(call).collect())
            }
            ("root", _) => {
                let results = view.messages().iter().filter_map(said);
                Answer::text(results.map(|result| result.len()).sum::<usize>().to_string())
            }
            _ => Answer::text("x".repeat(100_000)),
        }
    });
    let runtime = Runtime::builder(Arc::new(MemoryStore::new())).model(model).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    let outcome = root.wait().await.unwrap().unwrap();
    let shown: usize = outcome.text.parse().unwrap_or_else(|_| panic!("{outcome:?}"));
    assert!(shown < 200 * 1_600, "the parent is shown {shown} bytes");
    runtime.shutdown().await.unwrap();
}

/// Says a lot.
struct Long;

impl Tool for Long {
    fn schema(&self) -> Arc<ToolSchema> {
        Arc::new(ToolSchema { name: "long".into(), description: "says a lot".into(), parameters: json!({}) })
    }

    fn overlap(&self) -> Overlap {
        Overlap::Parallel
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        async { Ok(ToolOutput::text("é".repeat(200_000))) }.boxed()
    }
}

#[tokio::test]
async fn the_rest_of_a_long_result_is_kept_and_can_be_read() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| {
        let said: Vec<String> = view.messages().iter().filter_map(said).collect();
        match said.last() {
            None => Answer::calls("", vec![("long".into(), "{}".into())]),
            Some(told) => match told.rsplit_once("read_artifact ") {
                Some((_, how)) => Answer::calls("", vec![("read_artifact".into(), how.trim_end_matches(']').into())]),
                None => Answer::text(said.join("\u{1}")),
            },
        }
    });
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(script).tool(Arc::new(Long));
    // Also where nobody may have subagents.
    let limits = Limits { depth_max: 0, ..Limits::default() };
    let runtime = builder.limits(limits).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new("scripted", "any", std::env::temp_dir())).await.unwrap();
    root.followup("go").await.unwrap();
    let text = root.wait().await.unwrap().unwrap().text.to_string();
    runtime.shutdown().await.unwrap();
    let (long, read) = text.split_once('\u{1}').unwrap_or_else(|| panic!("{text:.200}"));
    let shown = long.split_once("\n[… ").unwrap().0;
    assert_eq!(shown.len(), 256 * 1024);
    assert!(read.starts_with("[bytes 262144 to 278528 of 400000]\nééé"), "{read:.100}");
}
