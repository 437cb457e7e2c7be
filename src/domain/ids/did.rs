//! Names of the method `did:key`: Ed25519 public keys.

use crate::ids::{Owner, OwnerPart};
use std::fmt;

/// Beginning of every name of this method.
pub const METHOD: &str = "did:key:";
/// Tenant of the owners that are keys.
pub const TENANT: &str = "did";
/// Multicodec of an Ed25519 public key.
const ED25519: [u8; 2] = [0xed, 0x01];
/// Bytes of a key's multibase text at most; a longer one isn't decoded.
const MULTIBASE_BYTES: usize = 64;

/// An Ed25519 public key. Equal keys have equal names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DidKey([u8; 32]);

impl DidKey {
    /// Makes a key of its 32 bytes.
    pub const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Reads `did:key:z6Mk…`; `None` for all but the one canonical spelling of an Ed25519 key.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_multibase(text.strip_prefix(METHOD)?)
    }

    /// Reads the multibase text `z6Mk…`.
    pub fn from_multibase(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix('z').filter(|text| text.len() <= MULTIBASE_BYTES)?;
        let bytes = bs58::decode(encoded).into_vec().ok()?;
        bytes.strip_prefix(&ED25519)?.try_into().ok().map(Self)
    }

    /// Returns the multibase text `z6Mk…`.
    pub fn multibase(&self) -> String {
        let mut bytes = ED25519.to_vec();
        bytes.extend(self.0);
        format!("z{}", bs58::encode(bytes).into_string())
    }

    /// Returns the 32 bytes of the key.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the key of an owner under the tenant `did`; `None` for other owners.
    pub fn from_owner(owner: &Owner) -> Option<Self> {
        (owner.tenant().as_str() == TENANT).then(|| Self::from_multibase(owner.user().as_str()))?
    }

    /// Returns the owner of this key: `did/z6Mk…`.
    pub fn owner(&self) -> Owner {
        let part = |text: &str| OwnerPart::new(text).expect("letters and digits are a legal name");
        Owner::new(part(TENANT), part(&self.multibase()))
    }
}

impl fmt::Display for DidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{METHOD}{}", self.multibase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first test vector of the did:key method for Ed25519.
    const VECTOR: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

    #[test]
    fn a_key_has_one_name_and_is_an_owner() {
        let key = DidKey::parse(VECTOR).unwrap();
        assert_eq!(hex::encode(key.bytes()), "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29");
        assert_eq!(key.to_string(), VECTOR);
        assert_eq!(key.owner().to_string(), VECTOR.replace("did:key:", "did/"));
        assert_eq!(DidKey::from_owner(&key.owner()), Some(key));
        assert_eq!(DidKey::from_owner(&"acme/ann".parse().unwrap()), None);
    }

    #[test]
    fn anything_else_is_no_key() {
        let bare = VECTOR.strip_prefix(METHOD).unwrap();
        for text in [
            bare,
            "did:key:",
            "did:key:z",
            "did:key:z6Mk",
            "did:web:h",
            &VECTOR[..VECTOR.len() - 1],
            &format!("{VECTOR}1"),
            &format!("{METHOD}z1{}", &bare[1..]),
            &format!("{METHOD}{}", &bare[1..]),
            &format!("{VECTOR} "),
            // A secp256k1 key.
            "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
            &format!("{METHOD}z{}", "1".repeat(1000)),
        ] {
            assert_eq!(DidKey::parse(text), None, "{text}");
        }
    }
}
