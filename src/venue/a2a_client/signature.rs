//! Signatures of cards: detached JWS over the canonical card, by one of the keys that the configuration names. An address
//! of keys that a signature names (`jku`) is never called.

use crate::domain::a2a::card::signed_payloads;
use crate::domain::decode;
use crate::domain::limits::A2A_SIGNATURES;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde_json::Value;

/// Algorithms of RSA keys that count.
const RSA: [Algorithm; 4] = [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256];

/// A public key that may sign a card.
pub(super) struct CardKey {
    id: Option<String>,
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

/// Why no signature of a card counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CardSignatureError {
    /// The card has no signature.
    #[error("its card has no signature, and `keys` wants one")]
    None,
    /// No signature is one of a configured key.
    #[error("no signature of its card is one of the `keys`")]
    Invalid,
}

impl CardKey {
    /// Reads a key; `None` if it is none that can sign.
    pub(super) fn read(key: &Value) -> Option<Self> {
        let jwk: Jwk = decode::into_type(key.clone()).ok()?;
        let algorithms = match &jwk.algorithm {
            AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
            AlgorithmParameters::RSA(_) => RSA.to_vec(),
            _ => return None,
        };
        let decoding = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { id: jwk.common.key_id.clone(), key: decoding, algorithms })
    }

    /// Whether the key may have made a signature with this protected header.
    fn accepts(&self, header: &Value) -> Option<Algorithm> {
        let algorithm: Algorithm = header["alg"].as_str()?.parse().ok()?;
        let is_named = match (&self.id, header["kid"].as_str()) {
            (Some(own), Some(named)) => own == named,
            _ => true,
        };
        // Parameters that must be understood are not.
        let is_plain = header.get("crit").is_none();
        (is_named && is_plain && self.algorithms.contains(&algorithm)).then_some(algorithm)
    }
}

/// Checks that a card has a signature of one of these keys; without keys none is needed.
pub(super) fn check_signatures(card: &Value, keys: &[CardKey]) -> Result<(), CardSignatureError> {
    if keys.is_empty() {
        return Ok(());
    }
    let signatures = card["signatures"].as_array().filter(|list| !list.is_empty()).ok_or(CardSignatureError::None)?;
    let payloads: Vec<String> =
        signed_payloads(card).iter().map(|payload| BASE64_URL_SAFE_NO_PAD.encode(payload)).collect();
    let is_valid = signatures.iter().take(A2A_SIGNATURES).any(|signature| is_signed(signature, &payloads, keys));
    if is_valid { Ok(()) } else { Err(CardSignatureError::Invalid) }
}

fn is_signed(signature: &Value, payloads: &[String], keys: &[CardKey]) -> bool {
    let (Some(protected), Some(signed)) = (signature["protected"].as_str(), signature["signature"].as_str()) else {
        return false;
    };
    let header = BASE64_URL_SAFE_NO_PAD.decode(protected).ok().and_then(|bytes| decode::json(&bytes).ok());
    let Some(header) = header else { return false };
    keys.iter().any(|key| {
        let Some(algorithm) = key.accepts(&header) else { return false };
        payloads.iter().any(|payload| {
            let message = format!("{protected}.{payload}");
            crypto::verify(signed, message.as_bytes(), &key.key, algorithm).unwrap_or(false)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical::canonical;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    fn key(id: &str) -> (Ed25519KeyPair, Value) {
        let pair = Ed25519KeyPair::generate().unwrap();
        let x = BASE64_URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        (pair, json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": id}))
    }

    fn sign(card: &mut Value, pair: &Ed25519KeyPair, header: &Value) {
        let protected = BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
        let payload = BASE64_URL_SAFE_NO_PAD.encode(canonical(card));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(pair.sign(format!("{protected}.{payload}").as_bytes()));
        card["signatures"] = json!([{"protected": protected, "signature": signature}]);
    }

    #[test]
    fn only_a_signature_of_a_configured_key_counts() {
        let ((pair, public), (_, other)) = (key("k1"), key("k1"));
        let read = |key: &Value| vec![CardKey::read(key).unwrap()];
        let plain = json!({"name": "a", "url": "https://h/"});
        assert_eq!(check_signatures(&plain, &[]), Ok(()));
        assert_eq!(check_signatures(&plain, &read(&public)), Err(CardSignatureError::None));
        let mut card = plain.clone();
        sign(&mut card, &pair, &json!({"alg": "EdDSA", "kid": "k1", "typ": "JOSE"}));
        assert_eq!(check_signatures(&card, &read(&public)), Ok(()));
        assert_eq!(check_signatures(&card, &read(&other)), Err(CardSignatureError::Invalid));
        let mut changed = card.clone();
        changed["url"] = json!("https://evil/");
        assert_eq!(check_signatures(&changed, &read(&public)), Err(CardSignatureError::Invalid));
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "HS256"}),
            json!({"alg": "EdDSA", "kid": "k2"}),
            json!({"alg": "EdDSA", "crit": ["x"]}),
        ] {
            let mut card = plain.clone();
            sign(&mut card, &pair, &header);
            assert_eq!(check_signatures(&card, &read(&public)), Err(CardSignatureError::Invalid), "{header}");
        }
        for bad in [json!([7]), json!([{"protected": "!", "signature": "!"}]), json!([{"protected": "e30"}])] {
            let card = json!({"name": "a", "signatures": bad});
            assert_eq!(check_signatures(&card, &read(&public)), Err(CardSignatureError::Invalid));
        }
    }

    #[test]
    fn keys_that_can_not_sign_are_refused() {
        for bad in [
            json!({"kty": "oct", "k": "AAAA"}),
            json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}),
            json!({"kty": "OKP"}),
            json!({"kty": "x"}),
        ] {
            assert!(CardKey::read(&bad).is_none(), "{bad}");
        }
    }
}
