//! Budgets at work: real actors that spend, wait for each other's funds, and are told no.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use impresario_actors::{AgentHandle, AgentSpec, Limits, Price, PriceTable, Runtime};
use impresario_kernel::tree::Tree;
use impresario_kernel::{
    AgentId, Budget, Chunk, Failure, Funds, Millis, OutcomeKind, Resource, Seq, SessionHeader, TurnEnd, Usage, Window,
    invariant,
};
use impresario_models::scripted::{Answer, ScriptedModel, View};
use impresario_seams::{ChunkStream, Model, ModelRequest, SessionFilter, Store};
use impresario_stores::MemoryStore;
use serde_json::json;

/// What every call costs here.
const COST: u64 = 1_000;

/// A script whose every call is said to have cost [`COST`] tokens, and which counts them.
struct Costly {
    script: ScriptedModel,
    calls: Arc<AtomicU64>,
}

impl Model for Costly {
    fn provider(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'static, Result<ChunkStream, Failure>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let stream = self.script.stream(request);
        Box::pin(async move {
            let usage = Usage { input_tokens: COST - 100, output_tokens: 100, ..Usage::default() };
            let costly = move |chunk: Chunk| match chunk {
                Chunk::Usage { .. } => Chunk::Usage { usage },
                other => other,
            };
            Ok(stream.await?.map_ok(costly).boxed())
        })
    }
}

struct Home {
    store: Arc<MemoryStore>,
    calls: Arc<AtomicU64>,
}

impl Home {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), calls: Arc::default() }
    }

    async fn runtime(&self, script: ScriptedModel, limits: Limits) -> Runtime {
        let model = Costly { script, calls: Arc::clone(&self.calls) };
        // Two dollars for a thousand calls.
        let price = Price { input: 2.0, cached_input: None, output: 2.0 };
        let prices = PriceTable::default().with("scripted:priced", price);
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        // Time is tokio's.
        Runtime::builder(store).model(model).limits(limits).prices(prices).seeded(1).build().await.unwrap()
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The tree as its log says, of which nothing may be left in flight.
    async fn tree(&self, root: &AgentId) -> Tree {
        let mut tree = Tree::new(root.clone());
        let events: Vec<_> = self.store.read(root.tree_log(), Seq(0)).try_collect().await.unwrap();
        events.iter().for_each(|event| tree.apply(&event.fact, event.time));
        assert_eq!(tree.ledger().reservations().count(), 0, "something was never settled");
        tree
    }

    async fn spent(&self, root: &AgentId) -> Funds {
        self.tree(root).await.ledger().spent(root)
    }

    /// Every log keeps every rule.
    async fn check(&self) {
        for info in self.store.list(SessionFilter::default()).await.unwrap() {
            let events: Vec<_> = self.store.read(info.id().clone(), Seq(0)).try_collect().await.unwrap();
            let header = SessionHeader::new(info.id().clone(), Millis(0));
            assert_eq!(invariant::check_log(&header, &events), [], "{}", info.new.path);
        }
    }
}

fn spec(budget: Budget) -> AgentSpec {
    AgentSpec { budget: Some(budget), ..AgentSpec::new("scripted", "priced", std::env::temp_dir()) }
}

fn tokens(most: u64) -> Budget {
    Budget { tokens: Some(most), ..Budget::default() }
}

/// Children by these arguments, all in one answer; then the root says what they said.
fn parent(children: Vec<serde_json::Value>) -> ScriptedModel {
    ScriptedModel::from_fn(move |view: &View<'_>| match (view.scope().path.as_str(), view.scope().step) {
        ("root", 1) => Answer::calls("", children.iter().map(|child| ("subagent".into(), child.to_string())).collect()),
        ("root", _) => Answer::text(view.messages().iter().map(|message| results(message)).collect::<String>()),
        (path, _) => Answer { latency: Some(Duration::from_millis(10)), ..Answer::text(format!("{path} is done")) },
    })
}

fn results(message: &impresario_kernel::Message) -> String {
    let results = message.content.iter().filter_map(|block| match block {
        impresario_kernel::Block::ToolResult { content, .. } => Some(content),
        _ => None,
    });
    results.flatten().filter_map(|block| block.as_text()).map(|text| format!("{text}\n")).collect()
}

async fn run(runtime: &Runtime, spec: AgentSpec) -> (AgentHandle, impresario_actors::Receipt) {
    let root = runtime.spawn(spec).await.unwrap();
    root.followup("go").await.unwrap();
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert!(receipt.at_rest());
    (root, receipt)
}

fn count(receipt: &impresario_actors::Receipt, kind: OutcomeKind) -> usize {
    receipt.agents.iter().filter(|agent| agent.outcome == Some(kind)).count()
}

#[tokio::test]
async fn a_tree_spends_its_budget_and_not_more() {
    let home = Home::new();
    let children = vec![json!({"prompt": "work"}); 40];
    let runtime = home.runtime(parent(children), Limits::default()).await;
    // One call may cost more than was reserved for it.
    let (root, receipt) = run(&runtime, spec(tokens(20 * COST))).await;
    let spent = home.spent(root.id()).await;
    assert_eq!(spent.tokens, home.calls() * COST);
    assert!(spent.tokens <= 20 * COST, "{spent:?}");
    // What a child's call may cost is between two and four times what it costs: none was refused while others could free
    // that much.
    assert!(spent.tokens >= 16 * COST, "{spent:?}");
    assert_eq!(count(&receipt, OutcomeKind::Completed) as u64 + 1, home.calls(), "the root has called once");
    let root_end = root.outcome().await.unwrap().unwrap();
    assert_eq!(root_end.end, TurnEnd::Limit { limit: "budget_tokens".into(), max: 20 * COST });
    assert_eq!(
        (root_end.kind, &*root_end.why()),
        (OutcomeKind::Partial, "the budget of 20000 tokens has no room for another call")
    );
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn a_child_has_what_it_was_given_and_gives_back_what_it_does_not_need() {
    let home = Home::new();
    let children = vec![
        json!({"prompt": "work", "label": "rich", "budget": {"tokens": 50_000}}),
        json!({"prompt": "work", "label": "poor", "budget": {"tokens": 0}}),
        json!({"prompt": "work", "label": "greedy", "budget": {"tokens": 60_000}}),
    ];
    let runtime = home.runtime(parent(children), Limits::default()).await;
    let (root, receipt) = run(&runtime, spec(tokens(100_000))).await;
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("[root/rich completed"), "{said}");
    assert!(
        said.contains("[root/poor partial") && said.contains("the budget of 0 tokens has no room for another call"),
        "{said}"
    );
    assert!(said.contains("a budget of 60000 tokens was asked and 49000 tokens are left to grant"), "{said}");
    assert_eq!((home.calls(), receipt.agents.len()), (3, 3), "the root's two and the rich one's");
    let tree = home.tree(root.id()).await;
    let rich = &receipt.agents.iter().find(|agent| agent.path.as_str() == "root/rich").unwrap().id;
    assert_eq!(tree.ledger().spent(rich).tokens, COST);
    // What it did not need is the root's again.
    assert_eq!(tree.grant(&"new".into(), root.id(), &tokens(97_000)).map(|drawn| drawn.amount.tokens), Ok(97_000));
    assert!(tree.grant(&"new".into(), root.id(), &tokens(97_001)).is_err());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_waits_for_funds_holds_up_nobody_even_with_one_slot() {
    let home = Home::new();
    // The first ones hold nearly all there is until they are done.
    let mut children = vec![json!({"prompt": "work", "budget": {"tokens": 9_000}}); 2];
    children.extend(vec![json!({"prompt": "work"}); 6]);
    let runtime = home.runtime(parent(children), Limits { running_max: 1, ..Limits::default() }).await;
    let (root, receipt) = run(&runtime, spec(tokens(20_000))).await;
    assert_eq!(count(&receipt, OutcomeKind::Completed), 9, "{receipt:?}");
    assert_eq!(home.spent(root.id()).await.tokens, 10 * COST);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn money_takes_a_price() {
    let home = Home::new();
    let runtime = home.runtime(parent(vec![]), Limits::default()).await;
    let budget = Budget { micro_usd: Some(1_000_000), ..Budget::default() };
    let unpriced = AgentSpec { model: "unknown".into(), ..spec(budget.clone()) };
    let error = runtime.spawn(unpriced).await.unwrap_err().to_string();
    assert!(error.contains("price table has none for scripted:unknown"), "{error}");
    let (root, _) = run(&runtime, spec(budget)).await;
    assert_eq!(home.spent(root.id()).await.micro_usd, 2 * COST * home.calls());
    runtime.shutdown().await.unwrap();
    // A child's as well.
    let home = Home::new();
    let children = vec![json!({"prompt": "work", "budget": {"cost_usd": 1}})];
    let runtime = home.runtime(parent(children), Limits::default()).await;
    let unpriced = AgentSpec { model: "unknown".into(), budget: None, ..spec(Budget::default()) };
    let (root, receipt) = run(&runtime, unpriced).await;
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("price table has none for scripted:unknown; leave `cost_usd` out"), "{said}");
    assert_eq!(receipt.agents.len(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_window_parks_the_agent_until_it_has_room() {
    let home = Home::new();
    let runtime = home.runtime(parent(vec![json!({"prompt": "work"}); 3]), Limits::default()).await;
    let window = Window { resource: Resource::Tokens, most: COST + 3_000, per_ms: 60_000 };
    let began = tokio::time::Instant::now();
    let (root, receipt) = run(&runtime, spec(Budget { windows: vec![window], ..Budget::default() })).await;
    assert_eq!(count(&receipt, OutcomeKind::Completed), 4, "{receipt:?}");
    assert_eq!(home.spent(root.id()).await.tokens, 0, "windows are no accounts");
    // Five calls, of which at most four are in a window.
    assert!(began.elapsed() >= Duration::from_secs(60), "{:?}", began.elapsed());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn four_fifths_are_told_with_the_next_request() {
    let home = Home::new();
    let script = ScriptedModel::from_fn(|view: &View<'_>| {
        let told = view.messages().iter().map(|message| message.text()).filter(|text| text.contains("are spent."));
        match view.scope().step {
            1..=32 => Answer::calls("", vec![("list_agents".into(), "{}".into())]),
            _ => Answer::text(told.collect::<String>()),
        }
    });
    let runtime = home.runtime(script, Limits::default()).await;
    let mut seen = runtime.subscribe();
    let (root, _) = run(&runtime, spec(tokens(40_000))).await;
    let said = root.outcome().await.unwrap().unwrap().text.to_string();
    assert!(said.contains("32000 tokens of a budget of 40000 tokens are spent."), "{said}");
    let mut limits = vec![];
    while let Some(impresario_actors::Seen::Event(event)) = seen.next().await {
        match &event.what {
            impresario_seams::Observed::LimitReached { limit, used, max } => limits.push((limit.clone(), *used, *max)),
            impresario_seams::Observed::Ended { .. } => break,
            _ => {}
        }
    }
    assert_eq!(limits, [("budget_tokens".to_owned(), 32_000, 40_000)]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_dead_actor_or_process_had_in_flight_is_spent_in_full() {
    let home = Home::new();
    let slow = || {
        ScriptedModel::from_fn(|view: &View<'_>| match view.scope().turn {
            1 => Answer { latency: Some(Duration::from_secs(3_600)), ..Answer::text("late") },
            _ => Answer::text("again"),
        })
    };
    let runtime = home.runtime(slow(), Limits::default()).await;
    let root = runtime.spawn(spec(tokens(100_000))).await.unwrap();
    root.followup("go").await.unwrap();
    while home.calls() < 1 {
        tokio::task::yield_now().await;
    }
    runtime.fail_agent(root.id());
    runtime.quiesce(root.id()).await.unwrap();
    let once = home.spent(root.id()).await.tokens;
    assert!(once > 1_024, "{once}");
    // The process dies under the same call of the next turn.
    let root = root.id().clone();
    drop(runtime);
    let runtime = home.runtime(slow(), Limits::default()).await;
    let budgeted = AgentSpec { budget: None, ..spec(tokens(0)) };
    let root = runtime.open(&root, budgeted).await.unwrap();
    root.followup("go on").await.unwrap();
    root.wait().await.unwrap();
    assert_eq!(home.spent(root.id()).await.tokens, once + COST, "it is budgeted as before, whatever the opener says");
    runtime.shutdown().await.unwrap();
    home.check().await;
}

#[tokio::test]
async fn funds_are_not_lost_with_a_supervisor() {
    let home = Home::new();
    let children = vec![json!({"prompt": "work"}), json!({"prompt": "work", "budget": {"tokens": 9_000}})];
    let children = children.into_iter().cycle().take(12).collect();
    let runtime = home.runtime(parent(children), Limits { running_max: 3, ..Limits::default() }).await;
    let root = runtime.spawn(spec(tokens(200_000))).await.unwrap();
    root.followup("go").await.unwrap();
    for calls in [2, 5, 9] {
        while home.calls() < calls {
            tokio::task::yield_now().await;
        }
        runtime.fail_supervisor();
    }
    let receipt = runtime.quiesce(root.id()).await.unwrap();
    assert_eq!(count(&receipt, OutcomeKind::Completed), 13, "{receipt:?}");
    // A word that a supervisor did not hear any more may have cost what was reserved, which is at most four times as much.
    let spent = home.spent(root.id()).await.tokens;
    assert!((14 * COST..14 * COST + 9 * 4 * COST).contains(&spent), "{spent}");
    runtime.shutdown().await.unwrap();
    home.check().await;
}
