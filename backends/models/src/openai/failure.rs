//! What providers say when they say no, as codes.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

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
        400 | 422 if is_model(&words) => "UNKNOWN_MODEL",
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

/// Seconds, a date, or milliseconds where a provider says those. No wait at all is no advice.
fn retry_after(headers: &impl Named) -> Option<u64> {
    let exact = headers.named("retry-after-ms").and_then(|text| text.trim().parse().ok());
    let wait = exact.or_else(|| {
        let text = headers.named("retry-after")?;
        match text.trim().parse::<f64>() {
            Ok(seconds) => Some(millis(Duration::try_from_secs_f64(seconds).ok()?)),
            Err(_) => until(&text, headers.named("date").as_deref()),
        }
    });
    wait.filter(|&wait| wait > 0)
}

/// How long it is until a date: by the clock of the server where it tells it, else by ours.
fn until(text: &str, now: Option<&str>) -> Option<u64> {
    let then = httpdate::parse_http_date(text.trim()).ok()?;
    let now = now.and_then(|now| httpdate::parse_http_date(now.trim()).ok()).unwrap_or_else(SystemTime::now);
    Some(millis(then.duration_since(now).unwrap_or_default()))
}

fn millis(wait: Duration) -> u64 {
    wait.as_millis().try_into().unwrap_or(u64::MAX)
}

/// An error object in a stream or in a body with status 200.
pub(super) fn in_band(value: &Value) -> Option<Failure> {
    let says_why = value["choices"].is_null() && (value["msg"].is_string() || value["detail"].is_string());
    let is_error = !value["error"].is_null() || value["object"] == "error" || value["type"] == "error" || says_why;
    is_error.then(|| of_document(value))
}

/// A document that is no answer.
pub(super) fn of_document(document: &Value) -> Failure {
    let words = words(document).unwrap_or_else(|| "the answer has no choices".into());
    let error = if document["error"].is_object() { &document["error"] } else { document };
    let labels: Vec<String> = [&error["code"], &error["type"], &error["status"]]
        .iter()
        .map(|label| label.as_str().map_or_else(|| label.to_string(), str::to_lowercase))
        .collect();
    let said = format!("{} {}", labels.join(" "), words.to_lowercase());
    let is = |label: &str| labels.iter().any(|other| other == label);
    let has = |marks: &[&str]| marks.iter().any(|mark| said.contains(mark));
    let code = if is_context(&said) {
        "CONTEXT_WINDOW_EXCEEDED"
    } else if is_quota(&said) || is("402") {
        "QUOTA"
    } else if is("429") || has(&["rate limit", "rate_limit", "ratelimit", "too many requests"]) {
        "RATE_LIMIT"
    } else if is("401") || is("403") || has(&["authentic", "unauthorized", "api key", "api_key"]) {
        "AUTH"
    } else if is_model(&said) {
        "UNKNOWN_MODEL"
    } else if is("400") || is("422") || has(&["invalid_request"]) {
        "INVALID_REQUEST"
    } else {
        "SERVER"
    };
    Failure::new(code, words)
}

fn is_quota(words: &str) -> bool {
    let words = words.to_lowercase();
    ["insufficient_quota", "exceeded your current quota", "insufficient balance", "insufficient_balance"]
        .iter()
        .any(|mark| words.contains(mark))
}

fn is_model(words: &str) -> bool {
    let words = words.to_lowercase();
    words.contains("model")
        && ["not found", "not_found", "does not exist", "not a valid"].iter().any(|mark| words.contains(mark))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Headers(&'static [(&'static str, &'static str)]);

    impl Named for Headers {
        fn named(&self, name: &str) -> Option<String> {
            self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn waits_are_read_as_seconds_dates_and_milliseconds() {
        let dates: &[_] =
            &[("retry-after", "Wed, 21 Oct 2037 07:28:00 GMT"), ("date", "Wed, 21 Oct 2037 07:27:30 GMT")];
        let past: &[_] = &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")];
        for (headers, wait) in [
            (dates, Some(30_000)),
            (past, None),
            (&[("retry-after", "1.5")], Some(1_500)),
            (&[("retry-after", "0")], None),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "9"), ("retry-after-ms", "20")], Some(20)),
        ] {
            assert_eq!(retry_after(&Headers(headers)), wait, "{headers:?}");
        }
    }

    #[test]
    fn dates_are_told_by_the_clock_of_the_server() {
        for (then, now, wait) in [
            ("Thu, 01 Jan 1970 00:01:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", Some(60_000)),
            ("Tue, 29 Feb 2000 12:00:00 GMT", "Mon, 28 Feb 2000 12:00:00 GMT", Some(86_400_000)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:00 GMT", Some(0)),
            ("Wed, 21 Oct 2037 99:28:00 GMT", "Wed, 21 Oct 2037 07:28:00 GMT", None),
        ] {
            assert_eq!(until(then, Some(now)), wait, "{then}");
        }
    }

    #[test]
    fn words_in_passing_do_not_change_what_failed() {
        for (message, code) in [
            ("failed to generate a response", "SERVER"),
            ("the load balancer lost its backend", "SERVER"),
            ("the author's worker died", "SERVER"),
            ("Rate limit reached", "RATE_LIMIT"),
            ("Insufficient Balance", "QUOTA"),
            ("the model `x` does not exist", "UNKNOWN_MODEL"),
        ] {
            let failure = of_document(&json!({"error": {"message": message}}));
            assert_eq!(failure.code, code, "{message}");
        }
    }
}
