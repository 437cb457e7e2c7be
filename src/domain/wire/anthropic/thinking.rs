//! How much a model is asked to think, and whether its own thinking goes back to it.

use super::super::EncodeError;
use super::super::conversation::{Conversation, SentMessage};
use super::super::dialect::{Dialect, ReasoningRequest};
use super::blocks::begins_message;
use super::claude::{ClaudeThinkingControl, ModelTraits};
use super::encode::setting_error;
use crate::chat::Effort;
use crate::limits::CLAUDE_THINKING_TOKENS_LEAST;
use serde_json::{Value, json};

/// The fields of a request that control thinking.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Thinking {
    /// The field `thinking`, where it is written.
    pub config: Option<Value>,
    /// The field `output_config.effort`, where it is written.
    pub effort: Option<&'static str>,
    /// The model's thinking blocks go back to it.
    pub returns: bool,
}

/// The setting of an agent for a model that can think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkingWish {
    /// The default of the provider.
    Default,
    /// The least amount that the model can think.
    Off,
    On(Effort),
}

/// Facts beside the model that decide about its thinking.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThinkingInputs<'r> {
    /// The conversation that is sent.
    pub conversation: &'r Conversation<'r>,
    /// Value of `max_tokens` in the request; thinking counts against it.
    pub max_tokens: u32,
    /// The request forces the model to call a tool.
    pub is_forced: bool,
}

impl Thinking {
    /// Decides the fields for a request.
    pub(super) fn for_request(
        effort: Option<Effort>,
        dialect: &Dialect,
        traits: ModelTraits,
        given: ThinkingInputs<'_>,
    ) -> Result<Self, EncodeError> {
        use ClaudeThinkingControl::{Adaptive, AdaptiveByDefault, Always, BetweenTools, Budget, Never};
        let wish = wish(effort, dialect, traits)?;
        let refuses_force = match traits.thinking {
            Never => false,
            Budget | Adaptive | AdaptiveByDefault => matches!(wish, ThinkingWish::On(_)),
            BetweenTools | Always => true,
        };
        if given.is_forced && refuses_force {
            let reason = "a model that thinks can't be forced to call a tool; use `auto`";
            return Err(setting_error(dialect, "model.toolChoice", reason));
        }
        let returns = !traits.bound_thinking;
        let config = |kind: &str| Some(json!({"type": kind}));
        let off = Self { config: config("disabled"), effort: None, returns: false };
        Ok(match (traits.thinking, wish) {
            (Never, _) | (Adaptive, ThinkingWish::Default) => Self::default(),
            (Budget | Adaptive | AdaptiveByDefault, ThinkingWish::Off) => off,
            // Models other than Claude may think by default, and want their thinking back.
            (Budget, ThinkingWish::Default) => Self { returns: !traits.signed_thinking, ..Self::default() },
            (Budget, ThinkingWish::On(effort)) => {
                let budget = budget(effort, given.max_tokens).filter(|_| !has_thoughtless_call(given.conversation));
                let config = budget.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens}));
                Self { returns: config.is_some(), config, effort: None }
            }
            (AdaptiveByDefault, ThinkingWish::Default) if given.is_forced => off,
            (AdaptiveByDefault | BetweenTools | Always, ThinkingWish::Default) => Self { returns, ..Self::default() },
            (BetweenTools, ThinkingWish::Off) => Self { config: config("between_tools"), effort: None, returns },
            (Always, ThinkingWish::Off) => Self { config: None, effort: Some("low"), returns },
            (Adaptive | AdaptiveByDefault | BetweenTools | Always, ThinkingWish::On(effort)) => {
                Self { config: config("adaptive"), effort: Some(effort.word()), returns }
            }
        })
    }
}

/// Returns the agent's setting, where the provider and the model know reasoning.
fn wish(effort: Option<Effort>, dialect: &Dialect, traits: ModelTraits) -> Result<ThinkingWish, EncodeError> {
    let knows = match dialect.reasoning {
        ReasoningRequest::Unsupported => false,
        ReasoningRequest::Effort
        | ReasoningRequest::Object
        | ReasoningRequest::Budget
        | ReasoningRequest::Switch
        | ReasoningRequest::EnableThinking
        | ReasoningRequest::ThinkingConfig => traits.thinking != ClaudeThinkingControl::Never,
    };
    match (effort, knows) {
        (None, _) | (Some(Effort::None | Effort::Tokens(0)), false) => Ok(ThinkingWish::Default),
        (Some(Effort::None | Effort::Tokens(0)), true) => Ok(ThinkingWish::Off),
        (Some(effort), true) => Ok(ThinkingWish::On(effort)),
        (Some(_), false) => Err(setting_error(dialect, "model.reasoning", "this model doesn't reason; leave it out")),
    }
}

/// Returns the number of tokens to think. `max_tokens` is never raised, because budgets count by it: at least a quarter
/// of it is left for the answer, as far as the smallest budget allows. `None` if not even that fits.
fn budget(effort: Effort, max_tokens: u32) -> Option<u32> {
    let tokens = effort.tokens().min(max_tokens - max_tokens / 4).max(CLAUDE_THINKING_TOKENS_LEAST);
    (tokens < max_tokens).then_some(tokens)
}

/// Whether the running loop of tools has calls that this model made without thinking. The API then refuses thinking
/// until the loop has ended.
fn has_thoughtless_call(conversation: &Conversation<'_>) -> bool {
    let messages = &conversation.messages;
    let is_task = |at: &usize| {
        let is_behind_results = *at > 0 && matches!(messages[at - 1], SentMessage::Results(_));
        matches!(messages[*at], SentMessage::User(_)) && !is_behind_results
    };
    let begin = (0..messages.len()).rev().find(is_task).unwrap_or(0);
    messages[begin..].iter().any(|message| match message {
        SentMessage::Assistant { calls, reasoning, .. } => {
            !calls.is_empty() && !reasoning.is_some_and(|items| items.iter().any(begins_message))
        }
        SentMessage::User(_) | SentMessage::Results(_) => false,
    })
}
