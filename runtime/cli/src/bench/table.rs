//! Figures for people.

use super::row::Row;

/// The figures of all rows: the one in the middle of each, and in brackets the least and the most.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let setup = &row.setup;
        let over = if setup.base_url.is_some() { ", over HTTP" } else { "" };
        let clock = if setup.is_deterministic { ", virtual time" } else { "" };
        let (name, n, store, latency) = (row.scenario, setup.n, setup.store.as_str(), &setup.latency);
        text.push_str(&format!("{name} n={n} (latency {latency}, store {store}{over}{clock})\n"));
        for (figure, spread) in &row.figures {
            let (least, most) = (number(spread.least()), number(spread.most()));
            let apart = match spread.values().len() {
                1 => String::new(),
                runs => format!("  [{least} … {most}] of {runs}"),
            };
            text.push_str(&format!("  {figure:<26} {:>12}{apart}\n", number(spread.median())));
        }
        if let Some(hash) = row.hash {
            text.push_str(&format!("  {:<26} {hash:016x}\n", "logs"));
        }
    }
    text
}

/// As many places as say something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.1 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
