//! Entries of `tools`: operations by their path, other agents, and calls that are only answers.

use crate::domain::approval::Consent;
use crate::domain::ids::AgentId;
use crate::domain::schema::misfits;
use crate::domain::scope::{Delegate, Scopes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The delegate that is nobody's own agent.
pub const ANONYMOUS: &str = "anonymous";

/// One entry of `tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum ToolEntry {
    /// A catalog path.
    Path(String),
    /// A tool with options.
    Named(Box<NamedTool>),
}

/// A tool with options: an operation, or a delegate, or neither; then the model's own arguments are
/// the result of its call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedTool {
    /// The catalog path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// An agent that does it as a child job, or `anonymous`.
    #[serde(default, alias = "_delegate", skip_serializing_if = "Option::is_none")]
    pub delegate: Option<String>,
    /// The name that the model sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description that the model sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments of a tool without an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What of the caller's context goes with a call.
    #[serde(default, alias = "_scopes", skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// Whether its calls wait for a person.
    #[serde(default, skip_serializing_if = "Consent::is_none")]
    pub approval: Consent,
    /// Milliseconds in which a fast delegate answers inside the turn; 5,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
}

/// What a tool's calls run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// An operation, by its catalog path.
    Operation(String),
    /// A child job.
    Delegate(Delegate),
    /// Nothing.
    Latent,
}

impl TryFrom<Value> for ToolEntry {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(path) => Ok(Self::Path(path)),
            other => {
                let tool: NamedTool = serde_json::from_value(other).map_err(|e| format!("in `tools`: {e}"))?;
                tool.check().map_err(|error| format!("in `tools`: {error}"))?;
                Ok(Self::Named(Box::new(tool)))
            }
        }
    }
}

impl ToolEntry {
    /// The catalog path that it names.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            Self::Named(tool) => tool.operation.as_deref(),
        }
    }
}

impl NamedTool {
    fn check(&self) -> Result<(), String> {
        let runs = self.runs()?;
        let what = match &runs {
            Runs::Operation(_) => {
                if self.input.is_some() {
                    return Err("`input` belongs to a tool without an operation; an operation has its own".into());
                }
                None
            }
            Runs::Delegate(Delegate { agent: Some(_), .. }) => None,
            Runs::Delegate(_) => Some("an anonymous delegate"),
            Runs::Latent => Some("a tool without `operation` and `delegate`"),
        };
        if let Some(what) = what {
            for (key, given) in [("name", &self.name), ("description", &self.description)] {
                if given.as_ref().is_none_or(String::is_empty) {
                    return Err(format!("`{key}`: {what} needs one"));
                }
            }
        }
        if self.wait.is_some() && !matches!(runs, Runs::Delegate(_)) {
            return Err("`wait` belongs to `delegate`".into());
        }
        if let Some(schema) = &self.input {
            misfits(schema, &Value::Null, 0).map_err(|error| format!("`input`: {error}"))?;
        }
        Ok(())
    }

    /// What its calls run, or why that makes no sense.
    pub fn runs(&self) -> Result<Runs, String> {
        match (&self.operation, self.delegate.as_deref()) {
            (Some(_), Some(_)) => Err("expected one of `operation` and `delegate`, got both".into()),
            (Some(path), None) => Ok(Runs::Operation(path.clone())),
            (None, None) => Ok(Runs::Latent),
            (None, Some(who)) => {
                let agent = match who {
                    ANONYMOUS => None,
                    who => Some(AgentId::new(who).map_err(|error| format!("`delegate`: {error}"))?),
                };
                let prompt = self.description.clone().filter(|_| agent.is_none()).unwrap_or_default();
                Ok(Runs::Delegate(Delegate { agent, prompt, wait: self.wait }))
            }
        }
    }
}
