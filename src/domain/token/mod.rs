//! Tokens: the claims of a signed text, the narrowing along a chain of them, and reasons to refuse one.
//!
//! Signatures are checked by `auth`, which hands over the verified links, the last one first. [`chain::judge`] computes
//! the identity and the capabilities of the bearer.

pub mod claims;

pub mod att;
mod error;
pub mod speaks_for;

pub mod chain;

pub use chain::{Bearer, JudgeSettings, Link, Signer, check_narrowing, judge};
pub use claims::{Claims, TokenSubject};
pub use error::{ClaimRule, GrantedElementRule, TokenError, TokenSubjectError};
pub use speaks_for::{SpeaksFor, SpeaksForError};

#[cfg(test)]
mod tests;
