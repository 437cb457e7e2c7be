//! The claims of one token, before any check of a chain.

use super::error::{ClaimRule, TEXT_BYTES, TokenError, TokenSubjectError};
use crate::authority::Capability;
use crate::decode;
use crate::ids::Owner;
use crate::ids::did::DidKey;
use crate::time::Millis;
use crate::visible::quote_foreign;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// Subject of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSubject {
    /// A key, which is an owner of its own.
    Key(DidKey),
    /// An owner, `tenant/user`.
    Owner(Owner),
}

impl TokenSubject {
    /// Reads `did:key:…` or `tenant/user`.
    pub fn parse(text: &str) -> Result<Self, TokenSubjectError> {
        if text.starts_with("did:") {
            let unknown = || TokenSubjectError::Key { found: text.to_owned() };
            return DidKey::parse(text).map(Self::Key).ok_or_else(unknown);
        }
        Ok(Self::Owner(text.parse()?))
    }

    /// Returns the owner of the subject's data.
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

/// Claims of one token. Claims of other names are ignored, as JWTs require; none of them widens.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// Issuer: a `did:key`, or the name of an issuer.
    pub issuer: String,
    /// Subject; may be absent in a link of a chain.
    pub subject: Option<TokenSubject>,
    /// Names that the token is for.
    pub audience: Vec<String>,
    /// Time from which on it is void.
    pub expires: Millis,
    /// Time before which it is void.
    pub not_before: Millis,
    /// Claim `jti`, the id of the grant.
    pub grant: Option<String>,
    /// Claim `att`: absent = everything that the issuer holds, empty = nothing.
    pub att: Option<Vec<Capability>>,
    /// Claim `prf`: the token that this one narrows.
    pub proof: Option<String>,
    /// Claim `name` of the person.
    pub name: Option<String>,
    /// Claim `email` of the person.
    pub email: Option<String>,
    /// Claim `user_id`: the user of the issuer for whom the request is made.
    pub user_id: Option<String>,
}

#[derive(Deserialize)]
struct RawClaims {
    iss: Option<String>,
    sub: Option<String>,
    #[serde(default)]
    aud: Audience,
    exp: Option<f64>,
    nbf: Option<f64>,
    jti: Option<String>,
    // A `null` differs from an absent claim, which grants everything.
    #[serde(default, deserialize_with = "deserialize_present")]
    att: Option<Value>,
    #[serde(default)]
    prf: Vec<String>,
    name: Option<String>,
    email: Option<String>,
    user_id: Option<UserId>,
    // Platos's place of the name and the address.
    #[serde(rename = "userMeta")]
    user_meta: Option<UserMeta>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UserMeta {
    name: Option<String>,
    email: Option<String>,
}

/// Issuers number their users, or name them.
#[derive(Deserialize)]
#[serde(untagged)]
enum UserId {
    Number(u64),
    Text(String),
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Audience {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

fn deserialize_present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl Claims {
    /// Reads the decoded middle part of a token. A claim given twice, a caveat on a capability and an `att` that isn't
    /// a list are refused: to ignore one would widen.
    pub fn parse(json: &[u8]) -> Result<Self, TokenError> {
        let raw: RawClaims =
            decode::from_json(json).map_err(|e| TokenError::Malformed(quote_foreign(&e.to_string())))?;
        let missing = |claim| TokenError::Claim { claim, rule: ClaimRule::Missing };
        let att = raw.att.map(decode::into_type).transpose();
        let att = att.map_err(|error| TokenError::Claim { claim: "att", rule: ClaimRule::List(error) })?;
        let meta = raw.user_meta.unwrap_or_default();
        let user_id = raw.user_id.map(|id| match id {
            UserId::Number(number) => number.to_string(),
            UserId::Text(text) => text,
        });
        let mut proofs = raw.prf.into_iter();
        let proof = proofs.next();
        if proofs.next().is_some() {
            return Err(TokenError::Claim { claim: "prf", rule: ClaimRule::SeveralProofs });
        }
        let subject = raw.sub.map(|text| TokenSubject::parse(&text)).transpose();
        Ok(Self {
            issuer: check_text("iss", raw.iss)?.ok_or_else(|| missing("iss"))?,
            subject: subject.map_err(|error| TokenError::Claim { claim: "sub", rule: ClaimRule::Subject(error) })?,
            audience: match raw.aud {
                Audience::None => Vec::new(),
                Audience::One(one) => vec![one],
                Audience::Many(many) => many,
            },
            expires: parse_time("exp", raw.exp)?.ok_or_else(|| missing("exp"))?,
            not_before: parse_time("nbf", raw.nbf)?.unwrap_or_default(),
            grant: check_text("jti", raw.jti)?,
            att,
            proof,
            name: check_text("name", raw.name)?.or(check_text("userMeta", meta.name)?),
            email: check_text("email", raw.email)?.or(check_text("userMeta", meta.email)?),
            user_id: check_text("user_id", user_id)?,
        })
    }
}

/// Reads seconds since the epoch, with or without a fraction.
fn parse_time(claim: &'static str, seconds: Option<f64>) -> Result<Option<Millis>, TokenError> {
    /// Seconds at the end of the year 9999.
    const LAST: f64 = 253_402_300_800.0;
    let Some(seconds) = seconds else { return Ok(None) };
    if !(0.0..LAST).contains(&seconds) {
        return Err(TokenError::Claim { claim, rule: ClaimRule::Time });
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    let millis = (seconds * 1000.0) as u64;
    Ok(Some(Millis(millis)))
}

/// Checks a text that will be part of records and prompts.
fn check_text(claim: &'static str, given: Option<String>) -> Result<Option<String>, TokenError> {
    let Some(text) = given else { return Ok(None) };
    let rule = if text.is_empty() {
        ClaimRule::Empty
    } else if text.len() > TEXT_BYTES {
        ClaimRule::TooLong { found: text.len() }
    } else if text.chars().any(char::is_control) {
        ClaimRule::Control
    } else {
        return Ok(Some(text));
    };
    Err(TokenError::Claim { claim, rule })
}
