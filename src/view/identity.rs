//! Answers about who a venue is, and who its callers are.

use crate::domain::ids::Owner;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name, address and access mode of a venue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VenueStatusView {
    /// Always `OK`: the venue answers.
    #[schemars(extend("const" = "OK"))]
    pub status: String,
    /// Name of the venue.
    pub name: String,
    /// Version of its build.
    pub version: String,
    /// Address of its HTTP API.
    pub url: String,
    /// Its DID, the audience of tokens.
    pub did: String,
    /// How callers are authenticated.
    pub access: AccessView,
    /// Size of the venue's catalog.
    pub stats: VenueStatsView,
}

/// How callers are authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessView {
    /// `jwt`: a token says who calls; `none`: everybody may call for any owner.
    #[schemars(extend("enum" = ["jwt", "none"]))]
    pub mode: String,
    /// Owner for whom this caller calls; absent with `jwt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub owner: Option<Owner>,
}

/// Size of a venue's catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VenueStatsView {
    /// Operations of the catalog, without aliases.
    pub operations: usize,
}

/// DID document of a venue: its identity only, without keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DidView {
    /// JSON-LD context of DID documents.
    #[serde(rename = "@context")]
    pub context: String,
    /// DID of the venue.
    pub id: String,
}

/// Identity and rights of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerView {
    /// Name of the caller in records: an owner, or `agent:<id>`.
    pub caller: String,
    /// Owner whose data the caller works on.
    #[schemars(with = "String")]
    pub owner: Owner,
    /// Whether the caller is an operator of the venue.
    pub operator: bool,
    /// Always true: the venue has authenticated the owner of every call that reaches an operation.
    pub authenticated: bool,
    /// Whether the call comes from a turn of an agent.
    pub internal: bool,
    /// The owner's key as `did:key`; absent where the owner is no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did: Option<String>,
}
