//! What our own server sees beside a request of our own client: headers that are sent to this machine only.
//!
//! Scripts look at path, turn, step and attempt, and tell a prompt from what the runtime says by itself. With these headers
//! they see the same over HTTP as in the process; no other machine gets them.

use impresario_kernel::Source;
use impresario_seams::ModelScope;

use crate::aside;
#[cfg(feature = "openai")]
use crate::aside::NAMES;

/// Turn, step, attempt and path, as in `1.2.0 root/audit-3`.
const ASKS: &str = "x-impresario-asks";

/// Which messages of the user are no prompts, counted from 0 among those of the user, by their sources:
/// `snapshot=0 plugin=4 subagent-settled=2`.
const ASIDES: &str = "x-impresario-asides";

/// The longest header that servers take, about; a script sees prompts where a conversation has more asides than that.
#[cfg(feature = "openai")]
const HEADER_MAX: usize = 32 * 1024;

/// The headers of a request, with the sources of its messages of the user as they are sent.
#[cfg(feature = "openai")]
pub(crate) fn headers<'a>(
    scope: &ModelScope,
    sources: impl IntoIterator<Item = &'a Source>,
) -> Vec<(&'static str, reqwest::header::HeaderValue)> {
    let ModelScope { path, turn, step, attempt, .. } = scope;
    let mut places: [Vec<String>; NAMES.len()] = Default::default();
    for (at, source) in sources.into_iter().enumerate() {
        let name = aside::name(source).and_then(|name| NAMES.iter().position(|known| *known == name));
        if let Some(name) = name {
            places[name].push(at.to_string());
        }
    }
    let asides = NAMES.iter().zip(&places).filter(|(_, places)| !places.is_empty());
    let asides: Vec<String> = asides.map(|(name, places)| format!("{name}={}", places.join(","))).collect();
    let all = [(ASKS, format!("{turn}.{step}.{attempt} {path}")), (ASIDES, asides.join(" "))];
    let fitting = all.into_iter().filter(|(_, text)| !text.is_empty() && text.len() <= HEADER_MAX);
    let header =
        |(name, text): (_, String)| Some((name, reqwest::header::HeaderValue::from_bytes(text.as_bytes()).ok()?));
    fitting.filter_map(header).collect()
}

/// Who asks, if that is said.
#[cfg(feature = "serve")]
pub(crate) fn scope(headers: &axum::http::HeaderMap) -> Option<ModelScope> {
    let (when, path) = text(headers, ASKS)?.split_once(' ')?;
    let mut numbers = when.split('.').map(|number| number.parse().ok());
    let (turn, step, attempt) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(ModelScope { agent: "http".into(), path: impresario_kernel::AgentPath::new(path), turn, step, attempt })
}

/// Which messages of the user are no prompts, and what they are.
#[cfg(feature = "serve")]
pub(crate) fn asides(headers: &axum::http::HeaderMap) -> std::collections::HashMap<usize, Source> {
    let names = text(headers, ASIDES).unwrap_or_default().split(' ').filter_map(|part| part.split_once('='));
    let known = names.filter_map(|(name, places)| Some((aside::named(name)?, places)));
    let placed = |(source, places): (Source, &str)| {
        let places: Vec<usize> = places.split(',').filter_map(|place| place.parse().ok()).collect();
        places.into_iter().map(move |place| (place, source.clone()))
    };
    known.flat_map(placed).collect()
}

#[cfg(feature = "serve")]
fn text<'a>(headers: &'a axum::http::HeaderMap, name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}
