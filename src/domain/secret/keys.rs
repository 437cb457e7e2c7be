//! Keys that seal secrets, several by id: the first one encrypts, all decrypt. The cipher is AES-256-GCM.

use super::PlainSecret;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;

/// Padding is optional, because people paste keys.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Name of a key; the fingerprint of a key without a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key with its name.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

/// Reason why keys can't be read. No variant shows a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text has neither form, or too few bytes.
    #[error(
        "key {number} is not a key: expected 32 bytes as 64 hexadecimal digits or as base64, with `NAME:` before it or not; `trellis secret keygen` makes one"
    )]
    Form {
        /// Position of the key, from 1.
        number: usize,
    },
    /// The name of a key is not legal.
    #[error("the name of key {number} is not legal: expected 1 to 32 of `[A-Za-z0-9_-]`")]
    Name {
        /// Position of the key, from 1.
        number: usize,
    },
    /// Two different keys have one name.
    #[error("two keys are named `{0}`")]
    Twice(KeyId),
}

/// Keys in their order; without one nothing can be sealed or opened.
#[derive(Debug, Clone, Default)]
pub struct KeyRing(Vec<Key>);

/// A sealed value, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    /// Name of its key.
    pub key: KeyId,
    /// Nonce, which must be unique under one key.
    pub nonce: [u8; NONCE_BYTES],
    /// Ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// Reason why a sealed value can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// The key is not configured.
    #[error("it is sealed with key `{key}`, and {}", known_keys(.known))]
    UnknownKey {
        /// Name of the key that is needed.
        key: KeyId,
        /// Names of the configured keys.
        known: Vec<KeyId>,
    },
    /// The key under this name is another one, or the record was changed.
    #[error("key `{key}` doesn't open it: the key under this name is another one, or the record was changed or moved")]
    Refused {
        /// Name of the key that was tried.
        key: KeyId,
    },
}

fn known_keys(known: &[KeyId]) -> String {
    if known.is_empty() {
        return "no key is configured (`secrets.key_file` or TRELLIS_SECRETS_KEY)".to_owned();
    }
    let known: Vec<_> = known.iter().map(|id| format!("`{id}`")).collect();
    format!(
        "the configured ones are {}; keep old keys behind the new one until `trellis secret rotate` has run",
        known.join(", ")
    )
}

impl Key {
    /// Makes a key that is named by its fingerprint.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let digest = Sha256::new().chain_update(b"trellis key id").chain_update(*bytes).finalize();
        Self { id: KeyId(hex::encode(&digest[..4])), bytes }
    }

    /// Returns the name of the key.
    pub const fn id(&self) -> &KeyId {
        &self.id
    }

    /// Returns the line of a key file: `NAME:BASE64`.
    pub fn line(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(GeneralPurpose::new(&STANDARD, LENIENT).encode(*self.bytes));
        Zeroizing::new(format!("{}:{}", self.id, *text))
    }

    fn parse(number: usize, text: &str) -> Result<Self, KeyError> {
        let (name, text) = match text.split_once(':') {
            Some((name, text)) => (Some(name), text),
            None => (None, text),
        };
        let legal = |name: &str| {
            (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        if name.is_some_and(|name| !legal(name)) {
            return Err(KeyError::Name { number });
        }
        let decoded = if text.len() == 2 * KEY_BYTES {
            hex::decode(text).ok()
        } else {
            let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
            GeneralPurpose::new(alphabet, LENIENT).decode(text).ok()
        };
        let decoded = Zeroizing::new(decoded.ok_or(KeyError::Form { number })?);
        let bytes = <[u8; KEY_BYTES]>::try_from(decoded.as_slice()).map_err(|_| KeyError::Form { number })?;
        let key = Self::new(bytes);
        Ok(match name {
            Some(name) => Self { id: KeyId(name.to_owned()), ..key },
            None => key,
        })
    }

    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new(&(*self.bytes).into())
    }
}

impl KeyRing {
    /// Reads keys separated by commas or blanks; lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let entries = lines.flat_map(|line| line.split([',', ' ', '\t'])).filter(|entry| !entry.is_empty());
        let mut ring = Self::default();
        for (entry, number) in entries.zip(1..) {
            ring.push(Key::parse(number, entry)?)?;
        }
        Ok(ring)
    }

    fn push(&mut self, key: Key) -> Result<(), KeyError> {
        match self.0.iter().find(|known| known.id == key.id) {
            Some(known) if known.bytes == key.bytes => Ok(()),
            Some(_) => Err(KeyError::Twice(key.id)),
            None => {
                self.0.push(key);
                Ok(())
            }
        }
    }

    /// Returns these keys, followed by those of `other`.
    pub fn append(mut self, other: Self) -> Result<Self, KeyError> {
        other.0.into_iter().try_for_each(|key| self.push(key))?;
        Ok(self)
    }

    /// Whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the keys, in their order.
    pub fn ids(&self) -> Vec<KeyId> {
        self.0.iter().map(|key| key.id.clone()).collect()
    }

    /// Returns the name of the key that encrypts.
    pub fn first(&self) -> Option<&KeyId> {
        self.0.first().map(|key| &key.id)
    }

    /// Seals a value with the first key; `about` binds it to one place. `None` without a key. A nonce must never be
    /// used twice.
    pub fn seal(
        &self,
        value: &PlainSecret,
        nonce: [u8; NONCE_BYTES],
        about: impl Fn(&KeyId) -> Vec<u8>,
    ) -> Option<SealedValue> {
        let key = self.0.first()?;
        let aad = about(&key.id);
        let payload = Payload { msg: value.reveal().as_bytes(), aad: &aad };
        let bytes = key.cipher().encrypt(&Nonce::from(nonce), payload).ok()?;
        Some(SealedValue { key: key.id.clone(), nonce, bytes })
    }

    /// Opens a value that [`KeyRing::seal`] sealed.
    pub fn open(&self, sealed: &SealedValue, about: impl Fn(&KeyId) -> Vec<u8>) -> Result<PlainSecret, UnsealError> {
        let key = self.0.iter().find(|key| key.id == sealed.key);
        let key = key.ok_or_else(|| UnsealError::UnknownKey { key: sealed.key.clone(), known: self.ids() })?;
        let refused = || UnsealError::Refused { key: key.id.clone() };
        let aad = about(&key.id);
        let payload = Payload { msg: &sealed.bytes, aad: &aad };
        let opened = key.cipher().decrypt(&Nonce::from(sealed.nonce), payload).map_err(|_| refused())?;
        let text = String::from_utf8(opened).map_err(|_| refused())?;
        Ok(PlainSecret::from_sealed(Zeroizing::new(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_key(byte: u8) -> String {
        hex::encode([byte; KEY_BYTES])
    }

    #[test]
    fn keys_are_read_in_every_form_and_order_is_kept() {
        let base64 = GeneralPurpose::new(&STANDARD, LENIENT).encode([0xfb; KEY_BYTES]);
        let url = GeneralPurpose::new(&URL_SAFE, LENIENT).encode([0xfb; KEY_BYTES]);
        let text = format!("# a comment: with, words\n new:{} \n{base64}, {}\n\n", hex_key(1), hex_key(2));
        let ring = KeyRing::parse(&text).unwrap();
        let ids: Vec<_> = ring.ids().iter().map(ToString::to_string).collect();
        assert_eq!((ids.len(), ids[0].as_str(), ring.first()), (3, "new", ring.ids().first()));
        for same in [url.as_str(), url.trim_end_matches('='), base64.trim_end_matches('=')] {
            assert_eq!(KeyRing::parse(same).unwrap().ids()[0].to_string(), ids[1], "{same}");
        }
        assert!(KeyRing::parse(" \n# x\n").unwrap().is_empty());
        let line = Key::new([7; KEY_BYTES]).line();
        assert_eq!(KeyRing::parse(&line).unwrap().ids(), [Key::new([7; KEY_BYTES]).id().clone()]);
        let twice = format!("a:{} a:{}", hex_key(1), hex_key(1));
        assert_eq!(KeyRing::parse(&twice).unwrap().ids().len(), 1);
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let short = hex::encode([1; 31]);
        for (text, expected) in [
            ("secretsecret".to_owned(), KeyError::Form { number: 1 }),
            (short, KeyError::Form { number: 1 }),
            ("zz".repeat(32), KeyError::Form { number: 1 }),
            (format!("{},nonsense", hex_key(1)), KeyError::Form { number: 2 }),
            (format!("a b:{}", hex_key(1)), KeyError::Form { number: 1 }),
            (format!("ä:{}", hex_key(1)), KeyError::Name { number: 1 }),
            (format!("a:{} a:{}", hex_key(1), hex_key(2)), KeyError::Twice(KeyId("a".into()))),
        ] {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains(&text) && !error.to_string().contains("nonsense"), "{error}");
        }
        assert!(!format!("{:?}", KeyRing::parse(&hex_key(0xab)).unwrap()).contains("abab"));
    }
}
