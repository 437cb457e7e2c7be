//! What claims mean, and that no chain widens.

use super::*;
use crate::authority::Capability;
use crate::ids::did::DidKey;
use crate::time::Millis;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: u64 = 1_800_000_000;
const VENUE: &str = "did:web:venue.example";

fn key(n: u8) -> DidKey {
    DidKey::new([n; 32])
}

fn claims(json: &Value) -> Result<Claims, TokenError> {
    Claims::parse(json.to_string().as_bytes())
}

/// A link by key `n`, its claims completed with `more`.
fn link(n: u8, more: Value) -> Link {
    let did = key(n).to_string();
    let mut all = json!({"iss": did, "sub": did, "aud": VENUE, "exp": NOW + 60});
    merge(&mut all, more);
    Link { claims: claims(&all).unwrap(), signer: Signer::Key(key(n)) }
}

fn issued(speaks: SpeaksFor, more: Value) -> Link {
    let mut all = json!({"iss": "https://id.example", "sub": "acme/ann", "aud": [VENUE, "x"], "exp": NOW + 60});
    merge(&mut all, more);
    Link { claims: claims(&all).unwrap(), signer: Signer::Issuer(speaks) }
}

fn merge(all: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("expected a map") };
    all.as_object_mut().unwrap().extend(more);
    all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
}

fn judged(links: &[Link]) -> Result<Bearer, TokenError> {
    let leeway = Duration::from_secs(10);
    judge(links, JudgeSettings { now: Millis(NOW * 1000), leeway, audiences: &["trellis", VENUE] })
}

fn acme() -> SpeaksFor {
    SpeaksFor::only(["acme"]).unwrap()
}

fn caps(bearer: &Bearer) -> Option<Vec<String>> {
    bearer.capabilities.as_ref().map(|caps| caps.iter().map(|cap| format!("{} {}", cap.can, cap.with)).collect())
}

fn att(entries: &[(&str, &str)]) -> Value {
    entries.iter().map(|(can, with)| json!({"with": with, "can": can})).collect()
}

/// The chain root → key 2 → venue, with these `att`.
fn two_links(root_att: &Value, last_att: &Value) -> Result<Bearer, TokenError> {
    let root = link(1, json!({"aud": key(2).to_string(), "att": root_att}));
    judged(&[link(2, json!({"att": last_att})), root])
}

#[test]
fn a_key_speaks_for_itself_and_an_issuer_for_its_owners() {
    let own = judged(&[link(1, json!({"name": "Root", "email": "root@x", "jti": "g1"}))]).unwrap();
    assert_eq!((own.owner, own.capabilities, own.delegated), (key(1).owner(), None, false));
    assert_eq!(own.grants, ["g1"]);
    let itself = json!({"user_id": key(1).multibase(), "user.id": key(1).multibase()});
    assert_eq!(Value::Object(own.claims), itself, "nobody vouches for the name");

    let ann = judged(&[issued(acme(), json!({"name": "Ann", "email": "ann@acme.example", "att": []}))]).unwrap();
    assert_eq!((ann.owner.to_string().as_str(), ann.capabilities), ("acme/ann", Some(vec![])));
    let known = json!({
        "user_id": "ann", "user.id": "ann", "user_name": "Ann", "user.name": "Ann",
        "user_email": "ann@acme.example", "user.email": "ann@acme.example",
    });
    assert_eq!(Value::Object(ann.claims), known);

    for link in [
        link(1, json!({"sub": key(2).to_string()})),
        link(1, json!({"sub": "acme/ann"})),
        issued(acme(), json!({"sub": "globex/bob"})),
        issued(acme(), json!({"sub": "acme-evil/ann"})),
        issued(SpeaksFor::everybody(), json!({"sub": key(1).to_string()})),
        issued(SpeaksFor::everybody(), json!({"sub": format!("did/{}", key(1).multibase())})),
    ] {
        assert_eq!(judged(&[link]).unwrap_err(), TokenError::Subject);
    }
    assert_eq!(judged(&[link(1, json!({"sub": null}))]).unwrap().owner, key(1).owner(), "as UCANs have it");
    let nobody = judged(&[issued(acme(), json!({"sub": null}))]).unwrap_err();
    assert!(matches!(nobody, TokenError::Claim { claim: "sub", .. }), "{nobody}");
}

#[test]
fn time_and_audience_are_judged_with_leeway() {
    for (more, refused) in [
        (json!({"exp": NOW - 9}), None),
        (json!({"exp": NOW - 10}), Some(TokenError::Expired)),
        (json!({"exp": 1_799_999_990.5}), None),
        (json!({"nbf": NOW + 10}), None),
        (json!({"nbf": NOW + 11}), Some(TokenError::NotYet)),
        (json!({"aud": "trellis"}), None),
        (json!({"aud": ["a", "trellis"]}), None),
        (json!({"aud": null}), Some(TokenError::Audience)),
        (json!({"aud": []}), Some(TokenError::Audience)),
        (json!({"aud": "trellis2"}), Some(TokenError::Audience)),
        (json!({"aud": key(1).to_string()}), Some(TokenError::Audience)),
    ] {
        assert_eq!(judged(&[link(1, more.clone())]).err(), refused, "{more}");
    }
}

#[test]
fn what_a_token_grants_is_resolved_to_its_owner() {
    let own = key(1);
    for (with, expected) in [
        ("w/x", "w/x"),
        ("w/x/", "w/x"),
        ("", ""),
        ("r/app/user/u_123", "r/app/user/u_123"),
        ("https://api.example/v1", "https://api.example/v1"),
        (&format!("{own}/w/x"), "w/x"),
        (&format!("{own}"), ""),
        (&format!("/did/{}/w/x", own.multibase()), "w/x"),
        (&format!("/did/{}", own.multibase()), ""),
    ] {
        let bearer = judged(&[link(1, json!({"att": att(&[("crud/*", with)])}))]).unwrap();
        assert_eq!(caps(&bearer).unwrap(), [format!("crud {expected}")], "{with}");
    }
    let issued = judged(&[issued(acme(), json!({"att": att(&[("crud/read", "/acme/bob/w/x"), ("*", "/acme/bob")])}))]);
    assert_eq!(caps(&issued.unwrap()).unwrap(), ["crud/read /acme/bob/w/x", "* /acme/bob"]);
}

#[test]
fn a_self_issued_token_can_not_claim_another_owners_path() {
    for with in ["/acme/ann/w/x", &format!("{}/w/x", key(2)), &format!("/did/{}", key(2).multibase())] {
        let refused = judged(&[link(1, json!({"att": att(&[("crud/read", "w"), ("crud/read", with)])}))]).unwrap_err();
        assert!(matches!(&refused, TokenError::NotHeld(what) if what.contains(&with[..12])), "{refused}");
    }
    let refused = judged(&[issued(acme(), json!({"att": att(&[("crud/read", "/acme-evil/bob/w/x")])}))]).unwrap_err();
    assert!(matches!(refused, TokenError::NotHeld(_)), "{refused}");
}

/// Names of one person, in the places in which issuers write them.
#[test]
fn an_issuer_names_the_user_by_user_id_and_user_meta() {
    let person = |id: &str, name: &str, email: &str| json!({"user_id": id, "user.id": id, "user_name": name, "user.name": name, "user_email": email, "user.email": email});
    for (more, expected) in [
        (json!({"userMeta": {"name": "Ada", "email": "a@x"}, "user_id": "U9"}), person("U9", "Ada", "a@x")),
        (
            json!({"user_id": 42, "name": "Ann", "email": "e", "userMeta": {"name": "Ada", "x": 1}}),
            person("42", "Ann", "e"),
        ),
    ] {
        assert_eq!(Value::Object(judged(&[issued(acme(), more.clone())]).unwrap().claims), expected, "{more}");
    }
    let own = judged(&[link(1, json!({"user_id": "root", "userMeta": {"name": "Root"}}))]).unwrap();
    assert!(own.claims["user_id"] != "root" && !own.claims.contains_key("user.name"), "nobody vouches for it");
    for (claims, part) in [
        (json!({"user_id": ""}), "illegal claim `user_id`"),
        (json!({"user_id": "a\nb"}), "illegal claim `user_id`"),
        (json!({"userMeta": {"name": "a\u{1b}[31m"}}), "illegal claim `userMeta`"),
        (json!({"userMeta": "Ada"}), "can't be read"),
        (json!({"user_id": {"x": 1}}), "can't be read"),
    ] {
        let mut all = json!({"iss": key(1).to_string(), "sub": "acme/ann", "exp": NOW});
        merge(&mut all, claims);
        let error = self::claims(&all).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn illegal_claims_are_refused_with_their_rule() {
    let legal = json!({"iss": key(1).to_string(), "sub": "acme/ann", "exp": NOW});
    for (more, part) in [
        (json!({"iss": null}), "illegal claim `iss`: it is missing"),
        (json!({"exp": null}), "illegal claim `exp`: it is missing"),
        (json!({"exp": -1}), "illegal claim `exp`"),
        (json!({"exp": 1e300}), "illegal claim `exp`"),
        (json!({"exp": "tomorrow"}), "can't be read"),
        (json!({"sub": "acme"}), "expected `tenant/user`"),
        (json!({"sub": "acme/a\u{0}nn"}), "control characters"),
        (json!({"sub": "acme/ann\n"}), "control characters"),
        (json!({"sub": "acme/../x"}), "`/` is not allowed"),
        (json!({"sub": "../x"}), "are not names"),
        (json!({"sub": "did:key:zzz"}), "expected `tenant/user` or the `did:key"),
        (json!({"name": "a\u{1b}[31m"}), "illegal claim `name`: control characters"),
        (json!({"jti": ""}), "illegal claim `jti`"),
        (json!({"jti": "x".repeat(257)}), "illegal claim `jti`: expected at most 256"),
        (json!({"att": {}}), "illegal claim `att`: expected a list"),
        (json!({"att": "w/x"}), "illegal claim `att`: expected a list"),
        (json!({"att": [{"with": "w", "can": "crud", "nb": {"max": 1}}]}), "unknown field `nb`"),
        (json!({"prf": ["a", "b"]}), "illegal claim `prf`: expected one"),
        (json!({"prf": "a"}), "can't be read"),
    ] {
        let mut all = legal.clone();
        merge(&mut all, more);
        let error = claims(&all).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let twice = format!(r#"{{"iss": "a", "sub": "acme/ann", "sub": "acme/bob", "exp": {NOW}}}"#);
    assert!(Claims::parse(twice.as_bytes()).unwrap_err().to_string().contains("is given twice"));
    let null = format!(r#"{{"iss": "a", "sub": "acme/ann", "exp": {NOW}, "att": null}}"#);
    assert!(Claims::parse(null.as_bytes()).unwrap_err().to_string().contains("illegal claim `att`"));
}

#[test]
fn illegal_elements_of_att_are_refused_with_their_rule() {
    for (can, with, part) in [
        ("crud", "w/../s", "segment `..`"),
        ("crud", "w//x", "empty segment"),
        ("crud", "//w", "expected at least one character"),
        ("crud", "r//x", "empty segment"),
        ("crud", "r/../x", "segment `..`"),
        ("crud", "w/a\u{7}", "control characters"),
        ("crud", "q/x", "unknown namespace `q`"),
        ("crud", "w/*", "without `*`"),
        ("crud", "did:web:venue.example/w", "expected a path"),
        ("crud", "did:key:zzz/w", "expected a path"),
        ("crud", "/acme", "expected at least one character"),
        ("crud", "https://h/../x", "expected e.g."),
        ("crud", "https://h/x ", "expected e.g."),
        ("", "w", "expected an ability"),
        ("crud//read", "w", "expected an ability"),
        ("crud/*/read", "w", "expected an ability"),
        ("Crud", "w", "expected an ability"),
        ("crud\n", "w", "expected an ability"),
    ] {
        let error = judged(&[link(1, json!({"att": att(&[(can, with)])}))]).unwrap_err().to_string();
        assert!(error.starts_with("illegal claim `att`") && error.contains(part), "{can:?} {with:?}: {error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
}

#[test]
fn a_chain_narrows_and_its_owner_is_the_roots() {
    let root = issued(
        acme(),
        json!({"aud": key(1).to_string(), "exp": NOW + 90, "jti": "root", "name": "Ann",
        "att": att(&[("crud", "w/vendor"), ("agent", "g"), ("crud/read", "/acme/bob/w/shared")])}),
    );
    let middle = link(
        1,
        json!({"aud": key(2).to_string(), "sub": "acme/ann", "exp": NOW + 90,
        "att": att(&[("crud/read", "w/vendor"), ("crud/read", "/acme/bob/w/shared/x")])}),
    );
    let last = link(
        2,
        json!({"jti": "leaf", "exp": NOW + 30, "sub": null,
        "att": att(&[("crud/read", "/acme/ann/w/vendor/acme"), ("crud/read", "/acme/bob/w/shared/x/y")])}),
    );
    let bearer = judged(&[last, middle.clone(), root.clone()]).unwrap();
    assert_eq!(caps(&bearer).unwrap(), ["crud/read w/vendor/acme", "crud/read /acme/bob/w/shared/x/y"]);
    assert_eq!((bearer.owner.to_string().as_str(), bearer.delegated), ("acme/ann", true));
    assert_eq!(bearer.grants, ["leaf", "root"]);
    assert_eq!(bearer.expires, Millis((NOW + 30) * 1000));
    assert_eq!(bearer.claims["user.name"], "Ann");
    // Absent hands on what there is, and no more.
    let all = judged(&[link(2, json!({})), middle, root]).unwrap();
    assert_eq!(caps(&all).unwrap(), ["crud/read w/vendor", "crud/read /acme/bob/w/shared/x"]);
    assert_eq!(caps(&two_links(&Value::Null, &Value::Null).unwrap()), None);
    assert_eq!(caps(&two_links(&Value::Null, &json!([])).unwrap()), Some(vec![]));
    assert_eq!(caps(&two_links(&json!([]), &Value::Null).unwrap()), Some(vec![]));
}

#[test]
fn a_list_keeps_the_inherited_rights_it_does_not_mention() {
    let (path, resource) = (att(&[("crud/read", "w/vendor")]), att(&[("*", "r/app/u1")]));
    let both = two_links(&path, &resource).unwrap();
    assert_eq!(caps(&both).unwrap(), ["* r/app/u1", "crud/read w/vendor"]);
    let both = two_links(&resource, &path).unwrap();
    assert_eq!(caps(&both).unwrap(), ["crud/read w/vendor", "* r/app/u1"]);
    let refused = two_links(&resource, &att(&[("*", "r/app/u12")])).unwrap_err();
    assert!(matches!(refused, TokenError::NotHeld(_)), "{refused}");
    assert_eq!(caps(&two_links(&resource, &json!([])).unwrap()), Some(vec![]));
}

#[test]
fn a_chain_that_widens_is_refused() {
    let read = att(&[("crud/read", "w/vendor")]);
    for (root, last) in [
        (read.clone(), att(&[("crud/read", "w")])),
        (read.clone(), att(&[("crud", "w/vendor")])),
        (read.clone(), att(&[("*", "w/vendor")])),
        (read.clone(), att(&[("crud/write", "w/vendor/x")])),
        (read.clone(), att(&[("crud/read", "w/vendor-secrets")])),
        (read.clone(), att(&[("crud/read", "w/vendor"), ("crud/read", "w/vendo")])),
        (read.clone(), att(&[("crud/read", "")])),
        (read, att(&[("crud/read", &format!("{}/w/vendor", key(2)))])),
        (json!([]), att(&[("crud/read", "w/vendor")])),
        // All of one's own is not all.
        (Value::Null, att(&[("crud/read", "/acme/ann/w")])),
        (att(&[("*", "")]), att(&[("crud/read", &format!("{}/w", key(2)))])),
    ] {
        let refused = two_links(&root, &last).unwrap_err();
        assert!(matches!(refused, TokenError::NotHeld(_)), "{root} {last}: {refused}");
    }
}

#[test]
fn links_that_do_not_belong_together_are_refused() {
    let root = |more: Value| {
        let mut all = more;
        all.as_object_mut().unwrap().entry("aud").or_insert(key(2).to_string().into());
        link(1, all)
    };
    for (last, root, expected) in [
        (link(2, json!({})), root(json!({"aud": key(3).to_string()})), "the `aud` of a link"),
        (link(2, json!({})), root(json!({"aud": VENUE})), "the `aud` of a link"),
        (link(3, json!({})), root(json!({})), "the `aud` of a link"),
        (link(2, json!({"exp": NOW + 61})), root(json!({})), "lasts longer"),
        (link(2, json!({"sub": key(3).to_string()})), root(json!({})), "the `sub` of a link"),
        (link(2, json!({"sub": "acme/ann"})), root(json!({})), "the `sub` of a link"),
        (link(2, json!({"exp": NOW - 60})), root(json!({"exp": NOW - 50})), "has expired"),
        (link(2, json!({})), root(json!({"nbf": NOW + 50})), "not valid yet"),
        (link(2, json!({"aud": "x"})), root(json!({})), "another audience"),
        (link(2, json!({})), root(json!({"sub": "acme/ann"})), "doesn't speak"),
    ] {
        let error = judged(&[last, root]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(judged(&[root(json!({}))]).unwrap_err(), TokenError::Audience, "a link above is no token of its own");
    assert_eq!(judged(&[]).unwrap_err(), TokenError::Missing);
}

#[test]
fn capabilities_of_one_owner_never_cover_anothers() {
    let everything =
        super::att::GrantedElement { foreign: None, on: Capability { with: String::new(), can: "*".into() } };
    let bobs = Capability { with: "/acme/bob/w".into(), can: "crud/read".into() };
    let bobs = super::att::GrantedElement::parse(&"acme/ann".parse().unwrap(), &bobs).unwrap();
    assert!(!bobs.is_within(Some(&[everything])));
    assert!(bobs.is_within(Some(std::slice::from_ref(&bobs))));
}
