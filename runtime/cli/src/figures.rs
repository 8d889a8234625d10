//! How numbers, times and durations read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use impresario::Price;
use impresario::kernel::{Millis, Spent};

/// Now.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// `2026-11-30T12:00:00.123Z`
pub(crate) fn rfc3339(time: Millis) -> String {
    // What a damaged log says of the year 10000 and later cannot be written in this form.
    let latest = 253_402_300_799_999;
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(time.0.min(latest))).to_string()
}

/// `850 ms`, `12.3 s`, `4 min 5 s`, `3 h 12 min`, `2 d 3 h`
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `now`, `12 s`, `5 min`, `3 h`, `12 d`
pub(crate) fn age(then: Millis, now: Millis) -> String {
    let seconds = now.0.saturating_sub(then.0) / 1000;
    match seconds {
        0 => "now".into(),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `950`, `41.2k`, `3.1M`
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// `512 B`, `3.4 KiB`, `1.2 GiB`
pub(crate) fn bytes(n: u64) -> String {
    let mut unit = 1;
    for name in ["B", "KiB", "MiB"] {
        if n < unit * 1024 {
            let tenths = if unit == 1 { String::new() } else { format!(".{}", n % unit * 10 / unit) };
            return format!("{}{tenths} {name}", n / unit);
        }
        unit *= 1024;
    }
    format!("{}.{} GiB", n / unit, n % unit * 10 / unit)
}

/// `41.2k tokens`; `? tokens` when the provider told nothing.
pub(crate) fn tokens(spent: &Spent) -> String {
    if spent.model_calls > 0 && !spent.is_metered() {
        return "? tokens".into();
    }
    format!("{} tokens", count(spent.tokens()))
}

/// What it has cost, in millionths of a dollar, if the price is known and the provider has told all.
pub(crate) fn cost(spent: &Spent, price: Option<Price>) -> Option<u64> {
    let price = price.filter(|_| spent.unmetered_calls == 0)?;
    let fresh = spent.input_tokens.saturating_sub(spent.cached_input_tokens);
    Some(price.micro_usd(fresh, spent.cached_input_tokens, spent.output_tokens))
}

/// `1 agent`, `2 agents`
pub(crate) fn plural(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Reads `500ms`, `30s`, `5m`, `1h`, `2d`; a bare number is seconds.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| "write a number and a unit, as in 30s, 5m or 1h".to_owned())?;
    let seconds = match unit.trim() {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        "d" => number * 86_400.0,
        other => return Err(format!("no unit `{other}`; there are ms, s, m, h, d")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_their_milliseconds() {
        assert_eq!(rfc3339(Millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Millis(951_782_400_007)), "2000-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(Millis(1_796_040_000_123)), "2026-11-30T12:00:00.123Z");
        assert_eq!(rfc3339(Millis(4_102_444_799_999)), "2099-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(Millis(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(span(850), "850 ms");
        assert_eq!(span(12_345), "12.3 s");
        assert_eq!(span(245_000), "4 min 5 s");
        assert_eq!(count(41_234), "41.2k");
        assert_eq!((bytes(512), bytes(3_481), bytes(5 << 30)), ("512 B".into(), "3.3 KiB".into(), "5.0 GiB".into()));
        assert_eq!(age(Millis(5_000), Millis(1_000)), "now");
    }

    #[test]
    fn a_time_out_needs_a_number_and_a_known_unit() {
        assert_eq!(parse_span("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_span("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_span("soon").is_err());
        assert!(parse_span("3 fortnights").is_err());
        assert!(parse_span("99999999999999999999999d").is_err());
    }
}
