//! Answers about spending and its limits.

use crate::domain::budget::dollars;
use crate::domain::spend::{JobTreeUse, ModelUse, Tally};
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Spending of an owner on the current day, and what its caps leave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpendTodayView {
    /// Owner as `tenant/user`.
    pub owner: String,
    /// Date as `YYYY-MM-DD`, in the time zone of the venue's caps.
    pub day: String,
    /// Name of that time zone.
    pub zone: String,
    /// End of the day, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub resets: Millis,
    /// Use of all sessions together, as far as they have committed it.
    pub spent: ModelUseView,
    /// Use by model, in the order of the models' names.
    pub models: Vec<ModelSpendView>,
    /// Use by session, the largest cost first; at most as many as were asked for.
    pub sessions: Vec<SessionSpendView>,
    /// Number of sessions with any use on this day.
    pub sessions_in_all: usize,
    /// Whether there are more sessions than were read, or one's record is damaged: then all amounts are lower bounds.
    pub partial: bool,
    /// Caps of the named session, the owner's day, the user's day, its tenant's day and the models.
    #[serde(default)]
    pub caps: Vec<CapView>,
}

/// Use of model calls. An unknown amount is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUseView {
    /// Number of model calls.
    pub calls: u32,
    /// Tokens of their prompts.
    pub input: u64,
    /// Tokens of their replies.
    pub output: u64,
    /// Tokens of `input` that were read from providers' caches; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Tokens of `input` that were written to providers' caches; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Tokens of `output` that are reasoning; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// US dollars; absent if no call has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Calls whose model has no price, which are not in `cost`; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpriced: Option<u32>,
    /// Calls whose provider hasn't counted everything, so that their use is an estimate; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<u32>,
    /// Of a job's own use: turns that a fallback model answered; absent if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<u32>,
    /// Of a tree: the jobs under the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Of a tree: there are more jobs than were read (1,000 a request).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<bool>,
}

/// Use of one model on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpendView {
    /// Use of the model's calls.
    #[serde(flatten)]
    pub spent: ModelUseView,
    /// Model as `provider/name`.
    pub model: String,
}

/// Use of one session on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSpendView {
    /// Use of the session's calls.
    #[serde(flatten)]
    pub spent: ModelUseView,
    /// Name of the agent.
    pub agent_id: String,
    /// Name of the session.
    pub session_id: String,
}

/// What a job has used as of its last commit, and together with the jobs under it. Absent parts are unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpendView {
    /// Use of the job itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<ModelUseView>,
    /// Use of the job and of the jobs under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<ModelUseView>,
}

/// A limit on spending, and what is used of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapView {
    /// Scope of the cap.
    #[schemars(extend("enum" = ["session", "owner", "user", "tenant", "model"]))]
    pub of: String,
    /// Of the cap of a user: the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of the cap of a model: the model as `provider/name`, or the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// End of the day that the cap is for, in milliseconds since 1970; absent for a session, whose cap never resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub resets: Option<Millis>,
    /// Whether a limit is used up.
    pub reached: bool,
    /// Number of model calls; absent for a model's cap unless the reader is an operator, as are the amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Tokens; absent if the cap doesn't limit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<CapTokensView>,
    /// US dollars; absent if the cap doesn't limit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CapCostView>,
}

/// Tokens under a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapTokensView {
    /// Tokens at most.
    pub limit: u64,
    /// Tokens of ended calls.
    pub used: u64,
    /// Tokens that running calls hold, and those of dead workers.
    pub held: u64,
}

/// US dollars under a cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapCostView {
    /// Dollars at most.
    pub limit: f64,
    /// Dollars of ended calls.
    pub used: f64,
    /// Dollars that running calls hold, and those of dead workers.
    pub held: f64,
}

impl From<&ModelUse> for ModelUseView {
    fn from(spent: &ModelUse) -> Self {
        let tokens = |tokens: u64| (tokens > 0).then_some(tokens);
        let calls = |calls: u32| (calls > 0).then_some(calls);
        // The cost is unknown if no call has a price.
        let is_priced = spent.calls == 0 || spent.unpriced < spent.calls;
        Self {
            calls: spent.calls,
            input: spent.input,
            output: spent.output,
            cache_read: tokens(spent.cache_read),
            cache_write: tokens(spent.cache_write),
            reasoning: tokens(spent.reasoning),
            cost: is_priced.then(|| dollars(spent.nano)),
            unpriced: calls(spent.unpriced),
            estimated: calls(spent.estimated),
            fallbacks: None,
            jobs: None,
            partial: None,
        }
    }
}

impl JobSpendView {
    /// Makes the view of a job's own use and of its tree's; `None` if nothing is known.
    pub fn new(own: Option<&Tally>, tree: Option<&JobTreeUse>) -> Option<Self> {
        let below = tree.filter(|tree| tree.jobs > 0);
        if own.is_none() && below.is_none() {
            return None;
        }
        let own = own.map(|own| ModelUseView {
            fallbacks: (own.fallbacks > 0).then_some(own.fallbacks),
            ..ModelUseView::from(&own.spent)
        });
        let tree = tree.map(|tree| ModelUseView {
            jobs: Some(tree.jobs),
            partial: tree.partial.then_some(true),
            ..ModelUseView::from(&tree.spent)
        });
        Some(Self { own, tree })
    }

    /// Returns the use of the job with the jobs under it; its own if only that is known.
    pub fn total(&self) -> Option<&ModelUseView> {
        self.tree.as_ref().or(self.own.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::charge::Charge;
    use crate::domain::chat::{Price, TokenUsage};
    use crate::view::to_json;
    use serde_json::json;

    const PRICE: Price = Price::new(3.0, 15.0);

    fn call(input: u64, output: u64, price: Option<Price>) -> ModelUse {
        ModelUse::of_call(TokenUsage::new(input, output), price)
    }

    #[test]
    fn unknown_amounts_are_absent_and_not_zero() {
        let priced = call(1_000, 100, Some(PRICE));
        for (spent, expected) in [
            (ModelUse::default(), json!({"calls": 0, "input": 0, "output": 0, "cost": 0.0})),
            (priced, json!({"calls": 1, "input": 1_000, "output": 100, "cost": 0.0045})),
            (
                ModelUse::of_charge(Charge { usage: TokenUsage::new(5, 6), is_estimate: true }, Some(PRICE)),
                json!({"calls": 1, "input": 5, "output": 6, "cost": 0.000_105, "estimated": 1}),
            ),
            (call(5, 6, None), json!({"calls": 1, "input": 5, "output": 6, "unpriced": 1})),
            (
                priced.plus(call(5, 6, None)),
                json!({"calls": 2, "input": 1_005, "output": 106, "cost": 0.0045, "unpriced": 1}),
            ),
        ] {
            assert_eq!(to_json(&ModelUseView::from(&spent)), expected);
        }
    }

    #[test]
    fn classes_of_tokens_are_shown_if_there_are_any() {
        let usage = TokenUsage { input: 1_000, output: 100, cache_read: 800, cache_write: 100, reasoning: 40 };
        let price = Price { cache_read: Some(0.3), cache_write: Some(3.75), ..PRICE };
        let expected = json!({
            "calls": 1, "input": 1_000, "output": 100, "cacheRead": 800, "cacheWrite": 100, "reasoning": 40,
            "cost": 0.002_415,
        });
        assert_eq!(to_json(&ModelUseView::from(&ModelUse::of_call(usage, Some(price)))), expected);
    }
}
