//! A tree that was recorded here, replayed while each of its agents takes another time in each round.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt as _;
use impresario_actors::{AgentSpec, Limits, Runtime};
use impresario_kernel::{Block, Fact, Seq};
use impresario_models::replay::{Recorder, Recording, ReplayModel};
use impresario_models::scripted::{Latency, ScriptedModel};
use impresario_seams::{Model, SessionFilter, Store};
use impresario_stores::MemoryStore;

/// What is said in a script: two generations, calls in each, failures that go over, and a fork.
const SCRIPT: &str = r#"
seed = 5
[defaults]
fail = [{ kind = "rate_limit", times = 2, probability = 0.4 }, { kind = "reset", after = 1, times = 2, probability = 0.4 }]

[[rule]]
path = "root"
step = 1
reasoning = "They do not need each other."
calls = [
    { name = "subagent", arguments = { prompt = "Look", label = "part" } },
    { name = "subagent", arguments = { prompt = "Look", label = "part", may_spawn = 2 } },
    { name = "subagent", arguments = { prompt = "Look", label = "part" } },
    { name = "subagent", arguments = { prompt = "Look", context = "fork" } },
]

[[rule]]
path = "root/part-2"
step = 1
text = "I pass it on."
calls = [
    { name = "subagent", arguments = { prompt = "Look closer", label = "deep" } },
    { name = "subagent", arguments = { prompt = "Look closer", label = "deep" } },
]

[[rule]]
text = "What I had from others was {{result 0}} {{result 1}} {{result 2}}; what I say is some more words."
"#;

/// What each agent thought, said, asked for and was told, by path, with ids by their paths.
type Transcripts = BTreeMap<String, Vec<String>>;

async fn run(model: impl Model, running_max: usize) -> Transcripts {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let limits = Limits { running_max, ..Limits::default() };
    let provider = model.provider().to_owned();
    let runtime = Runtime::builder(Arc::clone(&store)).model(model).limits(limits).build().await.unwrap();
    let root = runtime.spawn(AgentSpec::new(&provider, "any", std::env::temp_dir())).await.unwrap();
    root.followup("Go").await.unwrap();
    runtime.quiesce(root.id()).await.unwrap();
    let sessions = store.list(SessionFilter::default()).await.unwrap();
    let mut transcripts = Transcripts::new();
    for session in &sessions {
        let mut said = vec![];
        let mut events = store.read(session.id().clone(), Seq(0));
        while let Some(event) = events.try_next().await.unwrap() {
            let content: &[Block] = match &event.fact {
                Fact::AssistantMessage(answer) => &answer.message.content,
                Fact::ToolResult(result) => &result.message.content,
                Fact::RetryScheduled(retry) => {
                    said.push(format!("retry {} {}", retry.retry, retry.failure));
                    continue;
                }
                _ => continue,
            };
            let text = format!("{content:?}");
            said.push(sessions.iter().fold(text, |text, of| text.replace(of.id().as_str(), of.new.path.as_str())));
        }
        transcripts.insert(session.new.path.to_string(), said);
    }
    runtime.shutdown().await.unwrap();
    transcripts
}

async fn replay(folder: &Path, seed: u64, running_max: usize) -> Transcripts {
    let latency: Latency = "lognormal(100ms, 2) + 30 tok/s".parse().unwrap();
    let model = ReplayModel::new(Recording::open(folder).unwrap()).with_latency(latency, seed);
    run(model.under("scripted"), running_max).await
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_the_same_again_whatever_each_of_its_agents_takes() {
    let folder = tempfile::tempdir().unwrap();
    let script = ScriptedModel::from_toml(SCRIPT).unwrap();
    let recorded = run(Recorder::open(folder.path()).unwrap().record(Arc::new(script)), 64).await;
    let paths: Vec<&str> = recorded.keys().map(String::as_str).collect();
    let expected =
        ["root", "root/a1", "root/part", "root/part-2", "root/part-2/deep", "root/part-2/deep-2", "root/part-3"];
    assert_eq!(paths, expected);
    let all = format!("{recorded:?}");
    assert!(
        ["RATE_LIMIT", "STREAM_CLOSED", "They do not need each other"].iter().all(|part| all.contains(part)),
        "{all}"
    );
    for seed in 0..12 {
        for running_max in [1, 3, 64] {
            assert_eq!(replay(folder.path(), seed, running_max).await, recorded, "seed {seed}, {running_max} at once");
        }
    }
}
