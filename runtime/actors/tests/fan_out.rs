//! The library's fan-out: many prompts, one root each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use impresario_actors::{AgentSpec, Limits, Runtime, Seen};
use impresario_kernel::OutcomeKind;
use impresario_models::scripted::ScriptedModel;
use impresario_seams::{Observed, SessionFilter};
use impresario_stores::MemoryStore;

async fn runtime(running_max: usize) -> Runtime {
    let limits = Limits { running_max, ..Limits::default() };
    let builder = Runtime::builder(Arc::new(MemoryStore::new())).model(ScriptedModel::builtin()).limits(limits);
    builder.build().await.unwrap()
}

fn spec() -> AgentSpec {
    AgentSpec::new("scripted", "builtin", std::env::temp_dir())
}

#[tokio::test(start_paused = true)]
async fn they_come_as_they_end_and_all_gives_them_in_order() {
    let runtime = runtime(8).await;
    let prompts = ["[[SAY slow latency=900]]", "[[LEAF 1 error]]", "[[SAY fast latency=300]]"];
    let mut audits = runtime.fan_out(spec(), prompts);
    let mut order = vec![];
    while let Some(settled) = audits.next().await {
        order.push((settled.index, settled.is_completed()));
    }
    assert_eq!(order, [(1, false), (2, true), (0, true)]);
    assert!(audits.summary().starts_with("3 agents: 2 completed, 1 failed; "), "{}", audits.summary());
    let all = runtime.fan_out(spec(), prompts).all().await;
    assert_eq!(all.iter().map(|settled| settled.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(all[0].text().starts_with("slow"));
    assert_eq!(all[1].result.as_ref().unwrap().kind, OutcomeKind::Failed);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_more_than_may_run_are_at_it_at_once() {
    let runtime = runtime(3).await;
    let mut seen = runtime.subscribe();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let watch = tokio::spawn({
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            while let Some(Seen::Event(event)) = seen.next().await {
                match event.what {
                    Observed::TurnStarted { .. } => {
                        most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                    }
                    Observed::Ended { .. } => drop(now.fetch_sub(1, Ordering::SeqCst)),
                    _ => {}
                }
            }
        }
    });
    let all = runtime.fan_out(spec(), (0..20).map(|n| format!("[[SAY {n} latency=50]]"))).all().await;
    assert!(all.len() == 20 && all.iter().all(|settled| settled.is_completed()));
    runtime.shutdown().await.unwrap();
    watch.await.unwrap();
    assert_eq!((now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 3));
}

#[tokio::test]
async fn what_is_dropped_is_stopped_and_what_was_not_begun_never_is() {
    let runtime = runtime(2).await;
    let mut seen = runtime.subscribe();
    let mut audits = runtime.fan_out(spec(), (0..5).map(|n| format!("[[SAY {n} latency=3600000]]")));
    let mut started = 0;
    while started < 2 {
        tokio::select! {
            _ = audits.next() => panic!("an hour has not passed"),
            event = seen.next() => {
                let Some(Seen::Event(event)) = event else { panic!("nothing was seen") };
                started += usize::from(matches!(event.what, Observed::TurnStarted { .. }));
            }
        }
    }
    drop(audits);
    let roots = runtime.agents(SessionFilter::default()).await.unwrap();
    assert_eq!(roots.len(), 2);
    for root in roots {
        let receipt = runtime.quiesce(root.id()).await.unwrap();
        assert_eq!(receipt.agents[0].outcome, Some(OutcomeKind::Cancelled));
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_cannot_be_made_is_an_error_of_its_own() {
    let runtime = runtime(2).await;
    let all = runtime.fan_out(AgentSpec::new("nowhere", "any", "."), ["a", "b"]).all().await;
    assert!(all.iter().all(|settled| settled.result.is_err() && settled.id.is_none()), "{all:?}");
    runtime.shutdown().await.unwrap();
}
