//! Answers about secrets. None has a value of a secret.

use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A secret that was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretStoredView {
    /// Name of the secret, without `s/`.
    pub name: String,
    /// Always true: the secret was stored.
    pub stored: bool,
    /// Whether there was a secret of this name.
    pub existed: bool,
    /// Number of times that the secret was set.
    pub version: u64,
    /// Hosts that the secret may be sent to; empty = none yet.
    pub hosts: Vec<String>,
}

/// Secrets of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretsView {
    /// Secrets by name.
    pub secrets: Vec<SecretView>,
}

/// What is known of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretView {
    /// Name of the secret, without `s/`.
    pub name: String,
    /// Hosts that the secret may be sent to; empty = none yet.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Number of times that the secret was set.
    pub version: u64,
    /// Time at which the secret was first set, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub created: Millis,
    /// Time at which its value or its hosts were last set, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub updated: Millis,
    /// Name of the key that has sealed the value.
    #[serde(default)]
    pub key: String,
    /// Whether the process that has answered has this key.
    #[serde(default = "assume_readable")]
    pub readable: bool,
}

/// Whether a secret can be opened, if the answer doesn't say so.
const fn assume_readable() -> bool {
    true
}

/// Names of an owner's secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretNamesView {
    /// Names without `s/`, sorted.
    pub items: Vec<String>,
}

/// End of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretDeletedView {
    /// Whether there was a secret of this name.
    pub deleted: bool,
}
