//! The card of an agent: its name, its skills, and how it is reached.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Card of an agent; for Covia's clients also of the venue itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aCard {
    /// Name of the agent.
    pub name: String,
    /// Description of the agent.
    pub description: String,
    /// Addresses of the agent, the preferred one first.
    pub supported_interfaces: Vec<A2aInterface>,
    /// Version of the agent's configuration.
    pub version: String,
    /// Parts of the protocol that the agent supports.
    pub capabilities: A2aCapabilities,
    /// Ways to authenticate; absent where no token is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_schemes: Option<BTreeMap<String, A2aSecurityScheme>>,
    /// Schemes of which one is needed; absent where no token is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_requirements: Option<Vec<A2aSecurityRequirement>>,
    /// Media types that the agent reads.
    pub default_input_modes: Vec<String>,
    /// Media types of its outputs.
    pub default_output_modes: Vec<String>,
    /// Skills of the agent, at least one; none on the card of a venue.
    pub skills: Vec<A2aSkillView>,
}

/// An address of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aInterface {
    /// Address of the binding.
    pub url: String,
    /// Name of the binding.
    pub protocol_binding: String,
    /// Version of the protocol, major and minor.
    pub protocol_version: String,
}

/// Parts of the protocol that an agent supports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aCapabilities {
    /// Whether it has event streams.
    pub streaming: bool,
    /// Whether it sends push notifications.
    pub push_notifications: bool,
    /// Whether it has an extended card for callers with a token.
    pub extended_agent_card: bool,
    /// Extensions of the protocol; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<A2aExtension>,
}

/// An extension of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct A2aExtension {
    /// URI that names it.
    pub uri: String,
    /// Use that the agent makes of it.
    pub description: String,
    /// Whether clients must know it.
    pub required: bool,
    /// Facts that belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
}

/// A skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aSkillView {
    /// Name for programs.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Description of the skill.
    pub description: String,
    /// Words by which it is found, at least one.
    pub tags: Vec<String>,
    /// Example requests; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A way to authenticate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aSecurityScheme {
    /// A token in the header `Authorization`.
    pub http_auth_security_scheme: A2aHttpAuth,
}

/// A token in the header `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aHttpAuth {
    /// Scheme of the header.
    pub scheme: String,
    /// Form of the token.
    pub bearer_format: String,
}

/// Schemes that are needed together, with their scopes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aSecurityRequirement {
    /// Scopes by the name of the scheme.
    pub schemes: BTreeMap<String, A2aScopes>,
}

/// Scopes of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct A2aScopes {
    /// Names of the scopes.
    pub list: Vec<String>,
}
