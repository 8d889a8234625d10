//! What became slower between two outputs of `bench --json`, and what is noise.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::spread::Spread;
use super::table::number;
use crate::args::Common;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::{home, print};

/// How often the runs are drawn anew.
const DRAWS: usize = 2_000;

/// The least change of a median that counts, as a part of it.
const LEAST: f64 = 0.05;

/// Figures of which less is better.
const LESS_IS_BETTER: [&str; 12] = [
    "wall_ms",
    "cpu_ms",
    "peak_rss_mib",
    "overhead_ms",
    "agent_p99_ms",
    "spawn_to_request_p99_ms",
    "cancel_ms",
    "addressable_ms",
    "recovered_ms",
    "fork_p50_ms",
    "accepted_p99_ms",
    "bytes_per_agent",
];

type Key = (String, u64, String, String, bool, String);

/// A figure is worse when the whole interval of what its median has become, drawn from the runs of both, is above what it was
/// by a twentieth.
pub(crate) fn compare(common: &Common, before: &Path, after: &Path) -> Result<Exit, Failed> {
    let (before, after) = (read(before)?, read(after)?);
    let (mut text, mut worse, mut looked) = (String::new(), 0, 0);
    for (key, old) in &before {
        let Some(new) = after.get(key) else { continue };
        looked += 1;
        let (name, n, latency, store, ..) = key;
        let figure = &key.5;
        let (low, high) = interval(old.values(), new.values());
        let verdict = match (low > 1.0 + LEAST, high < 1.0 - LEAST) {
            (true, _) => "slower",
            (_, true) => "faster",
            _ => "noise",
        };
        worse += usize::from(verdict == "slower");
        if verdict != "noise" || !common.quiet {
            text.push_str(&format!(
                "{verdict:<7} {name} n={n} ({latency}, {store}) {figure}: {} → {} ({}, times {low:.2} … {high:.2}, {} and {} runs)\n",
                number(old.median()),
                number(new.median()),
                change(old.median(), new.median()),
                old.values().len(),
                new.values().len(),
            ));
        }
    }
    if looked == 0 {
        return Err(Failed::usage("the two have no scenario in common, with the same n, latency and store"));
    }
    text.push_str(&format!("{looked} figures compared, {worse} slower\n"));
    print::answer(&text)?;
    Ok(if worse > 0 { Exit::Failed } else { Exit::Completed })
}

fn change(old: f64, new: f64) -> String {
    format!("{:+.0} %", (new / old - 1.0) * 100.0)
}

fn read(path: &Path) -> Result<BTreeMap<Key, Spread>, Failed> {
    let shown = home::quoted(path);
    let text = std::fs::read_to_string(path).map_err(|error| Failed::usage(format!("{shown}: {error}")))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| Failed::usage(format!("{shown}: {error}")))?;
    if document["v"].as_u64() != Some(u64::from(super::json::VERSION)) || !document["results"].is_array() {
        return Err(Failed::usage(format!("{shown} is not what `bench --json` writes")));
    }
    let mut figures = BTreeMap::new();
    for result in document["results"].as_array().into_iter().flatten() {
        let word = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
        for figure in LESS_IS_BETTER {
            let values = result["figures"][figure]["values"].as_array();
            let values = values.into_iter().flatten().filter_map(Value::as_f64).collect();
            let n = result["n"].as_u64().unwrap_or(0);
            let over_http = result["over_http"].as_bool().unwrap_or(false);
            let key = (word("scenario"), n, word("latency"), word("store"), over_http, figure.to_owned());
            figures.extend(Spread::of(values).map(|spread| (key, spread)));
        }
    }
    Ok(figures)
}

/// Between which bounds the ratio of the two medians lies in nineteen of twenty draws. The draws are the same each time.
fn interval(old: &[f64], new: &[f64]) -> (f64, f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut drawn = |of: &[f64]| {
        let values = (0..of.len()).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            of[(state >> 33) as usize % of.len()]
        });
        Spread::of(values.collect()).map_or(f64::NAN, |spread| spread.median())
    };
    let mut ratios: Vec<f64> = (0..DRAWS).map(|_| drawn(new) / drawn(old).max(1e-9)).collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[DRAWS / 40], ratios[DRAWS - 1 - DRAWS / 40])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_twice_as_slow_is_slower_and_what_overlaps_is_noise() {
        let (low, _) = interval(&[10.0, 11.0, 10.5, 10.2, 10.8], &[20.0, 22.0, 21.0, 20.5, 21.5]);
        assert!(low > 1.5, "{low}");
        let (low, high) = interval(&[10.0, 14.0, 10.5, 13.0, 10.8], &[10.2, 13.5, 11.0, 12.8, 10.1]);
        assert!(low < 1.0 + LEAST && high > 1.0 - LEAST, "{low} {high}");
    }
}
