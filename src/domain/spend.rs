//! Use of model calls: of a turn, of a job, of a job with everything under it.
//!
//! An unknown number is absent, and never 0: the cost of calls whose model has no price, and all use of jobs that older
//! builds began.

use super::chat::TokenUsage;
use super::time::Millis;
use crate::charge::Charge;
use crate::chat::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Use of a number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelUse {
    /// Number of model calls.
    pub calls: u32,
    /// Tokens of their prompts.
    pub input: u64,
    /// Tokens of their replies.
    pub output: u64,
    /// Tokens of `input` that were read from providers' caches.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Tokens of `input` that were written to providers' caches.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Tokens of `output` that are reasoning.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Cost in billionths of a dollar, of calls whose model has a price.
    pub nano: u64,
    /// Number of calls whose model has no price.
    pub unpriced: u32,
    /// Number of calls whose provider hasn't counted everything, so that their use is an estimate.
    #[serde(skip_serializing_if = "is_none")]
    pub estimated: u32,
}

impl ModelUse {
    /// Returns the use of one call.
    pub fn of_call(usage: TokenUsage, price: Option<Price>) -> Self {
        Self {
            calls: 1,
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            reasoning: usage.reasoning,
            nano: price.map_or(0, |price| price.cost(usage)),
            unpriced: u32::from(price.is_none()),
            estimated: 0,
        }
    }

    /// Returns the use of one call as it is charged.
    pub fn of_charge(charge: Charge, price: Option<Price>) -> Self {
        Self { estimated: u32::from(charge.is_estimate), ..Self::of_call(charge.usage, price) }
    }

    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            nano: self.nano.saturating_add(other.nano),
            unpriced: self.unpriced.saturating_add(other.unpriced),
            estimated: self.estimated.saturating_add(other.estimated),
        }
    }

    /// Returns the use without a part of it; no field falls below zero.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(part.calls),
            input: self.input.saturating_sub(part.input),
            output: self.output.saturating_sub(part.output),
            cache_read: self.cache_read.saturating_sub(part.cache_read),
            cache_write: self.cache_write.saturating_sub(part.cache_write),
            reasoning: self.reasoning.saturating_sub(part.reasoning),
            nano: self.nano.saturating_sub(part.nano),
            unpriced: self.unpriced.saturating_sub(part.unpriced),
            estimated: self.estimated.saturating_sub(part.estimated),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// Use of a session on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayUse {
    /// Date as `YYYY-MM-DD`, in the venue's time zone.
    pub date: String,
    /// Time of its first use: a session that is deleted and begins anew has another.
    pub since: Millis,
    /// Use by model, `provider/name`.
    pub models: BTreeMap<String, ModelUse>,
}

impl DayUse {
    /// Returns a session's day after another turn. A new day begins with nothing.
    pub fn after_turn(before: Option<&Self>, date: &str, now: Millis, model: &str, spent: ModelUse) -> Self {
        let same = before.filter(|before| before.date == date).cloned();
        let mut today = same.unwrap_or_else(|| Self { date: date.to_owned(), since: now, models: BTreeMap::new() });
        let sum = today.models.entry(model.to_owned()).or_default();
        *sum = sum.plus(spent);
        today
    }
}

/// Use of a job without those under it, up to its last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Use of its model calls.
    pub spent: ModelUse,
    /// Whether it may have started other jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// Number of turns that a fallback model answered.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fallbacks: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Use of a job and of the jobs under it together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobTreeUse {
    /// Sum of the recorded model use of the whole tree.
    pub spent: ModelUse,
    /// Number of jobs under it.
    pub jobs: u32,
    /// Whether more jobs are under it than were read.
    pub partial: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price::new(3.0, 15.0);

    fn call(input: u64, output: u64, price: Option<Price>) -> ModelUse {
        ModelUse::of_call(TokenUsage::new(input, output), price)
    }

    #[test]
    fn classes_of_tokens_have_prices_of_their_own() {
        let usage = TokenUsage { input: 1_000, output: 100, cache_read: 800, cache_write: 100, reasoning: 40 };
        let price = Price { cache_read: Some(0.3), cache_write: Some(3.75), ..PRICE };
        let spent = ModelUse::of_call(usage, Some(price));
        assert_eq!(spent.nano, 2_415_000, "100 × 3 + 800 × 0.3 + 100 × 3.75 + 100 × 15");
        assert_eq!(
            ModelUse::of_call(usage, Some(PRICE)).nano,
            4_500_000,
            "a class without a price costs as the prompt"
        );
        assert_eq!(spent.plus(spent).cache_read, 1_600);
    }

    #[test]
    fn a_sessions_day_adds_up_by_model_and_a_new_day_is_empty() {
        let first = DayUse::after_turn(None, "2026-11-22", Millis(5), "a/x", call(1, 2, None));
        let second = DayUse::after_turn(Some(&first), "2026-11-22", Millis(9), "a/x", call(1, 2, None));
        let third = DayUse::after_turn(Some(&second), "2026-11-22", Millis(9), "a/y", call(7, 7, None));
        assert_eq!((third.since, third.models["a/x"].calls, third.models["a/y"].input), (Millis(5), 2, 7));
        let next = DayUse::after_turn(Some(&third), "2026-11-23", Millis(11), "a/x", call(1, 1, None));
        assert_eq!((next.since, next.models.len(), next.models["a/x"].calls), (Millis(11), 1, 1));
    }

    #[test]
    fn old_and_new_tallies_decode() {
        let tally: Tally = serde_json::from_str(r#"{"spent":{"calls":1}}"#).unwrap();
        assert_eq!((tally.spent.calls, tally.started), (1, false));
        let text = serde_json::to_string(&Tally { spent: call(1, 2, None), started: true, fallbacks: 0 }).unwrap();
        assert_eq!(text, r#"{"spent":{"calls":1,"input":1,"output":2,"nano":0,"unpriced":1},"started":true}"#);
    }
}
