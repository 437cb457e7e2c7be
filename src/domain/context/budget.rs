//! How much a prompt may hold, in bytes and in tokens.

use crate::agent::budget::ContextBudget;
use crate::chat::ModelSettings;
use crate::limits::CONTEXT_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default of the characters per token, in thousandths, until a model reports its usage.
pub const RATIO_DEFAULT: u32 = 4_000;

/// Plausible ratios in thousandths; a ratio outside comes from a wrong count.
const PLAUSIBLE_RATIOS: std::ops::RangeInclusive<u64> = 1_000..=8_000;

/// Divisor of the newest usage in the running mean.
const NEWEST_WEIGHT: u64 = 4;

/// The budget of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptBudget {
    /// Most bytes of the prompt.
    pub bytes: usize,
    /// Characters per token in thousandths, by which tokens are estimated.
    pub ratio: u32,
}

impl PromptBudget {
    /// Returns the smallest budget of the agent's settings and the model's window without its longest reply, both in
    /// tokens. Bytes count as characters, so a little less fits of scripts with longer characters.
    pub fn from_limits(asked: ContextBudget, window: Option<u32>, reply: Option<u32>, ratio: u32) -> Self {
        let bytes_of = |tokens: usize| tokens.saturating_mul(ratio as usize) / 1_000;
        let default = if asked.tokens.is_none() { Some(CONTEXT_BYTES) } else { None };
        let window = window.map(|window| window.saturating_sub(reply.unwrap_or(0)) as usize);
        let limits = [asked.bytes.or(default), asked.tokens.map(bytes_of), window.map(bytes_of)];
        // The budget is never 0, because shares of it are divided.
        Self { bytes: limits.into_iter().flatten().min().unwrap_or(CONTEXT_BYTES).max(1), ratio }
    }

    /// Returns the budget for an agent's model and its fallbacks. The smallest window counts, because any of them may
    /// answer.
    pub fn for_models(asked: ContextBudget, model: &ModelSettings, ratio: u32) -> Self {
        Self::from_limits(asked, model.prompt_tokens(), None, ratio)
    }

    /// Returns the estimated tokens of so many bytes.
    pub fn tokens(&self, bytes: usize) -> usize {
        bytes.saturating_mul(1_000) / self.ratio.max(1) as usize
    }
}

impl Default for PromptBudget {
    fn default() -> Self {
        Self { bytes: CONTEXT_BYTES, ratio: RATIO_DEFAULT }
    }
}

/// Returns the ratio after a model has counted `bytes` as `tokens`; implausible counts change nothing.
pub fn corrected_ratio(ratio: u32, bytes: usize, tokens: u64) -> u32 {
    // In a short prompt the tokenizer's overhead per message hides its ratio.
    if tokens < 100 {
        return ratio;
    }
    let seen = (bytes as u64).saturating_mul(1_000) / tokens;
    if !PLAUSIBLE_RATIOS.contains(&seen) {
        return ratio;
    }
    u32::try_from((u64::from(ratio) * (NEWEST_WEIGHT - 1) + seen) / NEWEST_WEIGHT).unwrap_or(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_limit_counts() {
        let asked = |bytes, tokens| ContextBudget { bytes, tokens };
        for (budget, window, reply, bytes) in [
            (asked(None, None), None, None, 180_000),
            (asked(Some(10_000), None), None, None, 10_000),
            (asked(None, Some(100_000)), None, None, 400_000),
            (asked(Some(10_000), Some(1_024)), None, None, 4_096),
            (asked(None, None), Some(8_192), Some(4_096), 16_384),
            (asked(None, None), Some(1_000_000), None, 180_000),
            (asked(None, None), Some(100), Some(200), 1),
        ] {
            assert_eq!(
                PromptBudget::from_limits(budget, window, reply, RATIO_DEFAULT).bytes,
                bytes,
                "{budget:?} {window:?}"
            );
        }
    }

    #[test]
    fn the_smallest_window_of_all_models_counts() {
        let model = |window, reply| ModelSettings {
            context_window: window,
            max_tokens: reply,
            ..ModelSettings::new("openai", "m")
        };
        for (first, fallback, bytes) in [
            (model(Some(8_192), Some(4_096)), vec![], 16_384),
            (model(Some(8_192), Some(4_096)), vec![model(Some(4_096), Some(96)), model(None, None)], 16_000),
            (model(None, Some(4_096)), vec![model(Some(2_000), None)], 8_000),
            (model(None, None), vec![model(None, None)], 180_000),
        ] {
            let first = ModelSettings { fallback, ..first };
            let budget = PromptBudget::for_models(ContextBudget::default(), &first, RATIO_DEFAULT);
            assert_eq!(budget.bytes, bytes, "{first:?}");
        }
    }

    #[test]
    fn tokens_are_a_quarter_of_the_bytes_until_counted() {
        assert_eq!(PromptBudget::default().tokens(180_000), 45_000);
        assert_eq!(corrected_ratio(4_000, 3_000, 1_000), 3_750);
        let settled = (0..50).fold(4_000, |ratio, _| corrected_ratio(ratio, 3_000, 1_000));
        assert!((3_000..3_005).contains(&settled), "{settled}");
        for (bytes, tokens) in [(10, 1), (400_000, 100), (100, 1_000), (0, 0)] {
            assert_eq!(corrected_ratio(4_000, bytes, tokens), 4_000, "{bytes} {tokens}");
        }
    }

    #[test]
    fn budgets_outside_the_limits_are_refused() {
        let error = |bytes, tokens| ContextBudget { bytes, tokens }.check().unwrap_err().to_string();
        assert_eq!(error(Some(0), None), "`contextBudget.bytes`: expected 4096 to 4000000, got 0");
        assert_eq!(error(None, Some(2_000_000)), "`contextBudget.tokens`: expected 1024 to 1000000, got 2000000");
    }
}
