//! The claims of one token, as they stand in it.

use super::TokenRefused;
use crate::authority::Capability;
use crate::decode;
use crate::ids::Owner;
use crate::ids::did::DidKey;
use crate::time::Millis;
use crate::visible::quoted;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// Longest name or id in a token, in bytes.
const TEXT_BYTES: usize = 256;

/// Who a token is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSubject {
    /// A key, which is an owner of its own.
    Key(DidKey),
    /// `tenant/user`.
    Owner(Owner),
}

impl TokenSubject {
    /// Reads `did:key:…` or `tenant/user`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("did:") {
            return DidKey::parse(text).map(Self::Key).ok_or_else(|| {
                format!("expected `tenant/user` or the `did:key:z6Mk…` of an Ed25519 key, got `{}`", quoted(text))
            });
        }
        text.parse().map(Self::Owner).map_err(|error| quoted(&format!("{error}")))
    }

    /// Whose data it is.
    pub fn owner(&self) -> Owner {
        match self {
            Self::Key(key) => key.owner(),
            Self::Owner(owner) => owner.clone(),
        }
    }
}

impl fmt::Display for TokenSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Owner(owner) => owner.fmt(f),
        }
    }
}

/// What one token says. Claims of other names are ignored, as JWTs have it; none of them widens.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// Who says it: a `did:key`, or the name of an issuer.
    pub issuer: String,
    /// Whom it is about; may be absent in a link of a chain.
    pub subject: Option<TokenSubject>,
    /// Whom it is for.
    pub audience: Vec<String>,
    /// From then on it is void.
    pub expires: Millis,
    /// Until then it is void.
    pub not_before: Millis,
    /// `jti`, the id of the grant.
    pub grant: Option<String>,
    /// `att`: absent = everything that the issuer holds, empty = nothing.
    pub att: Option<Vec<Capability>>,
    /// `prf`: the token that this one narrows.
    pub proof: Option<String>,
    /// `name`.
    pub name: Option<String>,
    /// `email`.
    pub email: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    iss: Option<String>,
    sub: Option<String>,
    #[serde(default)]
    aud: Audience,
    exp: Option<f64>,
    nbf: Option<f64>,
    jti: Option<String>,
    // `null` is not as absent: absent is everything.
    #[serde(default, deserialize_with = "present")]
    att: Option<Value>,
    #[serde(default)]
    prf: Vec<String>,
    name: Option<String>,
    email: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Audience {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl Claims {
    /// Reads the middle part of a token, decoded. A claim given twice, a caveat on a capability and
    /// an `att` that isn't a list are refused: to leave one out would widen.
    pub fn parse(json: &[u8]) -> Result<Self, TokenRefused> {
        let raw: Raw = decode::from_json(json).map_err(|e| TokenRefused::Malformed(quoted(&e.to_string())))?;
        let missing = |claim| TokenRefused::Claim { claim, rule: "it is missing".to_owned() };
        let att = raw.att.map(decode::typed).transpose().map_err(|error| {
            let rule = format!("expected a list of {{\"with\": …, \"can\": …}}: {}", quoted(&error.to_string()));
            TokenRefused::Claim { claim: "att", rule }
        })?;
        let mut proofs = raw.prf.into_iter();
        let proof = proofs.next();
        if proofs.next().is_some() {
            return Err(TokenRefused::Claim { claim: "prf", rule: "expected one token, got several".to_owned() });
        }
        let subject = raw.sub.map(|text| TokenSubject::parse(&text)).transpose();
        Ok(Self {
            issuer: text("iss", raw.iss)?.ok_or_else(|| missing("iss"))?,
            subject: subject.map_err(|rule| TokenRefused::Claim { claim: "sub", rule })?,
            audience: match raw.aud {
                Audience::None => Vec::new(),
                Audience::One(one) => vec![one],
                Audience::Many(many) => many,
            },
            expires: instant("exp", raw.exp)?.ok_or_else(|| missing("exp"))?,
            not_before: instant("nbf", raw.nbf)?.unwrap_or_default(),
            grant: text("jti", raw.jti)?,
            att,
            proof,
            name: text("name", raw.name)?,
            email: text("email", raw.email)?,
        })
    }
}

/// Seconds since the epoch, with a fraction or without.
fn instant(claim: &'static str, seconds: Option<f64>) -> Result<Option<Millis>, TokenRefused> {
    /// The year 9999.
    const LAST: f64 = 253_402_300_800.0;
    let Some(seconds) = seconds else { return Ok(None) };
    if !(0.0..LAST).contains(&seconds) {
        let rule = "expected seconds since 1970, before the year 10000".to_owned();
        return Err(TokenRefused::Claim { claim, rule });
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    let millis = (seconds * 1000.0) as u64;
    Ok(Some(Millis(millis)))
}

/// Text that ends up in records and prompts.
fn text(claim: &'static str, given: Option<String>) -> Result<Option<String>, TokenRefused> {
    let Some(text) = given else { return Ok(None) };
    let rule = if text.is_empty() {
        "expected at least one character".to_owned()
    } else if text.len() > TEXT_BYTES {
        format!("expected at most {TEXT_BYTES} bytes, got {}", text.len())
    } else if text.chars().any(char::is_control) {
        "control characters are not allowed".to_owned()
    } else {
        return Ok(Some(text));
    };
    Err(TokenRefused::Claim { claim, rule })
}
