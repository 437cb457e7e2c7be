//! Calls that requests of the API make: listed when nobody learns their end, and only then.

use super::{Site, venue};
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::ids::JobId;
use trellis::domain::outcome::{CallMaker, OpenCall, UnknownOutcome};
use trellis::domain::unknown_fields::UnknownFields;
use trellis::store::keys;
use trellis::venue::open_calls;

const TICK: Duration = Duration::from_millis(20);
const TRIES: usize = 3_000;

async fn site(on: On) -> Option<(Site, TestVenue, TempDir, Server)> {
    let site = Site::start().await;
    let (venue, dir) = venue(on, &site, "").await?;
    let server = Server::of(Arc::clone(&venue.venue)).await;
    Some((site, venue, dir, server))
}

fn post(site: &Site, path: &str, body: &str) -> Value {
    json!({"operation": "v/ops/http/post", "input": {"url": site.url(path), "body": body, "timeout": 30_000}})
}

async fn listed(server: &Server) -> Vec<Value> {
    server.get("/api/v1/outcomes").await.body(200)["items"].as_array().unwrap().clone()
}

async fn open(venue: &TestVenue) -> usize {
    venue.venue.store.scan(&venue.owner, keys::OPEN_CALLS, None, false, 100).await.unwrap().len()
}

/// Sends a request and goes away when it has arrived at the site.
async fn abandoned(site: &Site, server: &Server, route: &str, mut order: Value) {
    let before = site.posts();
    order["input"]["timeout"] = json!(60_000);
    let (client, url) = (server.client.clone(), format!("{}{route}", server.url));
    let asking = tokio::spawn(async move { client.post(url).json(&order).send().await });
    for _ in 0..TRIES {
        if site.posts() > before {
            break;
        }
        tokio::time::sleep(TICK).await;
    }
    assert_eq!(site.posts(), before + 1, "it has left");
    asking.abort();
}

/// The list once it has so many entries.
async fn listed_as_many(server: &Server, count: usize) -> Vec<Value> {
    for _ in 0..TRIES {
        let listed = listed(server).await;
        if listed.len() >= count {
            assert_eq!(listed.len(), count, "{listed:?}");
            return listed;
        }
        tokio::time::sleep(TICK).await;
    }
    panic!("expected {count} entries, got {:?}", listed(server).await);
}

async fn a_run_of_unknown_end_is_listed_once(on: On) {
    let Some((site, venue, _dir, server)) = site(on).await else { return };
    // Whose end is known is not.
    server.post("/api/v1/run", post(&site, "/ok", "x")).await.body(200);
    let refused = server.post("/api/v1/run", post(&site, "stranger", "x")).await;
    assert!(refused.status.as_u16() >= 400, "{}", refused.body);
    assert_eq!((listed(&server).await, open(&venue).await), (Vec::new(), 0));
    server.post("/api/v1/run", post(&site, "/half-body", "x")).await.is_problem(500, "outcome unknown");
    let item = listed_as_many(&server, 1).await.remove(0);
    assert_eq!(
        (&item["operation"], &item["call"], &item["job"]),
        (&json!("v/ops/http/post"), &Value::Null, &Value::Null)
    );
    assert_eq!(item["caller"], "local/me", "{item}");
    abandoned(&site, &server, "/api/v1/run", post(&site, "/hang", "x")).await;
    listed_as_many(&server, 2).await;
    // Another operation in whose name it runs.
    let order = json!({"operation": "v/ops/job/run", "input": post(&site, "/hang", "x")});
    let before = site.posts();
    let (client, url) = (server.client.clone(), format!("{}/api/v1/run", server.url));
    let asking = tokio::spawn(async move { client.post(url).json(&order).send().await });
    while site.posts() == before {
        tokio::time::sleep(TICK).await;
    }
    asking.abort();
    let all = listed_as_many(&server, 3).await;
    assert!(all.iter().all(|item| item["operation"] == "v/ops/http/post"), "{all:?}");
    assert_eq!(open(&venue).await, 0);
    let metrics = venue.venue.metrics.encode();
    assert!(metrics.contains("trellis_outcomes_unknown_total{of=\"operation\"} 3"), "{metrics}");
    let settled =
        server.put(&format!("/api/v1/outcomes/{}", item["id"].as_str().unwrap()), json!({"done": true})).await;
    assert_eq!(settled.body(200)["settled"]["done"], true);
}

/// What is hidden is run while its caller waits, and is a job when it has ended.
async fn an_ended_operation_leaves_no_hidden_input(on: On) {
    let Some((_site, venue, _dir, server)) = site(on).await else { return };
    let set = |name: &str| json!({"operation": "v/ops/secret/set", "input": {"name": name, "value": "sk-0123456789"}});
    let job = server.post("/api/v1/invoke", set("KEY")).await.body(201);
    // The venue has no key for secrets.
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &Value::Null), "{job}");
    server.post("/api/v1/invoke", set("no name")).await.is_problem(400, "name");
    assert_eq!((listed(&server).await, open(&venue).await), (Vec::new(), 0));
}

/// The process that made a request's call has died.
async fn a_call_that_is_left_by_a_dead_process_is_listed_by_the_sweep(on: On) {
    let Some((_site, venue, _dir, server)) = site(on).await else { return };
    let id = |n: u32| JobId::new(&format!("{n:032x}")).unwrap();
    let listed = UnknownOutcome {
        id: id(1),
        job: None,
        operation: "v/ops/http/post".into(),
        call: None,
        caller: None,
        at: venue.venue.now(),
        settled: None,
        kept: UnknownFields::default(),
    };
    let open = OpenCall { listed, maker: CallMaker::Request, repeatable: false, kept: UnknownFields::default() };
    let due = venue.venue.now();
    let (_, due_now) = open_calls::record_write(&open, due);
    let later = OpenCall { listed: UnknownOutcome { id: id(2), ..open.listed.clone() }, ..open };
    let (_, due_later) = open_calls::record_write(&later, due.plus(Duration::from_hours(1)));
    // A record that can't be read says at least that a call has begun.
    let damaged = trellis::store::DocWrite::put(keys::open_call(due, &id(3)), "{\"listed\":");
    venue.venue.store.write(due, &venue.owner, &[damaged, due_now, due_later]).await.unwrap();
    venue.worker();
    let mut found = listed_as_many(&server, 2).await;
    found.sort_by_key(|item| item["id"].to_string());
    let named = |at: usize| (found[at]["id"].as_str().unwrap().to_owned(), found[at]["operation"].clone());
    assert_eq!(named(0), (id(1).to_string(), json!("v/ops/http/post")));
    assert_eq!(named(1), (id(3).to_string(), json!("unreadable record")));
    assert_eq!(super::requests::open(&venue).await, 1, "it isn't due");
}

on_both! {
    a_run_of_unknown_end_is_listed_once
    an_ended_operation_leaves_no_hidden_input
    a_call_that_is_left_by_a_dead_process_is_listed_by_the_sweep
}
