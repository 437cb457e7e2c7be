//! `http/get` and `http/post` against a server on this machine.

use super::{agent, call_at};
use crate::support::http::Server;
use crate::support::{operate, port};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::cap::SpendSettings;
use trellis::domain::hosts::HostRule;
use trellis::venue::Venue;
use trellis::venue::operation::Caller;
use trellis::venue::outbound::HttpPolicy;

/// The site answers once per connection and says so: a client that kept the connection would race with its end.
const CLOSE: &str = "connection: close\r\n";

/// A server that answers by path and remembers what it was sent.
struct Site {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, port, Arc::clone(&log)));
            }
        });
        Self { port, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// One request, read up to the length of its body.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).await.unwrap_or(0);
        text.extend_from_slice(&piece[..read]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else {
            if read == 0 {
                return so_far;
            }
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if read == 0 || body.len() >= length.unwrap_or(0) {
            return so_far;
        }
    }
}

async fn serve(mut stream: TcpStream, port: u16, log: Arc<Mutex<Vec<String>>>) {
    let asked = request(&mut stream).await;
    let path = asked.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap().push(asked);
    let moved = |status: &str, to: &str| {
        format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n{CLOSE}\r\n")
    };
    let ok = |kind: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nset-cookie: s=1\r\n{CLOSE}\r\n{body}"
        )
    };
    let answer = match path.as_str() {
        "/json" => ok("application/json; charset=utf-8", r#"{"a":[1]}"#),
        "/large" => ok("text/plain", &"x".repeat(5_000)),
        "/chunked" => {
            let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{CLOSE}\r\n{}0\r\n\r\n", chunk.repeat(5))
        }
        "/missing" => format!("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n{CLOSE}\r\nnone"),
        "/to-here" => moved("302", "/text"),
        "/to-other-host" => moved("302", "http://other.example/x"),
        "/to-other-origin" => moved("302", &format!("http://named.example:{port}/text")),
        "/keep-to-other-origin" => moved("307", &format!("http://named.example:{port}/text")),
        "/to-file" => moved("302", "file:///etc/passwd"),
        "/round" => moved("302", "/round"),
        "/slow" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun";
            stream.write_all(head.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            return;
        }
        "/bytes" => {
            let head =
                b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 2\r\nconnection: close\r\n\r\n\xff\x00";
            stream.write_all(head).await.unwrap();
            return;
        }
        _ => ok("text/plain", "hello"),
    };
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A venue whose catalog has this policy; the server keeps its store.
async fn venue(hosts: &str, change: impl FnOnce(&mut HttpPolicy)) -> (Venue, Server) {
    let server = Server::start().await;
    let mut policy = HttpPolicy {
        hosts: HostRule::list(hosts).unwrap(),
        allow_private: true,
        max_bytes: 4_000,
        ..HttpPolicy::default()
    };
    change(&mut policy);
    let venue = Venue {
        store: Arc::clone(&server.venue.store),
        bus: Arc::clone(&server.venue.bus),
        clock: server.venue.clock.clone(),
        name: server.venue.name.clone(),
        key: server.venue.key.clone(),
        catalog: trellis::ops::catalog_with(true, policy),
        secrets: server.venue.secrets.clone(),
        boundaries: Vec::new(),
        spend: SpendSettings::default(),
        quota: trellis::domain::quota::QuotaSettings::default(),
        prompts: trellis::venue::context::PromptCache::default(),
        meters: trellis::venue::rates::Meters::default(),
        local: trellis::venue::local_worker::LocalWorker::default(),
        fleet: trellis::venue::registry::FleetCache::default(),
        history: trellis::venue::history::History::default(),
        metrics: Arc::clone(&server.venue.metrics),
        tracer: trellis::process::tracer::Tracer::default(),
    };
    (venue, server)
}

/// A venue that may call the site under its address and as `named.example`.
async fn friendly(site: &Site) -> (Venue, Server) {
    let hosts = format!("127.0.0.1:{port}, named.example:{port}", port = site.port);
    venue(&hosts, |policy| policy.lookup = always("127.0.0.1")).await
}

fn always(address: &'static str) -> trellis::venue::outbound::Lookup {
    Arc::new(move |_| Box::pin(async move { Ok(vec![address.parse::<IpAddr>().unwrap()]) }))
}

async fn get(venue: &Venue, url: &str) -> Result<Value, String> {
    call_at(venue, &agent("*", ""), "http/get", json!({"url": url})).await
}

#[track_caller]
fn failed(result: Result<Value, String>, part: &str) {
    let error = result.unwrap_err();
    assert!(error.contains(part), "expected `{part}` in: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_json_text_or_bytes_whatever_its_status() {
    let site = Site::start().await;
    let (venue, _server) = friendly(&site).await;
    let text = get(&venue, &site.url("/text?q=1#part")).await.unwrap();
    assert_eq!((&text["status"], &text["body"], &text["size"]), (&json!(200), &json!("hello"), &json!(5)));
    assert_eq!((&text["headers"]["content-type"], text["headers"].get("set-cookie")), (&json!("text/plain"), None));
    assert!(site.last().starts_with("GET /text?q=1 HTTP/1.1\r\n"), "{}", site.last());
    assert_eq!(get(&venue, &site.url("/json")).await.unwrap()["body"], json!({"a": [1]}));
    assert_eq!(get(&venue, &site.url("/bytes")).await.unwrap()["bodyBase64"], "/wA=");
    let missing = get(&venue, &site.url("/missing")).await.unwrap();
    assert_eq!((&missing["status"], &missing["body"]), (&json!(404), &json!("none")));
    let post = json!({"url": site.url("/text"), "body": {"b": 1}, "headers": {"X-Key": "k"}});
    call_at(&venue, &agent("*", ""), "http/post", post).await.unwrap();
    let sent = site.last().to_lowercase();
    assert!(sent.starts_with("post /text") && sent.ends_with("\r\n\r\n{\"b\":1}"), "{sent}");
    assert!(sent.contains("content-type: application/json") && sent.contains("x-key: k"), "{sent}");
}

/// Covia's keys of a call.
#[tokio::test(flavor = "multi_thread")]
async fn covias_keys_of_a_call_are_taken_or_refused_by_name() {
    let site = Site::start().await;
    let (venue, server) = friendly(&site).await;
    let host = format!("127.0.0.1:{}", site.port);
    server.run("secret/set", json!({"name": "TOKEN", "value": "abcdefgh", "hosts": [host]})).await;
    let call = async |operation: &str, more: Value| {
        let mut input = json!({"url": site.url("/text?q=1")});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call_at(&venue, &agent("*", ""), operation, input).await
    };
    call("http/get", json!({"queryParams": {"format": "json", "n": 5, "a b": "&=ä"}, "method": "get"})).await.unwrap();
    let line = site.last().lines().next().unwrap().to_owned();
    assert_eq!(line, "GET /text?q=1&format=json&n=5&a+b=%26%3D%C3%A4 HTTP/1.1");
    for bearer in ["TOKEN", "s/TOKEN", "/s/TOKEN"] {
        for operation in ["http/get", "http/post"] {
            call(operation, json!({"bearerSecret": bearer})).await.unwrap();
            assert!(
                site.last().to_lowercase().contains("authorization: bearer abcdefgh\r\n"),
                "{bearer}: {}",
                site.last()
            );
        }
    }
    call("http/post", json!({"queryParams": {"x": true}, "method": "POST", "body": {"b": 1}})).await.unwrap();
    assert!(site.last().starts_with("POST /text?q=1&x=true "), "{}", site.last());
    let sent = site.count();
    for (operation, more, part) in [
        ("http/get", json!({"method": "POST"}), "`method`: `http/get` sends GET, got `POST`; use `v/ops/http/post`"),
        ("http/post", json!({"method": "GET"}), "`method`: `http/post` sends POST, got `GET`; use `v/ops/http/get`"),
        ("http/post", json!({"method": "DELETE"}), "`method`: `http/post` sends POST, got `DELETE`; no operation"),
        ("http/get", json!({"queryParams": {"a": {"b": 1}}}), "/queryParams/a"),
        ("http/get", json!({"bearerSecret": "no name"}), "`bearerSecret`: "),
        ("http/get", json!({"bearerSecret": "OTHER"}), "OTHER"),
        (
            "http/get",
            json!({"bearerSecret": "TOKEN", "headers": {"authorization": "x"}}),
            "`bearerSecret`: the header `authorization` is given too; leave one of them out",
        ),
    ] {
        failed(call(operation, more).await, part);
    }
    let least = Caller::new(
        "local/me".parse().unwrap(),
        "agent:least".to_owned(),
        Authority::new(Some(vec![Capability { with: format!("http://{host}"), can: "http/get".to_owned() }])),
    );
    let input = json!({"url": site.url("/text"), "bearerSecret": "TOKEN"});
    failed(call_at(&venue, &least, "http/get", input).await, "secret/use");
    assert_eq!(site.count(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_no_fault_of_the_venue() {
    let port = port::lasting();
    let (venue, _store) = venue(&format!("127.0.0.1:{port}"), |_| {}).await;
    let server = Server::of(Arc::new(venue)).await;
    let order = json!({"operation": "http:get", "input": {"url": format!("http://127.0.0.1:{port}/")}});
    server.post("/api/v1/run", order.clone()).await.is_problem(502, "Operation failed: ");
    let job = server.post("/api/v1/invoke?wait=0", order).await.body(201);
    assert_eq!(job["status"], "PENDING", "{job}");
    operate::as_worker(&server.venue, &"local/me".parse().unwrap()).await;
    let job = server.get(&format!("/api/v1/jobs/{}", job["id"].as_str().unwrap())).await.body(200);
    assert_eq!(job["status"], "FAILED", "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_hosts_are_called_and_none_by_default() {
    let site = Site::start().await;
    let (closed, _one) = venue("", |_| {}).await;
    failed(get(&closed, &site.url("/text")).await, "not one that this venue allows");
    let (open, _two) = friendly(&site).await;
    for url in ["http://other.example/", "http://127.0.0.1/", "http://127.0.0.1.evil.example/", "https://[::1]/"] {
        failed(get(&open, url).await, "not one that this venue allows");
    }
    failed(get(&open, "file:///etc/passwd").await, "expected `http://` or `https://`");
    failed(get(&open, "http://user:word@127.0.0.1/").await, "credentials are not allowed in a URL");
    failed(get(&open, "not a url").await, "at `/url`: expected a URL");
    assert_eq!(site.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_under_every_name() {
    let site = Site::start().await;
    let hosts = format!("*:{port}, localhost:{port}, 127.0.0.1:{port}, [::1]:{port}", port = site.port);
    let (system, _one) = venue(&hosts, |policy| policy.allow_private = false).await;
    // The last three are other spellings of 127.0.0.1.
    for host in ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1"] {
        failed(get(&system, &format!("http://{host}:{}/text", site.port)).await, "not a public address");
    }
    let (lied, _two) = venue(&hosts, |policy| {
        policy.allow_private = false;
        policy.lookup = always("169.254.169.254");
    })
    .await;
    failed(
        get(&lied, &format!("http://metadata.example:{}/", site.port)).await,
        "`metadata.example` is at 169.254.169.254",
    );
    assert_eq!(site.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let site = Site::start().await;
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let (venue, _server) = venue(&format!("named.example:{}", site.port), |policy| {
        policy.lookup = Arc::new(move |name| {
            let mut asked = log.lock().unwrap();
            asked.push(name);
            // A second look would be answered otherwise.
            let address: IpAddr = if asked.len() == 1 { "127.0.0.1" } else { "127.0.0.2" }.parse().unwrap();
            Box::pin(async move { Ok(vec![address]) })
        });
    })
    .await;
    let got = get(&venue, &format!("http://named.example:{}/text", site.port)).await.unwrap();
    assert_eq!(got["body"], "hello");
    assert_eq!(*asked.lock().unwrap(), ["named.example"]);
    assert!(site.last().contains(&format!("host: named.example:{}", site.port)), "{}", site.last());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_checked_like_a_call_and_drops_credentials() {
    let site = Site::start().await;
    let (venue, _server) = friendly(&site).await;
    let here = get(&venue, &site.url("/to-here")).await.unwrap();
    assert_eq!((&here["body"], &here["url"]), (&json!("hello"), &json!(site.url("/text"))));
    failed(get(&venue, &site.url("/to-other-host")).await, "host `other.example` port 80 is not one");
    failed(get(&venue, &site.url("/to-file")).await, "expected `http://` or `https://`");
    failed(get(&venue, &site.url("/round")).await, "more than 5 redirects");
    let headers = json!({"Authorization": "Bearer t", "X-Api-Key": "k", "Cookie": "c=1", "Accept": "text/x"});
    let ask = |path: &str| json!({"url": site.url(path), "headers": headers});
    call_at(&venue, &agent("*", ""), "http/get", ask("/to-here")).await.unwrap();
    assert!(site.last().contains("authorization: Bearer t"), "{}", site.last());
    call_at(&venue, &agent("*", ""), "http/get", ask("/to-other-origin")).await.unwrap();
    let sent = site.last().to_lowercase();
    assert!(sent.contains("host: named.example") && sent.contains("accept: text/x"), "{sent}");
    for name in ["authorization", "x-api-key", "cookie"] {
        assert!(!sent.contains(name), "`{name}` was sent on: {sent}");
    }
    let post = |path: &str| json!({"url": site.url(path), "body": "secret"});
    let kept = call_at(&venue, &agent("*", ""), "http/post", post("/keep-to-other-origin")).await;
    failed(kept, "redirects the request with its body to another origin");
    call_at(&venue, &agent("*", ""), "http/post", post("/to-here")).await.unwrap();
    assert!(site.last().starts_with("GET /text") && !site.last().contains("secret"), "{}", site.last());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_bounded_in_size_and_time() {
    let site = Site::start().await;
    let (venue, _server) = friendly(&site).await;
    failed(get(&venue, &site.url("/large")).await, "more than 4000 bytes");
    failed(get(&venue, &site.url("/chunked")).await, "more than 4000 bytes");
    let slow = json!({"url": site.url("/slow"), "timeout": 100});
    failed(call_at(&venue, &agent("*", ""), "http/get", slow).await, "no whole answer within 100 ms");
    failed(get(&venue, "http://127.0.0.1:1/").await, "not one that this venue allows");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_can_not_break_out_of_their_line() {
    let site = Site::start().await;
    let (venue, _server) = friendly(&site).await;
    for (name, value, part) in [
        ("X-A", "1\r\nX-Evil: 2", "characters that are not allowed"),
        ("X-A\r\nX-Evil", "2", "is not a header name"),
        ("X A", "2", "is not a header name"),
        ("Host", "other.example", "header `host` is set by the venue"),
        ("Content-Length", "0", "header `content-length` is set by the venue"),
        ("Transfer-Encoding", "chunked", "header `transfer-encoding` is set by the venue"),
        ("Proxy-Connection", "x", "header `proxy-connection` is set by the venue"),
    ] {
        let ask = json!({"url": site.url("/text"), "headers": {name: value}});
        failed(call_at(&venue, &agent("*", ""), "http/get", ask).await, part);
    }
    let kind = json!({"url": site.url("/text"), "body": "x", "contentType": "text/plain\r\nX-Evil: 1"});
    failed(call_at(&venue, &agent("*", ""), "http/post", kind).await, "characters that are not allowed");
    assert_eq!(site.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_covers_urls_by_whole_parts_and_holds_on_redirects() {
    let site = Site::start().await;
    let (venue, _server) = friendly(&site).await;
    let base = format!("http://127.0.0.1:{}", site.port);
    let caller = agent("http/get", &format!("{base}/text"));
    let ask = |path: &str| json!({"url": site.url(path)});
    call_at(&venue, &caller, "http/get", ask("/text/below?q=1")).await.unwrap();
    failed(call_at(&venue, &caller, "http/get", ask("/texts")).await, "requires http/get on");
    failed(call_at(&venue, &caller, "http/get", ask("/text/../json")).await, "/json. Your capabilities");
    failed(call_at(&venue, &caller, "http/post", ask("/text")).await, "requires http/post on");
    let run = json!({"operation": "http:post", "input": ask("/text")});
    failed(call_at(&venue, &caller, "job/run", run).await, "http:post requires http/post on");
    let one_host = agent("http", &base);
    failed(
        call_at(&venue, &one_host, "http/get", ask("/to-other-origin")).await,
        "requires http/get on http://named.example",
    );
}
