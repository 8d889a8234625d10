//! Turns that are to come out with something: told, checked, tried again, and given once.

use std::sync::Arc;

use impresario_actors::{AgentSpec, OutputSchema, Runtime};
use impresario_kernel::{Message, OutcomeKind};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Afterwards, Hook, HookCall, HookResult};
use impresario_stores::MemoryStore;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
struct Finding {
    file: String,
    lines: Vec<u32>,
}

fn output(result: serde_json::Value) -> (String, String) {
    ("final_output".into(), json!({ "result": result }).to_string())
}

fn good() -> (String, String) {
    output(json!({"file": "a.rs", "lines": [1, 2]}))
}

async fn runtime(script: ScriptedModel) -> Runtime {
    Runtime::builder(Arc::new(MemoryStore::new())).model(script).build().await.unwrap()
}

fn spec() -> AgentSpec {
    let spec = AgentSpec::new("scripted", "any", std::env::temp_dir());
    AgentSpec { output: Some(OutputSchema::of::<Finding>()), ..spec }
}

/// What the calls so far were answered, in order.
fn answers(view: &View<'_>) -> Vec<String> {
    let text = |message: &Arc<Message>| {
        let results = message.content.iter().filter_map(|block| match block {
            impresario_kernel::Block::ToolResult { content, .. } => Some(content),
            _ => None,
        });
        results.flatten().filter_map(|block| block.as_text()).collect::<String>()
    };
    view.messages().iter().map(text).filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn b164_b165_b167_an_output_ends_the_turn_and_is_what_it_came_out_with() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match view.scope().step {
        1 => {
            assert!(view.messages().iter().any(|message| message.text().contains("fits this JSON Schema")));
            Answer::calls("", vec![output(json!({"file": "a.rs", "lines": ["one"]}))])
        }
        2 => {
            let wrong = answers(view).pop().unwrap();
            assert!(wrong.contains("lines[0]: invalid type"), "{wrong}");
            // What comes behind the output in the same answer is not run any more.
            Answer::calls(
                "here",
                vec![("list_agents".into(), "{}".into()), good(), good(), ("bash".into(), "{}".into())],
            )
        }
        _ => panic!("the turn has ended"),
    });
    let runtime = runtime(script).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("look").await.unwrap();
    let outcome = root.wait().await.unwrap().unwrap();
    assert_eq!((outcome.kind, &*outcome.text), (OutcomeKind::Completed, "here"));
    assert_eq!(outcome.output.as_deref(), Some(&json!({"file": "a.rs", "lines": [1, 2]})));
    let said: Vec<String> = root
        .transcript()
        .await
        .unwrap()
        .iter()
        .flat_map(|message| message.content.clone())
        .filter_map(|block| match block {
            impresario_kernel::Block::ToolResult { content, .. } => content[0].as_text().map(ToOwned::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(said[1..3], ["{\"agents\":[]}", "recorded"]);
    assert!(said[3..].iter().all(|said| said.contains("the final output is given")), "{said:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b166_who_forgets_it_is_told_once_and_has_failed_then() {
    let told =
        |view: &View<'_>| view.messages().iter().any(|message| message.text().contains("not called final_output"));
    let script = ScriptedModel::from_fn(move |view: &View<'_>| match (view.scope().turn, told(view)) {
        (1, true) => Answer::calls("", vec![good()]),
        _ => Answer::text("well, I looked"),
    });
    let runtime = runtime(script).await;
    let root = runtime.spawn(spec()).await.unwrap();
    root.followup("look").await.unwrap();
    assert_eq!(root.wait().await.unwrap().unwrap().kind, OutcomeKind::Completed);
    root.followup("and again").await.unwrap();
    let outcome = root.wait().await.unwrap().unwrap();
    assert_eq!((outcome.kind, outcome.failure().unwrap().code.as_str()), (OutcomeKind::Failed, "NO_OUTPUT"));
    assert_eq!(outcome.spent.model_calls, 4);
    runtime.shutdown().await.unwrap();
}

struct Censor;

impl Hook for Censor {
    fn name(&self) -> &str {
        "censor"
    }

    fn post_execute(&self, call: Arc<HookCall>, _: Arc<HookResult>) -> futures::future::BoxFuture<'static, Afterwards> {
        Box::pin(async move {
            if call.tool == "final_output" && call.input["result"]["file"] == "a.rs" {
                return Afterwards::Block { reason: "not that one".into() };
            }
            Afterwards::Accept
        })
    }
}

#[tokio::test]
async fn b168_what_a_hook_withholds_is_not_given() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match view.scope().step {
        1 => Answer::calls("", vec![good()]),
        _ => Answer::calls("", vec![output(json!({"file": "b.rs", "lines": []}))]),
    });
    let runtime = runtime(script).await;
    let root = runtime.spawn(spec().hook(Censor)).await.unwrap();
    root.followup("look").await.unwrap();
    let outcome = root.wait().await.unwrap().unwrap();
    assert_eq!(outcome.output.as_ref().unwrap()["file"], "b.rs");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_typed_fan_out_gives_values_and_says_who_gave_none() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match view.prompt().unwrap().1.as_str() {
        "nothing" => Answer::text("no"),
        file => Answer::calls("", vec![output(json!({"file": file, "lines": [7]}))]),
    });
    let runtime = runtime(script).await;
    let all = runtime.fan_out_as::<Finding>(spec(), ["a", "nothing", "b"]).all().await;
    let files: Vec<Option<&str>> = all.iter().map(|one| one.output.as_ref().map(|it| it.file.as_str())).collect();
    assert_eq!(files, [Some("a"), None, Some("b")]);
    assert_eq!(all[1].result.as_ref().unwrap().kind, OutcomeKind::Failed);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b192_a_child_reports_before_it_is_done_and_a_root_has_nobody_to_report_to() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| {
        let report = |text: &str| ("report".to_owned(), json!({ "message": text }).to_string());
        match (view.scope().path.as_str(), view.scope().step) {
            ("root", 1) => {
                let child = ("subagent".to_owned(), json!({"prompt": "go", "background": true}).to_string());
                Answer::calls("", vec![child, report("to whom?")])
            }
            ("root", 2) => Answer::calls("", vec![("wait_agents".into(), "{}".into())]),
            ("root", _) => Answer::text("heard"),
            (_, 1) => Answer::calls("", vec![report("half of it is done")]),
            _ => Answer::text("all of it is done"),
        }
    });
    let runtime = runtime(script).await;
    let root = runtime.spawn(AgentSpec { output: None, ..spec() }).await.unwrap();
    root.followup("look").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(receipt.agents.len(), 2);
    let log = format!("{:?}", root.transcript().await.unwrap());
    assert_eq!(log.matches("[root/a1 reports · agent ").count(), 1, "{log}");
    assert!(log.contains("half of it is done"));
    assert!(log.contains("nobody gave you your task but the user"), "{log}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_is_not_given_tools_that_its_parent_does_not_have() {
    let script = ScriptedModel::from_fn(|view: &View<'_>| match view.scope().step {
        1 => Answer::calls("", vec![("subagent".into(), json!({"prompt": "go", "tools": ["bash"]}).to_string())]),
        _ => Answer::text(answers(view).concat()),
    });
    let runtime = runtime(script).await;
    let root = runtime.spawn(AgentSpec { output: None, ..spec() }).await.unwrap();
    root.followup("look").await.unwrap();
    let said = root.wait().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("you have no tool \"bash\" to give; yours are: subagent"), "{said}");
    assert_eq!(runtime.quiesce(root.id()).await.unwrap().agents.len(), 1, "there is no orphan");
    runtime.shutdown().await.unwrap();
}
