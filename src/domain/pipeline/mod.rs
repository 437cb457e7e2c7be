//! Pipelines: agents whose next step their manifest decides instead of a model.
//!
//! ```text
//! manifest + State + results ─▶ next ─▶ start steps │ wait │ end
//! ```
//!
//! This module has the manifest; `pipeline_run` has the State and decides. A step is a child job, or one call of a tool.

mod check;
pub mod condition;
pub mod inputs;
pub mod path;
pub mod template;

pub use check::PipelineError;
pub(crate) use check::TOOL_RESULT;

use crate::canonical::canonical;
use crate::ids::{AgentId, sha256_hex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Name of the input of a task without a schema.
pub const USER_QUERY: &str = "userQuery";

/// Provider that the records of a pipeline name: no model is called.
pub const PIPELINE_PROVIDER: &str = "pipeline";

/// Steps that a manifest decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pipeline {
    /// Order of the steps.
    pub kind: PipelineKind,
    /// Steps, or branches that run side by side; none with `tool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PipelineStep>,
    /// Condition that ends the loop over all steps; without it they run once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Passes of the loop at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Name of the tool that `kind = "tool"` calls, an entry of the agent's `tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Arguments of the tool, with templates in their texts.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Output of the task, with templates in its texts; by default that of the last step, or of all branches by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// Order in which a pipeline runs its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PipelineKind {
    /// Steps run one after the other.
    Sequential,
    /// All branches run side by side.
    Parallel,
    /// One call of a tool.
    Tool,
}

/// A step of a pipeline: another agent, or one that is written inside of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineStep {
    /// Name under which the State has its output.
    pub state_key: String,
    /// Id of the agent that does it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<AgentId>,
    /// Configuration of the agent that does it, written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Value>,
    /// Input of the step, with templates in its texts; by default the output of the step before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Map<String, Value>>,
    /// Condition without which the step is skipped; its output is null then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl PipelineKind {
    /// Returns the word of the manifest.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Parallel => "parallel",
            Self::Tool => "tool",
        }
    }
}

impl Pipeline {
    /// Returns the SHA-256 of the manifest, by which a task finds that it was changed.
    pub fn hash(&self) -> String {
        sha256_hex(&canonical(self))
    }

    /// Iterates over the agents that are written inside of it, with the index of their step.
    pub fn inline_agents(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.agent.as_ref()?)))
    }
}
