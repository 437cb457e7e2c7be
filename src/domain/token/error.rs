//! Reasons to refuse a token, from its form to one element of a claim.

use crate::decode::DataError;
use crate::ids::IdError;
use crate::lattice::PathRule;
use crate::visible::quote_foreign;
use std::fmt;

/// Bytes of a name or an id in a token at most.
pub(super) const TEXT_BYTES: usize = 256;

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
    #[error(
        "the token is for another audience, expected `aud` to be the `did` of `GET /api/v1/status`; `auth.audience` sets \
         it, and every process of a fleet needs the same"
    )]
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
        rule: ClaimRule,
    },
    /// An element of `att` exceeds what the signer holds.
    #[error("the token's `att` grants {0}, which its issuer doesn't hold")]
    NotHeld(String),
    /// The links of a chain don't belong together.
    #[error("the token's delegation chain doesn't hold: {0}")]
    Chain(&'static str),
}

/// Rule that a claim breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRule {
    /// The claim is needed and missing.
    #[error("it is missing")]
    Missing,
    /// The text is empty.
    #[error("expected at least one character")]
    Empty,
    /// The text is too long.
    #[error("expected at most {TEXT_BYTES} bytes, got {found}")]
    TooLong {
        /// Bytes of the text.
        found: usize,
    },
    /// The text has control characters.
    #[error("control characters are not allowed")]
    Control,
    /// The number is no time.
    #[error("expected seconds since 1970, before the year 10000")]
    Time,
    /// The token narrows several others.
    #[error("expected one token, got several")]
    SeveralProofs,
    /// The text is no subject.
    #[error(transparent)]
    Subject(#[from] TokenSubjectError),
    /// The value is no list of capabilities.
    #[error("expected a list of {{\"with\": …, \"can\": …}}: {}", quote_error(.0))]
    List(DataError),
    /// An element of the list is refused.
    #[error("`{}` on `{}`: {rule}", quote_foreign(.can), quote_foreign(.with))]
    Element {
        /// Ability of the element.
        can: String,
        /// Target of the element.
        with: String,
        /// Rule that the element breaks.
        rule: Box<GrantedElementRule>,
    },
}

/// Reason why a text is no subject of a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenSubjectError {
    /// The text names no key that is known here.
    #[error("expected `tenant/user` or the `did:key:z6Mk…` of an Ed25519 key, got `{}`", quote_foreign(.found))]
    Key {
        /// Text that was given.
        found: String,
    },
    /// The text names no owner.
    #[error("{}", quote_error(.0))]
    Owner(#[from] IdError),
}

/// Rule that an element of `att` breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantedElementRule {
    /// The target names no key that is known here.
    #[error("expected a path, `/tenant/user/…` or `did:key:z6Mk…/…`")]
    Key,
    /// The target names no legal owner.
    #[error("{}", quote_error(.0))]
    Owner(IdError),
    /// The path has a `*`.
    #[error("a path covers all below it, expected it without `*`")]
    Star,
    /// The address with a scheme is illegal.
    #[error("expected e.g. `https://host/path`")]
    Address,
    /// The path breaks a rule of the lattice.
    #[error("{}", quote_error(.0))]
    Path(PathRule),
    /// The ability is illegal.
    #[error("expected an ability such as `crud/read`, or `*`")]
    Ability,
}

/// Quotes an error whose text has parts of the token.
fn quote_error(error: &impl fmt::Display) -> String {
    quote_foreign(&error.to_string())
}
