//! `trellis token keygen|issue|show`: keys and tokens.

use super::client::{Client, ServerArgs, read_view};
use super::exit::{Exit, Failure};
use super::output::{format_plain, note, write_line};
use super::{CliContext, abilities, input};
use crate::config::AuthMode;
use crate::config::files::{SETTINGS_FILE_BYTES, read_file};
use crate::domain::decode::without_mark;
use crate::domain::time::Millis;
use crate::domain::token::{Claims, TokenError, TokenSubject, check_narrowing};
use crate::http;
use crate::process::clock::Clock;
use crate::venue::auth::signing::SigningKey;
use crate::venue::auth::{self, Auth, VerifiedToken};
use crate::view;
use crate::view::identity::VenueStatusView;
use crate::view::token::{TokenKeyView, TokenVerdictView, TokenView, VerifiedTokenView};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Validity of a token without `--ttl`.
const DEFAULT_TTL: Duration = Duration::from_hours(1);

/// Tokens for `auth.mode = "jwt"`: keys that sign them, tokens, and what a token says.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a key: its private half goes into a file that only you can read
    #[command(
        after_help = "Examples:\n  trellis token keygen me.jwk\n  trellis token keygen issuer.jwk --jwks keys.json --kid 2026-11 --speaks-for acme"
    )]
    Keygen(Keygen),
    /// Sign a token and print it
    ///
    /// Without `--sub` it is about the key itself, which then needs to be in `auth.did_keys` or
    /// `auth.operators`. With `--proof` it narrows a token that was made for this key.
    #[command(
        after_help = "Examples:\n  export TRELLIS_TOKEN=$(trellis token issue --key me.jwk)\n  trellis token issue --key issuer.jwk --sub acme/ann --aud did:web:trellis.example --att w/vendor:crud/read --ttl 1h"
    )]
    Issue(Issue),
    /// Print who a token is about and what it grants, verified with the configuration
    #[command(after_help = "Example:\n  trellis token show \"$TRELLIS_TOKEN\" --config trellis.toml")]
    Show {
        /// The token, `@file`, or `-` for stdin
        #[arg(default_value = "-", hide_default_value = true)]
        token: String,
    },
}

/// Options of `keygen`.
#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Where the private key goes; a file that exists is left alone
    file: PathBuf,
    /// Add the public half to this key set, the file of `auth.jwks`
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// Its name in the key set [default: the key itself, z6Mk…]
    #[arg(long)]
    kid: Option<String>,
    /// For whom the key speaks: a tenant or `tenant/user`; may be repeated [default: everybody]
    #[arg(long, value_name = "OWNER", requires = "jwks")]
    speaks_for: Vec<String>,
}

/// Options of `issue`.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// The private key, as `keygen` wrote it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Whom it is about: `tenant/user` [default: the key itself]
    #[arg(long, value_name = "TENANT/USER")]
    sub: Option<String>,
    /// Who says it [default: the key itself, or `trellis` for another subject]
    #[arg(long)]
    iss: Option<String>,
    /// Whom it is for [default: the DID of the server at `--url`]
    #[arg(long)]
    aud: Option<String>,
    /// What it grants, `PATH:ABILITY` such as `w/vendor:crud/read`; may be repeated [default: everything
    /// that the subject has]
    #[arg(long, value_name = "PATH:ABILITY", value_parser = capability)]
    att: Vec<Value>,
    /// Grant nothing but proof of who it is about
    #[arg(long, conflicts_with = "att")]
    no_att: bool,
    /// How long it is valid, with `--proof` no longer than that [default: 1h, or what is left of the proof]
    #[arg(long, value_parser = input::duration)]
    ttl: Option<Duration>,
    /// Id of the token (`jti`), by which it can be revoked
    #[arg(long)]
    jti: Option<String>,
    /// Name of the person
    #[arg(long)]
    name: Option<String>,
    /// Address of the person
    #[arg(long)]
    email: Option<String>,
    /// The token that this one narrows: itself or `@file`; one that grants more, or lasts longer, is not signed
    #[arg(long, value_name = "TOKEN")]
    proof: Option<String>,
    /// Server that is asked for its DID
    #[arg(long, value_name = "URL", env = "TRELLIS_URL", default_value = "http://127.0.0.1:8420")]
    url: String,
}

/// A text is no capability; the error of the argument parser shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `path:ability`, e.g. `w/vendor:crud/read`")]
struct CapabilityArgumentError;

/// Parses `PATH:ABILITY`; a path may have colons, an ability has none.
fn capability(text: &str) -> Result<Value, CapabilityArgumentError> {
    let (with, can) = text.rsplit_once(':').ok_or(CapabilityArgumentError)?;
    Ok(json!({"with": with, "can": can}))
}

impl Token {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Keygen(keygen) => keygen.run(context),
            Self::Issue(issue) => issue.run().await,
            Self::Show { token } => show(context, input::text(&token)?.trim()),
        }
    }
}

impl Keygen {
    fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let key = SigningKey::generate().map_err(|e| Failure::internal(e.to_string()))?.with_kid(self.kid);
        let private = key.private_jwk().map_err(|e| Failure::internal(e.to_string()))?;
        let failed = |path: &Path, error: std::io::Error| {
            let path = path.display();
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                let text = format!("`{path}` exists, and no key is written over; name another file, or delete it");
                return Failure::new(Exit::Conflict, text);
            }
            Failure::usage(format!("`{path}` can't be written: {error}"))
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file);
        file.and_then(|mut file| writeln!(file, "{private}")).map_err(|error| failed(&self.file, error))?;
        let public = key.public_jwk_for(&self.speaks_for);
        if let Some(path) = &self.jwks {
            let mut set: Value = match read_file(path, SETTINGS_FILE_BYTES) {
                Ok(bytes) => serde_json::from_slice(without_mark(&bytes)).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!({"keys": []}),
                Err(error) => return Err(failed(path, error)),
            };
            let keys = set.get_mut("keys").and_then(Value::as_array_mut);
            let keys = keys.ok_or_else(|| Failure::usage(format!("`{}` is no key set", path.display())))?;
            keys.push(public.clone());
            // Written in one step, because a server may be reading it.
            let new = path.with_extension("new");
            let text = serde_json::to_string_pretty(&set).expect("JSON values serialise");
            fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|error| failed(path, error))?;
        }
        let did = key.did().to_string();
        let made = TokenKeyView { did, key: public };
        context.out.value(&view::to_json(&made), || made.did.clone())?;
        Ok(Exit::Ok)
    }
}

/// Claims of a new token; absent ones are left out.
#[derive(Serialize)]
struct NewClaims {
    iss: String,
    sub: String,
    aud: String,
    /// Time of its making, in seconds since 1970.
    iat: u64,
    /// Its end, in seconds since 1970.
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    att: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prf: Option<Vec<String>>,
}

impl Issue {
    async fn run(self) -> Result<Exit, Failure> {
        let key = SigningKey::from_jwk(&input::file(&self.key)?);
        let key = key.map_err(|e| Failure::usage(format!("`{}`: {e}", self.key.display())))?;
        let did = key.did().to_string();
        let own = self.sub.is_none() || self.proof.is_some();
        let proof = self.proof.as_deref().map(input::text).transpose()?.map(|text| text.trim().to_owned());
        let proofs = proof.as_deref().map(auth::read_chain).transpose();
        let proofs = proofs.map_err(|e| Failure::usage(format!("`--proof`: {e}")))?.unwrap_or_default();
        let aud = match self.aud {
            Some(aud) => aud,
            None => audience(self.url).await?,
        };
        abilities::note_unknown("--att", &self.att);
        let now = Clock::system().now().0 / 1000;
        let longest = proofs.first().map(|proof| proof.expires.0 / 1000);
        let expires = expiry_seconds(now, self.ttl, longest)?;
        let mut claims = NewClaims {
            iss: self.iss.unwrap_or_else(|| if own { did.clone() } else { "trellis".to_owned() }),
            sub: self.sub.unwrap_or(did),
            aud,
            iat: now,
            exp: expires,
            att: (self.no_att || !self.att.is_empty()).then_some(self.att),
            jti: self.jti,
            name: self.name,
            email: self.email,
            prf: None,
        };
        if let Err(error) = TokenSubject::parse(&claims.sub) {
            note(&format!("warning: no venue takes this token, for its `sub`: {error}"));
        }
        if let Some(proof) = proof {
            let void = |error| Failure::usage(format!("no venue would take this token with its `--proof`: {error}"));
            let parsed = Claims::parse(view::to_json(&claims).to_string().as_bytes()).map_err(void)?;
            check_narrowing(&parsed, &proofs, Millis(now * 1000)).map_err(void)?;
            claims.prf = Some(vec![proof]);
        }
        write_line(&key.sign(&view::to_json(&claims)).map_err(|e| Failure::usage(e.to_string()))?)?;
        Ok(Exit::Ok)
    }
}

/// Returns the end of a token in seconds since 1970: by default an hour from now, and no later than its proof's.
fn expiry_seconds(now: u64, ttl: Option<Duration>, longest: Option<u64>) -> Result<u64, Failure> {
    let end = now.saturating_add(ttl.unwrap_or(DEFAULT_TTL).as_secs());
    match (longest, ttl) {
        (Some(longest), Some(_)) if end > longest => Err(Failure::usage(format!(
            "`--ttl` ends after the proof, which ends at {}; leave `--ttl` out, and the token ends with its proof",
            Millis(longest * 1000).rfc3339()
        ))),
        (Some(longest), _) => Ok(end.min(longest)),
        (None, _) => Ok(end),
    }
}

/// Returns the DID of a server, the audience of its tokens.
async fn audience(url: String) -> Result<String, Failure> {
    let client = Client::new(&ServerArgs { url, ..ServerArgs::default() })?;
    let status =
        client.get("status", &[]).await.map_err(|failure| failure.with_advice(Exit::Unreachable, "or give `--aud`"))?;
    let status = read_view::<VenueStatusView>(status);
    let unknown = |_| Failure::new(Exit::Unreachable, "the server doesn't say its DID; give `--aud`");
    Ok(status.map_err(unknown)?.did)
}

fn show(context: &CliContext, token: &str) -> Result<Exit, Failure> {
    let part = |at: usize| {
        let bytes = token.split('.').nth(at).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
    };
    let (Some(header), Some(claims)) = (part(0), part(1)) else {
        return Err(Failure::usage("this is no token, expected `<header>.<claims>.<signature>`"));
    };
    let config = context.load(Vec::new())?.config;
    let mut shown = TokenView { header, claims, verified: None };
    let print = |shown: &TokenView, about: &Value| {
        let text = || format!("{}\n{}", format_plain(&shown.header), format_plain(about));
        context.out.value(&view::to_json(shown), text)
    };
    if config.auth.mode == AuthMode::None {
        print(&shown, &shown.claims)?;
        note("not verified: `auth.mode` is `none`; `--config` names the venue's configuration");
        return Ok(Exit::Ok);
    }
    let auth = Auth::open(&config.auth, &config.venue.name).map_err(|e| Failure::usage(e.to_string()))?;
    auth.audience_did(http::catalog::did(&format!("http://{}", config.http.listen)));
    let verified = auth.verify(token, Clock::system().now());
    let verdict = verdict_view(&verified);
    let about = view::to_json(&verdict);
    shown.verified = Some(verdict);
    print(&shown, &about)?;
    match verified {
        Ok(_) => Ok(Exit::Ok),
        Err(refused) => Err(Failure::new(Exit::Denied, refused.to_string())),
    }
}

fn verdict_view(verified: &Result<VerifiedToken, TokenError>) -> TokenVerdictView {
    let known = match verified {
        Err(refused) => return TokenVerdictView::Refused { refused: refused.to_string() },
        Ok(known) => known,
    };
    let kind = match known.subject {
        TokenSubject::Key(_) => "key",
        TokenSubject::Owner(_) => "owner",
    };
    TokenVerdictView::Verified(Box::new(VerifiedTokenView {
        owner: known.owner.to_string(),
        subject: known.subject.to_string(),
        kind: kind.to_owned(),
        capabilities: known.capabilities.clone(),
        claims: known.claims.clone(),
        operator: known.operator,
        grants: known.grants.clone(),
        expires: known.expires.rfc3339(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_a_path_and_an_ability() {
        for (text, with, can) in [
            ("w/vendor:crud/read", "w/vendor", "crud/read"),
            ("https://h:8080/x:invoke", "https://h:8080/x", "invoke"),
            (":*", "", "*"),
        ] {
            assert_eq!(capability(text).unwrap(), json!({"with": with, "can": can}));
        }
        assert!(capability("w/vendor").is_err());
    }
}
