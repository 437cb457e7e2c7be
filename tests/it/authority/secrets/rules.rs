//! Who may set, see and use a secret, and where it goes.

use super::echo_server::{Parrot, encodings};
use crate::support::http::Server;
use crate::support::operate::operate;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::cap::SpendSettings;
use trellis::domain::hosts::HostRule;
use trellis::domain::quota::QuotaSettings;
use trellis::process::tracer::Tracer;
use trellis::venue::Venue;
use trellis::venue::context::PromptCache;
use trellis::venue::operation::Caller;
use trellis::venue::outbound::HttpPolicy;
use trellis::venue::secrets::Vault;

const VALUE: &str = "sk-planted/9a+Zq\"7\\w?x";

fn venue_with(server: &Server, hosts: &str, secrets: Vault) -> Venue {
    let hosts = HostRule::list(hosts).unwrap();
    let policy = HttpPolicy { hosts, allow_private: true, ..HttpPolicy::default() };
    Venue {
        store: Arc::clone(&server.venue.store),
        bus: Arc::clone(&server.venue.bus),
        clock: server.venue.clock.clone(),
        name: server.venue.name.clone(),
        key: server.venue.key.clone(),
        catalog: trellis::ops::catalog_with(true, policy),
        boundaries: Vec::new(),
        spend: SpendSettings::default(),
        quota: QuotaSettings::default(),
        prompts: PromptCache::default(),
        meters: trellis::venue::rates::Meters::default(),
        local: trellis::venue::local_worker::LocalWorker::default(),
        fleet: trellis::venue::registry::FleetCache::default(),
        history: trellis::venue::history::History::default(),
        secrets,
        metrics: Arc::clone(&server.venue.metrics),
        tracer: Tracer::default(),
    }
}

fn caller(caps: &[(&str, &str)]) -> Caller {
    let caps = caps.iter().map(|(can, with)| Capability { with: (*with).into(), can: (*can).into() }).collect();
    Caller::new("local/me".parse().unwrap(), "agent:a".to_owned(), Authority::new(Some(caps)))
}

async fn call(venue: &Venue, caller: &Caller, operation: &str, input: Value) -> Result<Value, String> {
    operate(venue, caller, operation, input).await.map_err(|error| error.to_string())
}

#[track_caller]
fn failed(result: Result<Value, String>, part: &str) {
    let error = result.unwrap_err();
    assert!(error.contains(part) && !error.contains("planted"), "expected `{part}` in: {error}");
}

fn key(prefix: &str) -> Value {
    json!({"$secret": "s/KEY", "prefix": prefix})
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_set_listed_and_deleted_and_no_answer_has_a_value() {
    let server = Server::start().await;
    let body = json!({"name": "KEY", "value": VALUE, "hosts": ["api.example.com"], "overwrite": false});
    let set = server.run("v/ops/secret/set", body.clone()).await;
    assert_eq!(
        set,
        json!({"name": "KEY", "stored": true, "existed": false, "version": 1, "hosts": ["api.example.com"]})
    );
    let again = json!({"operation": "secret:set", "input": body});
    server.post("/api/v1/run", again).await.is_problem(409, "secret `KEY` exists; `overwrite` replaces it");
    let put = server.put("/api/v1/secrets/KEY", json!({"value": "another-value"})).await.body(200);
    assert_eq!((&put["version"], &put["hosts"]), (&json!(2), &json!(["api.example.com"])), "the hosts stay");
    server.put("/api/v1/secrets/OTHER", json!({"value": VALUE})).await.body(200);
    assert_eq!(server.get("/api/v1/secrets").await.body(200), json!({"items": ["KEY", "OTHER"]}));
    let list = server.run("v/ops/secret/list", json!({})).await;
    assert_eq!((&list["secrets"][1]["name"], &list["secrets"][1]["hosts"]), (&json!("OTHER"), &json!([])));
    assert_eq!(server.run("lattice/list", json!({"path": "s"})).await["keys"], json!(["KEY", "OTHER"]));
    assert_eq!(server.run("lattice/read", json!({"path": "s"})).await["value"], json!({"KEY": null, "OTHER": null}));
    for (operation, input) in [
        ("lattice/read", json!({"path": "s/KEY"})),
        ("lattice/read", json!({"path": "s/NONE"})),
        ("lattice/inspect", json!({"path": "s/KEY"})),
        ("lattice/copy", json!({"from": "s/KEY", "to": "w/x/y"})),
        ("secret/extract", json!({"name": "KEY"})),
    ] {
        let body = json!({"operation": operation, "input": input});
        server.post("/api/v1/run", body).await.is_problem(403, "secret's value");
    }
    let delete = async |name: &str| server.send(Method::DELETE, &format!("/api/v1/secrets/{name}"), &[], "").await;
    assert_eq!(delete("KEY").await.body(200), json!({"deleted": true}));
    delete("KEY").await.is_problem(404, "no secret `KEY`");
    assert_eq!(server.get("/api/v1/secrets").await.body(200), json!({"items": ["OTHER"]}));
    let others = server.send(Method::GET, "/api/v1/secrets", &[("x-trellis-owner", "local/you")], "").await;
    assert_eq!(others.body(200), json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_secret_is_not_shown() {
    let server = Server::start().await;
    for (body, status, part) in [
        (json!({"value": "planted"}), 400, "at least 8 bytes, got 7"),
        (json!({"value": "planted".repeat(10_000)}), 400, "at most 65536 bytes"),
        (json!({"value": 1_234_567_890_123_u64}), 400, "at `/value`: value is not of type"),
        (json!({"valu": VALUE}), 400, "is a required property"),
        (json!({}), 400, "is a required property"),
        (json!({"value": VALUE, "hosts": "x"}), 400, "at `/hosts`"),
        (json!({"value": VALUE, "hosts": ["*"]}), 400, "`*` is no binding"),
        (json!({"value": VALUE, "hosts": ["https://a.b/"]}), 400, "expected hosts such as"),
        (json!([VALUE]), 400, "expected a body"),
    ] {
        let answer = server.put("/api/v1/secrets/KEY", body.clone()).await;
        let text = answer.body.to_string();
        assert!(!text.contains("planted") && !text.contains("1234567890123"), "{text}");
        answer.is_problem(status, part);
    }
    server.put("/api/v1/secrets/a%20b", json!({"value": VALUE})).await.is_problem(400, "illegal secret name `a b`");
    let keyless = venue_with(&server, "", Vault::default());
    let set = json!({"name": "KEY", "value": VALUE});
    failed(call(&keyless, &caller(&[("*", "")]), "secret/set", set).await, "`trellis secret keygen`");
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_jobs_and_nested_operations_hide_the_value() {
    let server = Server::start().await;
    let set = json!({"name": "KEY", "value": VALUE});
    let wrapped =
        json!({"operation": "grid:run", "input": {"operation": "secret:set", "input": {"name": "B", "value": VALUE}}});
    for (operation, input) in [("secret/set", set), ("job/run", wrapped)] {
        let job = server.post("/api/v1/invoke", json!({"operation": operation, "input": input})).await.body(201);
        assert_eq!(job["status"], "COMPLETE", "{job}");
        let text = server.get(&format!("/api/v1/jobs/{}", job["id"].as_str().unwrap())).await.body.to_string();
        assert!(text.contains("[hidden]") && !text.contains("planted"), "{text}");
    }
    assert_eq!(server.get("/api/v1/secrets").await.body(200), json!({"items": ["B", "KEY"]}), "with the value");
    let hidden = json!({"operation": "secret/set", "input": {"name": "C", "value": "[hidden]"}});
    server.post("/api/v1/run", hidden).await.is_problem(400, "the value is no longer known");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_ability_is_asked_for_on_its_own() {
    let server = Server::start().await;
    let venue = venue_with(&server, "", server.venue.secrets.clone());
    let set = || json!({"name": "KEY", "value": VALUE});
    failed(call(&venue, &caller(&[("crud", "")]), "secret/set", set()).await, "requires secret/set on s/KEY");
    failed(call(&venue, &caller(&[("secret/set", "s/K")]), "secret/set", set()).await, "requires secret/set on s/KEY");
    call(&venue, &caller(&[("secret/set", "s/KEY")]), "secret/set", set()).await.unwrap();
    failed(call(&venue, &caller(&[("secret/set", "s")]), "secret/list", json!({})).await, "requires secret/list on s");
    failed(call(&venue, &caller(&[("crud", "")]), "lattice/list", json!({"path": "s"})).await, "secret/list on s");
    call(&venue, &caller(&[("secret/list", "s")]), "lattice/list", json!({"path": "s"})).await.unwrap();
    let delete = json!({"name": "KEY"});
    failed(call(&venue, &caller(&[("secret/set", "s")]), "secret/delete", delete.clone()).await, "secret/delete");
    let config = json!({"agentId": "b", "config": {"model": {"provider": "openai", "name": "m", "key": "s/KEY"}}});
    let create = caller(&[("agent/create", "g")]);
    failed(call(&venue, &create, "agent/create", config.clone()).await, "requires secret/use on s/KEY");
    call(&venue, &caller(&[("agent/create", "g"), ("secret/use", "s")]), "agent/create", config).await.unwrap();
    let spare = json!({"provider": "openai", "name": "m", "key": "s/SPARE"});
    let fallback = json!({"provider": "openai", "name": "m", "key": "s/KEY", "fallback": [{"provider": "openai", "name": "n"}, spare]});
    let config = json!({"agentId": "d", "config": {"model": fallback}});
    let one_key = caller(&[("agent/create", "g"), ("secret/use", "s/KEY")]);
    failed(call(&venue, &one_key, "agent/create", config.clone()).await, "requires secret/use on s/SPARE");
    call(&venue, &caller(&[("agent/create", "g"), ("secret/use", "s")]), "agent/create", config).await.unwrap();
    let headers = json!({"X-Plain": "text", "X-Gateway": {"$secret": "s/GATEWAY"}});
    let headed = json!({"provider": "openai", "name": "m", "headers": headers});
    let fallback = json!({"provider": "openai", "name": "m", "fallback": [headed]});
    for (name, model) in [("e", headed.clone()), ("f", fallback)] {
        let config = json!({"agentId": name, "config": {"model": model}});
        failed(call(&venue, &one_key, "agent/create", config).await, "requires secret/use on s/GATEWAY");
    }
    call(&venue, &caller(&[("secret", "s")]), "secret/delete", delete).await.unwrap();
    let own = json!({"agentId": "c", "config": {"model": {"provider": "openai", "name": "m", "key": VALUE}}});
    failed(call(&venue, &caller(&[("*", "")]), "agent/create", own).await, "a key itself stands in no configuration");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_only_where_it_is_bound_and_never_returns() {
    let server = Server::start().await;
    let (bound, other) = (Parrot::start(), Parrot::start());
    let venue = venue_with(&server, &format!("{}, {}", bound.place(), other.place()), server.venue.secrets.clone());
    let all = caller(&[("*", "")]);
    let set = json!({"name": "KEY", "value": VALUE, "hosts": [bound.place()]});
    call(&venue, &all, "secret/set", set).await.unwrap();
    let post = |url: String| json!({"url": url, "headers": {"authorization": key("Bearer "), "x-plain": "s/KEY"}, "body": {"deep": [key("")]}});
    let answer = call(&venue, &all, "http/post", post(bound.url("/echo"))).await.unwrap();
    let heard = bound.heard();
    assert!(
        heard.contains(&format!("authorization: Bearer {VALUE}\r\n"))
            && heard.contains(&format!("x-plain: {VALUE}\r\n")),
        "{heard}"
    );
    assert!(heard.contains(&json!({"deep": [VALUE]}).to_string()), "{heard}");
    let text = answer.to_string();
    for (name, form) in encodings(VALUE).as_object().unwrap() {
        let form = form.as_str().unwrap();
        assert!(name.contains("planted") || !text.contains(form), "{name}: {text}");
    }
    assert!(!text.contains("planted") && text.matches("[secret KEY]").count() >= 10, "{text}");
    // What was said before comes back later, to a call that names no secret.
    let later = call(&venue, &all, "http/get", json!({"url": bound.url("/remember")})).await.unwrap().to_string();
    assert!(!later.contains("planted") && later.contains("[secret KEY]"), "{later}");

    failed(call(&venue, &all, "http/post", post(other.url("/echo"))).await, "secret `KEY` may not go to");
    let limited = caller(&[("http", "")]);
    failed(call(&venue, &limited, "http/post", post(bound.url("/echo"))).await, "requires secret/use on s/KEY");
    let moved =
        json!({"url": bound.url(&format!("/moved-to/{}", other.place())), "headers": {"authorization": key("")}});
    call(&venue, &all, "http/get", moved).await.unwrap();
    assert!(other.heard().contains("GET /text") && !other.heard().contains("planted"), "{}", other.heard());
    for (reference, part) in [
        (json!({"$secret": "s/NONE"}), "no secret `NONE`"),
        (json!({"$secret": "w/KEY"}), "expected `{\"$secret\": \"s/NAME\"}`"),
        (json!({"$secret": "s/KEY", "suffix": "x"}), "not valid"),
        (json!(7), "not valid"),
    ] {
        let get = json!({"url": bound.url("/x"), "headers": {"authorization": reference}});
        failed(call(&venue, &all, "http/get", get).await, part);
    }
    let elsewhere = json!({"path": "w/x/y", "value": {"$secret": "s/KEY"}});
    call(&venue, &all, "lattice/write", elsewhere).await.unwrap();
    let read = call(&venue, &all, "lattice/read", json!({"path": "w/x/y"})).await.unwrap();
    assert_eq!(read["value"], json!({"$secret": "s/KEY"}), "no reference, but data");
}
