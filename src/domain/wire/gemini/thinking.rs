//! Controls how much a model thinks, by the model's name.

use super::super::EncodeError;
use super::super::dialect::{Dialect, ReasoningRequest};
use super::encode::setting_error;
use crate::chat::{Effort, ModelSettings};
use serde_json::{Value, json};

/// How a request controls the amount of thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GeminiThinkingControl {
    /// The model never thinks.
    Never,
    /// A number of tokens from `least` to `most`; `off` is as little as the model can.
    Budget { off: u32, least: u32, most: u32 },
    /// A word; `off` is the word for as little as the model can.
    Level { off: &'static str },
}

/// Reads the first number in a name like `gemini-2.5-flash` or `models/gemini-3-pro-preview`, with the number behind
/// its point. `None` for an alias of the newest model, or for no Gemini.
fn parse_version(name: &str) -> Option<(u32, u32)> {
    let (_, rest) = name.split_once("gemini-")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let has_minor = rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('.');
    let minor = numbers.next().filter(|_| has_minor).and_then(|minor| minor.parse().ok());
    Some((major, minor.unwrap_or(0)))
}

impl GeminiThinkingControl {
    /// Returns the control of a model, as <https://ai.google.dev/gemini-api/docs/generate-content/thinking> has it
    /// (November 2026). Gemini 3 and later take words; all of them know `LOW`, the smallest also `MINIMAL`.
    fn for_model(name: &str) -> Self {
        match parse_version(name) {
            Some((..=1, _) | (2, ..=4)) => Self::Never,
            Some((2, _)) if name.contains("pro") => Self::Budget { off: 128, least: 128, most: 32_768 },
            Some((2, _)) => Self::Budget { off: 0, least: 512, most: 24_576 },
            Some(_) | None if name.contains("flash-lite") => Self::Level { off: "MINIMAL" },
            Some(_) | None => Self::Level { off: "LOW" },
        }
    }
}

/// Whether a model refuses a call that is sent back without its signature.
pub(super) fn wants_signatures(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("gemini") && parse_version(&name).is_none_or(|(major, _)| major >= 3)
}

/// Returns the `thinkingConfig` of a request; `None` if the agent sets no effort or the model needs none.
pub(super) fn config(settings: &ModelSettings, dialect: &Dialect) -> Result<Option<Value>, EncodeError> {
    let Some(effort) = settings.reasoning else { return Ok(None) };
    let control = match dialect.reasoning {
        ReasoningRequest::Unsupported => GeminiThinkingControl::Never,
        ReasoningRequest::Effort
        | ReasoningRequest::Object
        | ReasoningRequest::Budget
        | ReasoningRequest::Switch
        | ReasoningRequest::EnableThinking
        | ReasoningRequest::ThinkingConfig => GeminiThinkingControl::for_model(&settings.name.to_ascii_lowercase()),
    };
    let is_off = matches!(effort, Effort::None | Effort::Tokens(0));
    Ok(match control {
        GeminiThinkingControl::Never if is_off => None,
        GeminiThinkingControl::Never => {
            return Err(setting_error(dialect, "model.reasoning", "this model doesn't reason; leave it out"));
        }
        GeminiThinkingControl::Budget { off, .. } if is_off => Some(json!({"thinkingBudget": off})),
        GeminiThinkingControl::Budget { least, most, .. } => {
            Some(json!({"thinkingBudget": effort.tokens().clamp(least, most), "includeThoughts": true}))
        }
        GeminiThinkingControl::Level { off } if is_off => Some(json!({"thinkingLevel": off})),
        GeminiThinkingControl::Level { .. } => {
            Some(json!({"thinkingLevel": effort.word().to_ascii_uppercase(), "includeThoughts": true}))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_how_a_model_thinks() {
        let pro = GeminiThinkingControl::Budget { off: 128, least: 128, most: 32_768 };
        let flash = GeminiThinkingControl::Budget { off: 0, least: 512, most: 24_576 };
        let low = GeminiThinkingControl::Level { off: "LOW" };
        for (name, control, signatures) in [
            ("gemini-1.5-pro", GeminiThinkingControl::Never, false),
            ("gemini-2.0-flash-001", GeminiThinkingControl::Never, false),
            ("gemini-2.5-pro", pro, false),
            ("models/gemini-2.5-flash-lite", flash, false),
            ("gemini-3-pro-preview", low, true),
            ("gemini-3.5-flash-lite", GeminiThinkingControl::Level { off: "MINIMAL" }, true),
            ("gemini-3.8-flash", low, true),
            ("gemini-4-argon", low, true),
            ("gemini-pro-latest", low, true),
            ("gemma-4-27b-it", low, false),
        ] {
            assert_eq!(
                (GeminiThinkingControl::for_model(name), wants_signatures(name)),
                (control, signatures),
                "{name}"
            );
        }
    }
}
