//! Tenants share what a process has, however many users each of them makes.

use crate::support::both_stores::{On, on_both};
use crate::support::cli::Up;
use crate::support::raw_connection::Raw;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::{Owner, OwnerPart};
use trellis::process::clock::Clock;
use trellis::store::DocWrite;
use trellis::venue::census::OwnerSpread;

/// Users of the tenant that takes all it can get.
const LOUD: [&str; 6] = ["loud/a", "loud/b", "loud/c", "loud/d", "loud/e", "loud/f"];

/// Its neighbour.
const QUIET: &str = "quiet/x";

const RULES: &str = r#"
[[rule]]
when = { text = "think" }
then = { fault = "hang" }

[[rule]]
then = { text = "done", usage = { input = 900, output = 100 } }
"#;

on_both! {
    the_list_of_owners_says_who_shares
}

async fn the_list_of_owners_says_who_shares(on: On) {
    let Some((venue, _dir)) = on.venue("", Clock::system()).await else { return };
    let venue = &venue.venue;
    let mark = [DocWrite::put("x", "1")];
    assert_eq!(venue.owner_spread().await.unwrap(), OwnerSpread::Alone);
    // Each owner once, in an order in which they don't sort; what tenants and venue keep for themselves is nobody's.
    for (owner, spread, several) in [
        ("mid/_venue", OwnerSpread::Alone, &[][..]),
        ("mid/ann", OwnerSpread::Alone, &[]),
        ("_venue/_venue", OwnerSpread::Alone, &[]),
        ("mid/~zoë", OwnerSpread::Users, &["mid"]),
        ("mid-2/ann", OwnerSpread::Tenants, &["mid"]),
        ("mid-2/_venue", OwnerSpread::Tenants, &["mid"]),
        ("a/ann", OwnerSpread::Tenants, &["mid"]),
        ("%/zz", OwnerSpread::Tenants, &["mid"]),
        ("%/Z", OwnerSpread::Tenants, &["mid", "%"]),
    ] {
        venue.store.write(venue.now(), &owner.parse::<Owner>().unwrap(), &mark).await.unwrap();
        assert_eq!(venue.owner_spread().await.unwrap(), spread, "{owner}");
        for tenant in ["mid", "mid-2", "a", "%", "none"] {
            let found = venue.has_several_users(&OwnerPart::new(tenant).unwrap()).await.unwrap();
            assert_eq!(found, several.contains(&tenant), "{tenant} with {owner}");
        }
    }
}

/// A process with an agent of every owner that was started again: it knows nothing of what was before.
async fn process(settings: &[&str]) -> (Up, Client) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rules.toml"), RULES).unwrap();
    let (mut up, client) = (Up::start_in(dir, settings), Client::new());
    let config = json!({
        "model": {"provider": "scripted", "name": "rules.toml", "maxTokens": 500}, "concurrency": 100, "defaultTools": false
    });
    for owner in LOUD.into_iter().chain([QUIET]) {
        let answer = ask(&up, &client, owner, Method::PUT, "agents/a", &config).await;
        assert_eq!(answer["agentId"], "a", "{answer}");
    }
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    (up, client)
}

async fn ask(up: &Up, client: &Client, owner: &str, method: Method, path: &str, body: &Value) -> Value {
    let request = client.request(method, format!("{}/api/v1/{path}", up.url)).header("X-Trellis-Owner", owner);
    let answer = request.body(body.to_string()).send().await.unwrap();
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

async fn submit(up: &Up, client: &Client, owner: &str, input: &str) -> String {
    let answer = ask(up, client, owner, Method::POST, "agents/a/tasks", &json!({"input": input})).await;
    answer["job"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn status(up: &Up, client: &Client, owner: &str, job: &str) -> String {
    let answer = ask(up, client, owner, Method::GET, &format!("jobs/{job}"), &Value::Null).await;
    answer["status"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Waits until a job has ended.
async fn completes(up: &Up, client: &Client, owner: &str, job: &str) {
    for _ in 0..1_200 {
        if status(up, client, owner, job).await == "COMPLETE" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("job {job} of {owner} is {}: {}", status(up, client, owner, job).await, up.process.log());
}

async fn of_status(up: &Up, client: &Client, jobs: &[(&str, String)], wanted: &str) -> usize {
    let mut count = 0;
    for (owner, job) in jobs {
        count += usize::from(status(up, client, owner, job).await == wanted);
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_hanging_tasks_leave_slots_to_other_tenants() {
    let (up, client) = process(&["worker.slots=8"]).await;
    let mut loud = Vec::new();
    for _ in 0..5 {
        for owner in LOUD {
            loud.push((owner, submit(&up, &client, owner, "think").await));
        }
    }
    // 75 % of the slots.
    while of_status(&up, &client, &loud, "STARTED").await < 6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..3 {
        let job = submit(&up, &client, QUIET, "hello").await;
        completes(&up, &client, QUIET, &job).await;
    }
    // Those of its users that hold none begin beyond the slots, with one each.
    let started = of_status(&up, &client, &loud, "STARTED").await;
    assert!((6..6 + LOUD.len()).contains(&started), "{started}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_leave_connections_to_other_tenants() {
    let (up, client) = process(&["http.connections=32", "http.proxies=127.0.0.1"]).await;
    let (mut jobs, mut held) = (Vec::new(), Vec::new());
    for owner in LOUD.into_iter().chain([QUIET]) {
        jobs.push((owner, submit(&up, &client, owner, "think").await));
    }
    for (owner, job) in &jobs {
        let (mut own, tries) = (Vec::new(), if *owner == QUIET { 4 } else { 20 });
        for _ in 0..tries {
            let mut raw = Raw::to(&up.url).await;
            let get =
                format!("GET /api/v1/jobs/{job}/sse HTTP/1.1\r\nhost: 127.0.0.1\r\nx-trellis-owner: {owner}\r\n\r\n");
            raw.send(&get).await;
            match raw.until(|bytes| std::str::from_utf8(bytes.get(9..12)?).ok()?.parse().ok()).await {
                200 => own.push(raw),
                429 | 503 => {}
                other => panic!("{owner} is answered {other}"),
            }
        }
        held.push(own);
    }
    let counts: Vec<_> = held.iter().map(Vec::len).collect();
    assert!(counts[..LOUD.len()].iter().sum::<usize>() <= 16 && counts[0] > 4, "{counts:?}");
    assert_eq!(counts[LOUD.len()], 4, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_leave_turns_at_a_token_limit_to_other_tenants() {
    // A call each ten seconds, and six at the start.
    let (up, client) = process(&["models.limits=scripted:tokens=6000"]).await;
    let mut loud = Vec::new();
    for _ in 0..8 {
        for owner in LOUD {
            loud.push((owner, submit(&up, &client, owner, "hello").await));
        }
    }
    while of_status(&up, &client, &loud, "COMPLETE").await < 4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let job = submit(&up, &client, QUIET, "hello").await;
    completes(&up, &client, QUIET, &job).await;
    let before = of_status(&up, &client, &loud, "COMPLETE").await;
    assert!(before < 16, "{before} calls of the other tenant came first, or while this was read");
}
