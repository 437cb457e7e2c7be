//! Tokens: chains of claims are mutated and signed, and signed ones are mutated again.
//!
//! What verifies must be, byte for byte, what was signed by whom it names; and what it grants must
//! lie within the `att` of each of its links, by a second reading of them.

use super::mutate::{self, Random};
use super::{Target, Verdict};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;
use trellis::config::{AuthConfig, AuthMode, DidKeys};
use trellis::domain::authority::Capability;
use trellis::domain::ids::did::DidKey;
use trellis::domain::time::Millis;
use trellis::domain::token::{Claims, TokenSubject};
use trellis::venue::auth::signing::SigningKey;
use trellis::venue::auth::{Auth, VerifiedToken};

const NOW: f64 = 1_800_000_000.0;
const AUDIENCE: &str = "did:web:venue.example";
const ISSUER: &str = "https://id.example";
/// Seconds that clocks may differ.
const LEEWAY: f64 = 10.0;
/// Names of keys that are owners of their own.
const OWN: [&str; 3] = ["k1", "k2", "k3"];

/// A venue that trusts one issuer for the tenant `acme`, and every key for itself.
struct Site {
    _dir: TempDir,
    keys: BTreeMap<String, SigningKey>,
    auth: Auth,
    /// Signed in this run; parts of them are mixed.
    signed: Vec<String>,
}

pub fn target() -> Target<impl FnMut(&str, &mut Random) -> Result<Verdict, String>> {
    let (mut site, seeds) = (Site::new(), seeds());
    let check = move |input: &str, random: &mut Random| site.check(input, random);
    Target { name: "tokens", seeds, mutate: mutate::json, check }
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut keys: BTreeMap<String, SigningKey> =
            OWN.map(|name| (name.to_owned(), SigningKey::generate().unwrap())).into();
        let issuer = SigningKey::generate().unwrap().with_kid(Some("i1".into()));
        let mut jwk = issuer.public_jwk();
        jwk["trellis_owner"] = json!("acme");
        jwk["trellis_issuer"] = json!(ISSUER);
        let path = dir.path().join("keys.json");
        fs::write(&path, json!({"keys": [jwk]}).to_string()).unwrap();
        keys.insert("issuer".into(), issuer);
        let config = AuthConfig {
            mode: AuthMode::Jwt,
            audience: vec![AUDIENCE.into()],
            jwks: Some(path),
            did_keys: DidKeys::All,
            operators: vec![TokenSubject::parse("acme/root").unwrap()],
            leeway: Duration::from_secs(10),
            authorization_servers: Vec::new(),
        };
        let auth = Auth::open(&config, "trellis").unwrap();
        Self { _dir: dir, keys, auth, signed: Vec::new() }
    }

    fn check(&mut self, input: &str, random: &mut Random) -> Result<Verdict, String> {
        // Nothing of it may fall over unsigned text either.
        let _ = (Claims::parse(input.as_bytes()), DidKey::parse(input), self.auth.verify(input, now()));
        subject_prints(input)?;
        let named = OWN.iter().fold(input.to_owned(), |text, name| {
            text.replace(&format!("<{name}>"), &self.keys[*name].did().to_string())
        });
        let Ok(Value::Array(links)) = serde_json::from_str(&named) else {
            return Ok(Verdict::Refused("no list of links".into()));
        };
        let Some((token, genuine)) = self.token(&links, random) else {
            return Ok(Verdict::Refused("a link by nobody".into()));
        };
        let verified = self.auth.verify(&token, now());
        match &verified {
            Ok(_) if !genuine => return Err(format!("a link changed after it was signed verified: {token}")),
            Ok(verified) => means(verified, &links, &self.keys)?,
            Err(_) => {}
        }
        if genuine {
            self.signed.push(token.clone());
            if self.signed.len() > 32 {
                self.signed.remove(0);
            }
            self.nothing_else_verifies(&token, random)?;
        }
        Ok(verified.map_or_else(|refused| Verdict::Refused(refused.to_string()), |_| Verdict::Accepted))
    }

    /// The chain's token, and whether every link in it is as it was signed. `None` without a key or a
    /// claim to sign.
    fn token(&self, links: &[Value], random: &mut Random) -> Option<(String, bool)> {
        let (mut proof, mut genuine): (Option<String>, bool) = (None, true);
        for link in links {
            let key = self.keys.get(link["by"].as_str()?)?;
            let mut claims = link["claims"].clone();
            let map = claims.as_object_mut()?;
            if let Some(above) = proof.take() {
                let handed =
                    if random.below(8) == 0 { mutate::text(random, &above, &self.signed) } else { above.clone() };
                genuine &= handed == above;
                map.insert("prf".into(), json!([handed]));
            }
            proof = Some(key.sign(&claims).ok()?);
        }
        proof.map(|token| (token, genuine))
    }

    /// Changed texts, and tokens made of the parts of several.
    fn nothing_else_verifies(&self, token: &str, random: &mut Random) -> Result<(), String> {
        let parts: Vec<Vec<&str>> = self.signed.iter().map(|token| token.split('.').collect()).collect();
        let header = json!({"alg": random.pick(&["none", "HS256", "EdDSA", "EdDsA", ""]), "typ": "JWT"}).to_string();
        let part = |random: &mut Random, at: usize| random.pick(&parts).get(at).copied().unwrap_or_default().to_owned();
        let own: Vec<&str> = token.split('.').collect();
        let mixed = [
            mutate::text(random, token, &self.signed),
            format!("{}.{}.{}", own[0], part(random, 1), own[2]),
            format!("{}.{}.{}", part(random, 0), own[1], part(random, 2)),
            format!("{}.{}.{}", URL_SAFE_NO_PAD.encode(header), own[1], own[2]),
            format!("{}.{}.", own[0], own[1]),
            format!("{token}="),
            last_bit_changed(token),
        ];
        // A header that was signed with other claims is another token, unless both are the same.
        match mixed.into_iter().find(|text| !self.signed.contains(text) && self.auth.verify(text, now()).is_ok()) {
            Some(text) => Err(format!("this verified and was never signed: {text}\nmade of: {token}")),
            None => Ok(()),
        }
    }
}

/// Chains, the root first. Keys are written `<k1>`: they are others in every run.
fn seeds() -> Vec<String> {
    let cap = |with: &str, can: &str| json!({"with": with, "can": can});
    let own = |by: &str, to: &str, att: Value| {
        let name = format!("<{by}>");
        json!({"by": by, "claims": {"iss": name, "sub": name, "aud": to, "exp": NOW + 60.0, "jti": by, "att": att}})
    };
    let link = |by: &str, to: &str, att: Value| json!({"by": by, "claims": {"iss": format!("<{by}>"), "aud": to, "exp": NOW + 50.0, "att": att}});
    let ann = |sub: &str, to: &str, att: Value| {
        let claims = json!({"iss": ISSUER, "sub": sub, "aud": to, "exp": NOW + 60.0, "nbf": NOW - 5.0, "att": att});
        json!({"by": "issuer", "claims": claims})
    };
    let vendor = json!([cap("w/vendor", "crud"), cap("r/app/u1", "*")]);
    let plain = json!({"by": "k1", "claims": {"iss": "<k1>", "sub": "<k1>", "aud": AUDIENCE, "exp": NOW + 60.0}});
    [
        json!([plain]),
        json!([own("k1", AUDIENCE, json!([]))]),
        json!([own("k1", AUDIENCE, vendor.clone())]),
        json!([own("k1", AUDIENCE, json!([cap("<k1>/w/x", "crud/*"), cap("", "crud/read")]))]),
        json!([own("k1", AUDIENCE, json!([cap("<k2>/w/x", "crud")]))]),
        json!([ann("acme/ann", AUDIENCE, json!([cap("/acme/bob/w", "crud/read"), cap("/acme/ann/w", "*")]))]),
        json!([ann("globex/bob", AUDIENCE, json!([]))]),
        json!([ann("acme/_venue", AUDIENCE, json!([]))]),
        json!([own("k1", "<k2>", vendor.clone()), link("k2", AUDIENCE, json!([cap("w/vendor/acme", "crud/read")]))]),
        json!([own("k1", "<k2>", vendor.clone()), link("k2", AUDIENCE, json!([cap("w", "crud")]))]),
        json!([
            ann("acme/ann", "<k1>", vendor.clone()),
            link("k1", "<k2>", vendor.clone()),
            link("k2", AUDIENCE, vendor)
        ]),
        json!([
            ann("acme/ann", "<k3>", json!([cap("https://api.example/v1", "http")])),
            link("k3", AUDIENCE, json!([cap("https://api.example/v1/x", "http/get")]))
        ]),
    ]
    .iter()
    .map(Value::to_string)
    .collect()
}

fn now() -> Millis {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a constant")]
    Millis((NOW * 1000.0) as u64)
}

/// The signature's last character has bits that encode nothing.
fn last_bit_changed(token: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = token.as_bytes().to_vec();
    let last = bytes.last_mut().expect("a token isn't empty");
    let at = ALPHABET.iter().position(|c| c == last).expect("base64url");
    *last = ALPHABET[at ^ 1];
    String::from_utf8(bytes).expect("ASCII")
}

/// Names of subjects have one spelling.
fn subject_prints(input: &str) -> Result<(), String> {
    let Ok(subject) = TokenSubject::parse(input) else { return Ok(()) };
    if TokenSubject::parse(&subject.to_string()).as_ref() != Ok(&subject) {
        return Err(format!("the subject {subject} is read as another"));
    }
    Ok(())
}

/// What a verified chain must be, from its links as they were signed, the root first.
fn means(verified: &VerifiedToken, links: &[Value], keys: &BTreeMap<String, SigningKey>) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for link in links {
        let (by, claims) = (text(&link["by"]), &link["claims"]);
        let signer = if by == "issuer" { ISSUER.to_owned() } else { keys[&by].did().to_string() };
        let time = |claim: &str| claims[claim].as_f64();
        if text(&claims["iss"]) != signer {
            return Err(format!("`{by}` signed as {}", claims["iss"]));
        }
        if time("exp").is_none_or(|exp| NOW >= exp + LEEWAY)
            || time("nbf").is_some_and(|nbf| NOW + LEEWAY < nbf - 0.001)
        {
            return Err(format!("a link out of its time: {claims}"));
        }
    }
    let is_for = |claims: &Value, name: &str| {
        claims["aud"] == name || claims["aud"].as_array().is_some_and(|many| many.iter().any(|one| one == name))
    };
    let (root, last) = (&links[0]["claims"], &links[links.len() - 1]["claims"]);
    let joined = links.windows(2).all(|pair| is_for(&pair[0]["claims"], &text(&pair[1]["claims"]["iss"])));
    if !is_for(last, AUDIENCE) || !joined {
        return Err("an audience that isn't named".to_owned());
    }
    let owner = verified.owner.to_string();
    let root_is_issuer = links[0]["by"] == "issuer";
    let expected = if root_is_issuer { text(&root["sub"]) } else { text(&root["iss"]).replace("did:key:", "did/") };
    if owner != expected || (root_is_issuer && !owner.starts_with("acme/")) || owner.ends_with("/_venue") {
        return Err(format!("the owner is {owner}, expected {expected}"));
    }
    if verified.operator && (links.len() > 1 || owner != "acme/root" || root.get("att").is_some()) {
        return Err("an operator by a token that is none's".to_owned());
    }
    within_all(verified, links, &owner, root_is_issuer)
}

/// A name as its owner and its segments.
fn resolved(with: &str, own: &str) -> Vec<String> {
    let with = with.replace("did:key:", "/did/");
    let (owner, rest) = match with.strip_prefix('/') {
        None => (own.to_owned(), with.as_str()),
        Some(rest) => {
            let cut = rest.match_indices('/').nth(1).map_or(rest.len(), |(at, _)| at);
            (rest[..cut].to_owned(), rest.get(cut + 1..).unwrap_or_default())
        }
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let segments = rest.split('/').filter(|_| !rest.is_empty()).map(str::to_owned);
    std::iter::once(owner).chain(segments).collect()
}

fn within_all(verified: &VerifiedToken, links: &[Value], own: &str, issued: bool) -> Result<(), String> {
    let lists: Vec<Vec<Capability>> = links
        .iter()
        .filter_map(|link| link["claims"].get("att"))
        .map(|att| serde_json::from_value(att.clone()).map_err(|error| format!("`att` {att} was read: {error}")))
        .collect::<Result<_, _>>()?;
    let Some(granted) = &verified.capabilities else {
        return if lists.is_empty() { Ok(()) } else { Err("a list of grants was forgotten".to_owned()) };
    };
    let is_resource = |name: &[String]| name[0] == own && name.get(1).is_some_and(|first| first == "r");
    for cap in granted {
        let name = resolved(&cap.with, own);
        if name[0] != own && !(issued && name[0].starts_with("acme/")) {
            return Err(format!("`{cap}` is another's"));
        }
        for list in &lists {
            let mut alike = list.iter().filter(|held| is_resource(&resolved(&held.with, own)) == is_resource(&name));
            let silent = alike.clone().next().is_none() && !list.is_empty() && name[0] == own;
            let able = |held: &str| {
                let held = held.strip_suffix("/*").unwrap_or(held);
                let under = cap.can.strip_prefix(held).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                held == "*" || under || (held == "crud/write" && cap.can == "crud/append")
            };
            if !silent && !alike.any(|held| able(&held.can) && name.starts_with(&resolved(&held.with, own))) {
                return Err(format!("`{cap}` is granted and not by {list:?}"));
            }
        }
    }
    Ok(())
}
