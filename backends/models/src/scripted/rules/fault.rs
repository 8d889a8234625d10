//! How an attempt is made to fail.

use std::fmt;

use impresario_kernel::Failure;
use impresario_seams::ModelScope;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::Answer;
use super::super::dice::Dice;

/// Ways to fail; the first that applies to an attempt is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

/// One way to fail, and in which attempts.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
struct Fault {
    /// None is silence.
    failure: Option<Failure>,
    /// How many pieces come before.
    after: usize,
    /// Only so many attempts of a step, the first ones.
    times: Option<u32>,
    /// Only so many attempts of all, by chance.
    probability: Option<f64>,
}

/// A fault as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Option<Kind>,
    code: Option<String>,
    message: Option<String>,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
    after: Option<usize>,
    times: Option<u32>,
    probability: Option<f64>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// 429.
    RateLimit,
    /// 5xx.
    Server,
    /// The connection breaks.
    Reset,
    /// Nothing comes any more.
    Stall,
    /// Something comes that is no event.
    Malformed,
}

impl TryFrom<Written> for Fault {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { kind, code, message, status, retry_after_ms, after, times, probability } = written;
        let is_of_server = !matches!(kind, Some(Kind::Reset | Kind::Stall | Kind::Malformed));
        if !is_of_server && (status.is_some() || retry_after_ms.is_some()) {
            return Err("`status` and `retry_after_ms` go with the kinds rate_limit and server, and with `code`".into());
        }
        if probability.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`probability` is a number from 0 to 1".into());
        }
        let (code, usual) = match (kind, &code) {
            (Some(_), Some(_)) => return Err("`kind` and `code` exclude each other".into()),
            (None, None) => {
                return Err("write a `kind` (rate_limit, server, reset, stall, malformed) or a `code`".into());
            }
            (None, Some(code)) => (code.as_str(), None),
            (Some(Kind::RateLimit), None) => ("RATE_LIMIT", Some(429)),
            (Some(Kind::Server), None) => ("SERVER", Some(503)),
            (Some(Kind::Reset), None) => ("STREAM_CLOSED", None),
            (Some(Kind::Malformed), None) => ("MALFORMED_RESPONSE", None),
            (Some(Kind::Stall), None) => ("TIMEOUT", None),
        };
        let status = status.or(usual);
        match (kind, status) {
            (Some(Kind::RateLimit), Some(status)) if status != 429 => {
                return Err(format!("`status` of a rate_limit is 429, not {status}"));
            }
            (Some(Kind::Server), Some(status)) if !(500..600).contains(&status) => {
                return Err(format!("`status` of a server is from 500 to 599, not {status}"));
            }
            (_, Some(status)) if !(400..600).contains(&status) => {
                return Err(format!("`status` is from 400 to 599, not {status}"));
            }
            _ => {}
        }
        let after = after.unwrap_or(usize::from(!is_of_server));
        let message = message.unwrap_or_else(|| "the script says so".into());
        // In a stream that has begun there is no place for a status and a header.
        let (status, provider_retry_after_ms) = if after == 0 { (status, retry_after_ms) } else { (None, None) };
        let failure = Failure { status, provider_retry_after_ms, ..Failure::new(code, message) };
        Ok(Self { failure: (kind != Some(Kind::Stall)).then_some(failure), after, times, probability })
    }
}

impl Faults {
    /// The answer, or what becomes of it in this attempt.
    pub(super) fn inject(&self, answer: Answer, seed: u64, scope: &ModelScope) -> Answer {
        let fault = self.0.iter().enumerate().find(|(at, fault)| fault.applies(seed, scope, *at));
        match fault {
            None => answer,
            Some((_, fault)) => Answer { failure: fault.failure.clone(), breaks_after: Some(fault.after), ..answer },
        }
    }
}

impl Fault {
    fn applies(&self, seed: u64, scope: &ModelScope, at: usize) -> bool {
        let mut dice = Dice::of(seed, scope, &format!("fault {at}"));
        self.times.is_none_or(|times| scope.attempt < times)
            && self.probability.is_none_or(|probability| dice.unit() < probability)
    }
}

impl<'de> Deserialize<'de> for Faults {
    /// A table, or an array of them. No derived form says what is wrong inside of either.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMany)
    }
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Faults;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with a `kind` or a `code`, or an array of such tables")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Faults, A::Error> {
        Ok(Faults(vec![Fault::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Faults, A::Error> {
        Ok(Faults(Vec::deserialize(SeqAccessDeserializer::new(seq))?))
    }
}
