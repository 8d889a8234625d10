//! What orchestration costs, as a user measures it. Nothing here is about how long anything takes.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::kit::Place;

fn document(place: &Place, rest: &[&str]) -> Value {
    let said = place.ok(&[&["--json", "bench"], rest].concat());
    serde_json::from_str(&said.out).expect("one document")
}

fn figure(result: &Value, name: &str) -> f64 {
    result["figures"][name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {result}"))
}

#[test]
fn every_scenario_runs_and_asks_as_often_as_it_says() {
    let place = Place::new();
    let names: Vec<String> = (place.ok(&["bench", "--list"]).out.lines())
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    assert_eq!(names.len(), 14, "{names:?}");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = document(&place, &[&["--n", "4", "--repeat", "2", "--warm-up", "0"], &names[..]].concat());
    let results = all["results"].as_array().expect("results");
    assert_eq!(results.len(), names.len());
    let requests = |name: &str| {
        let result = results.iter().find(|result| result["scenario"] == name).expect("a result");
        assert_eq!(result["figures"]["wall_ms"]["values"].as_array().map(Vec::len), Some(2), "{result}");
        figure(result, "requests")
    };
    // Twice whoever delegates once, once whoever does not.
    let expected = [
        ("fan-out", 2 + 4),
        ("chain", 2 * 4 + 1),
        ("tree", 2 * (1 + 2 + 4) + 4),
        ("map-reduce", 3 + 4 + 1),
        ("pipeline", 5 + 4),
        ("debate", 4 + 3 * 4),
        ("background", 3 + 4),
        ("stream", 2 + 4),
        ("cancel-storm", 1 + 4),
        ("idle", 4),
        ("message-storm", 0),
        ("fork", 4),
    ];
    for (name, expected) in expected {
        assert_eq!(requests(name), f64::from(expected), "{name}");
    }
}

#[test]
fn over_http_and_on_the_disk_it_is_the_same_work() {
    let place = Place::new();
    let all = document(&place, &["fan-out", "--n", "8", "--repeat", "1", "--over-http", "--store", "sqlite"]);
    let result = &all["results"][0];
    assert_eq!((figure(result, "requests"), figure(result, "peak_concurrency") >= 1.0), (10.0, true), "{all}");
    assert_eq!((&result["store"], &result["over_http"]), (&"sqlite".into(), &true.into()));
}

/// Promise P6, and the ideal schedule to the millisecond.
#[test]
fn the_same_seed_gives_the_same_logs_and_nothing_but_the_model_takes_time() {
    let place = Place::new();
    let run =
        |seed: &str| document(&place, &["tree", "--deterministic", "--n", "27", "--latency", "200ms", "--seed", seed]);
    let (first, second, other) = (run("7"), run("7"), run("8"));
    let hash = |document: &Value| document["results"][0]["hash"].as_str().expect("a hash").to_owned();
    assert_eq!(hash(&first), hash(&second));
    assert_ne!(hash(&first), hash(&other), "ids come from the seed");
    let result = &first["results"][0];
    // Seven answers one after another.
    assert_eq!(
        (figure(result, "ideal_ms"), figure(result, "wall_ms"), figure(result, "overhead_ms")),
        (1400.0, 1400.0, 0.0)
    );
}

#[test]
// A skipped check is seen.
#[allow(clippy::print_stderr)]
fn a_page_has_a_bar_for_each_agent_and_needs_no_network() {
    let place = Place::new();
    place.ok(&["bench", "-q", "fan-out", "--n", "8,64", "--repeat", "1", "--report", "page.html"]);
    let page = std::fs::read_to_string(place.dir().join("page.html")).expect("a page");
    let gantt = page.rsplit("class=\"gantt\"").next().expect("the last tree");
    assert_eq!(gantt.matches("class=\"bar\"").count(), 65);
    assert!(page.contains("class=\"curve\"") && !page.contains("http"), "no network");

    let Some(chromium) = chromium() else {
        eprintln!("skipped: there is no chromium here to open the page with");
        return;
    };
    let profile = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", place.dir().join("page.html").display());
    let data = format!("--user-data-dir={}", profile.path().display());
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
    let flags =
        flags.iter().copied().chain(["--disable-component-update", "--disable-sync", &data, "--dump-dom", &url]);
    let opened = Command::new(chromium).args(flags).output().expect("it starts");
    let dom = String::from_utf8_lossy(&opened.stdout).into_owned();
    assert_eq!(dom.matches("class=\"bar\"").count(), 9 + 65, "{opened:?}");
}

fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name))).find(|path| path.is_file())
}

#[test]
fn a_scenario_of_ones_own_is_a_file() {
    let place = Place::new();
    let write = |name: &str, text: &str| std::fs::write(place.dir().join(name), text).expect("written");
    write("wide.toml", "prompt = \"rounds {n},1 | work\"\n");
    write("mine.toml", "name = \"mine\"\nprompt = \"go\"\nscript = \"script.toml\"\n");
    let calls = r#"{ name = "subagent", arguments = { prompt = "leaf", label = "l" } }"#;
    write("script.toml", &format!("[[rule]]\npath = \"root\"\nstep = 1\ncalls = [{calls}]\n[[rule]]\ntext = \"so\"\n"));
    let all = document(&place, &["wide.toml", "mine.toml", "--n", "5", "--repeat", "1"]);
    let results = all["results"].as_array().expect("results");
    assert_eq!((results[0]["scenario"].as_str(), figure(&results[0], "requests")), (Some("wide"), 3.0 + 6.0));
    assert_eq!((results[1]["scenario"].as_str(), figure(&results[1], "requests")), (Some("mine"), 2.0 + 1.0));
    write("bad.toml", "prompt = \"x\"\npromt = 1\n");
    let bad = place.run(&["bench", "bad.toml"]);
    assert!(bad.code == Some(2) && bad.err.contains("line 2") && bad.err.contains("promt"), "{bad:?}");
}

#[test]
fn other_programs_run_on_the_same_server() {
    let place = Place::new();
    let against = |command: &str| {
        let said = place.ok(&["--json", "bench", "--against", command, "--n", "4", "--repeat", "1"]);
        serde_json::from_str::<Value>(&said.out).expect("one document")["results"][0].clone()
    };
    let floor = against("floor");
    assert_eq!((&floor["ours"]["requests"], &floor["theirs"]["requests"]), (&6.0.into(), &6.0.into()), "{floor}");
    let broken = place.run(&["bench", "--against", "exit 3", "--n", "4", "--repeat", "1"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.contains("ended with 3"), "{broken:?}");
}

#[test]
fn what_became_slower_is_said_and_nonsense_is_refused() {
    let place = Place::new();
    let one = |value: f64| {
        let values: Vec<f64> = (0..5).map(|n| value + f64::from(n) / 100.0).collect();
        let wall = serde_json::json!({"median": value, "values": values});
        let result = serde_json::json!({
            "scenario": "fan-out", "n": 8, "latency": "0ms", "store": "memory", "over_http": false,
            "figures": {"wall_ms": wall},
        });
        serde_json::json!({"v": 1, "results": [result]}).to_string()
    };
    for (name, value) in [("a.json", 10.0), ("b.json", 20.0)] {
        std::fs::write(place.dir().join(name), one(value)).expect("written");
    }
    let slower = place.run(&["bench", "compare", "a.json", "b.json"]);
    assert_eq!((slower.code, slower.out.contains("slower  fan-out n=8")), (Some(1), true), "{slower:?}");
    let faster = place.ok(&["bench", "compare", "b.json", "a.json"]).out;
    assert!(faster.contains("faster  fan-out n=8") && faster.contains("0 slower"), "{faster}");
    assert!(place.ok(&["bench", "compare", "a.json", "a.json"]).out.contains("noise"));
    std::fs::write(place.dir().join("c.json"), "{}").expect("written");
    assert_eq!(place.run(&["bench", "compare", "a.json", "c.json"]).code, Some(2));
    let unknown = place.run(&["bench", "fan-in"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("fan-out"), "{unknown:?}");
}
