//! Answers about issued tokens.

use crate::domain::authority::Capability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A new key that signs tokens; its private half is in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenKeyView {
    /// The key as a `did:key`.
    pub did: String,
    /// Its public half, a JWK.
    #[schemars(with = "Map<String, Value>")]
    pub key: Value,
}

/// A token, and what a venue makes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    /// Header, as the token has it.
    pub header: Value,
    /// Claims, as the token has them.
    pub claims: Value,
    /// Whom a venue of this configuration identifies by the token; null if it verifies none.
    pub verified: Option<TokenVerdictView>,
}

/// Why a token is refused, or whom it identifies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TokenVerdictView {
    /// A refusal, with its reason.
    Refused {
        /// Reason of the refusal.
        refused: String,
    },
    /// The caller that the token identifies.
    Verified(Box<VerifiedTokenView>),
}

/// The caller that a token identifies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedTokenView {
    /// `tenant/user` whose data its requests are about.
    pub owner: String,
    /// Subject of the token: `tenant/user` or `did:key:…`.
    pub subject: String,
    /// Kind of the subject.
    #[schemars(extend("enum" = ["key", "owner"]))]
    pub kind: String,
    /// What the token grants; null = all that the owner has.
    pub capabilities: Option<Vec<Capability>>,
    /// Values of the session's context that the token sets.
    pub claims: Map<String, Value>,
    /// Whether the caller is an operator of the venue.
    pub operator: bool,
    /// Ids of the token and of those that it narrows, its own first: revoking one of them revokes the token.
    pub grants: Vec<String>,
    /// End of the token, as RFC 3339.
    pub expires: String,
}
