//! Tokens: the claims of a signed text, the narrowing along a chain of them, and reasons to refuse one.
//!
//! Signatures are checked by `auth`, which hands over the verified links, the last one first. [`chain::judge`] computes
//! the identity and the capabilities of the bearer.

pub mod claims;

pub mod att;
pub mod speaks_for;

pub mod chain;

pub use chain::{Bearer, JudgeSettings, Link, Signer, check_narrowing, judge};
pub use claims::{Claims, TokenSubject};
pub use speaks_for::SpeaksFor;

/// Reason why a token is refused. The text goes to its sender: it says how to mend the token, and nothing of the
/// venue's keys and owners.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The request has no token.
    #[error("no token, expected the header `Authorization: Bearer <token>`")]
    Missing,
    /// The token is larger than the limit.
    #[error("the token has {bytes} bytes, expected at most {limit}")]
    TooLarge {
        /// Bytes of the token.
        bytes: usize,
        /// Bytes of a token at most.
        limit: usize,
    },
    /// The text doesn't have the form of a token.
    #[error("the token can't be read: {0}")]
    Malformed(String),
    /// The token is signed with another algorithm, or not at all.
    #[error("the token has another algorithm, expected `EdDSA`")]
    Algorithm,
    /// The key of that name and issuer is unknown, or not admitted.
    #[error("the token's key is not known here; ask the operators of this venue")]
    UnknownKey,
    /// The token was changed, or signed with another key.
    #[error("the token's signature doesn't fit its key")]
    Signature,
    /// The token has expired.
    #[error("the token has expired, get a new one")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet: compare the clocks, or wait")]
    NotYet,
    /// An owner has revoked the token.
    #[error("the token, or all that its holder may do, was revoked; ask its owner or the operators of this venue")]
    Revoked,
    /// The token is for another audience.
    #[error("the token is for another audience, expected `aud` to be the `did` of `GET /api/v1/status`")]
    Audience,
    /// The key may not speak for the subject.
    #[error("the token's key doesn't speak for its subject")]
    Subject,
    /// A claim breaks a rule.
    #[error("illegal claim `{claim}`: {rule}")]
    Claim {
        /// Name of the claim.
        claim: &'static str,
        /// Rule that it breaks.
        rule: String,
    },
    /// An element of `att` exceeds what the signer holds.
    #[error("the token's `att` grants {0}, which its issuer doesn't hold")]
    NotHeld(String),
    /// The links of a chain don't belong together.
    #[error("the token's delegation chain doesn't hold: {0}")]
    Chain(&'static str),
}

#[cfg(test)]
mod tests;
