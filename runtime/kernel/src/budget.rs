//! Budgets: what may be counted, and how much of it an agent and all below it may spend.

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Tokens, input (cached ones included) and output.
    Tokens,
    /// Money, in millionths of a US dollar.
    MicroUsd,
    /// Tool calls, those that only concern other agents apart.
    ToolCalls,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tokens, Self::MicroUsd, Self::ToolCalls];

    /// The name of a limit on it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "budget_tokens",
            Self::MicroUsd => "budget_micro_usd",
            Self::ToolCalls => "budget_tool_calls",
        }
    }

    /// An amount of it, for people.
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Tokens => format!("{amount} tokens"),
            Self::MicroUsd => {
                let digits = format!("{:06}", amount % 1_000_000);
                let cents = digits.trim_end_matches('0');
                format!("${}.{cents:0<2}", amount / 1_000_000)
            }
            Self::ToolCalls => format!("{amount} tool calls"),
        }
    }
}

/// So much of each thing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Funds {
    /// Tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub micro_usd: u64,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
}

fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

impl Funds {
    /// How much of one thing.
    pub fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Tokens => self.tokens,
            Resource::MicroUsd => self.micro_usd,
            Resource::ToolCalls => self.tool_calls,
        }
    }

    fn part(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Tokens => &mut self.tokens,
            Resource::MicroUsd => &mut self.micro_usd,
            Resource::ToolCalls => &mut self.tool_calls,
        }
    }

    /// Only one thing.
    pub fn only(resource: Resource, amount: u64) -> Self {
        let mut funds = Self::default();
        *funds.part(resource) = amount;
        funds
    }

    /// Whether it is nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn add(&mut self, resource: Resource, amount: u64) {
        let part = self.part(resource);
        *part = part.saturating_add(amount);
    }

    pub(crate) fn take(&mut self, resource: Resource, amount: u64) {
        let part = self.part(resource);
        *part = part.saturating_sub(amount);
    }
}

/// What an agent and all below it may spend. Zero means none; what is absent has no limit of its own.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Tokens, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    /// Tool calls, those that only concern other agents apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Milliseconds from when it is granted; no model call starts behind them. Agents that run side by side share the time
    /// and do not add it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// How much may be spent within a time that moves on. What is over waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

/// So much within any time of this length.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Of what.
    pub resource: Resource,
    /// How much.
    pub most: u64,
    /// In how many milliseconds.
    pub per_ms: u64,
}

impl Budget {
    /// A limit on one thing.
    pub fn limit(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Tokens => self.tokens,
            Resource::MicroUsd => self.micro_usd,
            Resource::ToolCalls => self.tool_calls,
        }
    }

    /// Whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// This budget where it says something, and `before` where it does not.
    #[must_use]
    pub fn over(self, before: &Self) -> Self {
        Self {
            tokens: self.tokens.or(before.tokens),
            micro_usd: self.micro_usd.or(before.micro_usd),
            tool_calls: self.tool_calls.or(before.tool_calls),
            wall_ms: self.wall_ms.or(before.wall_ms),
            windows: if self.windows.is_empty() { before.windows.clone() } else { self.windows },
        }
    }

    /// Whether money is limited, which takes prices.
    pub fn has_money(&self) -> bool {
        self.micro_usd.is_some() || self.windows.iter().any(|window| window.resource == Resource::MicroUsd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_reads_as_dollars_with_as_many_digits_as_it_takes() {
        let show = |micro_usd| Resource::MicroUsd.show(micro_usd);
        assert_eq!(
            [0, 500_000, 2_000_000, 1_000, 1_234_567].map(show),
            ["$0.00", "$0.50", "$2.00", "$0.001", "$1.234567"]
        );
    }
}
