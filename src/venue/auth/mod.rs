//! Authentication: from the text of a token to the identity and authority of a caller.
//!
//! A token is verified where it arrives and is stored nowhere: only [`VerifiedToken`] is passed on.

pub mod caller;
pub mod jwks;
pub mod signing;

use crate::config::{AuthConfig, AuthMode, DidKeys};
use crate::domain::authority::Capability;
use crate::domain::decode::from_json;
use crate::domain::ids::Owner;
use crate::domain::ids::did::DidKey;
use crate::domain::limits::{TOKEN_BYTES, TOKEN_CHAIN_BYTES, TOKEN_LINKS};
use crate::domain::time::Millis;
use crate::domain::timer::KEEP_ABILITY;
use crate::domain::token::{Claims, JudgeSettings, Link, Signer, SpeaksFor, TokenError, TokenSubject, judge};
use crate::domain::values::Values;
use crate::domain::values::protected_keys::OVERRIDE;
use crate::venue::is_reserved;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use jwks::{Jwks, JwksError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::OnceLock;
use std::time::Duration;

/// Scheme of the header that carries a token, over HTTP and in the queue.
const SCHEME: &str = "bearer";

/// What a verified token says of a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedToken {
    /// The owner whose data the request is about.
    pub owner: Owner,
    /// The subject of the token: `tenant/user` or `did:key:…`.
    pub subject: TokenSubject,
    /// Who presents the token, if its subject has delegated it.
    pub holder: Option<String>,
    /// Capabilities of the token: `None` = all of the owner's, empty = none. The path of one that another owner granted
    /// begins with `/tenant/user/`.
    pub capabilities: Option<Vec<Capability>>,
    /// The first values of the user tier: `user_id`, `user.name`, `user.email`.
    pub claims: Values,
    /// Whether the caller is an operator of the venue; only with a token without limits.
    pub operator: bool,
    /// Whether the caller may give values to keys that a token claims: an operator, or a holder of `context/override`
    /// if an issuer says so.
    pub may_override: bool,
    /// Whether timers that the caller sets outlive the token: a holder of `timer/keep` if an issuer says so.
    pub keeps_timers: bool,
    /// The `jti` of the token.
    pub grant: Option<String>,
    /// The `jti` of all links of the token, its own first: revoking one of them revokes the token.
    pub grants: Vec<String>,
    /// End of the token.
    pub expires: Millis,
}

/// Rules by which callers are authenticated.
#[derive(Debug, Default)]
pub struct Auth {
    rules: Option<AuthRules>,
}

#[derive(Debug)]
struct AuthRules {
    audiences: Vec<String>,
    /// The address that the API is bound to, as an audience; used only if none is configured.
    own: OnceLock<String>,
    jwks: Option<Jwks>,
    did_keys: DidKeys,
    operators: Vec<TokenSubject>,
    leeway: Duration,
}

impl Auth {
    /// Authentication is off and everybody may do everything: `auth.mode = "none"`.
    pub const fn none() -> Self {
        Self { rules: None }
    }

    /// Opens what the configuration names; `name` is that of the venue.
    pub fn open(config: &AuthConfig, name: &str) -> Result<Self, JwksError> {
        if config.mode == AuthMode::None {
            return Ok(Self::none());
        }
        let own = OnceLock::new();
        let audiences = if config.audience.is_empty() {
            vec![name.to_owned()]
        } else {
            // The configured audiences are all; the address adds none.
            let _ = own.set(String::new());
            config.audience.clone()
        };
        let jwks = config.jwks.as_deref().map(Jwks::open).transpose()?;
        let (did_keys, operators) = (config.did_keys.clone(), config.operators.clone());
        Ok(Self { rules: Some(AuthRules { audiences, own, jwks, did_keys, operators, leeway: config.leeway }) })
    }

    /// Whether callers must send a token.
    pub const fn is_required(&self) -> bool {
        self.rules.is_some()
    }

    /// Returns the venue's name in `aud`: the first configured DID, else that of its address `did`, which then is an
    /// audience too.
    pub fn audience_did(&self, did: String) -> String {
        let Some(rules) = &self.rules else { return did };
        if let Some(configured) = rules.audiences.iter().find(|name| name.starts_with("did:")) {
            return configured.clone();
        }
        let own = rules.own.get_or_init(|| did.clone());
        if own.is_empty() { did } else { own.clone() }
    }

    /// Verifies the token in the value of an [`AUTHORIZATION_HEADER`](crate::bus::AUTHORIZATION_HEADER). `None` if no
    /// token is needed.
    pub fn verify_header(&self, value: Option<&str>, now: Millis) -> Option<Result<VerifiedToken, TokenError>> {
        let rules = self.rules.as_ref()?;
        let token = value.and_then(|value| {
            let (scheme, token) = value.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim())
        });
        Some(token.ok_or(TokenError::Missing).and_then(|token| rules.verify(token, now)))
    }

    /// Verifies a token; [`TokenError::Missing`] if no token is needed.
    pub fn verify(&self, token: &str, now: Millis) -> Result<VerifiedToken, TokenError> {
        self.rules.as_ref().ok_or(TokenError::Missing)?.verify(token, now)
    }
}

impl AuthRules {
    fn verify(&self, token: &str, now: Millis) -> Result<VerifiedToken, TokenError> {
        let links = self.verify_links(token)?;
        let own = self.own.get().map(String::as_str).filter(|own| !own.is_empty());
        let audiences: Vec<&str> = self.audiences.iter().map(String::as_str).chain(own).collect();
        let bearer = judge(&links, JudgeSettings { now, leeway: self.leeway, audiences: &audiences })?;
        if is_reserved(&bearer.owner) {
            return Err(TokenError::Subject);
        }
        let unlimited = bearer.capabilities.is_none() && !bearer.delegated;
        let operator = unlimited && self.operators.contains(&bearer.subject);
        // `*` doesn't count: it holds the owner's own abilities, and these are given by an issuer.
        let issued = matches!(bearer.subject, TokenSubject::Owner(_)) && !bearer.delegated;
        let explicit = |ability: &str, group: &str| {
            let said = |cap: &Capability| cap.with.is_empty() && (cap.can == ability || cap.can == group);
            issued && bearer.capabilities.iter().flatten().any(said)
        };
        let may_override = operator || explicit(OVERRIDE, "context");
        let keeps_timers = explicit(KEEP_ABILITY, "timer");
        Ok(VerifiedToken {
            operator,
            may_override,
            keeps_timers,
            grant: links.first().and_then(|link| link.claims.grant.clone()),
            owner: bearer.owner,
            subject: bearer.subject,
            holder: bearer.holder,
            capabilities: bearer.capabilities,
            claims: bearer.claims,
            grants: bearer.grants,
            expires: bearer.expires,
        })
    }

    /// Returns the verified links of a token, the token itself first.
    fn verify_links(&self, token: &str) -> Result<Vec<Link>, TokenError> {
        let (bytes, limit) = (token.len(), TOKEN_CHAIN_BYTES);
        if bytes > limit {
            return Err(TokenError::TooLarge { bytes, limit });
        }
        let mut links = Vec::new();
        let mut next = self.verify_link(token)?;
        while let Some(above) = next.claims.proof.clone() {
            links.push(next);
            if links.len() == TOKEN_LINKS {
                return Err(TokenError::Chain("it has more links than are followed"));
            }
            next = self.verify_link(&above)?;
        }
        links.push(next);
        // A root key that speaks for itself must be admitted by name; the links below it need no admission.
        match links.last().map(|root| &root.signer) {
            Some(Signer::Key(key)) if !self.admits(key) => Err(TokenError::UnknownKey),
            Some(Signer::Key(_) | Signer::Issuer(_)) | None => Ok(links),
        }
    }

    fn admits(&self, key: &DidKey) -> bool {
        let operator = self.operators.iter().any(|subject| matches!(subject, TokenSubject::Key(one) if one == key));
        operator
            || match &self.did_keys {
                DidKeys::All => true,
                DidKeys::Only(keys) => keys.contains(key),
            }
    }

    /// Parses one token and verifies its signature.
    fn verify_link(&self, token: &str) -> Result<Link, TokenError> {
        let (header, claims) = parse_parts(token)?;
        let own = token.len() - claims.proof.as_ref().map_or(0, |proof| proof.len() * 4 / 3);
        if own > TOKEN_BYTES {
            return Err(TokenError::TooLarge { bytes: own, limit: TOKEN_BYTES });
        }
        let (key, signer) = self.find_key(&claims.issuer, header.kid.as_deref())?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        // The core checks times and audience, against a time that it is given.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        jsonwebtoken::decode::<IgnoredAny>(token, &key, &validation).map_err(|_| TokenError::Signature)?;
        Ok(Link { claims, signer })
    }

    /// Returns the key that an issuer signs with.
    fn find_key(&self, issuer: &str, kid: Option<&str>) -> Result<(DecodingKey, Signer), TokenError> {
        if issuer.starts_with("did:") {
            let key = DidKey::parse(issuer).ok_or(TokenError::UnknownKey)?;
            let named = kid.is_none_or(|kid| names_key(kid, &key));
            return if named { Ok((decoding_key(key.bytes()), Signer::Key(key))) } else { Err(TokenError::UnknownKey) };
        }
        let found = self.jwks.as_ref().zip(kid).and_then(|(jwks, kid)| jwks.find(issuer, kid));
        let (key, speaks): ([u8; 32], SpeaksFor) = found.ok_or(TokenError::UnknownKey)?;
        Ok((decoding_key(&key), Signer::Issuer(speaks)))
    }
}

fn decoding_key(key: &[u8; 32]) -> DecodingKey {
    DecodingKey::from_ed_der(key)
}

/// Whether `kid` names the key: `z6Mk…`, `did:key:z6Mk…` or `did:key:z6Mk…#z6Mk…`.
fn names_key(kid: &str, key: &DidKey) -> bool {
    let (did, bare) = (key.to_string(), key.multibase());
    kid == bare || kid == did || kid.strip_prefix(&did).and_then(|rest| rest.strip_prefix('#')) == Some(&bare)
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    // Extensions that must be understood; none is supported.
    crit: Option<IgnoredAny>,
}

/// Returns the claims of a token and of its proofs, the nearest first, without a look at their signatures.
pub fn read_chain(token: &str) -> Result<Vec<Claims>, TokenError> {
    let mut chain = vec![parse_parts(token)?.1];
    while let Some(above) = chain.last().and_then(|claims| claims.proof.clone()) {
        if chain.len() == TOKEN_LINKS {
            return Err(TokenError::Chain("it has more links than are followed"));
        }
        chain.push(parse_parts(&above)?.1);
    }
    Ok(chain)
}

/// Parses the header and claims of a token without verifying them.
fn parse_parts(token: &str) -> Result<(TokenHeader, Claims), TokenError> {
    let malformed = |why: &str| TokenError::Malformed(why.to_owned());
    let three: Vec<&str> = token.split('.').collect();
    let [header, claims, _signature] = three[..] else {
        return Err(malformed("expected `<header>.<claims>.<signature>`"));
    };
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("its parts are not base64url"));
    let header: TokenHeader =
        from_json(&decode(header)?).map_err(|_| malformed("its header is no JSON object with `alg`"))?;
    if header.alg != "EdDSA" {
        return Err(TokenError::Algorithm);
    }
    if header.crit.is_some() {
        return Err(malformed("its header has `crit`"));
    }
    Ok((header, Claims::parse(&decode(claims)?)?))
}

#[cfg(test)]
mod tests;
