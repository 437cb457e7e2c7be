//! Signatures of webhooks in the form of Standard Webhooks: HMAC-SHA256 of id, time and body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::ops::RangeInclusive;
use zeroize::Zeroizing;

/// Beginning of a signing secret.
const PREFIX: &str = "whsec_";

/// Bytes of a key, as the specification recommends them.
const KEY_BYTES: RangeInclusive<usize> = 24..=64;

/// Key of a webhook's signatures; wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookKey(Zeroizing<Vec<u8>>);

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey")
    }
}

/// Reason why a text is no signing secret. No variant shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookKeyError {
    /// The text begins otherwise.
    #[error(
        "expected `{PREFIX}` and the key in base64, got another beginning; make one with `echo {PREFIX}$(head -c 32 /dev/urandom | base64)`"
    )]
    Prefix,
    /// The rest is no base64.
    #[error("expected base64 after `{PREFIX}`, got other characters")]
    Base64,
    /// The key has another length.
    #[error("expected a key of 24 to 64 bytes after `{PREFIX}`, got {0}")]
    Length(usize),
}

impl WebhookKey {
    /// Reads a secret, `whsec_` and the key in base64.
    pub fn parse(secret: &str) -> Result<Self, WebhookKeyError> {
        let encoded = secret.trim().strip_prefix(PREFIX).ok_or(WebhookKeyError::Prefix)?;
        let key = Zeroizing::new(BASE64_STANDARD.decode(encoded).map_err(|_| WebhookKeyError::Base64)?);
        if KEY_BYTES.contains(&key.len()) { Ok(Self(key)) } else { Err(WebhookKeyError::Length(key.len())) }
    }

    /// Returns the header `webhook-signature` for a message that is sent at `timestamp`, in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the specification's own libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signatures_are_those_of_the_specification() {
        let key = WebhookKey::parse(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body), expected);
        for (id, at, body) in [
            ("msg_p5jXN8AQM9LWM0D4loKWxJeK", 1_614_265_330, &body[..]),
            ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_331, body),
            ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{}"),
        ] {
            assert_ne!(key.sign(id, at, body), expected);
        }
    }

    #[test]
    fn illegal_secrets_are_refused_and_never_shown() {
        let of_bytes = |count: usize| format!("{PREFIX}{}", BASE64_STANDARD.encode(vec![7; count]));
        for (secret, expected) in [
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(), Some(WebhookKeyError::Prefix)),
            (String::new(), Some(WebhookKeyError::Prefix)),
            (format!("{PREFIX}not base64!"), Some(WebhookKeyError::Base64)),
            (of_bytes(23), Some(WebhookKeyError::Length(23))),
            (of_bytes(65), Some(WebhookKeyError::Length(65))),
            (of_bytes(24), None),
            (of_bytes(64), None),
            (format!("{SECRET}\n"), None),
        ] {
            assert_eq!(WebhookKey::parse(&secret).err(), expected);
        }
        assert_eq!(format!("{:?}", WebhookKey::parse(SECRET).unwrap()), "WebhookKey");
    }
}
