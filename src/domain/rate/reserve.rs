//! Tokens that a call reserves under the rate limits of its model.

use super::RateLimit;
use crate::chat::ModelSettings;

/// A call that needs more tokens than a rate limit has in a minute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the call takes up to {takes} tokens, {prompt} of its prompt and {reply} of its reply, and the rate limit of `{of}` \
     is {most} tokens per minute: shorten its context (`contextBudget`) or its reply (`maxTokens`), or have the \
     limit raised (`models.limits`)"
)]
pub struct OversizedCallError {
    /// Scope of the limit: `provider` or `provider/name`.
    pub of: String,
    /// Tokens per minute at most.
    pub most: u64,
    /// Tokens of the whole call.
    pub takes: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the longest reply; 0 if nothing limits it.
    pub reply: u64,
}

/// Returns the tokens that a call is booked with: of its prompt and its longest reply, or `guess` where the reply has
/// no limit. An error if no minute has room for the call.
pub fn reserve(
    limits: &[RateLimit],
    model: &ModelSettings,
    prompt: u64,
    reply: Option<u64>,
    guess: u64,
) -> Result<u64, OversizedCallError> {
    let all = limits.iter().filter(|limit| limit.covers(model)).filter_map(|limit| Some((limit.tokens?, &limit.of)));
    let tightest = all.min();
    let takes = prompt.saturating_add(reply.unwrap_or_default());
    match tightest {
        Some((most, of)) if takes > most => {
            Err(OversizedCallError { of: of.clone(), most, takes, prompt, reply: reply.unwrap_or_default() })
        }
        Some((most, _)) => Ok(prompt.saturating_add(reply.unwrap_or(guess)).min(most)),
        None => Ok(prompt.saturating_add(reply.unwrap_or(guess))),
    }
}
