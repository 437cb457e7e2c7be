//! Every attack on a token has a test of its own.

use super::*;
use crate::venue::auth::signing::SigningKey;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const NOW: u64 = 1_800_000_000;
const AUDIENCE: &str = "did:web:venue.example";
const ISSUER: &str = "https://id.example";

fn now() -> Millis {
    Millis(NOW * 1000)
}

/// A venue that trusts one issuer for the tenant `acme`.
struct Site {
    dir: TempDir,
    issuer: SigningKey,
    auth: Auth,
}

impl Site {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut AuthConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issuer = SigningKey::generate().unwrap().with_kid(Some("k1".into()));
        publish(&dir, &[&issuer]);
        let mut config = AuthConfig {
            mode: AuthMode::Jwt,
            audience: vec![AUDIENCE.into()],
            jwks: Some(path(&dir)),
            did_keys: DidKeys::All,
            operators: vec![TokenSubject::parse("acme/root").unwrap()],
            leeway: Duration::from_secs(10),
            authorization_servers: Vec::new(),
        };
        change(&mut config);
        let auth = Auth::open(&config, "trellis").unwrap();
        Self { dir, issuer, auth }
    }

    fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        self.auth.verify(token, now())
    }
}

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("keys.json")
}

fn publish(dir: &TempDir, keys: &[&SigningKey]) {
    let keys: Vec<Value> = keys
        .iter()
        .map(|key| {
            let mut jwk = key.public_jwk();
            jwk["trellis_owner"] = json!("acme");
            jwk
        })
        .collect();
    fs::write(path(dir), json!({"keys": keys}).to_string()).unwrap();
}

fn ann(more: Value) -> Value {
    with(json!({"iss": ISSUER, "sub": "acme/ann", "aud": AUDIENCE, "exp": NOW + 60}), more)
}

fn own(key: &SigningKey, more: Value) -> Value {
    let did = key.did().to_string();
    with(json!({"iss": did, "sub": did, "aud": AUDIENCE, "exp": NOW + 60}), more)
}

fn with(mut claims: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("expected a map") };
    claims.as_object_mut().unwrap().extend(more);
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

#[test]
fn an_issuers_token_says_who_asks() {
    let site = Site::new();
    let claims = ann(json!({"att": [{"with": "w/x", "can": "crud/read"}], "jti": "g7", "email": "ann@acme.example"}));
    let ann = site.verify(&site.issuer.sign(&claims).unwrap()).unwrap();
    assert_eq!((ann.owner.to_string().as_str(), ann.operator, ann.grant.as_deref()), ("acme/ann", false, Some("g7")));
    assert_eq!(ann.capabilities.unwrap().len(), 1);
    assert_eq!(ann.claims["user.email"], "ann@acme.example");
}

#[test]
fn a_key_of_its_own_is_an_owner_when_it_is_admitted() {
    let key = SigningKey::generate().unwrap();
    let token = key.sign(&own(&key, json!({}))).unwrap();
    assert_eq!(Site::new().verify(&token).unwrap().owner, key.did().owner());
    let stranger = Site::with(|config| config.did_keys = DidKeys::default());
    assert_eq!(stranger.verify(&token).unwrap_err(), TokenError::UnknownKey);
    let named = Site::with(|config| config.did_keys = DidKeys::Only(vec![key.did()]));
    assert!(!named.verify(&token).unwrap().operator);
    let operator = Site::with(|config| {
        config.did_keys = DidKeys::default();
        config.operators = vec![TokenSubject::Key(key.did())];
    });
    assert!(operator.verify(&token).unwrap().operator);
    for kid in [key.did().to_string(), format!("{0}#{1}", key.did(), key.did().multibase())] {
        let key = SigningKey::from_jwk(&key.private_jwk().unwrap().to_string()).unwrap().with_kid(Some(kid));
        assert!(operator.verify(&key.sign(&own(&key, json!({}))).unwrap()).is_ok());
    }
    let other = SigningKey::from_jwk(&key.private_jwk().unwrap().to_string()).unwrap().with_kid(Some("k1".into()));
    assert_eq!(operator.verify(&other.sign(&own(&key, json!({}))).unwrap()).unwrap_err(), TokenError::UnknownKey);
}

#[test]
fn timers_end_with_their_token_unless_its_issuer_says_otherwise() {
    let site = Site::new();
    let keep = json!({"with": "", "can": "timer/keep"});
    for (att, kept) in [
        (None, false),
        (Some(json!([{"with": "", "can": "*"}])), false),
        (Some(json!([{"with": "w", "can": "timer/keep"}])), false),
        (Some(json!([{"with": "", "can": "*"}, keep])), true),
    ] {
        let mut claims = ann(json!({}));
        claims.as_object_mut().unwrap().extend(att.map(|att| ("att".to_owned(), att)));
        let verified = site.verify(&site.issuer.sign(&claims).unwrap()).unwrap();
        let ends = verified.expires;
        let caller = verified.caller(None).unwrap().caller;
        assert_eq!(caller.envelope.expires, (!kept).then_some(ends), "{claims}");
        assert_eq!(caller.request_envelope().expires, caller.envelope.expires);
    }
    // Who hands a token on can't say it, nor can a key that speaks for itself.
    let key = SigningKey::generate().unwrap();
    let all = json!([{"with": "", "can": "*"}, keep]);
    let root = site.issuer.sign(&ann(json!({"aud": key.did().to_string(), "att": all}))).unwrap();
    for claims in [json!({"prf": [root], "att": all}), json!({"att": all})] {
        let verified = site.verify(&key.sign(&own(&key, claims)).unwrap()).unwrap();
        assert!(!verified.keeps_timers && verified.caller(None).unwrap().caller.envelope.expires.is_some());
    }
}

#[test]
fn an_operator_is_one_only_with_all_he_has() {
    let site = Site::new();
    let sign = |more| site.issuer.sign(&with(ann(json!({"sub": "acme/root"})), more)).unwrap();
    assert!(site.verify(&sign(json!({}))).unwrap().operator);
    assert!(!site.verify(&sign(json!({"att": [{"with": "", "can": "*"}]}))).unwrap().operator);
    let key = SigningKey::generate().unwrap();
    let root = sign(json!({"aud": key.did().to_string()}));
    let token = key.sign(&own(&key, json!({"prf": [root]}))).unwrap();
    let handed_on = site.verify(&token).unwrap();
    assert_eq!((handed_on.owner.to_string().as_str(), handed_on.operator), ("acme/root", false));
}

#[test]
fn a_forged_signature_is_refused() {
    let site = Site::new();
    let token = site.issuer.sign(&ann(json!({}))).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let header = signed.split_once('.').unwrap().0;
    let other = SigningKey::generate().unwrap().with_kid(Some("k1".into()));
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[5] ^= 1;
    for forged in [
        format!("{header}.{}.{signature}", part(&ann(json!({"sub": "acme/root"})))),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(flipped)),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        format!("{signed}."),
        other.sign(&ann(json!({}))).unwrap(),
    ] {
        assert_eq!(site.verify(&forged).unwrap_err(), TokenError::Signature, "{forged}");
    }
}

#[test]
fn alg_none_is_refused() {
    let site = Site::new();
    for alg in ["none", "None", "NONE", "", "eddsa", "ES256"] {
        let token = format!("{}.{}.", part(&json!({"alg": alg, "kid": "k1"})), part(&ann(json!({}))));
        assert_eq!(site.verify(&token).unwrap_err(), TokenError::Algorithm, "{alg}");
    }
}

#[test]
fn hs256_with_the_public_key_as_secret_is_refused() {
    use jsonwebtoken::{EncodingKey, Header};
    let site = Site::new();
    let x = URL_SAFE_NO_PAD.decode(site.issuer.public_jwk()["x"].as_str().unwrap()).unwrap();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("k1".into());
    let token = jsonwebtoken::encode(&header, &ann(json!({})), &EncodingKey::from_secret(&x)).unwrap();
    assert_eq!(site.verify(&token).unwrap_err(), TokenError::Algorithm);
    // The same signature under a header that says otherwise.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let claims = signed.split_once('.').unwrap().1;
    let claimed = format!("{}.{claims}.{signature}", part(&json!({"alg": "EdDSA", "kid": "k1"})));
    assert_eq!(site.verify(&claimed).unwrap_err(), TokenError::Signature);
}

#[test]
fn an_expired_token_is_refused() {
    let site = Site::new();
    let token = site.issuer.sign(&ann(json!({"exp": NOW}))).unwrap();
    assert_eq!(site.auth.verify(&token, Millis((NOW + 9) * 1000)).map(|_| ()), Ok(()));
    assert_eq!(site.auth.verify(&token, Millis((NOW + 10) * 1000)).unwrap_err(), TokenError::Expired);
}

#[test]
fn a_token_of_the_future_is_refused() {
    let site = Site::new();
    let token = site.issuer.sign(&ann(json!({"nbf": NOW + 11}))).unwrap();
    assert_eq!(site.verify(&token).unwrap_err(), TokenError::NotYet);
}

#[test]
fn a_token_for_another_audience_is_refused() {
    let site = Site::new();
    for aud in [json!(null), json!("did:web:other.example"), json!(["a", "b"]), json!("")] {
        let token = site.issuer.sign(&ann(json!({"aud": aud}))).unwrap();
        assert_eq!(site.verify(&token).unwrap_err(), TokenError::Audience, "{aud}");
    }
}

#[test]
fn without_a_configured_audience_it_is_the_venues_did_and_name() {
    let site = Site::with(|config| config.audience = Vec::new());
    let verify = |aud: &str| site.verify(&site.issuer.sign(&ann(json!({"aud": aud}))).unwrap());
    assert!(verify("trellis").is_ok());
    assert_eq!(verify("did:web:127.0.0.1%3A8420").unwrap_err(), TokenError::Audience);
    assert_eq!(site.auth.audience_did("did:web:127.0.0.1%3A8420".into()), "did:web:127.0.0.1%3A8420");
    assert!(verify("did:web:127.0.0.1%3A8420").is_ok());
    assert_eq!(Site::new().auth.audience_did("did:web:127.0.0.1%3A8420".into()), AUDIENCE);
}

#[test]
fn an_unknown_kid_is_refused() {
    let site = Site::new();
    for kid in ["k2", "", "K1"] {
        let key = SigningKey::from_jwk(&site.issuer.private_jwk().unwrap().to_string()).unwrap();
        let token = key.with_kid(Some(kid.into())).sign(&ann(json!({}))).unwrap();
        assert_eq!(site.verify(&token).unwrap_err(), TokenError::UnknownKey, "{kid}");
    }
    let without = format!("{}.{}.AAAA", part(&json!({"alg": "EdDSA"})), part(&ann(json!({}))));
    assert_eq!(site.verify(&without).unwrap_err(), TokenError::UnknownKey);
    let none = Site::with(|config| config.jwks = None);
    assert_eq!(none.verify(&site.issuer.sign(&ann(json!({}))).unwrap()).unwrap_err(), TokenError::UnknownKey);
}

#[test]
fn a_key_that_was_rotated_away_is_refused() {
    let site = Site::new();
    let old = site.issuer.sign(&ann(json!({}))).unwrap();
    let next = SigningKey::generate().unwrap().with_kid(Some("k2".into()));
    let new = next.sign(&ann(json!({}))).unwrap();
    assert_eq!(site.verify(&new).unwrap_err(), TokenError::UnknownKey);
    let look = || site.auth.rules.as_ref().and_then(|rules| rules.jwks.as_ref()).unwrap().check_file();
    publish(&site.dir, &[&site.issuer, &next]);
    look();
    assert!(site.verify(&old).is_ok() && site.verify(&new).is_ok());
    publish(&site.dir, &[&next]);
    look();
    assert_eq!(site.verify(&old).unwrap_err(), TokenError::UnknownKey);
    assert!(site.verify(&new).is_ok());
}

/// What ann hands to the first key, it to the second, and that to the venue.
fn chain(site: &Site, root: Value, middle: Value, last: Value) -> Result<VerifiedToken, TokenError> {
    let (one, two) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let root = site.issuer.sign(&with(ann(json!({"aud": one.did().to_string()})), root)).unwrap();
    let middle_claims = own(&one, json!({"aud": two.did().to_string(), "prf": [root]}));
    let middle = one.sign(&with(middle_claims, middle)).unwrap();
    site.verify(&two.sign(&with(own(&two, json!({"prf": [middle]})), last)).unwrap())
}

fn read(path: &str) -> Value {
    json!({"att": [{"with": path, "can": "crud/read"}]})
}

#[test]
fn a_narrowing_chain_is_accepted_also_from_unadmitted_keys() {
    let site = Site::with(|config| config.did_keys = DidKeys::default());
    let verified = chain(&site, read("w/vendor"), json!({}), read("w/vendor/acme")).unwrap();
    assert_eq!(verified.owner.to_string(), "acme/ann");
    assert_eq!(verified.capabilities.unwrap()[0].with, "w/vendor/acme");
}

#[test]
fn a_chain_that_widens_is_refused() {
    let site = Site::new();
    for (middle, last) in [
        (read("w"), json!({})),
        (json!({}), read("w")),
        (json!({}), read("w/vendor-secrets")),
        (json!({"att": []}), read("w/vendor")),
        (json!({}), json!({"att": [{"with": "w/vendor", "can": "crud"}]})),
    ] {
        let refused = chain(&site, read("w/vendor"), middle, last).unwrap_err();
        assert!(matches!(refused, TokenError::NotHeld(_)), "{refused}");
    }
}

#[test]
fn a_chain_whose_aud_does_not_match_is_refused() {
    let site = Site::new();
    for aud in [AUDIENCE.to_owned(), SigningKey::generate().unwrap().did().to_string()] {
        let refused = chain(&site, json!({}), json!({"aud": aud}), json!({})).unwrap_err();
        assert_eq!(refused, TokenError::Chain("the `aud` of a link is not the `iss` of the next one"));
    }
}

#[test]
fn a_chain_with_an_expired_link_is_refused() {
    let site = Site::new();
    let ended = json!({"exp": NOW - 20});
    assert_eq!(chain(&site, ended.clone(), ended.clone(), ended).unwrap_err(), TokenError::Expired);
    let refused = chain(&site, json!({"exp": NOW - 20}), json!({}), json!({})).unwrap_err();
    assert!(matches!(refused, TokenError::Expired), "{refused}");
    let longer = chain(&site, json!({"exp": NOW + 20}), json!({}), json!({})).unwrap_err();
    assert_eq!(longer, TokenError::Chain("a link lasts longer than the one above it"));
}

#[test]
fn a_chain_with_a_forged_link_is_refused() {
    let site = Site::new();
    let (one, thief) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap().with_kid(Some("k1".into())));
    let root = thief.sign(&ann(json!({"aud": one.did().to_string()}))).unwrap();
    let token = one.sign(&own(&one, json!({"prf": [root]}))).unwrap();
    assert_eq!(site.verify(&token).unwrap_err(), TokenError::Signature);
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    let site = Site::new();
    let keys: Vec<SigningKey> = (0..=TOKEN_LINKS).map(|_| SigningKey::generate().unwrap()).collect();
    let mut token: Option<String> = None;
    for (at, key) in keys.iter().enumerate() {
        let aud = keys.get(at + 1).map_or(AUDIENCE.to_owned(), |next| next.did().to_string());
        token = Some(key.sign(&own(key, json!({"aud": aud, "prf": token.map(|token| vec![token])}))).unwrap());
        let verified = token.as_ref().map(|token| site.verify(token)).unwrap();
        let expected = match (at + 1).cmp(&TOKEN_LINKS) {
            std::cmp::Ordering::Greater => TokenError::Chain("it has more links than are followed"),
            _ => TokenError::Audience,
        };
        assert_eq!(verified.unwrap_err(), expected, "{at}");
    }
}

#[test]
fn a_token_that_is_too_large_is_refused() {
    let site = Site::new();
    let claims = ann(json!({"padding": "x".repeat(TOKEN_BYTES)}));
    let refused = site.verify(&site.issuer.sign(&claims).unwrap()).unwrap_err();
    assert!(matches!(refused, TokenError::TooLarge { limit: TOKEN_BYTES, .. }), "{refused}");
    let refused = site.verify(&"x".repeat(TOKEN_CHAIN_BYTES + 1)).unwrap_err();
    assert!(matches!(refused, TokenError::TooLarge { limit: TOKEN_CHAIN_BYTES, .. }), "{refused}");
}

#[test]
fn a_self_issued_token_can_not_claim_another_owner_or_path() {
    let site = Site::new();
    let key = SigningKey::generate().unwrap();
    let verify = |more| site.verify(&key.sign(&own(&key, more)).unwrap()).unwrap_err();
    assert_eq!(verify(json!({"sub": "acme/ann"})), TokenError::Subject);
    assert!(matches!(verify(read("/acme/ann/w/x")), TokenError::NotHeld(_)));
    assert_eq!(verify(json!({"iss": ISSUER})), TokenError::UnknownKey);
}

#[test]
fn a_subject_with_control_characters_or_of_the_venue_is_refused() {
    let site = Site::new();
    for sub in ["acme/an\u{0}n", "acme/ann\r\nX: y", "acme/\u{85}", "acme/a b", "acme/..", "acme", "acme/ann/x"] {
        let refused = site.verify(&site.issuer.sign(&ann(json!({"sub": sub}))).unwrap()).unwrap_err();
        let TokenError::Claim { claim: "sub", rule } = refused else { panic!("{sub:?}: {refused}") };
        assert!(!rule.to_string().chars().any(char::is_control), "{rule}");
    }
    let venue = site.verify(&site.issuer.sign(&ann(json!({"sub": "acme/_venue"}))).unwrap());
    assert_eq!(venue.unwrap_err(), TokenError::Subject);
}

#[test]
fn malformed_tokens_are_refused() {
    let site = Site::new();
    for text in ["", "x", "a.b", "a.b.c.d", "!.!.!", "e30.e30.e30"] {
        let refused = site.verify(text).unwrap_err();
        assert!(matches!(refused, TokenError::Malformed(_)), "{text}: {refused}");
    }
    let crit = format!("{}.{}.AA", part(&json!({"alg": "EdDSA", "crit": ["x"]})), part(&ann(json!({}))));
    assert!(matches!(site.verify(&crit).unwrap_err(), TokenError::Malformed(_)));
}

#[test]
fn the_header_is_needed_only_where_tokens_are() {
    let site = Site::new();
    let token = site.issuer.sign(&ann(json!({}))).unwrap();
    for header in [format!("Bearer {token}"), format!("bearer  {token} ")] {
        assert!(site.auth.verify_header(Some(&header), now()).unwrap().is_ok());
    }
    for header in [None, Some(""), Some("Bearer"), Some("Basic eDp5"), Some(token.as_str())] {
        assert_eq!(site.auth.verify_header(header, now()).unwrap().unwrap_err(), TokenError::Missing, "{header:?}");
    }
    assert_eq!(Auth::none().verify_header(Some("Bearer x"), now()), None);
}

#[test]
fn a_key_file_round_trips_and_errors_do_not_show_it() {
    let key = SigningKey::generate().unwrap();
    let jwk = key.private_jwk().unwrap();
    assert_eq!(SigningKey::from_jwk(&jwk.to_string()).unwrap().public_jwk(), key.public_jwk());
    assert!(key.public_jwk().get("d").is_none());
    let other = SigningKey::generate().unwrap().private_jwk().unwrap();
    let secret = jwk["d"].as_str().unwrap();
    for (member, value) in [("x", other["x"].clone()), ("kty", json!("RSA")), ("d", json!(format!("{secret}!")))] {
        let mut broken = jwk.clone();
        broken[member] = value;
        let error = SigningKey::from_jwk(&broken.to_string()).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("expected an Ed25519 private key") && !error.contains(secret), "{error}");
    }
}

#[test]
fn submission_ids_stay_valid_when_a_token_is_renewed() {
    let site = Site::new();
    let (one, two) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let of = |token: &str| site.verify(token).unwrap().caller(None).unwrap().caller.principal;
    let issued = |more: Value| of(&site.issuer.sign(&ann(more)).unwrap());
    let handed_on = |key: &SigningKey, more: Value| {
        let root = site.issuer.sign(&ann(json!({"aud": key.did().to_string()}))).unwrap();
        of(&key.sign(&with(own(key, json!({"prf": [root]})), more)).unwrap())
    };
    let both = |order: [usize; 2]| {
        let att = [json!({"with": "w/a", "can": "crud/read"}), json!({"with": "w/b", "can": "crud"})];
        json!({"att": order.map(|n| att[n].clone())})
    };
    let first = issued(both([0, 1]));
    let renewed = with(both([1, 0]), json!({"exp": NOW + 600, "jti": "another", "email": "ann@new.example"}));
    assert_eq!(issued(renewed), first);
    let delegate = handed_on(&one, both([0, 1]));
    assert_eq!(handed_on(&one, with(both([0, 1]), json!({"jti": "another"}))), delegate);
    for other in [
        issued(json!({})),
        issued(read("w/a")),
        issued(with(both([0, 1]), json!({"sub": "acme/bob"}))),
        delegate,
        handed_on(&two, both([0, 1])),
        handed_on(&one, read("w/a")),
        crate::domain::principal::Principal::ANYBODY,
    ] {
        assert_ne!(other, first);
    }
    assert_ne!(handed_on(&one, json!({})), handed_on(&two, json!({})), "two holders of the same");
}
