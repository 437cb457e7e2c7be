//! Keys that sign tokens: `trellis token` makes them, stores them in a file as a JWK, and signs with them.

use crate::domain::decode;
use crate::domain::ids::did::DidKey;
use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Deserialize;
use serde_json::{Value, json};

/// A private key with its name.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    /// The `kid` in the header of signed tokens.
    kid: String,
}

/// Why a key can't be made or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// The system has no random bytes.
    #[error("the system gives no randomness")]
    NoRandomness,
    /// The text is no private key.
    #[error("expected an Ed25519 private key as `trellis token keygen` writes it: {0}")]
    Jwk(#[from] PrivateJwkError),
    /// The library doesn't return the seed of the key.
    #[error("the key gives no seed")]
    NoSeed,
    /// The library doesn't return the document of the key.
    #[error("the token can't be signed: the key has no PKCS #8 form")]
    NoDocument,
    /// The library signs nothing.
    #[error("the token can't be signed: {reason}")]
    Unsigned {
        /// Text of the library.
        reason: String,
    },
}

/// Why a text is no private key. No variant contains a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrivateJwkError {
    /// The text isn't the JSON of a key.
    #[error("not a JSON object with `kty`, `crv`, `x` and `d`")]
    Form,
    /// The key is of another type or curve.
    #[error("`kty` or `crv` is another")]
    Curve,
    /// A part of the key isn't base64url.
    #[error("`x` or `d` is not base64url")]
    Encoding,
    /// The public part is that of another key.
    #[error("`x` and `d` don't belong together")]
    Mismatch,
}

#[derive(Deserialize)]
struct PrivateJwk {
    kid: Option<String>,
    kty: String,
    crv: String,
    x: String,
    d: String,
}

impl SigningKey {
    /// Makes a new key whose `kid` is derived from it.
    pub fn generate() -> Result<Self, SigningKeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| SigningKeyError::NoRandomness)?;
        let kid = did(&pair).multibase();
        Ok(Self { pair, kid })
    }

    /// Reads a private JWK (`kty` `OKP`, `crv` `Ed25519`). The text of an error contains no part of it.
    pub fn from_jwk(text: &str) -> Result<Self, SigningKeyError> {
        let jwk: PrivateJwk = decode::from_json(text.as_bytes()).map_err(|_| PrivateJwkError::Form)?;
        if jwk.kty != "OKP" || jwk.crv != "Ed25519" {
            return Err(PrivateJwkError::Curve.into());
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| PrivateJwkError::Encoding);
        let pair = Ed25519KeyPair::from_seed_and_public_key(&decode(&jwk.d)?, &decode(&jwk.x)?);
        let pair = pair.map_err(|_| PrivateJwkError::Mismatch)?;
        let kid = jwk.kid.unwrap_or_else(|| did(&pair).multibase());
        Ok(Self { pair, kid })
    }

    /// Returns the key with another `kid`, if one is given.
    #[must_use]
    pub fn with_kid(mut self, kid: Option<String>) -> Self {
        if let Some(kid) = kid {
            self.kid = kid;
        }
        self
    }

    /// Returns the key as a `did:key`.
    pub fn did(&self) -> DidKey {
        did(&self.pair)
    }

    /// Returns the public JWK, for the key set of a venue.
    pub fn public_jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.kid, "x": x})
    }

    /// Returns the public JWK of a key that speaks for these owners alone; for everybody if there are none.
    pub fn public_jwk_for(&self, owners: &[String]) -> Value {
        let mut jwk = self.public_jwk();
        if !owners.is_empty() {
            jwk["trellis_owner"] = owners.into();
        }
        jwk
    }

    /// Returns the private JWK, which its holder keeps.
    pub fn private_jwk(&self) -> Result<Value, SigningKeyError> {
        let failed = |_| SigningKeyError::NoSeed;
        let seed = self.pair.seed().map_err(failed)?.as_be_bytes().map_err(failed)?;
        let mut jwk = self.public_jwk();
        jwk["d"] = Value::from(URL_SAFE_NO_PAD.encode(seed.as_ref()));
        Ok(jwk)
    }

    /// Signs a token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, SigningKeyError> {
        let document = self.pair.to_pkcs8().map_err(|_| SigningKeyError::NoDocument)?;
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.kid.clone());
        let key = EncodingKey::from_ed_der(document.as_ref());
        jsonwebtoken::encode(&header, claims, &key)
            .map_err(|error| SigningKeyError::Unsigned { reason: error.to_string() })
    }
}

fn did(pair: &Ed25519KeyPair) -> DidKey {
    let mut key = [0; 32];
    key.copy_from_slice(pair.public_key().as_ref());
    DidKey::new(key)
}
