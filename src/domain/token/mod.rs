//! Tokens: what a signed text claims, what a chain of them narrows to, and why one is refused.
//!
//! Signatures are not checked here: `auth` does it and hands over the verified links, the last one
//! first. [`chain::judge`] makes of them who asks, and for what.

pub mod claims;

pub mod att;
pub mod speaks;

pub mod chain;

pub use chain::{Bearer, Judge, Link, Signer, judge};
pub use claims::{Claims, TokenSubject};
pub use speaks::SpeaksFor;

/// Why a token counts for nothing. The text goes to whoever sent it: it says what to do about his
/// own token, and nothing of the keys and owners of the venue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// None was sent.
    #[error("no token, expected the header `Authorization: Bearer <token>`")]
    Missing,
    /// Over the limit.
    #[error("the token has {bytes} bytes, expected at most {limit}")]
    TooLarge {
        /// As sent.
        bytes: usize,
        /// Allowed.
        limit: usize,
    },
    /// Not the form of a token.
    #[error("the token can't be read: {0}")]
    Malformed(String),
    /// Signed with something else, or not at all.
    #[error("the token has another algorithm, expected `EdDSA`")]
    Algorithm,
    /// No key of that name and issuer, or one that isn't admitted.
    #[error("the token's key is not known here; ask the operators of this venue")]
    UnknownKey,
    /// Changed, or signed with another key.
    #[error("the token's signature doesn't fit its key")]
    Signature,
    /// Over.
    #[error("the token has expired, get a new one")]
    Expired,
    /// Not begun.
    #[error("the token is not valid yet: compare the clocks, or wait")]
    NotYet,
    /// Taken back by an owner.
    #[error("the token, or all that its holder may do, was revoked; ask its owner or the operators of this venue")]
    Revoked,
    /// Made for somebody else.
    #[error("the token is for another audience, expected `aud` to be the `did` of `GET /api/v1/status`")]
    Audience,
    /// Its key may not say so.
    #[error("the token's key doesn't speak for its subject")]
    Subject,
    /// A claim that breaks a rule.
    #[error("illegal claim `{claim}`: {rule}")]
    Claim {
        /// Its name.
        claim: &'static str,
        /// The rule.
        rule: String,
    },
    /// An element of `att` outside what the signer has.
    #[error("the token's `att` grants {0}, which its issuer doesn't hold")]
    NotHeld(String),
    /// Links that don't belong together.
    #[error("the token's delegation chain doesn't hold: {0}")]
    Chain(&'static str),
}

#[cfg(test)]
mod tests;
