//! A past prompt assembled again: as it was, or with changes. Nothing is committed.

use super::configure::configure;
use super::{leave_out, replace};
use crate::domain::agent::AgentConfig;
use crate::domain::context::assemble::{AssembledPrompt, RefusedPrompt, assemble};
use crate::domain::context::inputs::Inputs;
use crate::domain::decode::DataError;
use crate::domain::tools::OperationDirectory;
use crate::domain::tools::unknown_names::unknown_provider;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most copies of a value in a conversation that an experiment follows.
pub(super) const CONVERSATION_COPIES: usize = 1_000;

/// Most paths that an experiment leaves out, and most that it gives other values.
const EXPERIMENT_PATHS: usize = 20;

/// Why an experiment can't be applied to a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// There are too many paths.
    #[error("`{field}`: expected at most {EXPERIMENT_PATHS} paths, got {count}; name a path above several of them")]
    TooManyPaths {
        /// Field that lists them.
        field: &'static str,
        /// Number of paths.
        count: usize,
    },
    /// The configuration is invalid.
    #[error("`config`: {0}")]
    Config(DataError),
    /// The model has no provider or no name; holds its text.
    #[error("`model`: expected `provider/name`, got `{0}`")]
    Model(String),
    /// No part of the prompt came from this path.
    #[error("no part of the prompt came from `{0}`")]
    NoPart(String),
}

/// Effect of the change of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathEffect {
    /// Whether a part of the prompt came from the path.
    pub(super) found: bool,
    /// Whether it has copies that were not followed.
    pub(super) is_cut: bool,
}

/// What is changed; nothing by default.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Experiment {
    /// Paths whose values the model shall not see, tool results and copies included.
    pub without: Vec<String>,
    /// Values that the model shall see in place of those of these paths, in tool results too.
    pub with: BTreeMap<String, Value>,
    /// Another model, `provider/name`.
    pub model: Option<String>,
    /// Another configuration of the agent.
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub config: Option<Value>,
}

/// What is known of a turn besides the inputs of its prompt.
#[derive(Debug, Clone, Default)]
pub struct TurnFacts {
    /// The configuration that the turn ran with, if it is still stored.
    pub config: Option<AgentConfig>,
    /// The paths to which a path was copied before the turn, by path.
    pub copies: BTreeMap<String, Vec<String>>,
    /// Parts of the ledger that were not searched for copies, a sentence each.
    pub incomplete: Vec<String>,
}

/// The inputs of a turn with the changes of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedInputs {
    /// Inputs of the prompt that an experiment makes.
    pub inputs: Inputs,
    /// What was not followed, a sentence each: there the prompt is as it was.
    pub incomplete: Vec<String>,
}

impl Experiment {
    /// Whether nothing is changed: then the prompt must come out as it was.
    pub fn is_replay(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the experiment names no more paths than it may: for each the whole turn is searched.
    pub fn check(&self) -> Result<(), ExperimentError> {
        for (field, count) in [("without", self.without.len()), ("with", self.with.len())] {
            if count > EXPERIMENT_PATHS {
                return Err(ExperimentError::TooManyPaths { field, count });
            }
        }
        Ok(())
    }

    /// Returns why a venue with these providers could not call the model of the experiment, a sentence each. The prompt
    /// is assembled all the same: it depends on the model's name alone.
    pub fn warnings(&self, providers: &[String]) -> Vec<String> {
        let given =
            self.model.as_deref().map(|model| ("model", model.split('/').next().unwrap_or_default().to_owned()));
        let of_config = || {
            let config = AgentConfig::parse(self.config.as_ref()?).ok().filter(|config| config.pipeline.is_none())?;
            Some(("config.model.provider", config.model.in_order().next()?.provider.clone()))
        };
        let fault = given.or_else(of_config).and_then(|(key, provider)| {
            let fault = unknown_provider(&provider, providers)?;
            Some(format!("`{key}`: {fault}; this venue can't ask it"))
        });
        fault.into_iter().collect()
    }

    /// Returns the inputs with the changes of the experiment.
    pub fn apply(
        &self,
        inputs: Inputs,
        catalog: &impl OperationDirectory,
        facts: &TurnFacts,
    ) -> Result<ChangedInputs, ExperimentError> {
        self.check()?;
        let (mut inputs, mut incomplete) = (inputs, facts.incomplete.clone());
        let mut note = |path: &str, effect: PathEffect| {
            incomplete.extend(effect.is_cut.then(|| {
                format!("`{path}`: {CONVERSATION_COPIES} copies in the conversation were followed, and there are more")
            }));
            if effect.found { Ok(()) } else { Err(ExperimentError::NoPart(path.to_owned())) }
        };
        if let Some(config) = &self.config {
            let config = AgentConfig::parse(config).map_err(ExperimentError::Config)?;
            configure(&mut inputs, facts.config.as_ref(), &config, catalog);
        }
        if let Some(model) = &self.model {
            let (provider, name) = model
                .split_once('/')
                .filter(|(provider, name)| !provider.is_empty() && !name.is_empty())
                .ok_or_else(|| ExperimentError::Model(model.clone()))?;
            provider.clone_into(&mut inputs.frame.model.provider);
            name.clone_into(&mut inputs.frame.model.name);
        }
        for (path, value) in &self.with {
            note(path, replace::put_value(&mut inputs, path.trim_matches('/'), value))?;
        }
        for path in &self.without {
            let copies = facts.copies.get(path).map_or(&[][..], Vec::as_slice);
            note(path, leave_out::leave_out(&mut inputs, path.trim_matches('/'), copies))?;
        }
        Ok(ChangedInputs { inputs, incomplete })
    }
}

/// Assembles the prompt of these inputs.
pub fn assemble_prompt(inputs: &Inputs) -> Result<AssembledPrompt, Box<RefusedPrompt>> {
    assemble(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;
    use crate::venue::ledger::samples_tests::inputs;
    use serde_json::json;

    #[test]
    fn a_model_of_an_unknown_provider_is_told() {
        let providers = ["openai".to_owned(), "scripted".to_owned()];
        let config = |provider: &str| Some(json!({"model": {"provider": provider, "name": "m"}}));
        for (model, config, expected) in [
            (None, None, None),
            (Some("openai/m"), None, None),
            (Some("nope/m"), None, Some("`model`: no provider `nope`; ")),
            (Some("opnai/m"), None, Some("`model`: no provider `opnai`, did you mean `openai`; ")),
            (None, config("scripted"), None),
            (None, config("nope"), Some("`config.model.provider`: no provider `nope`; ")),
            (Some("openai/m"), config("nope"), None),
        ] {
            let experiment = Experiment { model: model.map(str::to_owned), config, ..Experiment::default() };
            let found = experiment.warnings(&providers);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(expected.is_none_or(|expected| found[0].starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn more_paths_than_a_turn_is_looked_through_for_are_refused() {
        let paths = |count: usize| (0..count).map(|n| format!("w/{n}"));
        for (without, with, expected) in [
            (EXPERIMENT_PATHS, EXPERIMENT_PATHS, None),
            (EXPERIMENT_PATHS + 1, 0, Some("`without`: expected at most 20 paths, got 21")),
            (0, EXPERIMENT_PATHS + 1, Some("`with`: expected at most 20 paths, got 21")),
        ] {
            let with = paths(with).map(|path| (path, Value::Null)).collect();
            let experiment = Experiment { without: paths(without).collect(), with, ..Experiment::default() };
            let catalog = ops::catalog(false).compiled_view();
            let applied = experiment.apply(inputs(), &catalog, &TurnFacts::default());
            match (applied, expected) {
                (Err(error @ ExperimentError::TooManyPaths { .. }), Some(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{error}");
                }
                (Err(ExperimentError::NoPart(_)), None) => {}
                (found, expected) => panic!("expected {expected:?}, got {found:?}"),
            }
        }
    }
}
