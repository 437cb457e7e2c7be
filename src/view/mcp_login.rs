//! Answers about logins at servers of the Model Context Protocol. None has a token.

use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page that a person opens to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpLoginPageView {
    /// URL of the page, at the login server.
    pub url: String,
    /// Time at which the login is given up, in milliseconds since the epoch.
    #[schemars(with = "u64")]
    pub until: Millis,
}

/// A login at a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpLoginView {
    /// Login server that gave the token.
    pub issuer: String,
    /// Who logged in.
    pub by: String,
    /// Time of the login, in milliseconds since the epoch.
    #[schemars(with = "u64")]
    pub since: Millis,
    /// Time at which the token ends; absent if the login server doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub until: Option<Millis>,
    /// Whether the token is renewed without a person.
    pub renewable: bool,
    /// Whether somebody must log in again.
    pub ended: bool,
    /// Scopes of the token.
    pub scopes: Vec<String>,
    /// Scopes that a call lacked since; the next login asks for them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
}

/// Result of a logout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpLogoutView {
    /// Whether there was a login.
    pub ended: bool,
}
