//! Nodes of the lattice that the venue makes from its records: agents, jobs, the catalog.

use crate::domain::agent::entry::ContextEntry;
use crate::domain::job::JobStatus;
use crate::domain::load::Load;
use crate::view::ledger::TurnRecordView;
use crate::view::pipeline::PipelineRunView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What an agent keeps in all of its sessions, as the lattice shows it at `g/<agent>/state`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStateView {
    /// Its configuration, as an agent file has it.
    #[schemars(with = "Map<String, Value>")]
    pub config: Value,
    /// Context entries besides those of the configuration.
    #[serde(default)]
    #[schemars(with = "Vec<Value>")]
    pub context: Vec<ContextEntry>,
    /// Paths that it loaded for all of its sessions.
    #[serde(default)]
    pub loads: Vec<Load>,
    /// Of a pipeline: the State of the run of each session, by its id, of the first sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<BTreeMap<String, PipelineRunView>>,
}

/// An agent as the lattice lists it at `g/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentNodeView {
    /// The beginning of its description; null without one.
    pub description: Option<String>,
}

/// A turn as the lattice shows it at `g/<agent>/timeline`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineTurnView {
    /// Record of the turn.
    #[serde(flatten)]
    pub record: TurnRecordView,
    /// Session of the turn; null where its name can't be read.
    pub session: Option<String>,
}

/// A job as the lattice lists it at `j/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobNodeView {
    /// Status of the job.
    pub status: JobStatus,
}

/// The venue as the lattice shows it at `v/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VenueNodeView {
    /// Operations by group and name, aliases included.
    pub ops: Map<String, Value>,
    /// Templates of agents.
    pub agents: VenueAgentsView,
    /// Facts of the venue.
    pub info: VenueInfoView,
    /// Values that operators set for the tenant; absent for a reader who may not read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
}

/// Templates of agents, at `v/agents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VenueAgentsView {
    /// Configurations by name.
    pub templates: Value,
}

/// Facts of a venue, at `v/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VenueInfoView {
    /// Name of the venue.
    pub name: String,
    /// Version of its build.
    pub version: String,
}
