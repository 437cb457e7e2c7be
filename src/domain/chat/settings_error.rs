//! Errors of the settings of an agent's models.

use super::settings::{FALLBACK_MODELS, STOP_TEXTS};
use super::{ModelHeaderError, ModelSettings, PriceError};
use std::fmt;

/// Reason why the settings of a model and its fallbacks are illegal for every provider.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelSettingsError {
    /// The model has too many fallbacks.
    #[error("`model.fallback`: expected at most {FALLBACK_MODELS} models, got {found}")]
    TooManyFallbacks {
        /// Number of fallbacks.
        found: usize,
    },
    /// A fallback has fallbacks itself.
    #[error("`model.fallback[{at}].fallback`: a fallback has none of its own, list all models in `model.fallback`")]
    NestedFallback {
        /// Index of the fallback.
        at: usize,
    },
    /// A setting of one of the models is illegal.
    #[error(transparent)]
    Setting(#[from] ModelPlaceError<ModelSettingFault>),
}

/// Reason why a setting of one model is illegal for every provider.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelSettingFault {
    /// A number is outside its range.
    #[error("`model.{key}`: expected a number from 0 to {most}, got {found}")]
    Range {
        /// Key of the setting.
        key: &'static str,
        /// Largest legal number.
        most: f64,
        /// Number that was given.
        found: f64,
    },
    /// The model has too many stop texts.
    #[error("`model.stop`: expected at most {STOP_TEXTS} texts, got {found}")]
    TooManyStops {
        /// Number of stop texts.
        found: usize,
    },
    /// A stop text is blank.
    #[error("`model.stop[{at}]`: expected a text that is not blank")]
    BlankStop {
        /// Index of the stop text.
        at: usize,
    },
    /// A header can't be sent.
    #[error("{0}")]
    Header(ModelHeaderError),
    /// The tool that the model must call has no name.
    #[error("`model.toolChoice.tool`: expected the name of a tool, got an empty text")]
    UnnamedTool,
    /// The longest reply leaves no room for a prompt.
    #[error("`model.contextWindow`: expected more than `model.maxTokens` ({reply}), got {window}")]
    SmallWindow {
        /// Tokens of the longest reply.
        reply: u32,
        /// Tokens of prompt and reply together.
        window: u32,
    },
    /// A price is illegal.
    #[error("`model.price`: {0}")]
    Price(PriceError),
}

/// An error of one of an agent's models. Its text names keys of `model`, or of the fallback that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPlaceError<E> {
    /// Index of the model in [`ModelSettings::in_order`].
    pub at: usize,
    /// The error of the model alone, which names keys of `model`.
    pub error: E,
}

impl<E: fmt::Display> fmt::Display for ModelPlaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = format!("`{}.", ModelSettings::key_at(self.at));
        f.write_str(&self.error.to_string().replace("`model.", &key))
    }
}

impl<E: std::error::Error> std::error::Error for ModelPlaceError<E> {}
