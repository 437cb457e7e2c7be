//! Charges of model calls, however they end: a provider bills what it received and what it wrote, even if nobody can
//! use the reply.
//!
//! | the call | charged |
//! |---|---|
//! | could not be sent (no address, no connection, no TLS), or was answered by a status that is no success | nothing |
//! | was sent, and no answer came, or one of a gateway that has none | its prompt, estimated |
//! | was answered whole, and the provider has counted nothing | text, calls and reasoning, estimated |
//! | was answered, and the provider has counted it to its end | what the provider says |
//! | was answered, and broke off | what the provider has said, at least what came of it, estimated |

use crate::budget::{tokens, with_estimates};
use crate::chat::TokenUsage;

/// Stage that a call has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CallStage {
    /// The call is not made yet.
    #[default]
    NotAsked,
    /// The call is being made; no byte of its request was sent.
    Asked,
    /// The request was sent, at least in part.
    Sent,
    /// The provider has answered with a status of success.
    Accepted,
    /// The provider has answered with another status.
    Refused,
}

/// Known facts of a call, however it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallProgress {
    /// Last stage that was reached.
    pub stage: CallStage,
    /// Token numbers that the provider has sent so far.
    pub usage: TokenUsage,
    /// Whether the provider has said why its reply ended.
    pub is_whole: bool,
    /// Bytes of text, calls and reasoning so far.
    pub said_bytes: usize,
}

/// Tokens that a call is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Tokens of prompt and reply.
    pub usage: TokenUsage,
    /// Whether the provider has not counted all of it.
    pub is_estimate: bool,
}

/// Whether a status hides what became of a call: a gateway or a proxy sent it, which had no answer of the provider in
/// time.
pub const fn is_end_unknown(status: u16) -> bool {
    matches!(status, 408 | 499 | 502 | 504 | 522..=524)
}

impl Charge {
    /// Returns the charge of a whole reply; `prompt` and `reply` (text, calls and reasoning) are estimated tokens.
    pub fn of_reply(usage: TokenUsage, prompt: u64, reply: u64) -> Self {
        let charged = with_estimates(usage, prompt, reply);
        Self { usage: charged, is_estimate: charged != usage }
    }
}

impl CallProgress {
    /// Returns the charge of a call that has ended without a reply. `prompt` are its estimated tokens, `ratio` is
    /// thousandths of bytes per token.
    pub fn charge(&self, prompt: u64, ratio: u32) -> Option<Charge> {
        match self.stage {
            CallStage::NotAsked | CallStage::Asked | CallStage::Refused => None,
            CallStage::Sent | CallStage::Accepted => {
                let told = self.usage;
                if self.is_whole && told.input > 0 && told.output > 0 {
                    return Some(Charge { usage: told, is_estimate: false });
                }
                let output = told.output.max(tokens(self.said_bytes, ratio));
                let input = if told.input == 0 { prompt } else { told.input };
                Some(Charge { usage: TokenUsage { input, output, ..told }, is_estimate: true })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_began_is_charged_whatever_became_of_it() {
        let charge = |stage, usage, is_whole, said_bytes| {
            let progress = CallProgress { stage, usage, is_whole, said_bytes };
            progress.charge(100, 4_000).map(|charge| (charge.usage.input, charge.usage.output, charge.is_estimate))
        };
        let none = TokenUsage::default();
        for (stage, usage, is_whole, said, expected) in [
            (CallStage::NotAsked, none, false, 0, None),
            (CallStage::Asked, none, false, 0, None),
            (CallStage::Refused, TokenUsage::new(90, 5), true, 40, None),
            (CallStage::Sent, none, false, 0, Some((100, 0, true))),
            (CallStage::Accepted, none, false, 0, Some((100, 0, true))),
            // It broke off: what has come counts where the provider has said less.
            (CallStage::Accepted, none, false, 41, Some((100, 11, true))),
            (CallStage::Accepted, TokenUsage::new(90, 1), false, 41, Some((90, 11, true))),
            (CallStage::Accepted, TokenUsage::new(90, 50), false, 41, Some((90, 50, true))),
            // A refusal or a filter's end, counted by the provider.
            (CallStage::Accepted, TokenUsage::new(90, 5), true, 400, Some((90, 5, false))),
            (CallStage::Accepted, TokenUsage::new(90, 0), true, 40, Some((90, 10, true))),
            (CallStage::Accepted, none, true, 40, Some((100, 10, true))),
        ] {
            assert_eq!(charge(stage, usage, is_whole, said), expected, "{stage:?} {usage:?} {is_whole} {said}");
        }
    }

    #[test]
    fn a_gateway_without_an_answer_leaves_the_end_open() {
        for (status, expected) in [(400, false), (401, false), (429, false), (500, false), (503, false), (529, false)]
            .into_iter()
            .chain([408, 499, 502, 504, 522, 523, 524].map(|status| (status, true)))
        {
            assert_eq!(is_end_unknown(status), expected, "{status}");
        }
    }

    #[test]
    fn a_reply_whose_provider_says_nothing_is_estimated() {
        for (usage, expected) in [
            (TokenUsage::new(9, 3), (9, 3, false)),
            (TokenUsage::new(0, 3), (100, 3, true)),
            (TokenUsage::new(9, 0), (9, 20, true)),
        ] {
            let charge = Charge::of_reply(usage, 100, 20);
            assert_eq!((charge.usage.input, charge.usage.output, charge.is_estimate), expected, "{usage:?}");
        }
    }
}
