//! Who asks, on the way from our adapter to our own server: a header that is sent to this machine only.
//!
//! Scripts look at path, turn, step and attempt. With this they see the same over HTTP as in the process; a real provider
//! never gets it.

use impresario_seams::ModelScope;

/// The header: turn, step, attempt and path, as in `1.2.0 root/audit-3`.
pub(crate) const HEADER: &str = "x-impresario-asks";

/// Its value.
#[cfg(feature = "openai")]
pub(crate) fn value(scope: &ModelScope) -> Option<reqwest::header::HeaderValue> {
    let ModelScope { path, turn, step, attempt, .. } = scope;
    reqwest::header::HeaderValue::from_bytes(format!("{turn}.{step}.{attempt} {path}").as_bytes()).ok()
}

/// Who asks, if that is said.
#[cfg(feature = "serve")]
pub(crate) fn of(headers: &axum::http::HeaderMap) -> Option<ModelScope> {
    let (when, path) = std::str::from_utf8(headers.get(HEADER)?.as_bytes()).ok()?.split_once(' ')?;
    let mut numbers = when.split('.').map(|number| number.parse().ok());
    let (turn, step, attempt) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(ModelScope { agent: "http".into(), path: impresario_kernel::AgentPath::new(path), turn, step, attempt })
}
