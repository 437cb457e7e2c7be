//! HTTP connections: their number, their times, and bodies that nobody asked for.

use crate::support::cli::{self, Process};
use crate::support::http::{BODY_LIMIT, Server};
use crate::support::port;
use crate::support::raw_connection::Raw;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trellis::http::{ConnectionLimits, HttpOptions};

const SHORT: Duration = Duration::from_millis(300);

/// A job that stays open: nobody runs it.
async fn open_job(server: &Server) -> String {
    open_job_of(server, "local/me").await
}

async fn open_job_of(server: &Server, owner: &str) -> String {
    let headers = [("X-Trellis-Owner", owner)];
    let config = json!({"model": {"provider": "scripted", "name": "echo"}});
    server.send(Method::PUT, "/api/v1/agents/a", &headers, config.to_string()).await.body(201);
    let task = json!({"input": "x"}).to_string();
    let job = server.send(Method::POST, "/api/v1/agents/a/tasks", &headers, task).await.body(202);
    job["job"].as_str().unwrap().to_owned()
}

/// A server with these limits, and an open job of each owner. The jobs were made at another server of the venue: a
/// connection that a client keeps for its next request would count here.
async fn limited_server<'a>(limits: ConnectionLimits, owners: &[&'a str]) -> (Server, BTreeMap<&'a str, String>) {
    let first = Server::start().await;
    let mut jobs = BTreeMap::new();
    for owner in owners {
        jobs.insert(*owner, open_job_of(&first, owner).await);
    }
    let change = |options| HttpOptions { connection_limits: limits, ..options };
    (first.second(change).await, jobs)
}

/// A `GET` of an owner.
fn request_of(owner: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-trellis-owner: {owner}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_do_not_stop_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", port::lasting());
    let mut command = cli::command(dir.path());
    let binary = command.get_program().to_owned();
    let mut limited = std::process::Command::new("sh");
    // As many as the attack that stopped it met.
    limited.arg("-c").arg("ulimit -Sn 1024; exec \"$0\" \"$@\"").arg(binary);
    limited.args(["up", "--data", "data", "--listen", &address, "--set", "http.connections=2000"]);
    limited.current_dir(dir.path()).stdin(std::process::Stdio::null());
    command = limited;
    let mut up = Process::of(command);
    up.says("HTTP API on ");
    up.says("file descriptors of this process (`ulimit -n`) are enough for 512");
    let url = format!("http://{address}");
    let mut kept = Vec::new();
    for n in 0..1_100 {
        let mut raw = Raw::to(&url).await;
        match n % 3 {
            0 => {}
            1 => raw.send("GET /livez HT").await,
            _ => raw.send("POST /api/v1/run HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{").await,
        }
        kept.push(raw);
        if n % 100 == 99 {
            let start = Instant::now();
            let status: Value = reqwest::get(format!("{url}/api/v1/status")).await.unwrap().json().await.unwrap();
            assert_eq!(status["status"], "OK", "{n}");
            assert!(start.elapsed() < Duration::from_secs(5), "{n}: {:?}", start.elapsed());
        }
    }
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", up.id())).unwrap().count();
    assert!(descriptors < 700, "{descriptors}");
    up.signal("TERM");
    assert!(up.ended().success(), "{}", up.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_and_a_body_have_a_time_to_arrive() {
    let server = Server::limited(|options| HttpOptions { header_time: SHORT, body_time: SHORT, ..options }).await;
    for part in ["", "GET /livez HTTP/1.1\r\nho"] {
        let mut raw = Raw::to(&server.url).await;
        raw.send(part).await;
        let (after, bytes) = raw.closed().await;
        assert!(bytes == 0 && after < SHORT * 20, "{part:?}: {bytes} bytes, {after:?}");
    }
    // Sent drop by drop it has no more time.
    let mut raw = Raw::to(&server.url).await;
    let start = Instant::now();
    for byte in "GET /livez HTTP/1.1\r\nhost: localhost".chars() {
        raw.send(&byte.to_string()).await;
        tokio::time::sleep(SHORT / 6).await;
    }
    assert_eq!((raw.closed().await.1, start.elapsed() < Duration::from_secs(5)), (0, true));

    for path in ["/api/v1/run", "/api/v1/jobs/0/pause"] {
        let mut raw = Raw::to(&server.url).await;
        let method = if path.ends_with("run") { "POST" } else { "PUT" };
        raw.send(&format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n")).await;
        for _ in 0..10 {
            raw.send("{").await;
            tokio::time::sleep(SHORT / 6).await;
        }
        let heard = raw.answer().await;
        assert_eq!(heard.status, 408, "{heard:?}");
        assert!(heard.head.contains("connection: close"), "{}", heard.head);
        assert!(heard.body["detail"].as_str().unwrap().contains("longer than 0.3 s"), "{}", heard.body);
        assert_eq!(raw.closed().await.1, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_a_stream_is_not() {
    let server =
        Server::limited(|options| HttpOptions { idle_time: SHORT, header_time: SHORT, stall_time: SHORT, ..options })
            .await;
    let job = open_job(&server).await;
    let mut raw = Raw::to(&server.url).await;
    for _ in 0..3 {
        raw.request("GET", "/livez", "").await;
        assert_eq!(raw.answer().await.status, 200);
        tokio::time::sleep(SHORT / 2).await;
    }
    let (after, bytes) = raw.closed().await;
    assert!(bytes == 0 && after < SHORT * 20, "{after:?}");
    let mut stream = Raw::to(&server.url).await;
    stream.request("GET", &format!("/api/v1/jobs/{job}/sse"), "").await;
    let start = Instant::now();
    let alive = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        (text.matches("alive").count() > 20).then_some(0)
    };
    stream.until(alive).await;
    assert!(start.elapsed() > SHORT * 3, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_the_limit_is_refused_with_the_reason() {
    for (room, status, reason) in [
        (ConnectionLimits { total: 9, per_address: 2, proxies: Vec::new() }, 429, "from this address"),
        (ConnectionLimits { total: 2, per_address: 1, proxies: vec!["127.0.0.1".parse().unwrap()] }, 503, "try again"),
    ] {
        let (mut server, jobs) = limited_server(room, &["local/me", "local/you"]).await;
        let mut running = Vec::new();
        for (owner, job) in jobs {
            let mut raw = Raw::to(&server.url).await;
            raw.send(&request_of(owner, &format!("/api/v1/jobs/{job}/sse"))).await;
            raw.until(|bytes| bytes.windows(10).position(|ten| ten == b"job-update")).await;
            running.push(raw);
        }
        // One that comes with a body hears it too, and one that sends nothing is let go.
        for body in ["", "{\"operation\":\"x\"}"] {
            let mut refused = Raw::to(&server.url).await;
            refused.request("POST", "/api/v1/run", body).await;
            let heard = refused.answer().await;
            assert_eq!((heard.status, heard.body["status"].as_u64()), (status, Some(u64::from(status))), "{heard:?}");
            assert!(heard.body["detail"].as_str().unwrap().contains(reason), "{}", heard.body);
            assert!(
                heard.head.contains("connection: close") && heard.head.contains("retry-after: 1"),
                "{}",
                heard.head
            );
            assert_eq!(refused.closed().await.1, 0);
        }
        assert_eq!(Raw::to(&server.url).await.closed().await.1, 0);
        running.pop();
        let mut status = 0;
        for _ in 0..100 {
            let mut raw = Raw::to(&server.url).await;
            raw.send(&request_of("local/you", "/api/v1/status")).await;
            status = raw.answer().await.status;
            if status == 200 {
                break;
            }
            tokio::time::sleep(SHORT / 6).await;
        }
        assert_eq!(status, 200, "a place is free again");
        let mut half = Raw::to(&server.url).await;
        half.send("GET /livez HT").await;
        let start = Instant::now();
        server.shut_down().await;
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}

/// Requests of one owner that wait, in every way in which a request can, leave half of the connections to others.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_leave_connections_to_other_owners() {
    let room = ConnectionLimits { total: 64, per_address: 1, proxies: vec!["127.0.0.1".parse().unwrap()] };
    let (server, jobs) = limited_server(room, &["local/me", "local/you"]).await;
    let job = &jobs["local/me"];
    let task = json!({"input": "waits"}).to_string();
    let submission = format!(
        "POST /api/v1/agents/a/tasks?wait=60000 HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n{task}",
        task.len()
    );
    let ways = [
        request_of("local/me", &format!("/api/v1/jobs/{job}/sse")),
        request_of("local/me", &format!("/api/v1/jobs/{job}?wait=60000")),
        submission,
    ];
    let (mut waiting, mut refused) = (Vec::new(), 0);
    // As many get to work as connections are free then.
    for n in 0..48 {
        let mut raw = Raw::to(&server.url).await;
        raw.send(&ways[n % ways.len()]).await;
        waiting.push(raw);
    }
    for _ in 0..1_000 {
        let mut unanswered = Vec::new();
        for mut raw in waiting {
            match tokio::time::timeout(Duration::from_millis(2), raw.answer()).await {
                Ok(heard) if heard.status == 429 => {
                    assert!(
                        heard.body["detail"].as_str().unwrap().contains("of owner `local/me` run"),
                        "{}",
                        heard.body
                    );
                    refused += 1;
                }
                Ok(_) | Err(_) => unanswered.push(raw),
            }
        }
        waiting = unanswered;
        if refused == 16 {
            break;
        }
    }
    assert_eq!((waiting.len(), refused), (32, 16));
    for path in ["/livez", "/readyz", "/metrics"] {
        let mut raw = Raw::to(&server.url).await;
        raw.request("GET", path, "").await;
        assert_eq!(raw.answer().await.status, 200, "{path}");
    }
    let job = &jobs["local/you"];
    let mut raw = Raw::to(&server.url).await;
    raw.send(&request_of("local/you", &format!("/api/v1/jobs/{job}?wait=1"))).await;
    assert_eq!(raw.answer().await.status, 200);
}

/// Requests at work of an owner that it gets: it tries `tries` times, one after the other.
async fn fill(server: &Server, owner: &str, job: &str, tries: usize) -> Vec<Raw> {
    let mut at_work = Vec::new();
    for _ in 0..tries {
        let mut raw = Raw::to(&server.url).await;
        raw.send(&request_of(owner, &format!("/api/v1/jobs/{job}/sse"))).await;
        let status = |bytes: &[u8]| std::str::from_utf8(bytes.get(9..12)?).ok()?.parse().ok();
        match raw.until(status).await {
            200 => at_work.push(raw),
            429 | 503 => {}
            other => panic!("{owner} is answered {other}"),
        }
    }
    at_work
}

/// Whoever gives tokens makes users at will: the requests of those of one tenant leave half of the connections, and half
/// of what one address may have, to other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_leave_connections_to_other_tenants() {
    let (one_address, proxy) = (Vec::new(), vec!["127.0.0.1".parse().unwrap()]);
    for (total, per_address, proxies) in [(32, 64, proxy), (64, 32, one_address)] {
        let room = ConnectionLimits { total, per_address, proxies };
        let owners = ["acme/a", "acme/b", "acme/c", "acme/d", "acme/e", "acme/f", "other/x"];
        let (server, jobs) = limited_server(room, &owners).await;
        let mut held = Vec::new();
        for (owner, job) in &jobs {
            let tries = if *owner == "other/x" { 8 } else { 20 };
            held.push(fill(&server, owner, job, tries).await);
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(counts[..6].iter().sum::<usize>() <= 16, "{counts:?}");
        assert!(counts[6] >= 4, "another tenant has its own: {counts:?}");
    }
}

/// Whoever looks after a process asks it also when all connections work, and others beyond them say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_when_no_connection_is_free() {
    let room = ConnectionLimits { total: 3, per_address: 3, proxies: vec!["127.0.0.1".parse().unwrap()] };
    let (server, jobs) = limited_server(room, &["local/a", "local/b", "local/c"]).await;
    let mut kept = Vec::new();
    for (owner, job) in jobs {
        let mut raw = Raw::to(&server.url).await;
        raw.send(&request_of(owner, &format!("/api/v1/jobs/{job}/sse"))).await;
        raw.until(|bytes| bytes.windows(10).position(|ten| ten == b"job-update")).await;
        kept.push(raw);
    }
    for n in 0..100 {
        let mut raw = Raw::to(&server.url).await;
        raw.send(if n % 2 == 0 { "" } else { "GET /livez HTTP/1.1\r\nhost" }).await;
        kept.push(raw);
        let path = ["/livez", "/readyz", "/metrics"][n % 3];
        let mut probe = Raw::to(&server.url).await;
        probe.request("GET", path, "").await;
        assert_eq!(probe.answer().await.status, 200, "{path} {n}");
    }
    let mut other = Raw::to(&server.url).await;
    other.request("GET", "/api/v1/status", "").await;
    assert_eq!(other.answer().await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_answer_is_disconnected() {
    let server = Server::limited(|options| HttpOptions { stall_time: SHORT, ..options }).await;
    let value = "x".repeat(BODY_LIMIT - 200);
    server.run("lattice/write", json!({"path": "w/big", "value": value})).await;
    let mut raw = Raw::to(&server.url).await;
    // More than the system keeps for both ends.
    let asked = 400;
    let get = "GET /api/v1/values/read?path=w/big HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(asked);
    raw.send(&get).await;
    tokio::time::sleep(SHORT * 10).await;
    let (_, bytes) = raw.closed().await;
    assert!(bytes < asked * (BODY_LIMIT - 200), "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_asked_for_is_no_next_request() {
    let server = Server::start().await;
    let document = server.get("/api/v1/openapi.json").await.body(200);
    let mut raw = Raw::to(&server.url).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        let filled = path.replace("{id}", &"0".repeat(32)).replace(['{', '}'], "");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            // What streams has its own connection.
            if filled.ends_with("/sse") && method == "GET" || item.get(method.to_lowercase()).is_none() {
                continue;
            }
            for body in ["{\"reason\":\"none\"}".to_owned(), format!("\"{}\"", "x".repeat(BODY_LIMIT + 10))] {
                raw.request(method, &filled, &body).await;
                let heard = raw.answer().await;
                assert!(!heard.head.contains("connection: close"), "{method} {filled}: {heard:?}");
                // The content of an asset may be as long as an asset.
                let is_content = method == "PUT" && filled.starts_with("/api/v1/assets/");
                let is_long = body.len() > BODY_LIMIT && !is_content;
                assert_eq!(heard.status == 413, is_long, "{method} {filled}: {heard:?}");
                raw.request("GET", "/livez", "").await;
                assert_eq!(raw.answer().await.body, json!({"status": "live"}), "after {method} {filled}");
            }
        }
    }
    // Refused before it was read: the rest is heard out, or the connection says that it ends.
    raw.send("PUT /api/v1/jobs/x/delete HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(raw.answer().await.status, 403);
    raw.send("PUT /api/v1/jobs/x/delete HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 5\r\n\r\n{}").await;
    let heard = raw.answer().await;
    assert!(heard.status == 403 && heard.head.contains("connection: close"), "{heard:?}");
    assert_eq!(raw.closed().await.1, 0);
    // Who asks first whether to send is told to spare the pains.
    let mut raw = Raw::to(&server.url).await;
    let large = BODY_LIMIT + 1;
    raw.send(&format!(
        "POST /api/v1/run HTTP/1.1\r\nhost: evil.example\r\nexpect: 100-continue\r\ncontent-length: {large}\r\n\r\n"
    ))
    .await;
    assert_eq!(raw.answer().await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_counts_only_where_the_route_describes_one() {
    let server = Server::start().await;
    server.echo_agent("kept").await;
    let document = server.get("/api/v1/openapi.json").await.body(200);
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let job = path.starts_with("/api/v1/jobs/");
        let filled = path.replace("{id}", if job { "00000000000000000000000000000000" } else { "kept" });
        let filled = filled.replace(['{', '}'], "");
        for method in [Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            let operation = &item[method.as_str().to_lowercase()];
            if operation.is_null() || !operation["requestBody"].is_null() || filled == "/metrics" {
                continue;
            }
            tried += 1;
            // The first is without one: what it changes is changed for all.
            server.send(method.clone(), &filled, &[], "").await;
            let without = server.send(method.clone(), &filled, &[], "").await;
            for body in [r#"{"remove":true}"#, r#"{"limit":1,"agentId":"none","nonsense":1}"#, "[1]", "no JSON"] {
                let with = server.send(method.clone(), &filled, &[], body).await;
                if method == Method::GET {
                    assert_eq!((with.status, with.body), (without.status, without.body.clone()), "{filled} {body}");
                } else {
                    let detail = with.body(400)["detail"].as_str().unwrap().to_owned();
                    assert!(detail.contains("takes no body"), "{method} {filled} {body}: {detail}");
                }
            }
            for body in ["{}", "null", " "] {
                let with = server.send(method.clone(), &filled, &[], body).await;
                assert_eq!(
                    (with.status, with.body),
                    (without.status, without.body.clone()),
                    "{method} {filled} {body}"
                );
            }
        }
    }
    assert!(tried > 25, "{tried}");
    // It was ended, and not taken away.
    let kept = server.get("/api/v1/agents/kept").await.body(200);
    assert_eq!(kept["status"], "TERMINATED");
}
