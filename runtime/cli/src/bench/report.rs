//! A page with plots that needs no network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::row::Row;
use super::table::number;

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:64em;color:#222}\
h2{margin-top:2em}table{border-collapse:collapse}td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}svg{background:#fafafa;border:1px solid #ddd;max-width:100%}\
.bar{fill:#4a7db5}.bar:hover{fill:#d5733a}.line{fill:none;stroke:#4a7db5;stroke-width:2}.dot{fill:#4a7db5}\
.ideal{stroke:#999;stroke-dasharray:4}text{font:11px system-ui,sans-serif;fill:#444}@media(prefers-color-scheme:dark){\
body{background:#161616;color:#ddd}svg{background:#1e1e1e;border-color:#444}td,th{border-color:#444}text{fill:#bbb}}";

/// How wide a plot is.
const WIDTH: f64 = 900.0;

/// The page.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut body = String::new();
    for row in rows {
        let title = escaped(&format!(
            "{} n={} · latency {} · {}",
            row.scenario,
            row.setup.n,
            row.setup.latency,
            row.setup.store.as_str()
        ));
        body.push_str(&format!("<h2>{title}</h2>\n{}{}", figures(row), gantt(row)));
    }
    let curves = curves(rows);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>impresario bench</title><style>{STYLE}</style>\n\
         <h1>impresario bench</h1>\n<p>Medians of the runs of each scenario, with the least and the most. \
         Only what was measured in one run on one machine can be compared.</p>\n{curves}{body}</html>\n"
    )
}

fn figures(row: &Row) -> String {
    let mut text = String::from("<table><tr><th>figure<th>median<th>least<th>most<th>runs</tr>\n");
    for (name, spread) in &row.figures {
        let cells = [spread.median(), spread.least(), spread.most()].map(|value| format!("<td>{}", number(value)));
        // Writing to a string does not fail.
        let _ = writeln!(text, "<tr><td>{}{}<td>{}</tr>", escaped(name), cells.concat(), spread.values().len());
    }
    text + "</table>\n"
}

/// The tree of the last run, a bar an agent from its first request to its last answer.
fn gantt(row: &Row) -> String {
    let mut agents: BTreeMap<&str, (Duration, Duration, usize)> = BTreeMap::new();
    for asked in &row.asked {
        let ended = asked.ended.unwrap_or(asked.began);
        let entry = agents.entry(asked.path.as_str()).or_insert((asked.began, ended, 0));
        (entry.0, entry.1, entry.2) = (entry.0.min(asked.began), entry.1.max(ended), entry.2 + 1);
    }
    let last = agents.values().map(|(_, ended, _)| ended.as_secs_f64()).fold(1e-9, f64::max);
    let mut bars: Vec<_> = agents.into_iter().collect();
    bars.sort_by_key(|(path, (began, ..))| (*began, *path));
    let (step, height) = if bars.len() > 200 { (3.0, 2.0) } else { (9.0, 7.0) };
    let full = bars.len() as f64 * step + 24.0;
    let mut text = format!(
        "<svg class=\"gantt\" viewBox=\"0 0 {WIDTH} {full}\" width=\"{WIDTH}\" height=\"{full}\" role=\"img\">\n"
    );
    for (at, (path, (began, ended, requests))) in bars.iter().enumerate() {
        let (x, y) = (began.as_secs_f64() / last * WIDTH, at as f64 * step);
        let width = ((ended.as_secs_f64() - began.as_secs_f64()) / last * WIDTH).max(1.0);
        let (from, to) = (number(began.as_secs_f64() * 1e3), number(ended.as_secs_f64() * 1e3));
        let title = escaped(&format!("{path}: {from} to {to} ms, {requests} requests"));
        let _ = writeln!(
            text,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{title}</title></rect>"
        );
    }
    let end = number(last * 1e3);
    let _ = writeln!(
        text,
        "<text x=\"2\" y=\"{0}\">0 ms</text><text x=\"{WIDTH}\" y=\"{0}\" text-anchor=\"end\">{end} ms</text>",
        full - 6.0
    );
    text + "</svg>\n"
}

/// How the wall time of each scenario grows with its n.
fn curves(rows: &[Row]) -> String {
    let mut scenarios: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        if let Some(wall) = row.figures.get("wall_ms") {
            scenarios.entry(row.scenario).or_default().push((f64::from(row.setup.n), wall.median()));
        }
    }
    let several = scenarios.into_iter().filter(|(_, points)| points.len() > 1);
    several.map(|(name, points)| format!("<h2>{}: wall over n</h2>\n{}", escaped(name), curve(&points))).collect()
}

/// Both axes count orders of magnitude.
fn curve(points: &[(f64, f64)]) -> String {
    let (height, margin) = (220.0, 40.0);
    let log = |value: f64| value.max(1e-3).log10();
    let range = |of: fn(&(f64, f64)) -> f64| {
        let values = points.iter().map(|point| log(of(point)));
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (low, (high - low).max(0.1))
    };
    let ((x0, dx), (y0, dy)) = (range(|point| point.0), range(|point| point.1));
    let place = |(n, ms): (f64, f64)| {
        let x = margin + (log(n) - x0) / dx * (WIDTH - 2.0 * margin);
        (x, height - margin - (log(ms) - y0) / dy * (height - 2.0 * margin))
    };
    let mut text = format!(
        "<svg class=\"curve\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n"
    );
    let line: Vec<String> = points.iter().map(|point| place(*point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(text, "<polyline class=\"line\" points=\"{}\"/>", line.join(" "));
    for point in points {
        let (x, y) = place(*point);
        let (n, ms) = (number(point.0), number(point.1));
        let _ = writeln!(
            text,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{n}: {ms} ms</text>",
            y - 9.0
        );
    }
    text + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
