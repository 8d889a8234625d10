//! The reference's testable behaviours of subagents, by number.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use impresario_actors::{AgentHandle, AgentSpec, Limits, Receipt, Runtime};
use impresario_kernel::{
    AgentId, Block, Cause, Event, Fact, Failure, Message, OutcomeKind, Seq, SubagentDescribed, ToolSchema, Tools,
    TurnEnd,
};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{Hook, Model, SessionFilter, SessionInfo, StepProposed, StepVerdict, Store};
use impresario_stores::MemoryStore;
use serde_json::{Value, json};

type Script = fn(&View<'_>, &str, u32) -> Answer;

struct World {
    store: Arc<MemoryStore>,
    runtime: Runtime,
    root: AgentHandle,
}

/// A script of who speaks (its path) and in which step; in later turns the root only answers.
fn scripted(script: Script) -> ScriptedModel {
    ScriptedModel::from_fn(move |view: &View<'_>| match (view.scope().path.as_str(), view.scope().turn) {
        ("root", 2..) => Answer::text("heard"),
        (path, _) => script(view, path, view.scope().step),
    })
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "any", std::env::temp_dir())
}

impl World {
    async fn of(model: impl Model, limits: Limits, spec: AgentSpec) -> Self {
        let store = Arc::new(MemoryStore::new());
        let kept: Arc<dyn Store> = Arc::clone(&store) as _;
        let runtime = Runtime::builder(kept).model(model).limits(limits).build().await.unwrap();
        let root = runtime.spawn(spec).await.unwrap();
        Self { store, runtime, root }
    }

    /// Lets the root do what the script says, until all is at rest.
    async fn run(script: Script) -> (Self, Receipt) {
        let world = Self::of(scripted(script), Limits::default(), spec()).await;
        world.root.followup("go").await.unwrap();
        let receipt = world.rest().await;
        (world, receipt)
    }

    async fn rest(&self) -> Receipt {
        self.runtime.quiesce(self.root.id()).await.unwrap()
    }

    async fn log(&self, id: &AgentId) -> Vec<Arc<Event>> {
        self.store.read(id.clone(), Seq(0)).try_collect().await.unwrap()
    }

    async fn infos(&self) -> Vec<SessionInfo> {
        let mut infos = self.store.list(SessionFilter::default()).await.unwrap();
        infos.sort_by_key(|info| info.new.path.clone());
        infos
    }

    /// What the calls of the root were answered, in the order in which the model sees them.
    async fn results(&self) -> Vec<String> {
        self.root
            .transcript()
            .await
            .unwrap()
            .iter()
            .map(|message| result(message))
            .filter(|it| !it.is_empty())
            .collect()
    }
}

fn result(message: &Message) -> String {
    let results = message.content.iter().filter_map(|block| match block {
        Block::ToolResult { content, .. } => Some(content),
        _ => None,
    });
    results.flatten().filter_map(|block| block.as_text()).collect()
}

fn child(arguments: Value) -> (String, String) {
    ("subagent".into(), arguments.to_string())
}

fn call(tool: &str, arguments: Value) -> (String, String) {
    (tool.into(), arguments.to_string())
}

fn kinds(receipt: &Receipt) -> Vec<(&str, Option<OutcomeKind>)> {
    receipt.agents.iter().map(|agent| (agent.path.as_str(), agent.outcome)).collect()
}

#[tokio::test]
async fn b152_a_child_begins_with_its_own_birth_in_the_place_of_its_parent_one_deeper() {
    let (world, _) = World::run(|_, path, step| match (path, step) {
        ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "dig", "may_spawn": 1}))]),
        ("root/a1", 1) => Answer::calls("", vec![child(json!({"prompt": "deeper"}))]),
        _ => Answer::text("done"),
    })
    .await;
    let infos = world.infos().await;
    let [root, first, second] = &infos[..] else { panic!("{infos:?}") };
    for (above, below, depth) in [(root, first, 1), (first, second, 2)] {
        let header = &below.new.header;
        assert_eq!(header.parent_session.as_ref(), Some(above.id()));
        assert_eq!((header.origin.as_deref(), header.delegation_depth), (Some("subagent"), Some(depth)));
        assert_eq!((&header.cwd, header.seed_length), (&above.new.header.cwd, None));
        let log = world.log(below.id()).await;
        let descriptor = |fact: &Fact| matches!(fact, Fact::SubagentDescribed(SubagentDescribed { version: 2, .. }));
        assert!(matches!(log[0].fact, Fact::AgentBorn(_)) && descriptor(&log[1].fact), "{:?}", log[0]);
    }
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b153_a_root_that_may_not_go_deeper_has_no_way_to_delegate() {
    let script: Script = |view, _, step| match step {
        1 => Answer::calls("", vec![child(json!({"prompt": "dig"}))]),
        _ => Answer::text(if view.offers("subagent") { "offered" } else { "not offered" }),
    };
    let world = World::of(scripted(script), Limits { depth_max: 0, ..Limits::default() }, spec()).await;
    world.root.followup("go").await.unwrap();
    assert_eq!(world.rest().await.agents.len(), 1);
    assert_eq!(&*world.root.outcome().await.unwrap().unwrap().text, "not offered");
    assert!(world.results().await[0].contains("you were not granted subagent"), "{:?}", world.results().await);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b159_b174_a_child_that_fails_is_an_error_with_its_reason_and_what_it_had_said() {
    let (world, receipt) = World::run(|_, path, step| match (path, step) {
        ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "fail"}))]),
        ("root", _) => Answer::text("well"),
        (_, 1) => Answer::calls("half a thought", vec![call("list_agents", json!({}))]),
        _ => Answer::failure(Failure::new("BAD_REQUEST", "I cannot")),
    })
    .await;
    assert_eq!(kinds(&receipt), [("root", Some(OutcomeKind::Completed)), ("root/a1", Some(OutcomeKind::Failed))]);
    let said = &world.results().await[0];
    assert!(said.starts_with("[root/a1 failed · agent "), "{said}");
    assert!(said.contains("BAD_REQUEST: I cannot") && said.ends_with("half a thought"), "{said}");
    let log = world.log(world.root.id()).await;
    let is_error = |event: &Arc<Event>| match &event.fact {
        Fact::ToolResult(result) => {
            result.message.content.iter().any(|block| matches!(block, Block::ToolResult { is_error: true, .. }))
        }
        _ => false,
    };
    assert!(log.iter().any(is_error));
    world.runtime.shutdown().await.unwrap();
}

/// Turns the prompts of children down.
struct Bouncer;

impl Hook for Bouncer {
    fn name(&self) -> &str {
        "bouncer"
    }

    fn pre_step(&self, step: Arc<StepProposed>) -> BoxFuture<'static, StepVerdict> {
        let is_child = step.place.path.as_str() != "root";
        Box::pin(async move {
            if is_child { StepVerdict::Reject { reason: "not today".into() } } else { StepVerdict::Enter }
        })
    }
}

#[tokio::test]
async fn b161_b173_children_overlap_and_come_back_in_the_order_of_their_calls_cut_or_whole() {
    let script: Script = |_, path, step| match (path, step) {
        ("root", 1) => {
            Answer::calls("", (0..3).map(|n| child(json!({"prompt": "go", "label": format!("c{n}")}))).collect())
        }
        ("root", _) => Answer::text("well"),
        // The first is the last to answer.
        ("root/c0", _) => Answer { latency: Some(Duration::from_millis(60)), ..Answer::text("zero") },
        ("root/c1", _) => Answer { is_cut: true, ..Answer::text("one, and then") },
        _ => Answer::text("two"),
    };
    let world = World::of(scripted(script), Limits::default(), spec()).await;
    world.root.followup("go").await.unwrap();
    let receipt = world.rest().await;
    let (completed, partial) = (Some(OutcomeKind::Completed), Some(OutcomeKind::Partial));
    assert_eq!(
        kinds(&receipt),
        [("root", completed), ("root/c0", completed), ("root/c1", partial), ("root/c2", completed)]
    );
    let results = world.results().await;
    let ends: Vec<&str> = results.iter().map(|said| said.lines().last().unwrap_or_default()).collect();
    assert_eq!(ends, ["zero", "one, and then", "two"]);
    assert!(results[1].contains("the output limit was reached"), "{results:?}");
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b169_b170_a_child_has_the_tools_that_it_is_given_and_a_wrong_name_leaves_no_orphan() {
    let (world, receipt) = World::run(|view, path, step| match (path, step) {
        ("root", 1) => {
            let given = |tools: Value| child(json!({"prompt": "go", "tools": tools, "may_spawn": 1}));
            Answer::calls("", vec![given(json!(["list_agents"])), given(json!(["nothing_like_it"]))])
        }
        ("root/a1", 1) => Answer::calls("", vec![child(json!({"prompt": "deeper"}))]),
        ("root/a1", _) => {
            let Some(Tools::Schemas(schemas)) = &view.header().tools else { panic!("it has tools") };
            let names: Vec<&str> = schemas.iter().map(|schema: &Arc<ToolSchema>| schema.name.as_str()).collect();
            Answer::text(names.join(" "))
        }
        _ => Answer::text("well"),
    })
    .await;
    assert_eq!(receipt.agents.len(), 2, "{receipt:?}");
    let results = world.results().await;
    assert!(
        results[0].ends_with("\nlist_agents report") || results[0].ends_with("\nread_artifact report list_agents"),
        "{results:?}"
    );
    assert!(results[1].contains("you have no tool \"nothing_like_it\" to give"), "{results:?}");
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b180_b184_b187_nobody_is_found_under_a_name_that_is_not_there() {
    let (world, _) = World::run(|_, path, step| match (path, step) {
        ("root", 1) => {
            let calls = ["message_agent", "interrupt_agent", "stop_agent"];
            let arguments = |tool: &str| match tool {
                "message_agent" => json!({"agent": "nobody", "message": "hello"}),
                _ => json!({"agent": "nobody"}),
            };
            Answer::calls("", calls.into_iter().map(|tool| call(tool, arguments(tool))).collect())
        }
        _ => Answer::text("well"),
    })
    .await;
    let results = world.results().await;
    assert_eq!(results.iter().filter(|said| said.contains("there is no agent \"nobody\" below you")).count(), 3);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b181_what_a_running_child_is_told_is_a_later_turn() {
    let (world, receipt) = World::run(|view, path, step| match (path, step) {
        ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "one", "label": "c", "background": true}))]),
        ("root", 2) => Answer::calls("", vec![call("message_agent", json!({"agent": "c", "message": "two"}))]),
        ("root", 3) => Answer::calls("", vec![call("wait_agents", json!({}))]),
        ("root", _) => Answer::text("well"),
        _ => {
            let heard = view.messages().iter().filter(|message| message.source.kind == "coordinator");
            let heard: Vec<String> = heard.map(|message| message.text()).collect();
            Answer { latency: Some(Duration::from_millis(40)), ..Answer::text(heard.join("+")) }
        }
    })
    .await;
    let child = &receipt.agents[1].id;
    let turns = world.log(child).await.iter().filter(|event| matches!(event.fact, Fact::TurnStarted(_))).count();
    assert_eq!(turns, 2);
    assert_eq!(&*world.runtime.agent(child).unwrap().outcome().await.unwrap().unwrap().text, "one+two");
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b185_a_person_interrupts_a_child_by_its_address_and_it_stays_there() {
    let script: Script = |_, path, step| match (path, step) {
        ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "slowly", "background": true}))]),
        ("root", _) => Answer::text("well"),
        (_, 1) => Answer { latency: Some(Duration::from_secs(3_600)), ..Answer::text("never") },
        _ => Answer::text("again"),
    };
    let world = World::of(scripted(script), Limits::default(), spec()).await;
    world.root.followup("go").await.unwrap();
    world.root.wait().await.unwrap();
    let infos = world.infos().await;
    let child = world.runtime.agent(infos[1].id()).unwrap();
    child.interrupt(Cause::user("by hand")).unwrap();
    let outcome = child.wait().await.unwrap().unwrap();
    assert_eq!(outcome.end, TurnEnd::Aborted { reason: Cause::user("by hand") });
    assert!(world.rest().await.at_rest());
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b186_an_agent_above_is_the_parent_of_a_cancel_and_one_beside_has_no_say() {
    let (world, receipt) = World::run(|view, path, step| match (path, step) {
        ("root", 1) => {
            let middle = child(json!({"prompt": "delegate", "label": "m", "background": true, "may_spawn": 1}));
            let beside = child(json!({"prompt": "meddle", "label": "b", "may_spawn": 1}));
            Answer::calls("", vec![middle, beside])
        }
        ("root", 2) => Answer::calls("", vec![call("interrupt_agent", json!({"agent": "root/m/deep"}))]),
        ("root", 3) => Answer::calls("", vec![call("wait_agents", json!({}))]),
        ("root/m", 1) => Answer::calls("", vec![child(json!({"prompt": "slowly", "label": "deep"}))]),
        ("root/b", 1) => Answer::calls("", vec![call("interrupt_agent", json!({"agent": "root/m/deep"}))]),
        ("root/b", _) => Answer::text(view.messages().iter().map(|message| result(message)).collect::<String>()),
        ("root/m/deep", _) => Answer { latency: Some(Duration::from_secs(3_600)), ..Answer::text("never") },
        _ => Answer::text("well"),
    })
    .await;
    let end = |path: &str| receipt.agents.iter().find(|agent| agent.path.as_str() == path).unwrap().id.clone();
    let deep = world.runtime.agent(&end("root/m/deep")).unwrap().outcome().await.unwrap().unwrap();
    assert_eq!(deep.end, TurnEnd::Aborted { reason: Cause::Parent });
    let beside = world.runtime.agent(&end("root/b")).unwrap().outcome().await.unwrap().unwrap();
    assert!(beside.text.contains("there is no agent \"root/m/deep\" below you"), "{}", beside.text);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b188_b189_each_end_is_told_once_an_idle_parent_opens_a_turn_and_a_busy_one_reads_all_in_a_step() {
    let script: Script = |_, path, step| match (path, step) {
        ("root", 1) => {
            let quick = |n: u32| child(json!({"prompt": "go", "label": format!("c{n}"), "background": true}));
            Answer::calls("", (0..3).map(quick).collect())
        }
        // Busy while all three come to their ends.
        ("root", 2) => Answer { latency: Some(Duration::from_millis(300)), ..Answer::text("busy") },
        ("root", _) => Answer::text("heard"),
        _ => Answer::text("done"),
    };
    let world = World::of(scripted(script), Limits::default(), spec()).await;
    world.root.followup("go").await.unwrap();
    world.rest().await;
    let log = world.log(world.root.id()).await;
    let notices =
        |event: &&Arc<Event>| matches!(&event.fact, Fact::UserMessage(it) if it.id.as_str().starts_with("settled:"));
    assert_eq!(log.iter().filter(notices).count(), 3);
    let steps = log.iter().filter(|event| matches!(event.fact, Fact::StepStarted(_))).count();
    let turns = log.iter().filter(|event| matches!(event.fact, Fact::TurnStarted(_))).count();
    assert_eq!((turns, steps), (1, 3), "the third step reads all of them");
    // Told something, its child has another end; the root is idle, and that end opens a turn.
    let child = world.infos().await[1].id().clone();
    world.runtime.agent(&child).unwrap().followup("once more").await.unwrap();
    world.rest().await;
    let log = world.log(world.root.id()).await;
    assert_eq!(log.iter().filter(notices).count(), 4);
    assert_eq!(log.iter().filter(|event| matches!(event.fact, Fact::TurnStarted(_))).count(), 2);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b191_b193_a_report_reaches_only_the_parent_and_a_quiet_one_wakes_nobody() {
    let script: Script = |view, path, step| {
        let report = |quiet: bool| call("report", json!({"message": "half", "quiet": quiet}));
        let prompt = view.messages().iter().rfind(|message| message.source.kind == "coordinator").map(|it| it.text());
        match (path, step) {
            ("root", 1) if view.scope().turn == 1 => {
                Answer::calls("", vec![child(json!({"prompt": "rest", "background": true, "may_spawn": 1}))])
            }
            ("root/a1", 1) if prompt.as_deref() == Some("rest") && view.scope().turn == 1 => {
                Answer::calls("", vec![child(json!({"prompt": "speak"}))])
            }
            ("root/a1/a1", 1) => Answer::calls("", vec![report(true)]),
            _ => Answer::text("well"),
        }
    };
    let world = World::of(scripted(script), Limits::default(), spec()).await;
    world.root.followup("go").await.unwrap();
    world.rest().await;
    let infos = world.infos().await;
    let heard = async |id: &AgentId| {
        let log = world.log(id).await;
        let is_report = |event: &&Arc<Event>| matches!(&event.fact, Fact::InboxSpliced(splice) if splice.inserted.iter().any(|it| it.id.as_str().starts_with("report:")));
        log.iter().filter(is_report).count()
    };
    assert_eq!([heard(infos[0].id()).await, heard(infos[1].id()).await], [0, 1]);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b160_a_child_whose_prompt_is_turned_down_was_refused() {
    let script: Script = |_, path, step| match (path, step) {
        ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "go"}))]),
        _ => Answer::text("well"),
    };
    let world = World::of(scripted(script), Limits::default(), spec().hook(Bouncer)).await;
    world.root.followup("go").await.unwrap();
    let receipt = world.rest().await;
    assert_eq!(kinds(&receipt)[1], ("root/a1", Some(OutcomeKind::Refused)));
    assert!(world.results().await[0].contains("its prompt was not let in: not today"), "{:?}", world.results().await);
    world.runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn b182_a_child_that_is_only_stored_comes_back_when_it_is_written_to() {
    let script: Script = |view, path, step| {
        let heard = view.messages().iter().filter(|it| ["user", "coordinator"].contains(&it.source.kind.as_str()));
        let heard: Vec<String> = heard.map(|message| message.text()).collect();
        match (path, step) {
            ("root", 1) => Answer::calls("", vec![child(json!({"prompt": "one", "label": "m", "may_spawn": 1}))]),
            ("root/m", 1) if view.scope().turn == 1 => {
                let schema = json!({"type": "object", "required": ["n"]});
                Answer::calls("", vec![child(json!({"prompt": "dig", "label": "deep", "output_schema": schema}))])
            }
            ("root/m/deep", 1) if view.scope().turn == 1 => {
                Answer::calls("", vec![call("final_output", json!({"result": {"n": 1}}))])
            }
            ("root/m/deep", 1) => Answer::calls("", vec![call("final_output", json!({"result": {"m": 2}}))]),
            ("root/m/deep", _) => Answer::calls("", vec![call("final_output", json!({"result": {"n": heard.len()}}))]),
            _ => Answer::text(heard.join("+")),
        }
    };
    let (world, receipt) = World::run(script).await;
    let id = |path: &str| receipt.agents.iter().find(|agent| agent.path.as_str() == path).unwrap().id.clone();
    let (root, middle, deep) = (id("root"), id("root/m"), id("root/m/deep"));
    world.runtime.shutdown().await.unwrap();

    let again = async |script: Script| {
        let kept: Arc<dyn Store> = Arc::clone(&world.store) as _;
        let runtime = Runtime::builder(kept).model(scripted(script)).build().await.unwrap();
        let root = runtime.open(&root, spec()).await.unwrap();
        World { store: Arc::clone(&world.store), runtime, root }
    };
    let later = again(script).await;
    assert!(later.runtime.agent(&deep).is_err(), "it has no actor");
    // Asked for twice at once it is read once.
    let (one, two) = tokio::join!(later.runtime.wake(&deep), later.runtime.wake(&deep));
    let (deep_again, _) = (one.unwrap(), two.unwrap());
    deep_again.followup("and deeper").await.unwrap();
    later.rest().await;
    let outcome = deep_again.outcome().await.unwrap().unwrap();
    assert_eq!(outcome.output.as_deref(), Some(&json!({"n": 2})), "what it was to come out with is remembered");
    let told = |log: &[Arc<Event>], who: &AgentId| {
        let id = format!("settled:{who}:2");
        log.iter().filter(|event| matches!(&event.fact, Fact::UserMessage(it) if it.id.as_str() == id)).count()
    };
    assert_eq!(told(&later.log(&middle).await, &deep), 1, "its parent came back, too, and is told");
    assert_eq!(told(&later.log(&root).await, &middle), 1, "and answers its own parent");
    assert_eq!(later.infos().await[1].head.title, "one", "a session keeps its title");
    let unknown = later.runtime.wake(&"nobody".into()).await.unwrap_err();
    assert_eq!(unknown.code(), "UNKNOWN_AGENT");
    later.runtime.shutdown().await.unwrap();

    // The parent itself writes to it.
    let writes: Script = |_, path, step| match (path, step) {
        ("root/m", 1) => Answer::calls("", vec![call("message_agent", json!({"agent": "deep", "message": "more"}))]),
        ("root/m", 2) => Answer::calls("", vec![call("wait_agents", json!({"agents": ["deep"]}))]),
        ("root/m/deep", _) => Answer::calls("", vec![call("final_output", json!({"result": {"n": 9}}))]),
        _ => Answer::text("well"),
    };
    let later = again(writes).await;
    later.runtime.wake(&middle).await.unwrap().followup("write to it").await.unwrap();
    later.rest().await;
    let said = later.log(&middle).await;
    let said: String = said.iter().filter_map(|event| event.fact.message()).map(|message| result(message)).collect();
    assert!(said.contains("it has the message") && said.contains(r#"\"n\":9"#), "{said}");
    later.runtime.shutdown().await.unwrap();
}
