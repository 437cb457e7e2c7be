//! How the client of a login shows who it is: the key of the configuration, or the secret of its registration.

use super::place::{ClientKey, LoginPlace, LoginTools};
use crate::config::url::parse_callable;
use crate::domain::chat::HeaderText;
use crate::domain::mcp::oauth::client::{ClientAuthMethod, OauthClient};
use crate::domain::secret::PlainSecret;
use crate::venue::failure::OpError;
use crate::venue::outbound::url_destination;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde::Serialize;
use zeroize::Zeroizing;

/// Seconds for which a client's signed token counts: it is used at once, and clocks differ.
const SIGNED_SECONDS: u64 = 120;

/// Returns the key of the configured client for a request to `token_url`; `None` if the configuration has none.
///
/// # Errors
/// The owner's secret isn't stored, or isn't bound to the host of the login server.
pub(super) async fn configured_key(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    token_url: &str,
) -> Result<Option<ClientKey>, OpError> {
    if let Some(key) = place.client_key {
        return Ok(Some(key.clone()));
    }
    let Some(auth) = place.auth() else { return Ok(None) };
    let (text, make): (_, fn(PlainSecret) -> ClientKey) = match (&auth.client_secret, &auth.private_key) {
        (Some(text), _) => (text, ClientKey::Secret),
        (None, Some(text)) => (text, ClientKey::Private),
        (None, None) => return Ok(None),
    };
    let HeaderText::Secret { name, .. } = text else { return Ok(None) };
    let secret = tools.vault.open(&**tools.store, &place.keeper(), name).await?;
    let to = parse_callable(token_url).map_err(|error| OpError::Invalid(error.to_string()))?;
    let to = url_destination(&to);
    if !secret.hosts.permits(&to) {
        return Err(OpError::Denied(format!(
            "secret `{name}` may not go to `{}`, the login server of the {}: bind it to that host (`trellis secret set`)",
            to.origin(),
            place.shown
        )));
    }
    Ok(Some(make(secret.value)))
}

/// Claims of a client's signed token (RFC 7523).
#[derive(Serialize)]
struct ClientClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: String,
    iat: u64,
    exp: u64,
}

/// Head of a client's signed token.
#[derive(Serialize)]
struct SignedHead {
    alg: &'static str,
    typ: &'static str,
}

/// Signs that a client is `client` for the login server `issuer`, at a time in seconds.
///
/// # Errors
/// The key isn't one of P-256, Ed25519 or RSA in PKCS #8.
pub(super) fn sign_client(
    key: &PlainSecret,
    client: &OauthClient,
    issuer: &str,
    now: u64,
) -> Result<PlainSecret, OpError> {
    debug_assert_eq!(client.method, ClientAuthMethod::PrivateKey);
    let id = client.id.as_str();
    let jti = uuid::Uuid::new_v4().to_string();
    let claims = ClientClaims { iss: id, sub: id, aud: issuer, jti, iat: now, exp: now + SIGNED_SECONDS };
    let wrong = || {
        OpError::Invalid(
            "`auth.privateKey`: expected a private key of P-256, Ed25519 or RSA in PEM (PKCS #8, `BEGIN PRIVATE KEY`)"
                .to_owned(),
        )
    };
    let der = pem_bytes(key.reveal()).ok_or_else(wrong)?;
    let signer = ClientSigner::read(&der).ok_or_else(wrong)?;
    let head = SignedHead { alg: signer.algorithm(), typ: "JWT" };
    let part = |json: serde_json::Result<Vec<u8>>| json.map(|json| BASE64_URL_SAFE_NO_PAD.encode(json)).ok();
    let (head, claims) = (part(serde_json::to_vec(&head)), part(serde_json::to_vec(&claims)));
    let (Some(head), Some(claims)) = (head, claims) else { return Err(wrong()) };
    let text = format!("{head}.{claims}");
    let signature = signer.sign(text.as_bytes()).ok_or_else(wrong)?;
    PlainSecret::new(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))).map_err(|_| wrong())
}

/// Returns the bytes of a private key in PEM.
fn pem_bytes(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let lines = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let text: Zeroizing<String> = Zeroizing::new(lines.collect());
    BASE64_STANDARD.decode(text.as_bytes()).ok().map(Zeroizing::new)
}

enum ClientSigner {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl ClientSigner {
    fn read(der: &[u8]) -> Option<Self> {
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der).map(Self::P256);
        let other = |_| Ed25519KeyPair::from_pkcs8(der).map(Self::Ed25519);
        p256.or_else(other).or_else(|_| RsaKeyPair::from_pkcs8(der).map(Self::Rsa)).ok()
    }

    const fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::P256(key) => key.sign(&random, bytes).ok().map(|signature| signature.as_ref().to_vec()),
            Self::Ed25519(key) => Some(key.sign(bytes).as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).ok().map(|()| signature)
            }
        }
    }
}
