//! Servers that want TLS, a client's certificate or a login.

use crate::support::certificates::certificates;
use crate::support::port;
use crate::support::redis::RedisServer;
use std::path::Path;
use trellis::store::redis::{RedisOptions, RedisStore, RedisTls, ServerOrInjected};
use trellis::store::{StoreError, StoreInspection};

fn read(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).unwrap()
}

async fn open(options: RedisOptions) -> Result<(), StoreError> {
    RedisStore::open(options).await?.owners(None, 1).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_a_trusted_server_and_a_client_certificate() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let tls_port = port::lasting().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let options =
        ["--tls-port", &tls_port, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let Some(server) = RedisServer::start_with(&options) else { return };
    let client = Some((read(dir.path(), "client.pem"), read(dir.path(), "client.key")));
    let authority = Some(read(dir.path(), "ca.pem"));
    let with = |url: &str, tls| RedisOptions {
        url: format!("{url}127.0.0.1:{tls_port}"),
        tls,
        ..server.options(ServerOrInjected::Injected)
    };
    let full = Some(RedisTls { authority: authority.clone(), client: client.clone() });
    open(with("rediss://", full.clone())).await.unwrap();
    for (what, options) in [
        ("who signed the server is unknown", with("rediss://", Some(RedisTls { authority: None, client }))),
        ("the server wants a certificate", with("rediss://", Some(RedisTls { authority, client: None }))),
        ("the server speaks TLS alone", with("redis://", full)),
    ] {
        let refused = open(options).await.expect_err(what);
        assert!(matches!(refused, StoreError::Unavailable { .. }), "{what}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_user_needs_only_the_keys_of_its_prefix() {
    let Some(server) = RedisServer::start_with(&[]) else { return };
    let options = server.options(ServerOrInjected::Injected);
    let rights = "on >secret resetkeys resetchannels -@all +@connection +fcall +function|list +function|load +info +config|get \
                  +wait +get +set +exists +hmget +zadd +zrangebylex +zrangebyscore +@read +@write -@admin +config|get";
    let mut acl = vec!["ACL".to_owned(), "SETUSER".to_owned(), "trellis".to_owned()];
    acl.extend(rights.split_whitespace().map(str::to_owned));
    acl.push(format!("~{}:*", options.prefix));
    server.command(&acl.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
    let as_user = |login: &str, prefix: &str| RedisOptions {
        url: format!("redis://{login}@127.0.0.1:{}", server.port()),
        prefix: prefix.to_owned(),
        ..options.clone()
    };
    open(as_user("trellis:secret", &options.prefix)).await.unwrap();
    let wrong = open(as_user("trellis:wrong", &options.prefix)).await.unwrap_err().to_string();
    assert!(wrong.contains("is unavailable") && !wrong.contains("wrong@"), "{wrong}");
    let other = open(as_user("trellis:secret", "other")).await.unwrap_err().to_string();
    assert!(other.contains("permission") || other.contains("NOPERM"), "{other}");
}
