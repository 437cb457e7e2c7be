//! Servers that want TLS, a client's certificate or a user's JWT.

use super::load::task;
use super::{LIMIT, open};
use crate::support::certificates::certificates;
use crate::support::cli::run;
use crate::support::nats::{NatsServer, options};
use crate::support::nats_cluster::NatsCluster;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trellis::bus::Bus;
use trellis::bus::credentials::NatsFiles;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::config::TlsFiles;
use trellis::process::retry::RetryPolicy;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.conf");

/// Why it can't be opened; it must not be tried for ever.
async fn refused(options: &NatsOptions) -> String {
    let patient = NatsOptions { connect: RetryPolicy { total: None, ..RetryPolicy::CONNECT }, ..options.clone() };
    let opened = tokio::time::timeout(LIMIT, NatsBus::open(&patient)).await.expect("it isn't tried for ever");
    opened.err().expect("it is refused").to_string()
}

/// Publishes until it is acknowledged.
async fn publishes(bus: &NatsBus, id: &str) {
    let end = Instant::now() + LIMIT;
    while let Err(error) = bus.publish(&task(id)).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_used_with_all_and_discovered_cluster_servers() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name);
    let argument = |name: &str| file(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (argument("ca.pem"), argument("server.pem"), argument("server.key"));
    let arguments = ["--tls", "--tlsverify", "--tlscacert", &ca, "--tlscert", &cert, "--tlskey", &key];
    let Some(mut cluster) = NatsCluster::start_with(&arguments) else { return };
    let client = Some((file("client.pem"), file("client.key")));
    let with = |ca: Option<PathBuf>, client| NatsOptions {
        url: cluster.nodes[0].url().replace("nats://", "tls://"),
        files: NatsFiles { tls: TlsFiles { ca, client }, creds: None },
        ..cluster.options()
    };
    let unknown = refused(&with(None, client.clone())).await;
    assert!(unknown.contains("UnknownIssuer") && unknown.contains("`bus.tls_ca` names who signs it"), "{unknown}");
    let nameless = refused(&with(Some(file("ca.pem")), None)).await;
    assert!(nameless.contains("the server wants another certificate of this client: see `bus.tls_cert`"), "{nameless}");
    let full = with(Some(file("ca.pem")), client);
    full.files.check().unwrap();
    let bus = open(&full).await;
    publishes(&bus, "one").await;
    cluster.nodes[0].kill();
    publishes(&bus, "two").await;
    let Some(plain) = NatsServer::start() else { return };
    let error = refused(&NatsOptions { url: plain.url(), ..full }).await;
    assert!(error.contains("is it a server that speaks TLS?"), "{error}");
}

#[test]
fn an_unusable_tls_file_is_refused_at_the_start_by_setting() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    std::fs::write(dir.path().join("secret.txt"), "hunter2").unwrap();
    let check = |settings: &[&str], expected: &str| {
        let servers = ["worker", "--set", "store.url=redis://127.0.0.1:1", "--set", "bus.url=tls://127.0.0.1:1"];
        let settings: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let done = run(dir.path(), &[&servers[..], &settings].concat()).expect(2, expected);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
    };
    check(&["bus.tls_ca=none.pem"], "`bus.tls_ca`: file `none.pem` can't be read: No such file");
    check(&["bus.tls_ca=secret.txt"], "`bus.tls_ca`: file `secret.txt` can't be read: no PEM certificate in it");
    check(&["bus.tls_cert=client.pem", "bus.tls_key=secret.txt"], "file `secret.txt` can't be read: no PEM key in it");
    let other = "`bus.tls_key`: file `server.key` can't be read: it doesn't serve with `bus.tls_cert`";
    check(&["bus.tls_cert=client.pem", "bus.tls_key=server.key"], other);
    check(&["bus.creds_file=none.creds"], "`bus.creds_file`: file `none.creds` can't be read: No such file");
    check(
        &["bus.creds_file=secret.txt"],
        "`bus.creds_file`: file `secret.txt` can't be read: no `NATS USER JWT` in it",
    );
}

/// A JWT as `nsc` makes them.
fn jwt(issuer: &KeyPair, subject: &KeyPair, ends: Option<u64>, nats: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = json!({"jti": "test", "iat": now(), "iss": issuer.public_key(), "sub": subject.public_key(),
                            "name": "test", "nats": nats});
    if let Some(ends) = ends {
        claims["exp"] = ends.into();
    }
    let signed = format!("{}.{}", part(&json!({"typ": "JWT", "alg": "ed25519-nkey"})), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A `.creds` file of a new user of an account.
fn creds(file: &Path, account: &KeyPair, ends: Option<u64>) {
    let user = KeyPair::new_user();
    let rights = json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
    let (jwt, seed) = (jwt(account, &user, ends, &rights), user.seed().unwrap());
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(file, text).unwrap();
}

/// A server that knows an operator and this account.
fn server(dir: &Path, account: &KeyPair) -> Option<NatsServer> {
    let operator = KeyPair::new_operator();
    let known = jwt(&operator, &operator, None, &json!({"type": "operator", "version": 2}));
    let rights = |bytes: i32| {
        let limits = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
                            "conn": -1, "leaf": -1, "mem_storage": bytes, "disk_storage": bytes, "streams": -1,
                            "consumer": -1});
        json!({"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2})
    };
    // Without an account of its own for what servers tell each other JetStream doesn't start.
    let system = KeyPair::new_account();
    let account = [account.public_key(), jwt(&operator, account, None, &rights(-1))];
    let system = [system.public_key(), jwt(&operator, &system, None, &rights(0))];
    // Only what lies beside it can be included.
    std::fs::copy(CONFIG, dir.join("base.conf")).unwrap();
    let text = format!(
        "include \"base.conf\"\noperator: {known}\nsystem_account: {}\nresolver: MEMORY\n\
         resolver_preload: {{ {}: {}, {}: {} }}\n",
        system[0], account[0], account[1], system[0], system[1]
    );
    let file = dir.join("nats.conf");
    std::fs::write(&file, text).unwrap();
    NatsServer::start_as(file.to_str().unwrap(), &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_creds_file_keeps_a_user_connected() {
    let dir = tempfile::tempdir().unwrap();
    let account = KeyPair::new_account();
    let Some(server) = server(dir.path(), &account) else { return };
    let file = dir.path().join("worker.creds");
    let with = |file: &Path| NatsOptions {
        files: NatsFiles { creds: Some(file.to_owned()), ..NatsFiles::default() },
        ..options(&server.url())
    };
    let nobody = refused(&options(&server.url())).await;
    assert!(nobody.contains("authorization violation: the server doesn't let the login in `bus.url` in"), "{nobody}");
    creds(&file, &KeyPair::new_account(), None);
    let stranger = refused(&with(&file)).await;
    assert!(stranger.contains("the server doesn't let the user of `bus.creds_file` in"), "{stranger}");
    assert!(!stranger.contains("SU") && !stranger.contains("eyJ"), "{stranger}");

    let expired = now() + 4;
    creds(&file, &account, Some(expired));
    with(&file).files.check().unwrap();
    let bus = open(&with(&file)).await;
    publishes(&bus, "one").await;
    creds(&file, &account, None);
    while now() <= expired + 1 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    publishes(&bus, "two").await;
    assert_eq!(bus.in_transit().await.unwrap(), ["one", "two"]);
}
