//! Calls that must not be repeated: what is surely before them, what is unknown after them, and what becomes of that.

mod restarted_sessions;
mod dead_workers;
mod call_failures;
mod requests;
mod settlement;

use crate::support::both_stores::On;
use crate::support::venue::TestVenue;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use trellis::domain::hosts::HostRule;
use trellis::process::clock::Clock;
use trellis::venue::outbound::HttpPolicy;

/// Bytes of an answer that the venues of these tests take.
const MAX_BYTES: usize = 4_000;

/// A raw server that counts the requests whose head has come in, and ends each as its path says.
struct Site {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log)));
            }
        });
        Self { port, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// POST requests that came in.
    fn posts(&self) -> usize {
        self.requests().iter().filter(|request| request.starts_with("POST ")).count()
    }

    /// The `Idempotency-Key` of the last request.
    fn last_key(&self) -> Option<String> {
        let last = self.requests().pop().unwrap();
        last.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned))
    }

    /// Calls to it are allowed, and to `moved.example`, which is the same server.
    fn policy(&self) -> HttpPolicy {
        HttpPolicy {
            hosts: HostRule::list(&format!("127.0.0.1:{port}, moved.example:{port}", port = self.port)).unwrap(),
            allow_private: true,
            max_bytes: MAX_BYTES,
            lookup: Arc::new(|_| Box::pin(async { Ok(vec!["127.0.0.1".parse::<IpAddr>().unwrap()]) })),
            ..HttpPolicy::default()
        }
    }
}

/// The head of a request, and its body as far as it came with it; `None`: it isn't HTTP.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&text).contains("\r\n\r\n") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => text.extend_from_slice(&piece[..read]),
        }
        if !text.starts_with(b"P") && !text.starts_with(b"G") {
            return None;
        }
    }
    String::from_utf8(text).ok()
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<String>>>) {
    let Some(head) = head(&mut stream).await else { return };
    // A proxy is asked for the whole URL.
    let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches("http://moved.example").to_owned();
    let is_first = {
        let mut log = log.lock().unwrap();
        log.push(head);
        log.len() == 1
    };
    let moved = |status: u16, to: &str| {
        format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let answer = match path.as_str() {
        // Then it answers with a map.
        "/hang-first" if !is_first => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".to_owned(),
        "/hang" | "/hang-first" => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            return;
        }
        "/reset" => {
            stream.set_zero_linger().unwrap();
            return;
        }
        "/close" => return,
        "/half-head" => "HTTP/1.1 200 OK\r\ncontent-le".to_owned(),
        "/half-body" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun".to_owned(),
        "/half-chunk" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n400\r\nbegun".to_owned(),
        "/slow-body" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun").await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            return;
        }
        // `connection: close`: the next call must not be sent on a connection that this end is closing.
        "/large" => {
            let (length, body) = (MAX_BYTES + 1, "x".repeat(MAX_BYTES + 1));
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        }
        "/login" => "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "/no-http" => "SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned(),
        "/to-file" => moved(303, "file:///etc/passwd"),
        "/to-stranger" => moved(303, "http://stranger.example/x"),
        "/body-to-other-origin" => moved(307, "http://moved.example/x"),
        "/round" => moved(302, "/round"),
        "/to-hang" => moved(303, "/hang"),
        _ => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_owned(),
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A venue without a worker that may call the site; `None` without a server for it.
async fn venue(on: On, site: &Site, rules: &str) -> Option<(TestVenue, TempDir)> {
    let (mut venue, dir) = on.venue(rules, Clock::system()).await?;
    let catalog = trellis::ops::catalog_with(true, site.policy());
    Arc::get_mut(&mut venue.venue).expect("nobody has it yet").catalog = catalog;
    Some((venue, dir))
}
