//! Figures for machines.
//!
//! `{"v": 1, "machine": {"cores", "os", "arch"}, "version", "started_at", "repeat", "results": [{"scenario", "n",
//! "latency", "store", "over_http", "seed", "virtual", "hash"?, "figures": {NAME: {"median", "min", "max",
//! "values"}}}]}`. The name of a figure ends in its unit. A figure that does not apply is not there.

use impresario::kernel::Millis;
use serde_json::{Map, Value, json};

use super::args::BenchArgs;
use super::row::Row;
use crate::figures;

/// The version of the document.
pub(crate) const VERSION: u32 = 1;

/// One document for all rows.
pub(crate) fn document(args: &BenchArgs, rows: &[Row]) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let now: Millis = figures::now();
    json!({
        "v": VERSION,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {"cores": cores, "os": std::env::consts::OS, "arch": std::env::consts::ARCH},
        "started_at": figures::rfc3339(now),
        "repeat": if args.deterministic { 1 } else { args.repeat },
        "results": rows.iter().map(result).collect::<Vec<_>>(),
    })
}

fn result(row: &Row) -> Value {
    let setup = &row.setup;
    let all: Map<String, Value> =
        row.figures.iter().map(|(name, spread)| ((*name).to_owned(), spread.json())).collect();
    let mut result = json!({
        "scenario": row.scenario,
        "n": setup.n,
        "latency": setup.latency.to_string(),
        "store": setup.store.as_str(),
        "over_http": setup.base_url.is_some(),
        "seed": setup.seed,
        "virtual": setup.is_deterministic,
        "figures": all,
    });
    if let Some(hash) = row.hash {
        result["hash"] = format!("{hash:016x}").into();
    }
    result
}
