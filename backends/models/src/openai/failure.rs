//! What providers say when they say no, as codes.

use std::error::Error as _;
use std::time::Duration;

use impresario_kernel::Failure;
use serde_json::Value;

/// How much of a provider's words is kept.
const WORDS_MAX: usize = 500;

/// Headers by lower-case name.
pub(super) trait Named {
    fn named(&self, name: &str) -> Option<String>;
}

/// Nobody answered.
pub(super) fn transport(url: &str, error: &reqwest::Error) -> Failure {
    Failure::new("TRANSPORT", format!("cannot reach {url}: {}", innermost(error)))
}

/// The connection broke while the answer came.
pub(super) fn broken(url: &str, error: &reqwest::Error) -> Failure {
    Failure::new("STREAM_CLOSED", format!("the connection to {url} broke: {}", innermost(error)))
}

/// Nothing came for too long.
pub(super) fn silent(idle: Duration) -> Failure {
    Failure::new("TIMEOUT", format!("the provider was silent for {} s", idle.as_secs()))
}

fn innermost(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match error.source() {
        Some(_) => innermost.to_string(),
        None => error.to_string(),
    }
}

/// A refusal with a status. The body is shown only as far as it is JSON that says something.
pub(super) fn of_status(status: u16, headers: &impl Named, body: &str) -> Failure {
    let document: Value = serde_json::from_str(body).unwrap_or_default();
    let words = words(&document).unwrap_or_else(|| "it did not say why".into());
    let code = match status {
        401 | 403 => "AUTH",
        402 => "QUOTA",
        404 => "UNKNOWN_MODEL",
        408 => "TIMEOUT",
        429 if is_quota(&words) => "QUOTA",
        429 => "RATE_LIMIT",
        400 | 413 | 422 if is_context(&words) => "CONTEXT_WINDOW_EXCEEDED",
        500..=599 => "SERVER",
        _ => "INVALID_REQUEST",
    };
    Failure {
        status: Some(status),
        provider_retry_after_ms: retry_after(headers),
        request_id: headers.named("x-request-id"),
        ..Failure::new(code, format!("the provider answered {status}: {words}"))
    }
}

/// Seconds, or milliseconds where a provider says those. A date is left to our own back-off.
fn retry_after(headers: &impl Named) -> Option<u64> {
    let exact = headers.named("retry-after-ms").and_then(|text| text.trim().parse().ok());
    let seconds = || headers.named("retry-after").and_then(|text| text.trim().parse::<f64>().ok());
    exact.or_else(|| {
        let seconds = seconds().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
        Some(Duration::try_from_secs_f64(seconds).ok()?.as_millis().try_into().unwrap_or(u64::MAX))
    })
}

/// An error object in a stream or in a body with status 200.
pub(super) fn in_band(value: &Value) -> Option<Failure> {
    let is_error = !value["error"].is_null() || value["object"] == "error";
    is_error.then(|| of_document(value))
}

/// A document that is no answer.
pub(super) fn of_document(document: &Value) -> Failure {
    let words = words(document).unwrap_or_else(|| "the answer has no choices".into());
    let error = if document["error"].is_object() { &document["error"] } else { document };
    let label = [&error["code"], &error["type"], &error["status"]]
        .iter()
        .map(|label| label.as_str().map_or_else(|| label.to_string(), str::to_owned))
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase();
    let said = format!("{label} {}", words.to_lowercase());
    let has = |marks: &[&str]| marks.iter().any(|mark| said.contains(mark));
    let code = if is_context(&said) {
        "CONTEXT_WINDOW_EXCEEDED"
    } else if has(&["insufficient", "balance", "quota"]) {
        "QUOTA"
    } else if has(&["429", "rate"]) {
        "RATE_LIMIT"
    } else if has(&["401", "403", "auth", "api key", "api_key"]) {
        "AUTH"
    } else if has(&["invalid_request", "400"]) {
        "INVALID_REQUEST"
    } else {
        "SERVER"
    };
    Failure::new(code, words)
}

fn is_quota(words: &str) -> bool {
    ["insufficient_quota", "exceeded your current quota", "balance"].iter().any(|mark| words.contains(mark))
}

fn is_context(words: &str) -> bool {
    let words = words.to_lowercase();
    ["context length", "context_length", "context size", "maximum context", "exceed_context"]
        .iter()
        .any(|mark| words.contains(mark))
}

/// What an error document says, in the places where providers say it.
fn words(document: &Value) -> Option<String> {
    let error = &document["error"];
    let places = [&error["message"], error, &document["message"], &document["msg"], &document["detail"]];
    let text = places.iter().find_map(|place| place.as_str()).map(str::to_owned);
    let text = text.or_else(|| (error.is_object()).then(|| error.to_string()))?;
    Some(text.chars().take(WORDS_MAX).collect())
}
