//! Prices of model calls.

use super::TokenUsage;
use serde::{Deserialize, Serialize};

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// Price of a prompt.
    pub input: f64,
    /// Price of a reply, reasoning included.
    pub output: f64,
    /// Price of what a prompt reads from the provider's cache; as `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Price of what a prompt writes to the provider's cache; as `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// A price that isn't from 0 to a million dollars.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{key}`: expected dollars per million tokens, got {found}")]
pub struct PriceError {
    /// Key of the price, as `cacheRead`.
    pub key: &'static str,
    /// Number that was given.
    pub found: f64,
}

impl Price {
    /// Makes a price without prices of the cache.
    pub const fn new(input: f64, output: f64) -> Self {
        Self { input, output, cache_read: None, cache_write: None }
    }

    /// Checks that each price is from 0 to a million dollars.
    pub fn check(&self) -> Result<(), PriceError> {
        let classes = [("cacheRead", self.cache_read), ("cacheWrite", self.cache_write)];
        let classes = classes.into_iter().filter_map(|(key, price)| Some((key, price?)));
        for (key, price) in [("input", self.input), ("output", self.output)].into_iter().chain(classes) {
            if !price.is_finite() || !(0.0..=1e6).contains(&price) {
                return Err(PriceError { key, found: price });
            }
        }
        Ok(())
    }

    /// Returns the most that so many tokens can cost, in billionths of a dollar, rounded up: the use of a cache is
    /// unknown before the call.
    pub fn ceiling(self, input: u64, output: u64) -> u64 {
        let dearest = self.cache_write.map_or(self.input, |price| price.max(self.input));
        nano([(dearest, input), (self.output, output)])
    }

    /// Returns the cost of a call in billionths of a dollar, each class rounded up.
    pub fn cost(self, usage: TokenUsage) -> u64 {
        let read = usage.cache_read.min(usage.input);
        let written = usage.cache_write.min(usage.input - read);
        nano([
            (self.input, usage.input - read - written),
            (self.cache_read.unwrap_or(self.input), read),
            (self.cache_write.unwrap_or(self.input), written),
            (self.output, usage.output),
        ])
    }
}

/// Returns the billionths of a dollar of so many tokens at these prices per million.
fn nano<const N: usize>(parts: [(f64, u64); N]) -> u64 {
    let part = |(price, tokens): (f64, u64)| (per_token(price) * u128::from(tokens)).div_ceil(1_000);
    u64::try_from(parts.map(part).iter().sum::<u128>()).unwrap_or(u64::MAX)
}

/// Returns thousandths of billionths of a dollar per token, so that the smallest prices are whole numbers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 to a million")]
pub(crate) fn per_token(price: f64) -> u128 {
    (price * 1e6).round() as u128
}
