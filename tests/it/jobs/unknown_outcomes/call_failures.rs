//! How one call ends, by where it broke off.

use super::{Site, venue};
use crate::support::both_stores::On;
use crate::support::operate::{boss, operate, operate_once};
use crate::support::port;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;
use trellis::config::proxy::ProxySettings;
use trellis::domain::hosts::HostRule;
use trellis::domain::ids::EventId;
use trellis::venue::operation::OpError;
use trellis::venue::outbound::HttpPolicy;
use trellis::venue::outbound::proxy::ProxyRoute;

/// Longest call of these tests, in milliseconds.
const TIME: u64 = 500;

async fn call(venue: &TestVenue, operation: &str, input: Value) -> Result<Value, OpError> {
    operate(&venue.venue, &boss(&venue.owner), operation, input).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_after_a_post_has_left_is_unknown() {
    let site = Site::start().await;
    let (venue, _dir) = venue(On::Embedded, &site, "").await.unwrap();
    for (path, part) in [
        ("/hang", "gave no whole answer within 500 ms"),
        ("/reset", ""),
        ("/close", ""),
        ("/half-head", ""),
        ("/half-body", "the answer broke off after 5 bytes"),
        ("/half-chunk", "the answer broke off"),
        ("/slow-body", "gave no whole answer within 500 ms"),
        ("/large", "more than 4000 bytes"),
        ("/no-http", ""),
        ("/to-file", "expected `http://` or `https://`"),
        ("/to-stranger", "not one that this venue allows"),
        ("/body-to-other-origin", "redirects the request with its body to another origin"),
        ("/round", "more than 5 redirects"),
        ("/to-hang", "gave no whole answer within 500 ms"),
    ] {
        for body in [Some("mine"), None] {
            let before = site.posts();
            let mut input = json!({"url": site.url(path), "timeout": TIME});
            if let Some(body) = body {
                input["body"] = body.into();
            }
            let error = call(&venue, "v/ops/http/post", input).await.unwrap_err();
            assert!(matches!(error, OpError::OutcomeUnknown(_)), "{path} {body:?}: {error:?}");
            let text = error.to_string();
            assert!(text.starts_with("outcome unknown: the request to `") && text.contains(part), "{path}: {text}");
            assert!(text.ends_with("check before doing it again"), "{path}: {text}");
            assert_eq!(site.posts(), before + 1, "{path} {body:?}: it is sent once");
        }
        let error = call(&venue, "v/ops/http/get", json!({"url": site.url(path), "timeout": TIME})).await;
        // What only reads may be done again; a redirect of it with a body there isn't.
        let known = error.as_ref().map_or_else(|error| !matches!(error, OpError::OutcomeUnknown(_)), |_| true);
        assert!(known, "{path}: {error:?}");
    }
    let done = call(&venue, "v/ops/http/post", json!({"url": site.url("/ok"), "body": "x"})).await.unwrap();
    assert_eq!((&done["status"], &done["body"]), (&json!(200), &json!("ok")));
    let last = site.requests().pop().unwrap();
    assert!(last.contains("content-length: 1\r\n") && !last.contains("transfer-encoding"), "{last}");
    call(&venue, "v/ops/http/post", json!({"url": site.url("/ok")})).await.unwrap();
    let last = site.requests().pop().unwrap();
    assert!(!last.contains("transfer-encoding"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_before_a_post_leaves_may_be_repeated() {
    let site = Site::start().await;
    let (mut venue, _dir) = venue(On::Embedded, &site, "").await.unwrap();
    // One that takes connections and says nothing: TLS never comes about, until the time is over.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.port())).unwrap();
    let (refusing, port) = (port::lasting(), site.port);
    let mut policy = site.policy();
    let hosts = format!("127.0.0.1:{port}, 127.0.0.1:{refusing}, 127.0.0.1:{}, nowhere.example:{port}", silent.1);
    policy.hosts = HostRule::list(&hosts).unwrap();
    policy.lookup = Arc::new(|_| Box::pin(async { Err(std::io::Error::other("no such name")) }));
    Arc::get_mut(&mut venue.venue).unwrap().catalog = trellis::ops::catalog_with(true, policy);
    for (url, part) in [
        (format!("http://127.0.0.1:{refusing}/"), "Connection refused"),
        (format!("http://nowhere.example:{port}/"), "no such name"),
        ("http://stranger.example/".to_owned(), "not one that this venue allows"),
        (format!("https://127.0.0.1:{port}/ok"), ""),
        (format!("https://127.0.0.1:{}/ok", silent.1), "gave no whole answer within 500 ms"),
    ] {
        for input in [json!({"url": url, "body": "mine", "timeout": TIME}), json!({"url": url, "timeout": TIME})] {
            let error = call(&venue, "v/ops/http/post", input).await.unwrap_err();
            let is_known = !matches!(error, OpError::OutcomeUnknown(_));
            assert!(is_known && error.to_string().contains(part), "{url}: {error:?}");
        }
    }
    assert_eq!(site.posts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requests_forwarded_by_a_proxy_are_unknown() {
    let proxy = Site::start().await;
    let gone = port::lasting();
    for (at, scheme, path, is_unknown) in [
        // Nothing tells whether the proxy says so or, behind it, the server that has done it.
        (proxy.port, "http", "/login", true),
        (gone, "http", "/ok", false),
        // It makes no tunnel.
        (proxy.port, "https", "/ok", false),
        (gone, "https", "/ok", false),
        (proxy.port, "http", "/close", true),
        (proxy.port, "http", "/half-body", true),
    ] {
        let (mut venue, _dir) = venue(On::Embedded, &proxy, "").await.unwrap();
        let settings = ProxySettings::parse(&format!("http://127.0.0.1:{at}"), "", &BTreeMap::new()).unwrap();
        let hosts = HostRule::list("moved.example").unwrap();
        let policy = HttpPolicy { hosts, proxy: ProxyRoute::new(&settings, "http_client"), ..proxy.policy() };
        Arc::get_mut(&mut venue.venue).unwrap().catalog = trellis::ops::catalog_with(true, policy);
        let input = json!({"url": format!("{scheme}://moved.example{path}"), "body": "mine", "timeout": TIME});
        let error = call(&venue, "v/ops/http/post", input).await.unwrap_err();
        assert_eq!(matches!(error, OpError::OutcomeUnknown(_)), is_unknown, "{at} {scheme} {path}: {error:?}");
        let read = json!({"url": format!("{scheme}://moved.example{path}"), "timeout": TIME});
        let error = call(&venue, "v/ops/http/get", read).await.unwrap_err();
        assert!(!matches!(error, OpError::OutcomeUnknown(_)), "what only reads may be repeated: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_carries_an_opaque_idempotency_key() {
    let site = Site::start().await;
    let (venue, _dir) = venue(On::Embedded, &site, "").await.unwrap();
    let boss = boss(&venue.owner);
    let post = async |key: Option<&str>, headers: Value| {
        let input = json!({"url": site.url("/ok"), "body": "x", "headers": headers});
        let key = key.map(|key| EventId::new(key).unwrap());
        operate_once(&venue.venue, &boss, key, "v/ops/http/post", input).await.unwrap();
        site.last_key()
    };
    let first = post(Some("order-7"), json!({})).await.unwrap();
    assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
    assert_eq!(post(Some("order-7"), json!({})).await, Some(first.clone()), "the same run again");
    assert_ne!(post(Some("order-8"), json!({})).await, Some(first), "another run");
    assert_eq!(post(None, json!({})).await, None, "a run without an id");
    let own = json!({"Idempotency-Key": "the author's"});
    assert_eq!(post(Some("order-7"), own).await.as_deref(), Some("the author's"));
    let read = json!({"url": site.url("/ok")});
    operate_once(&venue.venue, &boss, Some(EventId::new("g").unwrap()), "v/ops/http/get", read).await.unwrap();
    assert_eq!(site.last_key(), None, "what only reads has none");
}
