//! `auth.mode = "jwt"` from outside: over HTTP, in the queue, on the command line, by the published client.

mod cancel;
mod identity;
mod inboxes;
mod jobs;
mod operators;
mod keys;
mod readers;
mod streams;

use crate::support::cli::{Process, command, run};
use crate::support::fleet::Fleet;
use crate::support::http::{Answer, Server};
use crate::support::venue::TestVenue;
use crate::support::{nats, python};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::config::{AuthConfig, AuthMode, DidKeys};
use trellis::domain::token::TokenSubject;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::auth::Auth;
use trellis::venue::auth::signing::SigningKey;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/covia_signed.py");
const AUDIENCE: &str = "did:web:venue.example";

/// A venue that trusts one issuer for `acme`, over HTTP.
struct Site {
    server: Server,
    issuer: SigningKey,
    /// It has the folder of the store.
    _plain: Server,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (issuer, auth) = issuer(dir.path());
        let plain = Server::start().await;
        let server = Server::with(Arc::clone(&plain.venue), auth).await;
        Self { server, issuer, _plain: plain, _dir: dir }
    }

    fn token(&self, sub: &str, more: &Value) -> String {
        token(&self.issuer, sub, more)
    }

    async fn send(&self, method: Method, path: &str, token: &str, owner: Option<&str>, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(owner.map(|owner| ("X-Trellis-Owner", owner)));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.send(method, path, &headers, body).await
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, token, None, &Value::Null).await
    }

    async fn run(&self, operation: &str, input: Value, token: &str) -> Answer {
        let body = json!({"operation": operation, "input": input});
        self.send(Method::POST, "/api/v1/run", token, None, &body).await
    }
}

/// An issuer for `acme`, and those who trust it.
pub fn issuer(dir: &Path) -> (SigningKey, Arc<Auth>) {
    let issuer = SigningKey::generate().unwrap().with_kid(Some("k1".into()));
    let mut jwk = issuer.public_jwk();
    jwk["trellis_owner"] = json!("acme");
    let jwks = dir.join("keys.json");
    std::fs::write(&jwks, json!({"keys": [jwk]}).to_string()).unwrap();
    let auth = auth(AuthConfig { jwks: Some(jwks), audience: vec![AUDIENCE.into()], ..AuthConfig::default() });
    (issuer, auth)
}

pub fn token(issuer: &SigningKey, sub: &str, more: &Value) -> String {
    let now = Clock::system().now().0 / 1000;
    let mut claims = json!({"iss": "https://id.example", "sub": sub, "aud": AUDIENCE, "exp": now + 3600});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    issuer.sign(&claims).unwrap()
}

fn auth(config: AuthConfig) -> Arc<Auth> {
    let operators = vec![TokenSubject::parse("acme/root").unwrap()];
    Arc::new(Auth::open(&AuthConfig { mode: AuthMode::Jwt, operators, ..config }, "trellis").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_only_discovery_and_health_are_answered() {
    let site = Site::new().await;
    let status = site.server.get("/api/v1/status").await.body(200);
    assert_eq!((&status["did"], &status["access"]), (&json!(AUDIENCE), &json!({"mode": "jwt"})));
    assert_eq!(site.server.get("/.well-known/did.json").await.body(200)["id"], AUDIENCE);
    // The published client learns here for whom to make a token, and may send one for nobody until then.
    site.get("/api/v1/status", &site.token("acme/ann", &json!({"aud": "x"}))).await.body(200);
    for path in ["/livez", "/readyz", "/api/v1/openapi.json"] {
        site.server.get(path).await.body(200);
    }
    for path in ["jobs", "agents", "operations", "assets", "secrets", "why", "values/read?path=w/x", "nowhere"] {
        let refused = site.server.get(&format!("/api/v1/{path}")).await;
        refused.is_problem(401, "no token, expected the header `Authorization: Bearer <token>`");
        assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"trellis\"");
    }
    site.server.get("/metrics").await.is_problem(401, "no token");
    // A page of another origin has no token either, and a proxy's host name is no reason.
    let headers = [("host", "trellis.example"), ("origin", "https://evil.example")];
    site.server.send(Method::GET, "/api/v1/jobs", &headers, "").await.is_problem(401, "no token");
    site.server.send(Method::GET, "/api/v1/status", &headers, "").await.body(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_token_is_refused_before_anything_is_stored() {
    let site = Site::new().await;
    let good = site.token("acme/ann", &json!({}));
    let (signed, _) = good.rsplit_once('.').unwrap();
    let past = Clock::system().now().0 / 1000 - 3600;
    for (token, reason) in [
        (format!("{signed}.AAAA"), "signature doesn't fit"),
        (site.token("acme/ann", &json!({"exp": past})), "has expired"),
        (site.token("acme/ann", &json!({"nbf": past + 7200})), "not valid yet"),
        (site.token("acme/ann", &json!({"aud": "did:web:other"})), "another audience"),
        (site.token("globex/ann", &json!({})), "doesn't speak for its subject"),
        (site.token("acme/an\u{7}n", &json!({})), "control characters"),
        (SigningKey::generate().unwrap().sign(&json!({"iss": "x", "exp": past})).unwrap(), "key is not known here"),
        ("x".repeat(40_000), "has 40000 bytes, expected at most 32768"),
    ] {
        let answer = site.run("lattice/write", json!({"path": "w/a/b", "value": 1}), &token).await;
        answer.is_problem(401, reason);
        let challenge = answer.header("www-authenticate").to_owned();
        assert!(challenge.starts_with("Bearer realm=\"trellis\", error=\"invalid_token\""), "{challenge}");
        assert!(challenge.contains(reason) || reason.contains('\''), "{challenge}");
    }
    assert_eq!(site.get("/api/v1/values/read?path=w/a/b", &good).await.body(200), json!({"exists": false}));
    let twice = [("Authorization", "Bearer x"), ("Authorization", "Bearer y")];
    site.server.send(Method::GET, "/api/v1/jobs", &twice, "").await.is_problem(400, "given more than once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_the_tokens_and_only_operators_name_another() {
    let site = Site::new().await;
    let (ann, bob, root) = ("acme/ann", "acme/bob", "acme/root");
    let token = |sub: &str| site.token(sub, &json!({}));
    site.run("lattice/write", json!({"path": "w/a/b", "value": 1}), &token(ann)).await.body(200);
    let read = "/api/v1/values/read?path=w/a/b";
    assert_eq!(site.get(read, &token(ann)).await.body(200)["value"], 1);
    assert_eq!(site.get(read, &token(bob)).await.body(200), json!({"exists": false}));
    let as_ann = async |token: &str| site.send(Method::GET, read, token, Some(ann), &Value::Null).await;
    assert_eq!(as_ann(&token(ann)).await.body(200)["value"], 1);
    as_ann(&token(bob)).await.is_problem(403, "the token is about owner `acme/bob`");
    assert_eq!(as_ann(&token(root)).await.body(200)["value"], 1);
    as_ann(&site.token(root, &json!({"att": [{"with": "", "can": "*"}]}))).await.is_problem(403, "only operators");
    site.send(Method::GET, read, &token(root), Some("acme/_venue"), &Value::Null).await.is_problem(403, "venue's own");
    site.get("/metrics", &token(ann)).await.is_problem(403, "only operators");
    assert_eq!(site.get("/metrics", &token(root)).await.status, 200);
    let shared = json!({"path": "v/context/project", "value": {"city": "Bern"}});
    site.run("lattice/write", shared.clone(), &token(ann)).await.is_problem(403, "written by operators alone");
    site.run("lattice/write", shared, &token(root)).await.body(200);
    assert_eq!(
        site.run("lattice/read", json!({"path": "v/context/project"}), &token(bob)).await.body(200)["exists"],
        true
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_actions_are_denied_on_every_route() {
    let site = Site::new().await;
    let token = |att: Value| site.token("acme/ann", &json!({"att": att}));
    let read = token(json!([{"with": "w/vendor", "can": "crud/read"}]));
    let (nothing, job) = (token(json!([])), "0".repeat(32));
    site.get("/api/v1/values/read?path=w/vendor/x", &read).await.body(200);
    site.get("/api/v1/values/read?path=w/vendor-secrets/x", &read)
        .await
        .is_problem(403, "crud/read on w/vendor-secrets");
    site.run("lattice/write", json!({"path": "w/vendor/x", "value": 1}), &read).await.is_problem(403, "crud/write");
    for token in [&read, &nothing] {
        let none = site.get("/api/v1/jobs", token).await.body(200);
        assert_eq!(none["items"], json!([]), "those that it asked for are listed, and no others");
        for (method, path) in [
            (Method::GET, format!("jobs/{job}")),
            (Method::GET, format!("jobs/{job}/sse")),
            (Method::PUT, format!("jobs/{job}/cancel")),
            (Method::PUT, format!("jobs/{job}/delete")),
            (Method::POST, format!("jobs/{job}")),
            (Method::GET, "agents".to_owned()),
            (Method::GET, "agents/a".to_owned()),
            (Method::PUT, "agents/a".to_owned()),
            (Method::POST, "agents/a/tasks".to_owned()),
            (Method::POST, "agents/a/messages".to_owned()),
            (Method::POST, "agents/a/context".to_owned()),
            (Method::GET, "agents/a/turns".to_owned()),
            (Method::GET, "why?path=w/x".to_owned()),
            (Method::GET, "assets".to_owned()),
            (Method::POST, "assets".to_owned()),
            (Method::GET, "secrets".to_owned()),
            (Method::PUT, "secrets/key".to_owned()),
            (Method::DELETE, "secrets/key".to_owned()),
        ] {
            let bare = method == Method::DELETE || path.ends_with("/delete");
            let body = if bare { json!({}) } else { json!({"value": "0123456789"}) };
            site.send(method, &format!("/api/v1/{path}"), token, None, &body)
                .await
                .is_problem(403, "Capability denied");
        }
    }
    site.get("/api/v1/values/read?path=w/vendor/x", &nothing).await.is_problem(403, "(none)");
    let agent = token(json!([{"with": "g/a", "can": "crud/read"}]));
    site.get("/api/v1/agents/a", &agent).await.is_problem(404, "no agent `a`");
    site.get("/api/v1/agents/ab", &agent).await.is_problem(403, "crud/read on g/ab");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_calls_nothing_any_more() {
    let site = Site::new().await;
    let token = |jti: &str| site.token("acme/ann", &json!({"jti": jti}));
    let (lost, other, root) = (token("lost"), token("other"), site.token("acme/root", &json!({"jti": "root"})));
    let write =
        async |path: &str, token: &str| site.run("lattice/write", json!({"path": path, "value": 1}), token).await;
    write("w/a/x", &lost).await.body(200);
    site.run("policy/revoke", json!({"grant": "lost"}), &other).await.body(200);
    write("w/a/y", &lost).await.is_problem(401, "was revoked");
    for path in ["jobs", "agents", "operations", "values/read?path=w/a/x"] {
        site.get(&format!("/api/v1/{path}"), &lost).await.is_problem(401, "was revoked");
    }
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}});
    site.send(Method::PUT, "/api/v1/agents/a", &lost, None, &agent).await.is_problem(401, "was revoked");
    write("w/a/y", &other).await.body(200);
    let shown = site.run("policy/show", json!({}), &other).await.body(200);
    let id = shown["revocations"][0]["id"].as_str().unwrap_or_else(|| panic!("{shown}"));
    let restore = json!({"operation": "policy/restore", "input": {"id": id}});
    site.send(Method::POST, "/api/v1/run", &root, Some("acme/ann"), &restore).await.body(200);
    write("w/a/z", &lost).await.body(200);
    // From a holder, a path only.
    site.run("policy/revoke", json!({"holder": "acme/ann", "path": "w/pay"}), &other).await.body(200);
    write("w/pay/x", &lost).await.is_problem(403, "which was revoked");
    write("w/payments", &lost).await.body(200);
    // A path alone says what no agent may do.
    site.run("policy/revoke", json!({"path": "w/agents"}), &other).await.body(200);
    write("w/agents/x", &other).await.body(200);
    // What an operator's own owner took back, he lacks for others too; so does he what they took back.
    let as_ann = async || {
        let body = json!({"operation": "lattice/read", "input": {"path": "w/a/x"}});
        site.send(Method::POST, "/api/v1/run", &root, Some("acme/ann"), &body).await
    };
    as_ann().await.body(200);
    site.run("policy/revoke", json!({"holder": "acme/root"}), &other).await.body(200);
    as_ann().await.is_problem(401, "was revoked");
    site.get("/api/v1/jobs", &root).await.body(200);
    site.run("policy/revoke", json!({"grant": "root"}), &root).await.body(200);
    site.get("/api/v1/jobs", &root).await.is_problem(401, "was revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_a_key_only_from_who_may_use_it() {
    let site = Site::new().await;
    let agent = json!({"model": {"provider": "openai", "name": "m", "key": "s/KEY"}});
    let create = json!({"with": "g/keyed", "can": "agent/create"});
    let apply = async |att: Value| {
        let token = site.token("acme/ann", &json!({"att": att}));
        site.send(Method::PUT, "/api/v1/agents/keyed", &token, None, &agent).await
    };
    apply(json!([create])).await.is_problem(403, "requires secret/use on s/KEY");
    apply(json!([create, {"with": "s/OTHER", "can": "secret"}])).await.is_problem(403, "secret/use on s/KEY");
    apply(json!([create, {"with": "s/KEY", "can": "secret/use"}])).await.body(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_client_signs_its_requests() {
    let Some(python) = python::with("covia, jwt, cryptography") else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(5), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
    venue.worker();
    let auth = auth(AuthConfig { did_keys: DidKeys::All, ..AuthConfig::default() });
    let server = Server::with(Arc::clone(&venue.venue), auth).await;
    let url = server.url.clone();
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([CLIENT, &url]).output().unwrap());
    let output = run.await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("ok covia"), "{said}\n{complained}");
}

/// Every file below a folder that holds these bytes.
fn holding(dir: &Path, bytes: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding(&path, bytes, found);
        } else if std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn a_user_makes_a_key_and_a_token_and_the_token_is_kept_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let did = run(dir, &["token", "keygen", "me.jwk"]).ok();
    run(dir, &["token", "keygen", "me.jwk"]).expect(6, "exists, and no key is written over");
    run(dir, &["token", "keygen", "issuer.jwk", "--jwks", "keys.json", "--kid", "k1", "--speaks-for", "acme"]).ok();
    let config = format!(
        "[auth]\nmode = \"jwt\"\njwks = \"keys.json\"\noperators = \"{did}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[log]\nlevel = \"debug\"\n"
    );
    std::fs::write(dir.join("trellis.toml"), config).unwrap();
    std::fs::write(dir.join("echo.toml"), "model = { provider = \"scripted\", name = \"echo\" }").unwrap();
    let mut up = Process::start(dir, ["up", "--config", "trellis.toml", "--data", "data"]);
    let url = up.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let with = |token: &str, args: &[&str]| {
        let output = command(dir).args(args).args(["--url", &url]).env("TRELLIS_TOKEN", token).output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    run(dir, &["agent", "list", "--url", &url]).expect(7, "no token");
    let operator = run(dir, &["token", "issue", "--key", "me.jwk", "--url", &url]).ok();
    assert_eq!(with(&operator, &["agent", "apply", "echo.toml", "--owner", "acme/ann"]).0, 0);
    let ann = ["token", "issue", "--key", "issuer.jwk", "--sub", "acme/ann", "--url", &url, "--jti", "grant-77"];
    let ann =
        run(dir, &[&ann[..], &["--name", "Ann", "--att", "g/echo:agent/request", "--att", "j:crud/read"]].concat())
            .ok();
    let (code, out, err) = with(&ann, &["submit", "echo", "hello", "--wait"]);
    assert!(code == 0 && out.contains("hello"), "{code} {out} {err}");
    let (code, _, err) = with(&ann, &["lattice", "write", "w/a/b", "1"]);
    assert!(code == 7 && err.contains("crud/write on w/a/b"), "{code} {err}");
    assert_eq!(with(&ann, &["agent", "list", "--owner", "acme/bob"]).0, 7);
    std::fs::write(dir.join("token.txt"), &operator).unwrap();
    run(dir, &["agent", "list", "--url", &url, "--token-file", "token.txt"]).ok();
    // What came of it is kept; the token isn't, in no part that would let somebody use it.
    std::fs::remove_file(dir.join("token.txt")).unwrap();
    up.signal("TERM");
    up.ended();
    for token in [&operator, &ann] {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let claims = signed.split_once('.').unwrap().1;
        for part in [signature, claims] {
            let mut found = Vec::new();
            holding(dir, part.as_bytes(), &mut found);
            assert!(found.is_empty() && !up.log().contains(part), "{found:?}");
        }
    }
}

#[test]
fn a_token_is_shown_with_what_the_configuration_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, &["token", "keygen", "issuer.jwk", "--jwks", "keys.json", "--kid", "k1", "--speaks-for", "acme"]).ok();
    let issue = |more: &[&str]| {
        let all = ["token", "issue", "--key", "issuer.jwk", "--aud", "trellis", "--att", "w/vendor:crud/read"];
        run(dir, &[&all[..], more].concat()).ok()
    };
    let ann = issue(&["--sub", "acme/ann"]);
    let settings = ["--set", "auth.mode=jwt", "--set", "auth.jwks=keys.json", "--output", "json"];
    let show = |token: &str| run(dir, &[&["token", "show", token], &settings[..]].concat());
    let shown: Value = serde_json::from_str(&show(&ann).ok()).unwrap();
    assert_eq!(shown["verified"]["owner"], "acme/ann");
    assert_eq!(shown["verified"]["capabilities"], json!([{"with": "w/vendor", "can": "crud/read"}]));
    show(&issue(&["--sub", "globex/bob"])).expect(7, "doesn't speak for its subject");
    show("nonsense").expect(2, "this is no token");
    run(dir, &["token", "show", &ann]).expect(0, "not verified: `auth.mode` is `none`");
    // Ann hands a part on to somebody's key.
    let did = run(dir, &["token", "keygen", "bob.jwk"]).ok();
    let for_bob =
        ["token", "issue", "--key", "issuer.jwk", "--sub", "acme/ann", "--aud", &did, "--att", "w/vendor:crud"];
    let proof = run(dir, &for_bob).ok();
    // In another second than the proof: by default it ends with the proof.
    std::thread::sleep(Duration::from_millis(1_100));
    let narrow = |more: &[&str]| {
        let args = ["token", "issue", "--key", "bob.jwk", "--aud", "trellis", "--proof", &proof];
        run(dir, &[&args[..], more].concat())
    };
    for more in [&["--att", "w/vendor/acme:crud/read"][..], &["--ttl", "10m"], &["--no-att"]] {
        let shown: Value = serde_json::from_str(&show(&narrow(more).ok()).ok()).unwrap();
        assert_eq!(shown["verified"]["owner"], "acme/ann", "{more:?}");
    }
    // What no venue would take isn't signed.
    run(dir, &["token", "keygen", "eve.jwk"]).ok();
    for (more, why) in [
        (&["--att", "w/vendor-secrets:crud/read"][..], "which its issuer doesn't hold"),
        (&["--att", "w:crud/read"], "which its issuer doesn't hold"),
        (&["--ttl", "1h"], "`--ttl` ends after the proof, which ends at"),
        (&["--sub", "acme/bob"], "neither the root's nor its own issuer"),
        (&["--key", "eve.jwk"], "is not the `iss` of the next one"),
        (&["--proof", "x.y.z"], "`--proof`: the token can't be read"),
    ] {
        let args = ["token", "issue", "--aud", "trellis", "--key", "bob.jwk", "--proof", &proof];
        let given = args.chunks(2).filter(|pair| pair[0] != more[0]).flatten().chain(more).copied();
        let done = run(dir, &given.collect::<Vec<_>>()).expect(2, why);
        assert_eq!(done.out, "", "{more:?}");
    }
}

/// A fleet whose workers ask for tokens, and an issuer's key in its folder.
fn fleet() -> Option<Fleet> {
    let fleet = nats::shared().and_then(Fleet::on_shared_redis)?;
    let config = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let auth = "[auth]\nmode = \"jwt\"\njwks = \"keys.json\"\naudience = \"did:web:fleet\"\noperators = \"acme/root\"\nleeway = \"0s\"\n";
    std::fs::write(config, format!("{text}{auth}")).unwrap();
    run(fleet.path(), &["token", "keygen", "issuer.jwk", "--jwks", "keys.json", "--kid", "k1", "--speaks-for", "acme"])
        .ok();
    Some(fleet)
}

#[test]
fn a_queue_submission_belongs_to_its_tokens_owner_or_fails() {
    let Some(fleet) = fleet() else { return };
    let (_worker, _serve, url) = fleet.start_all();
    let token = |sub: &str, more: &[&str]| {
        let all = ["token", "issue", "--key", "issuer.jwk", "--aud", "did:web:fleet", "--sub", sub];
        run(fleet.path(), &[&all[..], more].concat()).ok()
    };
    let (ann, root) = (token("acme/ann", &[]), token("acme/root", &[]));
    for owner in ["acme/ann", "acme/bob"] {
        run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url, "--owner", owner, "--token", &root]).ok();
    }
    let submit = |owner: &str, more: &[&str]| {
        fleet.publish(&[&["submit", "echo", "hello", "--owner", owner, "--wait"], more].concat())
    };
    assert!(submit("acme/ann", &["--token", &ann]).ok().contains("hello"));
    assert!(submit("acme/ann", &["--token", &root]).ok().contains("hello"), "an operator");
    submit("acme/ann", &[]).expect(3, "(UNAUTHENTICATED): no token");
    let other = submit("acme/bob", &["--token", &ann]).expect(3, "(CAP_DENIED): the token is about owner `acme/ann`");
    assert!(other.err.contains("publish on the subject of that owner (`--owner acme/ann`)"), "{other:?}");
    submit("acme/ann", &["--token", &token("acme/ann", &["--att", "w:crud"])]).expect(3, "agent/request on g/echo");
    submit("acme/ann", &["--token", &token("acme/ann", &["--ttl", "0s"])]).expect(3, "the token has expired");
    submit("acme/ann", &["--token", "x.y.z"]).expect(3, "(UNAUTHENTICATED): the token can't be read");
}

#[test]
fn a_message_valid_when_published_does_not_expire_in_a_backlog() {
    let Some(fleet) = fleet() else { return };
    let (mut worker, _serve, url) = fleet.start_all();
    let issue = ["token", "issue", "--key", "issuer.jwk", "--aud", "did:web:fleet", "--sub", "acme/root"];
    let root = run(fleet.path(), &issue).ok();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url, "--owner", "acme/root", "--token", &root]).ok();
    worker.signal("TERM");
    worker.ended();
    let short = run(fleet.path(), &[&issue[..], &["--ttl", "3s"]].concat()).ok();
    let published = std::time::Instant::now();
    let args = ["submit", "echo", "hello", "--owner", "acme/root", "--id", "late", "--token", &short];
    let sent = fleet.publish(&args);
    // On a machine so slow that the token is over by now, nothing can be said.
    let in_time = published.elapsed() < Duration::from_secs(2);
    sent.ok();
    std::thread::sleep(Duration::from_secs(4));
    let mut worker = fleet.start("worker");
    worker.says("worker `");
    if in_time {
        let args = ["submit", "echo", "hello", "--owner", "acme/root", "--id", "late", "--token", &root, "--wait"];
        let again = fleet.publish(&args);
        assert!(again.ok().contains("hello"));
    }
}
