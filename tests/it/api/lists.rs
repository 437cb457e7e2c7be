//! Lists of large records: a page ends where they weigh too much, says where the list goes on, and costs little memory.

use crate::support::cli::Up;
use crate::support::http::Server;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use trellis::domain::limits::LISTED_VALUE_BYTES;
use trellis::process::clock::Clock;
use trellis::venue::jobs;
use trellis::venue::jobs::list::{JobListFilter, find};

/// The same on both stores.
async fn both() -> Vec<(TestVenue, tempfile::TempDir)> {
    let mut venues = vec![TestVenue::embedded("").await];
    if let Some(server) = RedisServer::shared() {
        let (venue, dir, _) = TestVenue::redis_at(server, "", Clock::system()).await;
        venues.push((venue, dir));
    }
    venues
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_jobs_ends_early_and_the_list_goes_on() {
    for (venue, _dir) in both().await {
        venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
        let mut sent = BTreeSet::new();
        for n in 0..12 {
            let text = format!("{} needle{n}x", "y".repeat(700_000));
            sent.insert(venue.submit("a", &format!("large-{n}"), json!({"text": text})).await.job.unwrap());
        }
        for n in 0..3 {
            sent.insert(venue.submit("a", &format!("small-{n}"), json!({"text": n})).await.job.unwrap());
        }
        let (mut seen, mut next, mut pages) = (BTreeSet::new(), 0, 0);
        loop {
            let page = jobs::list(&venue.venue, &venue.owner, next, 1_000).await.unwrap();
            assert!(page.next > next && page.items.len() == page.next - next);
            for job in &page.items {
                let whole = jobs::read_for_people(&venue.venue, &venue.owner, &job.head.id).await.unwrap().unwrap();
                let size = whole.head.input.to_string().len();
                if size > LISTED_VALUE_BYTES {
                    assert_eq!(job.head.input, json!({"truncated": true, "size": size}));
                } else {
                    assert_eq!(*job, whole);
                }
                seen.insert(job.head.id.clone());
            }
            (next, pages) = (page.next, pages + 1);
            if next == page.total {
                break;
            }
        }
        assert_eq!(seen, sent);
        assert!(pages > 1, "{pages}");
        // What isn't shown is found.
        for (text, expected) in [("NEEDLE7x", 1), ("needle", 12), ("nothing", 0)] {
            let filter = JobListFilter { text: Some(text.into()), ..JobListFilter::default() };
            let (mut cursor, mut count) = (None, 0);
            loop {
                let found = find(&venue.venue, &venue.owner, &filter, cursor.as_ref(), 5).await.unwrap();
                count += found.jobs.len();
                assert!(found.jobs.iter().all(|job| job.head.input["truncated"] == true));
                cursor = found.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(count, expected, "{text}");
        }
    }
}

/// Kilobytes of a line of `/proc/<id>/status`.
fn memory(id: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_concurrent_lists_of_large_jobs_use_little_memory() {
    let up = Up::start();
    up.agent("a", "echo");
    up.run(&["agent", "suspend", "a"]).ok();
    // A connection for each request: none that has rested for long is used again.
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    // As many values as there may be in one, and as much text.
    let input = format!("[{}1]", "1234567890123456,".repeat(48_000));
    for n in 0..25 {
        let body = format!("{{\"input\": {input}}}");
        let url = format!("{}/api/v1/agents/a/tasks", up.url);
        let sent = client.post(url).header("idempotency-key", format!("t{n}")).body(body).send().await.unwrap();
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    }
    let id = up.process.id();
    // From here on the highest use counts anew.
    std::fs::write(Path::new("/proc").join(id.to_string()).join("clear_refs"), "5").unwrap();
    let before = memory(id, "VmRSS");
    let ask = async |query: &str| {
        let url = format!("{}/api/v1/jobs?{query}", up.url);
        let page: Value = client.get(url).send().await.unwrap().json().await.unwrap();
        page["items"].as_array().unwrap().len()
    };
    for query in ["details=true&limit=1000", "limit=1000", "agent=a&limit=1000", "q=nothing&limit=1000"] {
        let pages = futures::future::join_all((0..8).map(|_| ask(query))).await;
        assert!(pages.iter().all(|n| (*n > 0) != query.starts_with('q')), "{query}: {pages:?}");
    }
    let grown = memory(id, "VmHWM").saturating_sub(before) / 1024;
    eprintln!("eight callers, 25 jobs of 800 KB: {} MB before, {grown} MB more at most", before / 1024);
    assert!(grown < 300, "{grown} MB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_of_large_values_ends_early_and_a_whole_has_a_limit() {
    let server = Server::start().await;
    let large = "z".repeat(90_000);
    for n in 0..30 {
        server.run("lattice/write", json!({"path": format!("w/big/k{n:02}"), "value": large})).await;
        server.run("lattice/append", json!({"path": "w/list", "value": large})).await;
    }
    for path in ["w/big", "w/list"] {
        let (mut offset, mut seen, mut pages) = (0, 0, 0);
        loop {
            let page = server.run("lattice/slice", json!({"path": path, "offset": offset, "limit": 1000})).await;
            let bytes = page.to_string().len();
            assert!(bytes < 1_200_000, "{path}: {bytes}");
            assert_eq!(page["count"], 30);
            seen += page["values"].as_array().unwrap().len();
            pages += 1;
            if page["truncated"] != true {
                assert!(page["next"].is_null());
                break;
            }
            offset = page["next"].as_u64().unwrap();
            assert_eq!(offset, seen as u64);
        }
        assert_eq!((seen, pages > 1), (30, true), "{path}");
    }
    for n in 0..60 {
        server.run("lattice/write", json!({"path": format!("w/huge/k{n:03}"), "value": large})).await;
    }
    for operation in ["read", "inspect", "aggregate"] {
        let body = json!({"operation": format!("lattice/{operation}"), "input": {"path": "w/huge"}});
        server.post("/api/v1/run", body).await.is_problem(400, "larger than 4 MiB");
    }
    assert_eq!(server.run("lattice/count", json!({"path": "w/huge"})).await["count"], 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_agents_and_timers_have_pages() {
    let server = Server::start().await;
    for name in ["a", "a-b", "b", "c"] {
        server.echo_agent(name).await;
    }
    let first = server.get("/api/v1/agents?limit=3").await.body(200);
    assert_eq!((first["agents"].as_array().unwrap().len(), &first["next"]), (3, &json!("b")));
    let second = server.get("/api/v1/agents?limit=3&after=b").await.body(200);
    assert_eq!((&second["agents"][0]["agentId"], &second["next"]), (&json!("c"), &Value::Null));
    let input = "t".repeat(90_000);
    for n in 0..60 {
        let body = json!({"name": format!("n{n}"), "input": input, "after": format!("{}h", n + 1)});
        server.post("/api/v1/agents/a/timers", body).await.body(201);
    }
    let (mut offset, mut seen, mut pages) = (0, BTreeSet::new(), 0);
    loop {
        let page = server.get(&format!("/api/v1/timers?offset={offset}")).await.body(200);
        assert_eq!(page["total"], 60);
        seen.extend(page["items"].as_array().unwrap().iter().map(|timer| timer["timer"].to_string()));
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!((seen.len(), pages > 1), (60, true));
    let approvals = server.get("/api/v1/approvals?limit=5&offset=9").await.body(200);
    assert_eq!((&approvals["items"], &approvals["total"], &approvals["next"]), (&json!([]), &json!(0), &Value::Null));
}
