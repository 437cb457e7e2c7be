//! A past prompt built again: as it was, or with something changed. Nothing is committed.

use super::without;
use crate::domain::agent::AgentConfig;
use crate::domain::agent::entry::Source;
use crate::domain::authority::Authority;
use crate::domain::call::ToolTarget;
use crate::domain::context::assemble::{Assembled, Refused, assemble};
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::entry;
use crate::domain::context::fill;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::item::{Absence, Content, Item, Section};
use crate::domain::tools::{Directory, Ends, resolve};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

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
    /// Paths whose values the model shall not see, tool results included.
    pub without: Vec<String>,
    /// Another model, `provider/name`.
    pub model: Option<String>,
    /// Another configuration of the agent.
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub config: Option<Value>,
}

impl Experiment {
    /// Nothing is changed: the prompt must come out as it was.
    pub fn is_replay(&self) -> bool {
        *self == Self::default()
    }

    /// The inputs with the changes.
    pub fn apply(&self, inputs: Inputs, catalog: &impl Directory) -> Result<Inputs, Unfit> {
        let mut inputs = inputs;
        if let Some(config) = &self.config {
            let config = AgentConfig::parse(config).map_err(|error| Unfit::Illegal(format!("`config`: {error}")))?;
            configure(&mut inputs, &config, catalog);
        }
        if let Some(model) = &self.model {
            let (provider, name) = model
                .split_once('/')
                .filter(|(provider, name)| !provider.is_empty() && !name.is_empty())
                .ok_or_else(|| Unfit::Illegal(format!("`model`: expected `provider/name`, got `{model}`")))?;
            provider.clone_into(&mut inputs.frame.model.provider);
            name.clone_into(&mut inputs.frame.model.name);
        }
        for path in &self.without {
            if !without::leave_out(&mut inputs, path.trim_matches('/')) {
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

/// The configuration decides about everything but what was fetched: an entry that the turn had not
/// is missing.
fn configure(inputs: &mut Inputs, config: &AgentConfig, catalog: &impl Directory) {
    let recorded = std::mem::take(&mut inputs.items);
    for read in entry::plan(&config.context, &[]) {
        let name = read.source.as_ref().ok().and_then(Source::name);
        let known = recorded.iter().find(|item| name.is_some() && item.source == name);
        let (content, allowed) = match (&read.source, known) {
            (Err(reason), _) => (Content::Absent(Absence::Failed, reason.clone()), None),
            (Ok(Source::Text(text)), _) => (Content::Text(text.clone()), None),
            (Ok(_), Some(item)) => (item.content.clone(), item.allowed.clone()),
            (Ok(_), None) => (Content::Absent(Absence::Missing, "it was not read in this turn".into()), None),
        };
        inputs.items.push(Item {
            section: read.section,
            key: read.key,
            label: read.label,
            source: name,
            allowed,
            asked: read.asked,
            priority: read.priority,
            required: read.required,
            unresolved: known.map(|item| item.unresolved.clone()).unwrap_or_default(),
            tags: read.tags,
            origin: known.map(|item| item.origin.clone()).unwrap_or_default(),
            content,
            attachments: Vec::new(),
        });
    }
    inputs.items.extend(recorded.into_iter().filter(|item| item.section != Section::Context));
    let open = inputs.tools.targets.contains(&ToolTarget::Complete);
    // What no placeholder of the turn showed is not in its record.
    let values = inputs.values.resolver(config.context_mapping.clone());
    inputs.tools = Arc::new(resolve(config, &[], Ends::of(open), &values, catalog));
    inputs.system.clone_from(&config.system_prompt);
    inputs.values = fill::known(&inputs.system, &inputs.items, &values);
    inputs.frame.model = config.model.clone();
    inputs.frame.authority = Authority::new(config.caps.clone()).of(&inputs.frame.agent);
    inputs.frame.completion = config.completion;
    inputs.frame.strict = config.strict_placeholders;
    inputs.frame.prompt = config.prompt_style();
    inputs.frame.aliases = config.uses_aliases();
    let ratio = inputs.moment.budget.ratio;
    inputs.moment.budget = PromptBudget::of_models(config.context_budget, &config.model, ratio);
}
