//! `auth.jwks`: the keys of trusted issuers, read again whenever the file has changed.

use crate::domain::decode;
use crate::domain::token::SpeaksFor;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of the file: thousands of keys.
const FILE_BYTES: usize = 1 << 20;

/// Why a key set can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key set `{}` (`auth.jwks`): {problem}", .path.display())]
pub struct JwksError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// A key set in a file. A change that can't be read leaves the keys as they were, with a log line.
#[derive(Debug)]
pub struct Jwks {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What was found last: the bytes, or why there were none.
    seen: Result<Vec<u8>, String>,
    keys: Vec<IssuerKey>,
}

#[derive(Debug, Clone)]
struct IssuerKey {
    kid: String,
    issuer: Option<String>,
    speaks: SpeaksFor,
    key: [u8; 32],
}

impl Jwks {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Self, JwksError> {
        let failed = |problem| JwksError { path: path.to_owned(), problem };
        let bytes = read(path).map_err(failed)?;
        let keys = parse(&bytes).map_err(failed)?;
        Ok(Self { path: path.to_owned(), state: Mutex::new(State { seen: Ok(bytes), keys }) })
    }

    /// The key of that name, when it may sign for that issuer, and whom it speaks for. The file is
    /// looked at first: a key that was taken out counts no more.
    pub fn find(&self, issuer: &str, kid: &str) -> Option<([u8; 32], SpeaksFor)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state);
        let mut named = state.keys.iter().filter(|key| key.kid == kid);
        named
            .find(|key| key.issuer.as_deref().is_none_or(|name| name == issuer))
            .map(|key| (key.key, key.speaks.clone()))
    }

    /// The file is small, and reading it is cheaper than one signature: no time or size of it has to
    /// be trusted to tell that it changed.
    fn refresh(&self, state: &mut State) {
        let seen = read(&self.path);
        if seen == state.seen {
            return;
        }
        let keys = seen.as_ref().map_err(Clone::clone).and_then(|bytes| parse(bytes));
        state.seen = seen;
        match keys {
            Ok(keys) => {
                tracing::info!(path = %self.path.display(), keys = keys.len(), "key set read again");
                state.keys = keys;
            }
            Err(problem) => {
                tracing::error!(path = %self.path.display(), problem, "key set not taken; the keys before stay");
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|error| format!("can't be read: {error}"))?;
    if bytes.len() > FILE_BYTES {
        return Err(format!("has {} bytes, expected at most {FILE_BYTES}", bytes.len()));
    }
    Ok(bytes)
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kid: Option<String>,
    x: String,
    d: Option<String>,
    trellis_issuer: Option<String>,
    trellis_owner: Option<Owners>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Owners {
    One(String),
    Many(Vec<String>),
}

fn parse(bytes: &[u8]) -> Result<Vec<IssuerKey>, String> {
    let set: Set = decode::from_json(bytes).map_err(|error| format!("expected `{{\"keys\": [...]}}`: {error}"))?;
    let mut keys: Vec<IssuerKey> = Vec::new();
    // Other kinds of keys sign other kinds of tokens.
    let usable = |jwk: &&Value| jwk["kty"] == "OKP" && jwk["crv"] == "Ed25519" && jwk["use"] != "enc";
    for (at, jwk) in set.keys.iter().enumerate().filter(|(_, jwk)| usable(jwk)) {
        let key = issuer_key(jwk).map_err(|problem| format!("`keys[{at}]`: {problem}"))?;
        if keys.iter().any(|other| other.kid == key.kid && other.issuer == key.issuer) {
            return Err(format!("`keys[{at}]`: another key has the same `kid` and `trellis_issuer`"));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn issuer_key(jwk: &Value) -> Result<IssuerKey, String> {
    let jwk = decode::typed::<Jwk>(jwk.clone()).map_err(|error| error.to_string())?;
    if jwk.d.is_some() {
        return Err("it has `d` and so is a private key; only public keys belong here".to_owned());
    }
    let key = URL_SAFE_NO_PAD.decode(&jwk.x).ok().and_then(|bytes| bytes.try_into().ok());
    let speaks = match &jwk.trellis_owner {
        None => SpeaksFor::everybody(),
        Some(Owners::One(one)) => {
            SpeaksFor::only([one.as_str()]).map_err(|error| format!("`trellis_owner` {error}"))?
        }
        Some(Owners::Many(many)) => {
            SpeaksFor::only(many.iter().map(String::as_str)).map_err(|error| format!("`trellis_owner` {error}"))?
        }
    };
    Ok(IssuerKey {
        kid: jwk.kid.filter(|kid| !kid.is_empty()).ok_or("expected `kid`, by which tokens name it")?,
        issuer: jwk.trellis_issuer,
        speaks,
        key: key.ok_or("expected `x` to be the 32 bytes of an Ed25519 key in base64url")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const X: &str = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik";

    fn refused(keys: &Value) -> String {
        parse(json!({"keys": keys}).to_string().as_bytes()).map(|_| ()).unwrap_err()
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over_and_wrong_ones_named() {
        let good = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": X});
        let others = json!([{"kty": "RSA", "n": "x", "e": "y"}, {"kty": "oct", "k": "z"}, good]);
        assert_eq!(parse(json!({"keys": others}).to_string().as_bytes()).unwrap().len(), 1);
        let with = |key: &str, value: Value| {
            let mut jwk = good.clone();
            jwk[key] = value;
            json!([jwk])
        };
        for (keys, part) in [
            (with("kid", json!("")), "`keys[0]`: expected `kid`"),
            (with("x", json!("AAAA")), "expected `x` to be the 32 bytes"),
            (with("d", json!(X)), "private key"),
            (with("trellis_owner", json!("a/b/c")), "`trellis_owner` `a/b/c`"),
            (json!([good, good]), "`keys[1]`: another key has the same `kid`"),
        ] {
            let problem = refused(&keys);
            assert!(problem.contains(part), "{problem}");
        }
        assert!(parse(b"[]").map(|_| ()).unwrap_err().contains("expected `{\"keys\""));
    }

    #[test]
    fn the_file_is_read_again_when_it_has_changed_and_a_broken_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let set = |kid: &str| {
            let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": X, "trellis_issuer": "https://i"});
            fs::write(&path, json!({"keys": [key]}).to_string()).unwrap();
        };
        assert!(Jwks::open(&path).unwrap_err().to_string().contains("can't be read"));
        set("a");
        let jwks = Jwks::open(&path).unwrap();
        assert!(jwks.find("https://i", "a").is_some());
        assert!(jwks.find("https://other", "a").is_none(), "the key of one issuer is no other's");
        set("b");
        assert!(jwks.find("https://i", "a").is_none(), "taken out");
        assert!(jwks.find("https://i", "b").is_some());
        fs::write(&path, "{").unwrap();
        assert!(jwks.find("https://i", "b").is_some());
        fs::remove_file(&path).unwrap();
        assert!(jwks.find("https://i", "b").is_some());
        set("c");
        assert!(jwks.find("https://i", "b").is_none());
        assert!(jwks.find("https://i", "c").is_some());
    }
}
