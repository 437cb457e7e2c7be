//! Validated names: ids of owners, agents, sessions, jobs and events. An illegal one can't be built.

pub mod did;
mod event;
pub mod secret;

pub use event::{EventId, VenueIdSubject};

use crate::percent::encode_unless;
use crate::visible::{self, first_hidden};
use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};
use unicode_normalization::is_nfc;

/// Longest id in bytes; leaves room for several in one NATS subject or Redis key.
pub const MAX_ID_BYTES: usize = 128;

/// Reason why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal {what} `{given}`: {rule}")]
pub struct IdError {
    /// Kind of the name: `agent id`, `tenant`, …
    pub what: &'static str,
    /// The refused text, cut to a readable length.
    pub given: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

fn check(what: &'static str, text: &str) -> Result<(), IdError> {
    let rule = if text.is_empty() {
        "expected at least one character"
    } else if text.len() > MAX_ID_BYTES {
        "expected at most 128 bytes"
    } else if text.chars().any(char::is_control) {
        "control characters are not allowed"
    } else if text.chars().any(char::is_whitespace) {
        "whitespace is not allowed"
    } else if first_hidden(text).is_some() {
        visible::RULE
    } else if text.contains('/') {
        "`/` is not allowed"
    } else if text == "." || text == ".." {
        "`.` and `..` are not names"
    } else if !is_nfc(text) {
        "expected Unicode normalisation form C"
    } else {
        return Ok(());
    };
    Err(IdError { what, given: text.chars().take(80).collect(), rule })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(inline, description = "")]
        pub struct $name(String);

        impl $name {
            /// Makes an id of a text, or names the rule that it breaks.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text))
            }

            /// Returns the id as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id encoded as one token of a NATS subject or one part of a Redis key.
            pub fn token(&self) -> String {
                encode_token(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

id!(
    /// Name of an agent under its owner.
    AgentId, "agent id");
id!(
    /// Name of a conversation of an agent.
    SessionId, "session id");
id!(
    /// Name of a queue of external workers.
    QueueName, "queue name");
id!(
    /// Half of an owner: the tenant or the user.
    OwnerPart, "owner part");

/// `tenant/user`: the unit of storage and of atomicity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Owner {
    tenant: OwnerPart,
    user: OwnerPart,
}

impl Owner {
    /// Makes an owner of its two validated halves.
    pub fn new(tenant: OwnerPart, user: OwnerPart) -> Self {
        Self { tenant, user }
    }

    /// Returns the tenant, the first half.
    pub fn tenant(&self) -> &OwnerPart {
        &self.tenant
    }

    /// Returns the user within the tenant, the second half.
    pub fn user(&self) -> &OwnerPart {
        &self.user
    }

    /// Returns `tenant/user` with both halves encoded: safe inside a Redis hash tag.
    pub fn token(&self) -> String {
        format!("{}/{}", self.tenant.token(), self.user.token())
    }

    /// Reads the form of [`Owner::token`].
    pub fn from_token(token: &str) -> Result<Self, IdError> {
        let bad = || IdError { what: "owner", given: token.to_owned(), rule: "expected `tenant/user`" };
        let (tenant, user) = token.split_once('/').ok_or_else(bad)?;
        let part = |t: &str| decode_token(t).ok_or_else(bad).and_then(OwnerPart::new);
        Ok(Self { tenant: part(tenant)?, user: part(user)? })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.user)
    }
}

impl FromStr for Owner {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (tenant, user) = text.split_once('/').ok_or(IdError {
            what: "owner",
            given: text.chars().take(80).collect(),
            rule: "expected `tenant/user`",
        })?;
        Ok(Self { tenant: OwnerPart::new(tenant)?, user: OwnerPart::new(user)? })
    }
}

impl TryFrom<String> for Owner {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> String {
        owner.to_string()
    }
}

/// One session of one agent: the unit of a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// Id of the agent.
    pub agent: AgentId,
    /// Id of its session.
    pub session: SessionId,
}

impl SessionKey {
    /// Returns `agent/session`, both encoded: one part of a storage key, sorted by agent.
    pub fn token(&self) -> String {
        format!("{}/{}", self.agent.token(), self.session.token())
    }

    /// Reads the form of [`SessionKey::token`].
    pub fn from_token(token: &str) -> Result<Self, IdError> {
        let bad = || IdError { what: "session key", given: token.to_owned(), rule: "expected `agent/session`" };
        let (agent, session) = token.split_once('/').ok_or_else(bad)?;
        Ok(Self {
            agent: AgentId::new(decode_token(agent).ok_or_else(bad)?)?,
            session: SessionId::new(decode_token(session).ok_or_else(bad)?)?,
        })
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.session)
    }
}

/// Name of an asset: the SHA-256 of its content as 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, description = "")]
pub struct AssetId(String);

impl AssetId {
    /// Returns the name of `content`.
    pub fn of_content(content: &[u8]) -> Self {
        Self(sha256_hex(content))
    }

    /// Makes an id of 64 hex digits; capital letters become small.
    pub fn new(text: &str) -> Result<Self, IdError> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(IdError { what: "asset", given: text.chars().take(80).collect(), rule: "expected 64 hexadecimal digits" })
    }

    /// Makes an id of any of its names: the digits, also after `0x`, `a/` or `/a/`.
    pub fn from_name(name: &str) -> Result<Self, IdError> {
        let path = name.strip_prefix('/').unwrap_or(name);
        let digits = path.strip_prefix("a/").map_or(name, |digits| digits.strip_suffix('/').unwrap_or(digits));
        Self::new(digits.strip_prefix("0x").unwrap_or(digits))
    }

    /// Returns the 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AssetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for AssetId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(&text)
    }
}

impl From<AssetId> for String {
    fn from(id: AssetId) -> Self {
        id.0
    }
}

/// 128-bit job id as 32 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, description = "")]
pub struct JobId(String);

/// Returns the HMAC-SHA256 of a text as 64 lower-case hex digits.
pub fn hmac_hex(key: &[u8], text: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    hex::encode(mac.finalize().into_bytes())
}

/// Whether `digits` are [`hmac_hex`] of a text, compared in constant time.
pub fn hmac_fits(key: &[u8], text: &[u8], digits: &str) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    hex::decode(digits).is_ok_and(|given| mac.verify_slice(&given).is_ok())
}

impl JobId {
    /// Regular expression of the texts that [`JobId::new`] accepts.
    pub const PATTERN: &str = "^(0x)?[0-9a-fA-F]{32}$";

    /// Returns the job of an event: HMAC of (owner, event id) under the venue's key. The same event has the same job,
    /// and nobody without the key can guess it.
    pub fn derive(venue_key: &[u8], owner: &Owner, event: &EventId) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(venue_key).expect("HMAC takes a key of any length");
        mac.update(owner.token().as_bytes());
        mac.update(b"\0");
        mac.update(event.as_str().as_bytes());
        Self(hex::encode(&mac.finalize().into_bytes()[..16]))
    }

    /// Makes an id of 32 hex digits; a leading `0x` is dropped.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(digits.to_ascii_lowercase()));
        }
        Err(IdError { what: "job id", given: text.chars().take(80).collect(), rule: "expected 32 hexadecimal digits" })
    }

    /// Returns the 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for JobId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for JobId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(&text)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> String {
        id.0
    }
}

/// Returns the SHA-256 of `bytes` as 64 hex digits: for body hashes and names of contents.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'@' | b'=' | b'+' | b'-')
}

/// Encodes every byte outside `[A-Za-z0-9_:@=+-]` by percent signs.
pub fn encode_token(text: &str) -> String {
    encode_unless(text, is_plain)
}

/// Decodes the output of [`encode_token`]; `None` for any other text.
pub fn decode_token(token: &str) -> Option<String> {
    let mut out = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else if is_plain(byte) {
            out.push(byte);
        } else {
            return None;
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_ids_are_refused_with_their_rule() {
        for (text, rule) in [
            ("", "expected at least one character"),
            ("a b", "whitespace is not allowed"),
            ("a/b", "`/` is not allowed"),
            ("a\u{0}", "control characters are not allowed"),
            ("..", "`.` and `..` are not names"),
            ("e\u{301}", "expected Unicode normalisation form C"),
            ("a\u{200b}b", visible::RULE),
            ("\u{feff}a", visible::RULE),
        ] {
            assert_eq!(AgentId::new(text).unwrap_err().rule, rule, "{text:?}");
        }
        assert_eq!(AgentId::new("x".repeat(129)).unwrap_err().rule, "expected at most 128 bytes");
    }

    #[test]
    fn tokens_round_trip_and_hold_no_subject_metacharacter() {
        for text in ["plain", "dots.and*stars>", "%41", "ünï", "a{b}"] {
            let token = encode_token(text);
            assert!(token.bytes().all(|b| is_plain(b) || b == b'%'), "{token}");
            assert_eq!(decode_token(&token).as_deref(), Some(text));
        }
    }

    #[test]
    fn owner_and_session_tokens_round_trip() {
        let owner: Owner = "acme.co/jo@x".parse().unwrap();
        assert_eq!(Owner::from_token(&owner.token()).unwrap(), owner);
        let key = SessionKey { agent: AgentId::new("a.b").unwrap(), session: SessionId::new("s").unwrap() };
        assert_eq!(SessionKey::from_token(&key.token()).unwrap(), key);
    }

    #[test]
    fn a_job_id_depends_on_key_owner_and_event() {
        let owner: Owner = "t/u".parse().unwrap();
        let event = EventId::new("e").unwrap();
        let id = JobId::derive(b"k", &owner, &event);
        assert_eq!(id, JobId::derive(b"k", &owner, &event));
        assert_ne!(id, JobId::derive(b"K", &owner, &event));
        assert_ne!(id, JobId::derive(b"k", &"t/v".parse().unwrap(), &event));
        assert_eq!(JobId::new(&format!("0x{id}")).unwrap(), id);
        assert!(JobId::new("xyz").is_err());
    }
}
