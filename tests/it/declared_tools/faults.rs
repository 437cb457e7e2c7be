//! What a service may do to a call: answer slowly, break, redirect, send too much.

use super::service::{Service, header};
use super::{set_secret, tool, venue};
use serde_json::json;

#[test]
fn what_a_service_answers_decides_what_becomes_of_a_call() {
    let service = Service::start();
    let dir = tempfile::tempdir().unwrap();
    let get = |name: &str, path: &str| tool(name, json!({"url": service.url(path), "timeout": 4000}));
    let post = |name: &str, path: &str, effect: &str| {
        tool(name, json!({"method": "POST", "url": service.url(path), "effect": effect, "timeout": 1500}))
    };
    let mut paying = post("pay", "/pay", "once");
    paying["http"]["status"] = json!({"402": "person"});
    let mut typed = get("typed", "/orders/odd");
    typed["http"]["result"] = json!("/data/order");
    typed["http"]["output"] = json!({"type": "object"});
    let mut odd = post("odd", "/refunds", "once");
    odd["http"]["result"] = json!("/id");
    let tools = json!({"tools": [
        get("busy", "/busy"), get("always", "/always-busy"), get("missing", "/none"), get("large", "/large"),
        get("leave", "/leave"), get("drops", "/drops"), typed, odd, paying,
        post("broken", "/broken", "once"), post("hangs", "/hangs", "once"), post("dropped", "/drops", "once"),
        post("again", "/always-busy", "repeatable"), post("busy_once", "/always-busy", "once")
    ]});
    std::fs::write(dir.path().join("shop.json"), tools.to_string()).unwrap();
    let [hosts, private] = service.settings();
    let up = crate::support::cli::Up::start_in(dir, &[&hosts, &private, "catalog.tools=shop.json"]);
    let tried = |name: &str| up.run(&["tool", "try", &format!("shop:{name}")]);
    assert_eq!(tried("busy").ok().replace([' ', '\n'], ""), r#"{"ok":true}"#);
    assert_eq!(service.requests("GET /busy ").len(), 3, "two answers said: not now");
    for (name, part) in [
        ("always", "answered 503: {\"error\":\"restarting\"}"),
        ("missing", "answered 404: {\"error\":\"no such thing\"}"),
        ("large", "the answer has more than 1048576 bytes"),
        ("leave", "redirects to another host, `http://127.0.0.2"),
        ("drops", "drops"),
        ("typed", "the result isn't as declared"),
        ("pay", "answered 402: {\"error\":\"the card was declined\"}. A person must see to this"),
        ("odd", "outcome unknown: `POST http"),
        ("broken", "outcome unknown: `POST http"),
        ("hangs", "outcome unknown: the request to"),
        ("dropped", "outcome unknown: the request to"),
        ("again", "outcome unknown: `POST http"),
        ("busy_once", "outcome unknown: `POST http"),
    ] {
        let done = tried(name);
        assert!(done.code != 0 && done.err.contains(part), "{name}: expected `{part}`, got {done:#?}");
    }
    let listed = up.run(&["job", "list", "--outcome", "unknown"]).ok();
    for name in ["odd", "broken", "hangs", "dropped", "again", "busy_once"] {
        assert!(listed.contains(&format!("v/ops/shop/{name}")), "`{name}` is not listed: {listed}");
    }
    assert!(!listed.contains("v/ops/shop/pay"), "{listed}");
    for (begin, count) in
        [("POST /broken", 1), ("POST /hangs", 1), ("POST /drops", 1), ("POST /pay", 1), ("GET /leave", 1)]
    {
        assert_eq!(service.requests(begin).len(), count, "{begin}");
    }
    assert_eq!(service.requests("GET /drops").len(), 3, "what only reads is asked for again");
    let busy = service.requests("POST /always-busy");
    assert_eq!(busy.len(), 4, "three of `repeatable`, one of `once`");
    let keys: Vec<_> = busy[..3].iter().map(|request| header(request, "idempotency-key")).collect();
    assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "one call, one key: {keys:?}");
    assert_eq!(service.requests("GET /stolen").len(), 0, "a redirect to another host is not followed");
}

#[test]
fn a_secret_goes_to_its_host_and_nowhere_else() {
    let service = Service::start();
    let up = venue(&service, &[]);
    set_secret(&up, &service, "SHOP", "hunter2hunter2");
    let secret = json!({"X-Key": {"$secret": "s/SHOP"}});
    let record = |name: &str, url: String| {
        let declared = tool(name, json!({"url": url, "headers": secret}));
        up.run(&["lattice", "write", &format!("o/{name}"), &declared.to_string()]).ok();
    };
    record("leave", service.url("/leave"));
    record("other", format!("http://127.0.0.2:{}/orders/A-7", service.port));
    for (name, part) in [("leave", "redirects to another host"), ("other", "secret `SHOP` may not go to")] {
        let done = up.run(&["tool", "try", name]);
        assert!(done.code != 0 && done.err.contains(part) && !done.err.contains("hunter2"), "{name}: {done:#?}");
    }
    let sent = service.requests("GET ");
    assert_eq!(sent.len(), 1);
    assert_eq!(header(&sent[0], "x-key").as_deref(), Some("hunter2hunter2"));
}
