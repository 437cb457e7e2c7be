//! A secret at rest: sealed and bound to its name, so that no record can replace another.

use super::keys::{KeyId, KeyRing, NONCE_BYTES, SealedValue, UnsealError};
use super::{Binding, PlainSecret};
use crate::ids::Owner;
use crate::ids::secret::SecretName;
use crate::time::Millis;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// A stored secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRecord {
    /// Name of the key that sealed it.
    pub key: KeyId,
    /// Nonce in base64.
    pub nonce: String,
    /// Ciphertext and tag in base64.
    pub sealed: String,
    /// Facts in the clear, which can't be changed without the key.
    #[serde(flatten)]
    pub stamp: SecretFacts,
}

/// Facts of a secret besides its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFacts {
    /// Hosts that it may be sent to.
    pub hosts: Binding,
    /// Time at which it was first set.
    pub created: Millis,
    /// Time at which its value or its hosts were last set.
    pub updated: Millis,
    /// Number of times that it was set.
    pub version: u64,
}

impl SecretFacts {
    /// Returns the data that a sealed value is bound to, each part preceded by its length.
    fn bound_data(&self, owner: &Owner, name: &SecretName, key: &KeyId) -> Vec<u8> {
        let numbers = [self.created.0, self.updated.0, self.version].map(|n| n.to_string());
        let mut parts = vec!["trellis secret 1".to_owned(), owner.to_string(), name.to_string(), key.to_string()];
        parts.extend(numbers);
        parts.extend_from_slice(self.hosts.hosts());
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

impl SecretRecord {
    /// Seals a value with the first key; `None` without a key. The nonce must be new.
    pub fn seal(
        keys: &KeyRing,
        owner: &Owner,
        name: &SecretName,
        value: &PlainSecret,
        stamp: SecretFacts,
        nonce: [u8; NONCE_BYTES],
    ) -> Option<Self> {
        let SealedValue { key, nonce, bytes } = keys.seal(value, nonce, |key| stamp.bound_data(owner, name, key))?;
        Some(Self { key, nonce: BASE64_STANDARD.encode(nonce), sealed: BASE64_STANDARD.encode(bytes), stamp })
    }

    /// Opens a record that was read under this owner and name.
    pub fn open(&self, keys: &KeyRing, owner: &Owner, name: &SecretName) -> Result<PlainSecret, UnsealError> {
        let refused = || UnsealError::Refused { key: self.key.clone() };
        let nonce = BASE64_STANDARD.decode(&self.nonce).ok().and_then(|bytes| bytes.try_into().ok());
        let bytes = BASE64_STANDARD.decode(&self.sealed).ok();
        let (Some(nonce), Some(bytes)) = (nonce, bytes) else { return Err(refused()) };
        keys.open(&SealedValue { key: self.key.clone(), nonce, bytes }, |key| self.stamp.bound_data(owner, name, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(text).unwrap()
    }

    fn one() -> KeyRing {
        ring(&format!("one:{}", "01".repeat(32)))
    }

    fn owner(text: &str) -> Owner {
        text.parse().unwrap()
    }

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn stamp() -> SecretFacts {
        let hosts = Binding::parse(&["api.example.com".to_owned()]).unwrap();
        SecretFacts { hosts, created: Millis(1), updated: Millis(2), version: 3 }
    }

    fn sealed() -> SecretRecord {
        let value = PlainSecret::new("hunter2hunter2".into()).unwrap();
        SecretRecord::seal(&one(), &owner("a/b"), &name("N"), &value, stamp(), [7; NONCE_BYTES]).unwrap()
    }

    #[test]
    fn a_record_is_pinned_and_opens_where_it_was_sealed() {
        let text = serde_json::to_string(&sealed()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(
            text,
            r#"{"key":"one","nonce":"BwcHBwcHBwcHBwcH","sealed":"5YaE0Grcg8ls9HBV1PIdTAkTWpZZyRE9m/jRq0VO","hosts":["api.example.com"],"created":1,"updated":2,"version":3}"#
        );
        let read: SecretRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read.open(&one(), &owner("a/b"), &name("N")).unwrap().reveal(), "hunter2hunter2");
    }

    #[test]
    fn a_record_is_useless_in_any_other_place_or_form() {
        let refused = |record: &SecretRecord, who: &str, what: &str| {
            assert_eq!(
                record.open(&one(), &owner(who), &name(what)),
                Err(UnsealError::Refused { key: sealed().key }),
                "{record:?}"
            );
        };
        refused(&sealed(), "a/c", "N");
        refused(&sealed(), "c/b", "N");
        refused(&sealed(), "a/b", "M");
        let changed = |change: fn(&mut SecretRecord)| {
            let mut record = sealed();
            change(&mut record);
            refused(&record, "a/b", "N");
        };
        changed(|record| record.stamp.hosts = Binding::parse(&["evil.example.com".to_owned()]).unwrap());
        changed(|record| record.stamp.version += 1);
        changed(|record| record.nonce = BASE64_STANDARD.encode([8; NONCE_BYTES]));
        changed(|record| record.nonce = "!".into());
        changed(|record| record.sealed = BASE64_STANDARD.encode("short"));
        changed(|record| record.sealed.replace_range(0..1, if record.sealed.starts_with('A') { "B" } else { "A" }));
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let both = ring(&format!("two:{} one:{}", "02".repeat(32), "01".repeat(32)));
        let value = sealed().open(&both, &owner("a/b"), &name("N")).unwrap();
        let again = SecretRecord::seal(&both, &owner("a/b"), &name("N"), &value, stamp(), [9; NONCE_BYTES]).unwrap();
        assert_eq!(again.key.to_string(), "two");
        let error = again.open(&one(), &owner("a/b"), &name("N")).unwrap_err().to_string();
        assert!(error.starts_with("it is sealed with key `two`, and the configured ones are `one`"), "{error}");
        let other = ring(&format!("one:{}", "03".repeat(32)));
        let error = sealed().open(&other, &owner("a/b"), &name("N")).unwrap_err().to_string();
        assert!(error.starts_with("key `one` doesn't open it"), "{error}");
        let none = sealed().open(&KeyRing::default(), &owner("a/b"), &name("N")).unwrap_err().to_string();
        assert!(none.contains("no key is configured"), "{none}");
        assert!(SecretRecord::seal(&KeyRing::default(), &owner("a/b"), &name("N"), &value, stamp(), [1; 12]).is_none());
    }
}
