//! Differences between the models behind Anthropic's format, by their names.

use crate::limits::{ANTHROPIC_REPLY_TOKENS, CLAUDE_3_REPLY_TOKENS, CLAUDE_REPLY_TOKENS};

/// How a request controls whether and how much a model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaudeThinkingControl {
    /// The model never thinks.
    Never,
    /// `{type: enabled, budget_tokens}`; the model thinks only when it is asked to.
    Budget,
    /// `{type: adaptive}` and an effort; the model thinks only when it is asked to.
    Adaptive,
    /// `{type: adaptive}` and an effort; the model thinks unless the type is `disabled`.
    AdaptiveByDefault,
    /// `{type: adaptive}` and an effort; the model thinks at least between tools (`between_tools`).
    BetweenTools,
    /// The model always thinks; only the effort can be set.
    Always,
}

/// Facts about a model that its requests depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of a model")]
pub(super) struct ModelTraits {
    /// How a request controls its thinking.
    pub thinking: ClaudeThinkingControl,
    /// The model takes `temperature` and `top_p`.
    pub sampling: bool,
    /// The model refuses `temperature` beside `top_p`, and a `temperature` over 1.
    pub narrow_sampling: bool,
    /// The model takes the schema of an output.
    pub structured: bool,
    /// The model refuses thinking blocks that have no signature.
    pub signed_thinking: bool,
    /// The model refuses its own thinking blocks if anything before them differs from the request that they answered.
    /// The context of an agent changes from turn to turn, so none of its blocks goes back.
    pub bound_thinking: bool,
    /// Default of `max_tokens`, in tokens, where the agent sets none.
    pub reply_tokens: u32,
}

/// Traits of an unknown model: the format as it was before Claude 4.6.
const UNKNOWN: ModelTraits = ModelTraits {
    thinking: ClaudeThinkingControl::Budget,
    sampling: true,
    narrow_sampling: false,
    structured: true,
    signed_thinking: false,
    bound_thinking: false,
    reply_tokens: ANTHROPIC_REPLY_TOKENS,
};

impl ModelTraits {
    /// Returns the traits of a model by its name, as <https://platform.claude.com/docs/en/models> has them (November
    /// 2026).
    pub(super) fn for_model(name: &str) -> Self {
        let Some((family, version)) = parse_model_name(name) else { return UNKNOWN };
        let is_largest = matches!(family.as_str(), "fable" | "mythos");
        let thinking = match version {
            (..=2, _) | (3, ..=6) => ClaudeThinkingControl::Never,
            (3, _) | (4, ..=5) => ClaudeThinkingControl::Budget,
            _ if is_largest => ClaudeThinkingControl::Always,
            (4, _) => ClaudeThinkingControl::Adaptive,
            (5, ..=4) => ClaudeThinkingControl::AdaptiveByDefault,
            (5, 5) if family != "opus" => ClaudeThinkingControl::BetweenTools,
            _ => ClaudeThinkingControl::Always,
        };
        Self {
            thinking,
            sampling: version < (4, 7) && !is_largest,
            narrow_sampling: true,
            structured: version >= (4, 5),
            signed_thinking: true,
            bound_thinking: version >= (5, 5) || is_largest && version >= (5, 1),
            reply_tokens: match version {
                (..=2, _) | (3, ..=4) => CLAUDE_3_REPLY_TOKENS,
                (3, 5..=6) => ANTHROPIC_REPLY_TOKENS,
                _ => CLAUDE_REPLY_TOKENS,
            },
        }
    }
}

/// Reads the family and the version from a name like `claude-opus-4-1-20250805`, `claude-3-7-sonnet@20250219` or
/// `anthropic/claude-sonnet-4.5`. A name without a version means the newest.
fn parse_model_name(name: &str) -> Option<(String, (u8, u8))> {
    let name = name.to_ascii_lowercase();
    let (_, rest) = name.split_once("claude")?;
    let words = rest.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let (mut family, mut numbers) = (String::new(), Vec::new());
    for word in words {
        match word.parse::<u32>() {
            // The number is a date.
            Ok(number) if number >= 1_000 => break,
            Ok(number) => numbers.push(u8::try_from(number).unwrap_or(u8::MAX)),
            Err(_) if family.is_empty() => word.clone_into(&mut family),
            Err(_) => {}
        }
    }
    let version = match numbers[..] {
        [] => (u8::MAX, 0),
        [major] => (major, 0),
        [major, minor, ..] => (major, minor),
    };
    Some((family, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_how_a_model_thinks() {
        use ClaudeThinkingControl::{Adaptive, AdaptiveByDefault, Always, BetweenTools, Budget, Never};
        for (name, thinking, sampling, bound) in [
            ("claude-3-opus-20240229", Never, true, false),
            ("claude-3-5-sonnet-20241022", Never, true, false),
            ("claude-3-7-sonnet@20250219", Budget, true, false),
            ("claude-opus-4-20250514", Budget, true, false),
            ("claude-4-opus-20250514", Budget, true, false),
            ("anthropic.claude-opus-4-1-20250805-v1:0", Budget, true, false),
            ("anthropic/claude-sonnet-4.5", Budget, true, false),
            ("claude-haiku-4-5", Budget, true, false),
            ("claude-opus-4-6", Adaptive, true, false),
            ("claude-opus-4-8", Adaptive, false, false),
            ("claude-mythos-preview", Always, false, true),
            ("claude-sonnet-5", AdaptiveByDefault, false, false),
            ("claude-fable-5", Always, false, false),
            ("claude-fable-5-1", Always, false, true),
            ("claude-opus-5-5", Always, false, true),
            ("claude-sonnet-5-5", BetweenTools, false, true),
            ("Claude-Haiku-5-5", BetweenTools, false, true),
            ("claude-haiku-7", Always, false, true),
            ("kimi-k3", Budget, true, false),
        ] {
            let traits = ModelTraits::for_model(name);
            assert_eq!(
                (traits.thinking, traits.sampling, traits.bound_thinking),
                (thinking, sampling, bound),
                "{name}"
            );
        }
    }

    #[test]
    fn a_limit_is_one_that_the_model_takes() {
        for (name, tokens) in [
            ("claude-3-haiku-20240307", 4_096),
            ("claude-3-5-haiku-latest", 8_192),
            ("claude-3-7-sonnet-latest", 32_000),
            ("claude-opus-4-1", 32_000),
            ("claude-opus-5-5", 32_000),
            ("qwen3", 8_192),
        ] {
            assert_eq!(ModelTraits::for_model(name).reply_tokens, tokens, "{name}");
        }
    }
}
