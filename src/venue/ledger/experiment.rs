//! A past prompt built again: as it was, or with something changed. Nothing is committed.

use super::configure::configure;
use super::{replace, without};
use crate::domain::agent::AgentConfig;
use crate::domain::context::assemble::{Assembled, Refused, assemble};
use crate::domain::context::inputs::Inputs;
use crate::domain::tools::Directory;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a turn can't be changed so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// What is asked for makes no sense.
    Illegal(String),
    /// Nothing came from this path.
    NoPart(String),
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
    /// The configuration that it ran with, where it is still there.
    pub config: Option<AgentConfig>,
    /// The places where the bytes of a path were copied to before the turn, by path.
    pub copies: BTreeMap<String, Vec<String>>,
}

impl Experiment {
    /// Nothing is changed: the prompt must come out as it was.
    pub fn is_replay(&self) -> bool {
        *self == Self::default()
    }

    /// The inputs with the changes.
    pub fn apply(&self, inputs: Inputs, catalog: &impl Directory, facts: &TurnFacts) -> Result<Inputs, Unfit> {
        let mut inputs = inputs;
        if let Some(config) = &self.config {
            let config = AgentConfig::parse(config).map_err(|error| Unfit::Illegal(format!("`config`: {error}")))?;
            configure(&mut inputs, facts.config.as_ref(), &config, catalog);
        }
        if let Some(model) = &self.model {
            let (provider, name) = model
                .split_once('/')
                .filter(|(provider, name)| !provider.is_empty() && !name.is_empty())
                .ok_or_else(|| Unfit::Illegal(format!("`model`: expected `provider/name`, got `{model}`")))?;
            provider.clone_into(&mut inputs.frame.model.provider);
            name.clone_into(&mut inputs.frame.model.name);
        }
        for (path, value) in &self.with {
            if !replace::put(&mut inputs, path.trim_matches('/'), value) {
                return Err(Unfit::NoPart(path.clone()));
            }
        }
        for path in &self.without {
            let copies = facts.copies.get(path).map_or(&[][..], Vec::as_slice);
            if !without::leave_out(&mut inputs, path.trim_matches('/'), copies) {
                return Err(Unfit::NoPart(path.clone()));
            }
        }
        Ok(inputs)
    }
}

/// The prompt of these inputs.
pub fn run(inputs: &Inputs) -> Result<Assembled, Box<Refused>> {
    assemble(inputs)
}
