//! What models cost.

use std::collections::BTreeMap;

use impresario_kernel::{Funds, Usage};
use serde::Deserialize;

/// Prices by `provider:model`; a name that ends in `*` stands for all that begin so, the longest one counts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(transparent)]
pub struct PriceTable(BTreeMap<String, Price>);

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input that did not come from the provider's cache.
    pub input: f64,
    /// Input that did; without it the same as `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// Output.
    pub output: f64,
}

impl PriceTable {
    /// Adds a price, or puts it in the place of one.
    #[must_use]
    pub fn with(mut self, model: &str, price: Price) -> Self {
        self.0.insert(model.into(), price);
        self
    }

    /// The price of a model, if it is known.
    pub fn price(&self, provider: &str, model: &str) -> Option<Price> {
        let name = format!("{provider}:{model}");
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        self.0
            .iter()
            .filter(|(pattern, _)| matches(pattern))
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, it)| *it)
    }
}

impl Price {
    /// What so many tokens cost, in millionths of a dollar, rounded up. What is no number or below zero costs nothing.
    pub fn micro_usd(&self, input: u64, cached: u64, output: u64) -> u64 {
        // Dollars for a million tokens are millionths of a dollar for one.
        let parts = [(input, self.input), (cached, self.cached_input.unwrap_or(self.input)), (output, self.output)];
        let sum: f64 = parts.into_iter().map(|(tokens, price)| tokens as f64 * price).sum();
        // The cast saturates, and makes nothing of what is no number.
        sum.ceil() as u64
    }

    /// What a call that used this has cost.
    pub(crate) fn cost(&self, usage: &Usage) -> u64 {
        let written = usage.cache_write_tokens.unwrap_or(0);
        let input = usage.input_tokens.saturating_add(written);
        self.micro_usd(input, usage.cache_read_tokens.unwrap_or(0), usage.output_tokens)
    }
}

/// What a call has cost of everything that budgets count, tools apart. Without a price it costs no money.
pub(crate) fn cost(price: Option<Price>, usage: &Usage) -> Funds {
    let cached = usage.cache_read_tokens.unwrap_or(0).saturating_add(usage.cache_write_tokens.unwrap_or(0));
    let tokens = usage.input_tokens.saturating_add(cached).saturating_add(usage.output_tokens);
    Funds { tokens, micro_usd: price.map_or(0, |price| price.cost(usage)), tool_calls: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts_and_money_is_rounded_up() {
        let table: PriceTable = serde_json::from_str(
            r#"{"a:*": {"input": 1, "output": 2}, "a:big-*": {"input": 1.5, "cached_input": 0.1, "output": 10}}"#,
        )
        .unwrap();
        assert_eq!(table.price("b", "x"), None);
        assert_eq!(table.price("a", "x").unwrap().micro_usd(3, 3, 1), 8);
        assert_eq!(table.price("a", "big-1").unwrap().micro_usd(1, 10, 1), 13);
        let odd = Price { input: f64::NAN, cached_input: Some(-1.0), output: f64::INFINITY };
        assert_eq!((odd.micro_usd(1, 1, 0), Price { input: 0.0, ..odd }.micro_usd(0, 5, 0)), (0, 0));
    }
}
