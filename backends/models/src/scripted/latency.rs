//! How long answers take: to their first token, and from there to their end.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use impresario_seams::ModelScope;
use serde::Deserialize;
use tokio::time::Instant;

use super::dice::Dice;

/// The longest time to a first token: a lognormal distribution has no end.
const FIRST_MAX: Duration = Duration::from_secs(24 * 3600);

/// How far from the median the 99th of 100 is, in deviations.
const P99: f64 = 2.326_347_874_040_841;

/// How long answers take, written on one line:
///
/// | written | the first token comes after |
/// |---|---|
/// | `200ms` | that time; units are `us`, `ms`, `s` and `m`, and a bare number is milliseconds |
/// | `50..150ms` | a time in between, all equally likely |
/// | `lognormal(200ms, 0.5)` | mostly about the median 200 ms and now and then much more; 0.5 is the deviation of its logarithm |
/// | `lognormal(p50=200ms, p99=2s)` | the same, by the times within which 50 and 99 of 100 come |
///
/// Behind any of them, or alone, `+ 80 tok/s` says how fast the rest comes; without it the rest comes at once.
///
/// ```
/// use impresario_models::scripted::Latency;
///
/// let latency: Latency = "lognormal(200ms, 0.5) + 80 tok/s".parse()?;
/// assert_eq!(latency.to_string(), "lognormal(200ms, 0.5) + 80 tok/s");
/// let error = "200 hours".parse::<Latency>().unwrap_err();
/// assert_eq!(error.to_string(), "latency `200 hours`: there is no unit `hours`; there are us, ms, s, m");
/// # Ok::<(), impresario_models::scripted::LatencyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(try_from = "String")]
pub struct Latency {
    first: First,
    /// None: at once.
    tokens_per_second: Option<f64>,
}

/// How long the first token takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Fixed(Duration),
    Uniform(Duration, Duration),
    LogNormal { median: Duration, sigma: f64 },
}

impl Default for First {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

/// A text that is no latency.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("latency `{text}`: {wrong}")]
pub struct LatencyError {
    text: String,
    wrong: String,
}

/// How long one answer takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pace {
    /// Until the first token.
    pub first: Duration,
    /// For each token behind it.
    pub token: Duration,
}

impl Latency {
    /// Always the same time to the first token, and the rest at once.
    #[must_use]
    pub fn fixed(first: Duration) -> Self {
        Self { first: First::Fixed(first), tokens_per_second: None }
    }

    /// How long the attempt takes that `scope` names: the same for the same seed, path, turn, step and attempt,
    /// whoever else asks, and when.
    #[must_use]
    pub fn draw(&self, seed: u64, scope: &ModelScope) -> Pace {
        let mut dice = Dice::of(seed, scope, "latency");
        let first = match self.first {
            First::Fixed(time) => time,
            First::Uniform(from, to) => from + to.saturating_sub(from).mul_f64(dice.unit()),
            First::LogNormal { median, sigma } => {
                let seconds = median.as_secs_f64() * (sigma * dice.normal()).exp();
                Duration::try_from_secs_f64(seconds).map_or(FIRST_MAX, |time| time.min(FIRST_MAX))
            }
        };
        // Logarithms differ in their last bits from machine to machine; microseconds do not.
        let first = Duration::from_micros(u64::try_from(first.as_micros()).unwrap_or(u64::MAX));
        Pace { first, token: self.tokens_per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate)) }
    }
}

impl Pace {
    /// Waits for the first token of what was `asked` for then.
    pub(crate) async fn wait(&self, asked: Instant) {
        if !self.first.is_zero() {
            tokio::time::sleep_until(asked + self.first).await;
        }
    }

    /// How long an answer of so many tokens takes until its last one.
    #[must_use]
    pub fn until(&self, tokens: u64) -> Duration {
        let behind = u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_add(self.token.saturating_mul(behind))
    }
}

impl From<Duration> for Latency {
    fn from(first: Duration) -> Self {
        Self::fixed(first)
    }
}

impl TryFrom<String> for Latency {
    type Error = LatencyError;

    fn try_from(text: String) -> Result<Self, LatencyError> {
        text.parse()
    }
}

impl FromStr for Latency {
    type Err = LatencyError;

    fn from_str(text: &str) -> Result<Self, LatencyError> {
        let wrong = |wrong: String| LatencyError { text: text.trim().to_owned(), wrong };
        let (mut first, mut rate) = (None, None);
        for part in text.split('+').map(str::trim) {
            let is_twice = match part.strip_suffix("tok/s") {
                Some(number) => rate.replace(parse_rate(number.trim()).map_err(wrong)?).is_some(),
                None => first.replace(parse_first(part).map_err(wrong)?).is_some(),
            };
            if is_twice {
                return Err(wrong("it says twice how long something takes".into()));
            }
        }
        Ok(Self { first: first.unwrap_or_default(), tokens_per_second: rate })
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e9).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is no number of tokens a second from 0.001 to 1000000000"))
}

fn parse_first(text: &str) -> Result<First, String> {
    if let Some(inner) = text.strip_prefix("lognormal") {
        return parse_log_normal(inner.trim());
    }
    let Some((from, to)) = text.split_once("..") else { return Ok(First::Fixed(parse_time(text)?)) };
    let (from, to_time) = (from.trim(), parse_time(to)?);
    let unit = to.trim().trim_start_matches(is_of_number);
    let from_time =
        if from.ends_with(is_of_number) { parse_time(&format!("{from}{unit}"))? } else { parse_time(from)? };
    if from_time > to_time {
        return Err(format!("`{}` is later than `{}`", from, to.trim()));
    }
    Ok(First::Uniform(from_time, to_time))
}

fn parse_log_normal(text: &str) -> Result<First, String> {
    let form = "write lognormal(MEDIAN, DEVIATION) or lognormal(p50=TIME, p99=TIME)";
    let inner = text.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).ok_or(form)?;
    let (one, other) = inner.split_once(',').map(|(one, other)| (one.trim(), other.trim())).ok_or(form)?;
    let value = |text: &str, key: &str| {
        text.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix('=')).map(|value| value.trim().to_owned())
    };
    let (median, sigma) = match (value(one, "p50"), value(other, "p99")) {
        (Some(median), Some(p99)) => {
            let (median, p99) = (parse_time(&median)?, parse_time(&p99)?);
            if median.is_zero() || p99 < median {
                return Err("p50 is more than nothing and p99 is not less than p50".into());
            }
            (median, (p99.as_secs_f64() / median.as_secs_f64()).ln() / P99)
        }
        (None, None) => {
            let sigma = other.parse::<f64>().ok().filter(|sigma| (0.0..=10.0).contains(sigma));
            (parse_time(one)?, sigma.ok_or_else(|| format!("the deviation `{other}` is no number from 0 to 10"))?)
        }
        (Some(_), None) | (None, Some(_)) => return Err(form.into()),
    };
    Ok(First::LogNormal { median, sigma })
}

fn is_of_number(char: char) -> bool {
    char.is_ascii_digit() || char == '.'
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|char| !is_of_number(char)).unwrap_or(text.len()));
    let seconds = match unit.trim() {
        "us" | "µs" => 1e-6,
        "" | "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        other if number.is_empty() => {
            return Err(format!("`{other}` is no time; write 200ms, 50..150ms or lognormal(200ms, 0.5)"));
        }
        other => return Err(format!("there is no unit `{other}`; there are us, ms, s, m")),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number and a unit, as in 200ms".to_owned())?;
    let time = Duration::try_from_secs_f64(number * seconds).ok().filter(|time| *time <= FIRST_MAX);
    time.ok_or_else(|| format!("`{text}` is longer than a day"))
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            First::Fixed(time) => write!(f, "{}", Time(time))?,
            First::Uniform(from, to) => write!(f, "{}..{}", Time(from), Time(to))?,
            First::LogNormal { median, sigma } => write!(f, "lognormal({}, {sigma})", Time(median))?,
        }
        match self.tokens_per_second {
            Some(rate) => write!(f, " + {rate} tok/s"),
            None => Ok(()),
        }
    }
}

/// A time in the largest unit in which it is a whole number.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            0 => f.write_str("0ms"),
            micros if micros % 1_000_000 == 0 => write!(f, "{}s", micros / 1_000_000),
            micros if micros % 1_000 == 0 => write!(f, "{}ms", micros / 1_000),
            micros => write!(f, "{micros}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use impresario_kernel::AgentPath;

    use super::*;

    fn scope(path: &str) -> ModelScope {
        ModelScope { agent: "a".into(), path: AgentPath::new(path), turn: 1, step: 1, attempt: 0 }
    }

    fn firsts(latency: &str) -> Vec<Duration> {
        let latency: Latency = latency.parse().unwrap();
        let mut firsts: Vec<Duration> =
            (0..10_000).map(|n| latency.draw(1, &scope(&format!("root/a{n}"))).first).collect();
        firsts.sort();
        firsts
    }

    #[test]
    fn latencies_read_as_they_are_written() {
        for (written, shown) in [
            ("200ms", "200ms"),
            ("0", "0ms"),
            ("200", "200ms"),
            ("1.5s", "1500ms"),
            ("50..150ms", "50ms..150ms"),
            ("50ms .. 1s", "50ms..1s"),
            (" 0.5 .. 2 m ", "30s..120s"),
            ("lognormal(200ms,0.5)", "lognormal(200ms, 0.5)"),
            ("lognormal( 1s , 2 )+80tok/s", "lognormal(1s, 2) + 80 tok/s"),
            ("80 tok/s", "0ms + 80 tok/s"),
            ("80 tok/s + 3us", "3us + 80 tok/s"),
        ] {
            let latency: Latency = written.parse().unwrap();
            assert_eq!(latency.to_string(), shown, "{written}");
            assert_eq!(shown.parse(), Ok(latency), "{written}");
        }
    }

    #[test]
    fn what_is_no_latency_is_quoted_with_what_is_wrong() {
        for (written, wrong) in [
            ("", "a time is a number and a unit"),
            ("soon", "`soon` is no time"),
            ("5 fortnights", "no unit `fortnights`"),
            ("1..2..3ms", "a time is a number and a unit"),
            ("2s..1s", "`2s` is later than `1s`"),
            ("1.2.3s", "a time is a number and a unit"),
            ("30000m", "longer than a day"),
            ("lognormal(200ms)", "write lognormal(MEDIAN, DEVIATION)"),
            ("lognormal(200ms, -1)", "the deviation `-1`"),
            ("lognormal(200ms, NaN)", "the deviation `NaN`"),
            ("lognormal(p50=2s, p99=1s)", "p99 is not less than p50"),
            ("lognormal(p50=2s, 1)", "write lognormal(MEDIAN, DEVIATION)"),
            ("200ms + 0 tok/s", "no number of tokens a second"),
            ("200ms + 50ms", "twice"),
        ] {
            let error = written.parse::<Latency>().unwrap_err().to_string();
            assert!(error.contains(wrong), "{written}: {error}");
        }
    }

    #[test]
    fn draws_follow_the_distribution_and_the_rest_follows_the_rate() {
        assert_eq!(firsts("70ms")[..1], firsts("70ms")[9_999..]);
        let uniform = firsts("50..150ms");
        assert!(uniform[0] >= Duration::from_millis(50) && uniform[9_999] <= Duration::from_millis(150));
        assert!((98..102).contains(&uniform[5_000].as_millis()), "{:?}", uniform[5_000]);
        let lognormal = firsts("lognormal(p50=200ms, p99=2s)");
        assert!((190..210).contains(&lognormal[5_000].as_millis()), "{:?}", lognormal[5_000]);
        assert!((1_700..2_300).contains(&lognormal[9_900].as_millis()), "{:?}", lognormal[9_900]);
        let pace = "1s + 4 tok/s".parse::<Latency>().unwrap().draw(1, &scope("root"));
        assert_eq!((pace.until(0), pace.until(1), pace.until(5)), (pace.first, pace.first, Duration::from_secs(2)));
    }
}
