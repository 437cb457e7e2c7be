//! Arguments of the operations `v/ops/agent/…` that commands call.

use super::layers::AgentLayers;
use crate::domain::ids::AgentId;
use serde::Serialize;
use serde_json::{Map, Value};

/// Arguments of `v/ops/agent/create`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateAgentRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'a Value>,
    pub(crate) agent_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overwrite: Option<bool>,
}

impl<'a> CreateAgentRequest<'a> {
    /// Makes a request without options.
    pub(crate) const fn new(agent_id: &'a str, layers: &'a AgentLayers) -> Self {
        let AgentLayers { config, definition, state } = layers;
        Self {
            config: config.as_ref(),
            definition: definition.as_ref(),
            state: state.as_ref(),
            agent_id,
            strict: None,
            dry_run: None,
            overwrite: None,
        }
    }
}

/// Arguments of `v/ops/agent/update`.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdateAgentRequest<'a> {
    pub(crate) agent_id: &'a str,
    /// Keys whose values are replaced; null removes a key.
    pub(crate) config: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<MergedKeys>,
    /// Version that the configuration must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strict: Option<bool>,
}

/// Keys of a configuration that are merged into their maps.
#[derive(Serialize)]
pub(crate) struct MergedKeys {
    pub(crate) config: Value,
}

/// Arguments of `v/ops/agent/suspend` and `v/ops/agent/resume`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentSwitchRequest<'a> {
    pub(super) agent_id: &'a AgentId,
    /// Reason of a suspension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Arguments of `v/ops/agent/fork`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ForkAgentRequest<'a> {
    pub(super) agent_id: &'a AgentId,
    /// Id of the new agent.
    pub(super) to: &'a AgentId,
    pub(super) timeline: bool,
    pub(super) overwrite: bool,
}

/// Arguments of `v/ops/agent/delete`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeleteAgentRequest<'a> {
    pub(super) agent_id: &'a AgentId,
    pub(super) remove: bool,
}
