//! Budgets, through the binary and a real server.

use serde_json::Value;

use crate::kit::{Mock, Place};

/// A root with four children, of which two have a budget of their own, with forty each.
const SCRIPT: &str = r#"
[[rule]]
contains = "be the top"
step = 1
calls = [
    { name = "subagent", arguments = { prompt = "be in the middle", may_spawn = 40, budget = { tokens = 20000 } } },
    { name = "subagent", arguments = { prompt = "be in the middle", may_spawn = 40, budget = { tokens = 20000 } } },
    { name = "subagent", arguments = { prompt = "be in the middle", may_spawn = 40 } },
    { name = "subagent", arguments = { prompt = "be in the middle", may_spawn = 40 } },
]

[[rule]]
contains = "be in the middle"
step = 1
calls = [LEAVES]

[[rule]]
text = "SIGHT"
latency_ms = 20
"#;

const BUDGET: u64 = 100_000;

/// `(limit, spent)` in tokens of each agent that has a budget.
fn budgets(place: &Place) -> Vec<(u64, u64)> {
    let said = place.ok(&["tree", "--json"]).out;
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let tokens = |budget: &Value, key: &str| budget[key]["tokens"].as_u64().unwrap_or(0);
    let budgeted = lines.filter(|line| !line["budget"].is_null());
    budgeted.map(|line| (tokens(&line["budget"], "limit"), tokens(&line["budget"], "spent"))).collect()
}

#[test]
fn a_budget_holds_three_levels_deep_and_across_kill_9() {
    let place = Place::new();
    let leaves = r#"{ name = "subagent", arguments = { prompt = "be a leaf" } },"#.repeat(40);
    let script = place.dir().join("script.toml");
    // What each says is about two hundred tokens.
    let text = SCRIPT.replace("LEAVES", &leaves).replace("SIGHT", &"far away ".repeat(90));
    std::fs::write(&script, text).expect("a script");
    let mock = Mock::scripted(&place, &script);
    let base_url = mock.base_url();
    let budget = BUDGET.to_string();
    let model = ["--base-url", &base_url, "-m", "openai:any", "-j", "8", "--max-agents", "5000", "--budget", &budget];
    let running = place.start(&[&["run", "be the top"], &model[..]].concat());
    mock.wait("about forty have asked", |stats| stats["requests"].as_u64() >= Some(40));
    running.murder();
    // In a dead process's log its calls are in flight still: within the budget all the same.
    for (limit, spent) in budgets(&place) {
        assert!(spent <= limit, "{spent} of {limit}");
    }
    let dead = budgets(&place)[0].1;
    assert!(dead > 0 && dead < BUDGET, "killed in mid-spending: {dead}");

    let mut last = 0;
    for _ in 0..6 {
        let said = place.run(&[&["run", "--continue", "be the top"], &model[..]].concat());
        let root = budgets(&place)[0];
        assert_eq!(root.0, BUDGET);
        assert!(root.1 <= BUDGET && root.1 >= last.max(dead), "{root:?} behind {last}: {said:#?}");
        last = root.1;
        if said.code == Some(3) {
            assert!(said.err.contains("the budget of 100000 tokens has no room for another call"), "{}", said.err);
            break;
        }
        assert_eq!(said.code, Some(0), "{said:#?}");
    }
    // One that reads forty answers may cost about twelve thousand: nobody was refused while others could free that much.
    assert!(last > BUDGET - 13_000, "{last}: {:#?}", place.tree());
    let before = mock.stats()["requests"].clone();
    let said = place.run(&[&["run", "--continue", "be the top"], &model[..]].concat());
    assert_eq!((said.code, &mock.stats()["requests"]), (Some(3), &before), "nothing more is asked: {said:#?}");
    place.verify();
    assert!(place.ok(&["tree"]).out.contains(" of a budget of 100000 tokens spent"));
}

#[test]
fn a_limit_in_dollars_takes_a_price() {
    let place = Place::new();
    let run = ["run", "[[SAY hi]]", "-m", "scripted:builtin", "--max-cost", "0.5"];
    let said = place.run(&run);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("prices.json has none; add {\"scripted:builtin\":"), "{}", said.err);
    let prices = place.dir().join("prices.json");
    std::fs::write(&prices, r#"{"scripted:*": {"input": 1, "output": 2}}"#).expect("prices");
    let prices = prices.display().to_string();
    assert_eq!(place.ok(&[&run[..], &["--prices", &prices]].concat()).out, "hi\n");
    assert!(place.ok(&["tree"]).out.contains("of a budget of $0.50 spent"));
    let end = place.ok(&[&run[..], &["--prices", &prices, "--json"]].concat()).end();
    let tokens = |name: &str| end["usage"][name].as_u64().expect("a number");
    let dollars = (tokens("input_tokens") + 2 * tokens("output_tokens")) as f64 / 1e6;
    assert_eq!(end["usage"]["cost_usd"].as_f64(), Some(dollars), "{end}");
    assert_eq!(end["total_usage"]["cost_usd"], end["usage"]["cost_usd"]);
    // The second word costs more than is left when there is nothing.
    let broke = ["run", "[[SAY hi]]", "-m", "scripted:builtin", "--max-cost", "0", "--prices", &prices];
    let said = place.run(&broke);
    assert_eq!((said.code, said.out.trim()), (Some(3), ""));
    assert!(said.err.contains("the budget of $0.00 has no room for another call"), "{}", said.err);
}
