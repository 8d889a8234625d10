//! What a run may spend, and what models cost.

use std::path::PathBuf;

use clap::Args;
use impresario::PriceTable;
use impresario::kernel::{Budget, Resource, Window};

use crate::failed::Failed;
use crate::figures;
use crate::home::Home;
use crate::provider::Choice;

/// Where prices are looked up when nobody says where.
const PRICES: &str = "prices.json";

/// What may be spent.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SpendArgs {
    /// What the whole tree (of a batch: of each task) may spend, in all or within a time: 100k (tokens), $2, '200 calls', 500k/hour, $2/day; several
    /// with commas. When it goes on with a stored session, what was spent there counts
    #[arg(long, value_name = "AMOUNT,…", value_delimiter = ',', value_parser = parse_amount)]
    pub(crate) budget: Vec<Amount>,
    /// The same as --budget $USD
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub(crate) max_cost: Option<u64>,
    /// What models cost, as JSON: {"PROVIDER:MODEL": {"input": 1.25, "cached_input": 0.13, "output": 10}}, in US dollars
    /// for a million tokens; a name may end in * [default: prices.json in the folder of the store]
    #[arg(long, value_name = "FILE", env = "IMPRESARIO_PRICES")]
    pub(crate) prices: Option<PathBuf>,
}

/// So much of something, in all or within a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Amount {
    resource: Resource,
    most: u64,
    per_ms: Option<u64>,
}

impl SpendArgs {
    /// The budget, if there is one.
    pub(crate) fn budget(&self) -> Result<Option<Budget>, Failed> {
        let mut budget = Budget::default();
        let dollars = self.max_cost.map(|most| Amount { resource: Resource::MicroUsd, most, per_ms: None });
        for Amount { resource, most, per_ms } in self.budget.iter().copied().chain(dollars) {
            if let Some(per_ms) = per_ms {
                budget.windows.push(Window { resource, most, per_ms });
                continue;
            }
            let limit = match resource {
                Resource::Tokens => &mut budget.tokens,
                Resource::MicroUsd => &mut budget.micro_usd,
                Resource::ToolCalls => &mut budget.tool_calls,
            };
            if limit.replace(most).is_some_and(|before| before != most) {
                return Err(Failed::usage(format!("two limits are given for {}; give one", resource.show(most))));
            }
        }
        Ok((!budget.is_unlimited()).then_some(budget))
    }

    /// The prices that are known.
    pub(crate) fn prices(&self, home: &Home) -> Result<PriceTable, Failed> {
        let path = self.prices.clone().unwrap_or_else(|| home.dir().join(PRICES));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.prices.is_none() => {
                return Ok(PriceTable::default());
            }
            Err(error) => return Err(Failed::usage(format!("price table {}: {error}", path.display()))),
        };
        serde_json::from_str(&text).map_err(|error| Failed::usage(format!("price table {}: {error}", path.display())))
    }

    /// A budget of money takes a price.
    pub(crate) fn check(
        &self,
        prices: &PriceTable,
        budget: Option<&Budget>,
        choice: &Choice,
        home: &Home,
    ) -> Result<(), Failed> {
        let is_priced = prices.price(&choice.provider, &choice.model).is_some();
        if is_priced || !budget.is_some_and(Budget::has_money) {
            return Ok(());
        }
        let path = self.prices.clone().unwrap_or_else(|| home.dir().join(PRICES));
        Err(Failed::usage(format!(
            "a limit in dollars needs the price of {}, and the price table {} has none; add {{\"{}\": {{\"input\": …, \
             \"output\": …}}}}, in dollars for a million tokens",
            choice.name(),
            path.display(),
            choice.name(),
        )))
    }
}

/// A budget as people read it.
pub(crate) fn show(budget: &Budget) -> String {
    let all = Resource::ALL.into_iter().filter_map(|resource| Some(resource.show(budget.limit(resource)?)));
    let windows = budget.windows.iter().map(|window| {
        let (most, span) = (window.resource.show(window.most), figures::span(window.per_ms));
        format!("{most} in {span}")
    });
    all.chain(windows).collect::<Vec<_>>().join(", ")
}

fn parse_dollars(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.trim_start_matches('$').parse().map_err(|_| "write dollars, as in 2 or 0.50".to_owned())?;
    if !dollars.is_finite() || dollars < 0.0 {
        return Err("write dollars, as in 2 or 0.50".into());
    }
    // Saturates.
    Ok((dollars * 1e6).round() as u64)
}

fn parse_amount(text: &str) -> Result<Amount, String> {
    let (amount, time) = match text.split_once('/') {
        Some((amount, time)) => (amount.trim(), Some(parse_time(time.trim())?)),
        None => (text.trim(), None),
    };
    if amount.starts_with('$') {
        return Ok(Amount { resource: Resource::MicroUsd, most: parse_dollars(amount)?, per_ms: time });
    }
    let split = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
    let (number, unit) = amount.split_at(split);
    let wrong = || format!("write an amount as in 100k, 1.5M, $2, '200 calls', 500k/hour or $2/day, not {text:?}");
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let (factor, unit) = match unit.strip_prefix(['k', 'K']) {
        Some(unit) => (1e3, unit),
        None => unit.strip_prefix('M').map_or((1.0, unit), |unit| (1e6, unit)),
    };
    let resource = match unit.trim() {
        "" | "token" | "tokens" => Resource::Tokens,
        "call" | "calls" => Resource::ToolCalls,
        _ => return Err(wrong()),
    };
    // Saturates.
    Ok(Amount { resource, most: (number * factor).round() as u64, per_ms: time })
}

fn parse_time(text: &str) -> Result<u64, String> {
    let span = match text {
        "second" | "s" => "1s",
        "minute" | "min" | "m" => "1m",
        "hour" | "h" => "1h",
        "day" | "d" => "1d",
        other => other,
    };
    let span = figures::parse_span(span)?;
    if span.is_zero() {
        return Err("a time of nothing has no room for anything".into());
    }
    Ok(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Result<(Resource, u64, Option<u64>), String> {
        parse_amount(text).map(|amount| (amount.resource, amount.most, amount.per_ms))
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(amount("100k"), Ok((Resource::Tokens, 100_000, None)));
        assert_eq!(amount("1.5M tokens"), Ok((Resource::Tokens, 1_500_000, None)));
        assert_eq!(amount("$2/day"), Ok((Resource::MicroUsd, 2_000_000, Some(86_400_000))));
        assert_eq!(amount("500k tokens/hour"), Ok((Resource::Tokens, 500_000, Some(3_600_000))));
        assert_eq!(amount("200 calls"), Ok((Resource::ToolCalls, 200, None)));
        assert_eq!(amount("0"), Ok((Resource::Tokens, 0, None)));
        assert_eq!(amount("9/90s"), Ok((Resource::Tokens, 9, Some(90_000))));
        for wrong in ["", "many", "-1", "$-1", "$x", "5 apples", "5/", "5/0s", "5/blue moon", "$inf"] {
            assert!(amount(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_same_limit_twice_is_refused() {
        let budget = |amounts: &[&str], max_cost| {
            let budget = amounts.iter().map(|text| parse_amount(text).expect("an amount")).collect();
            SpendArgs { budget, max_cost, prices: None }.budget()
        };
        assert!(budget(&["5k", "6k"], None).is_err());
        assert!(budget(&["$1"], Some(2_000_000)).is_err());
        let both = budget(&["5k", "$1/day"], Some(2_000_000)).expect("a budget").expect("one");
        assert_eq!((both.tokens, both.micro_usd, both.windows.len()), (Some(5_000), Some(2_000_000), 1));
        assert_eq!(budget(&[], None).expect("none"), None);
    }
}
