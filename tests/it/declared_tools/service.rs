//! A small service with faults, which remembers what it was sent.

use crate::support::port;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests by their line and their whole text.
type Seen = Arc<Mutex<Vec<String>>>;

/// The service, on a port of this machine.
pub struct Service {
    pub port: u16,
    seen: Seen,
}

impl Service {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port::lasting())).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, counts) = (Seen::default(), Arc::<Mutex<HashMap<String, usize>>>::default());
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, counts) = (Arc::clone(&log), Arc::clone(&counts));
                std::thread::spawn(move || serve(stream, port, &log, &counts));
            }
        });
        Self { port, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Settings of a venue that may call it.
    pub fn settings(&self) -> [String; 2] {
        let host = format!("127.0.0.1:{}, 127.0.0.2:{}", self.port, self.port);
        [format!("http_client.allow_hosts={host}"), "http_client.allow_private=true".into()]
    }

    /// The requests whose line begins so, in order.
    pub fn requests(&self, begin: &str) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|request| request.starts_with(begin)).cloned().collect()
    }

    /// Waits until there are so many requests whose line begins so.
    pub fn wait_for(&self, begin: &str, count: usize) {
        let start = Instant::now();
        while self.requests(begin).len() < count {
            assert!(start.elapsed() < Duration::from_mins(1), "{begin}: {:?}", self.seen.lock().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The value of a header in a request.
pub fn header(request: &str, name: &str) -> Option<String> {
    let (head, _) = request.split_once("\r\n\r\n")?;
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).unwrap_or(0);
        text.extend_from_slice(&piece[..read]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let length = header(&so_far, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let is_whole = so_far.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= length);
        if read == 0 || is_whole {
            return so_far;
        }
    }
}

fn serve(mut stream: TcpStream, port: u16, log: &Seen, counts: &Mutex<HashMap<String, usize>>) {
    let request = read_request(&mut stream);
    if request.is_empty() {
        return;
    }
    let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    log.lock().unwrap().push(request);
    let count = {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(path.clone()).or_default();
        *count += 1;
        *count
    };
    let answer = |status: &str, more: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
        )
    };
    let text = match path.as_str() {
        "/orders/A-7" => answer("200 OK", "", r#"{"data":{"order":{"id":"A-7","total":12,"key":"hunter2hunter2"}}}"#),
        "/orders/odd" => answer("200 OK", "", r#"{"data":{"order":"none"}}"#),
        "/refunds" | "/keyed" if count > 1 || path == "/refunds" => answer("200 OK", "", r#"{"refund":"re_1"}"#),
        "/busy" if count > 2 => answer("200 OK", "", r#"{"ok":true}"#),
        "/busy" | "/always-busy" => {
            answer("503 Service Unavailable", "retry-after: 0\r\n", r#"{"error":"restarting"}"#)
        }
        "/broken" => answer("500 Internal Server Error", "", r#"{"error":"disk"}"#),
        "/pay" => answer("402 Payment Required", "", r#"{"error":"the card was declined"}"#),
        "/leave" => answer("302 Found", &format!("location: http://127.0.0.2:{port}/stolen\r\n"), ""),
        // `/keyed` hangs the first time, as if its process had stopped.
        "/hangs" | "/keyed" => {
            std::thread::sleep(Duration::from_mins(2));
            return;
        }
        "/drops" => return,
        "/large" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
            let block = vec![b'x'; 65_536];
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..1_600 {
                if stream.write_all(&block).is_err() {
                    return;
                }
            }
            return;
        }
        _ => answer("404 Not Found", "", r#"{"error":"no such thing"}"#),
    };
    let _ = stream.write_all(text.as_bytes());
}
