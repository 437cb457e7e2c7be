//! A provider of models on loopback. It refuses what the real one refuses (`strict`), records every request, and else
//! answers as told: by a list, by a function, or by another server behind it.

use super::raw_reply::RawReply;
use super::strict::{self, Judge};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 * 1024;
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A request that came.
#[derive(Debug, Clone)]
pub struct ModelCall {
    pub path: String,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    /// Null when it is no JSON.
    pub body: Value,
    bytes: Vec<u8>,
}

type Respond = Box<dyn Fn(&ModelCall) -> RawReply + Send + Sync>;

/// Who answers what was judged well.
enum Backend {
    Replies(Respond),
    Server(SocketAddr),
}

struct Shared {
    backend: Backend,
    /// In place of the one that the path names.
    judge: Option<Judge>,
    calls: Mutex<Vec<ModelCall>>,
    refusals: Mutex<Vec<String>>,
    body_bytes_sent: AtomicU64,
    connections_ended: AtomicUsize,
    is_closed: AtomicBool,
}

/// The server. It panics when it is dropped with a refusal that no test has taken.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ModelServer {
    pub fn start(respond: impl Fn(&ModelCall) -> RawReply + Send + Sync + 'static) -> Self {
        Self::start_with(None, Backend::Replies(Box::new(respond)))
    }

    /// The same with the rules of a provider that speaks another's format.
    pub fn start_as(judge: Judge, respond: impl Fn(&ModelCall) -> RawReply + Send + Sync + 'static) -> Self {
        Self::start_with(Some(judge), Backend::Replies(Box::new(respond)))
    }

    /// Answers one after another; the last one stays.
    pub fn scripted(replies: Vec<RawReply>) -> Self {
        assert!(!replies.is_empty(), "a script has a reply");
        let next = AtomicUsize::new(0);
        Self::start(move |_| {
            let at = next.fetch_add(1, Ordering::Relaxed).min(replies.len() - 1);
            replies[at].clone()
        })
    }

    /// Passes what it accepts to another server, byte by byte in both directions.
    pub fn in_front_of(address: SocketAddr) -> Self {
        Self::start_with(None, Backend::Server(address))
    }

    /// The same for the address in a URL.
    pub fn in_front_of_url(url: &str) -> Self {
        let place = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        Self::in_front_of(place.parse().unwrap())
    }

    fn start_with(judge: Option<Judge>, backend: Backend) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            backend,
            judge,
            calls: Mutex::default(),
            refusals: Mutex::default(),
            body_bytes_sent: AtomicU64::new(0),
            connections_ended: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || {
                    shared.serve(stream);
                    shared.connections_ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn calls(&self) -> Vec<ModelCall> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// Bytes of bodies that clients have taken.
    pub fn body_bytes_sent(&self) -> u64 {
        self.shared.body_bytes_sent.load(Ordering::Relaxed)
    }

    /// Connections that have ended, from either side.
    pub fn connections_ended(&self) -> usize {
        self.shared.connections_ended.load(Ordering::Relaxed)
    }

    /// Waits until something holds of this server.
    pub async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < WAIT_MAX, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The refusals so far, for a test that expects them.
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.refusals.lock().unwrap())
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let refusals = self.take_refusals();
        if !std::thread::panicking() {
            assert!(refusals.is_empty(), "a provider refuses what was sent: {refusals:#?}");
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let Some(call) = read_call(&mut stream) else { return };
        self.calls.lock().unwrap().push(call.clone());
        let judge = Judge::for_path(&call.path).map(|judge| self.judge.unwrap_or(judge));
        let refusal = judge.and_then(|judge| Some((judge, strict::refusal(judge, &call.body)?)));
        if let Some((judge, text)) = refusal {
            self.refusals.lock().unwrap().push(format!("{judge:?}: {text}"));
            let reply = RawReply::json(&judge.error_body(&text)).status(400);
            let _ = reply.write(&mut stream, &self.body_bytes_sent);
            return;
        }
        match &self.backend {
            Backend::Replies(respond) => {
                let _ = respond(&call).write(&mut stream, &self.body_bytes_sent);
            }
            Backend::Server(address) => pass_on(&call, stream, *address),
        }
    }
}

/// Reads a request whose body has a stated length or chunks.
fn read_call(stream: &mut TcpStream) -> Option<ModelCall> {
    let mut bytes = Vec::new();
    let head_end = read_until(stream, &mut bytes, |bytes| find(bytes, b"\r\n\r\n").map(|at| at + 4))?;
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let is_chunked = headers.get("transfer-encoding").is_some_and(|value| value.contains("chunked"));
    let body = if is_chunked {
        let end =
            read_until(stream, &mut bytes, |bytes| find(&bytes[head_end..], b"0\r\n\r\n").map(|at| head_end + at))?;
        joined_chunks(&bytes[head_end..end])
    } else {
        let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap_or(0));
        let end =
            read_until(stream, &mut bytes, |bytes| (bytes.len() >= head_end + length).then_some(head_end + length))?;
        bytes[head_end..end].to_vec()
    };
    Some(ModelCall { path, headers, body: serde_json::from_slice(&body).unwrap_or_default(), bytes })
}

fn read_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if let Some(end) = end(bytes) {
            return Some(end);
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn joined_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = find(bytes, b"\r\n") {
        let length = std::str::from_utf8(&bytes[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(chunk) = length.and_then(|length| bytes.get(line + 2..line + 2 + length)) else { break };
        body.extend_from_slice(chunk);
        bytes = bytes.get(line + 4 + chunk.len()..).unwrap_or_default();
    }
    body
}

/// Sends the bytes of a call to a server and the server's to the client. Either end closes both.
fn pass_on(call: &ModelCall, mut client: TcpStream, address: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(address) else { return };
    let (Ok(mut from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
    // One request for each connection, so that each is judged.
    let first_line = find(&call.bytes, b"\r\n").unwrap_or_default();
    let bytes = [&call.bytes[..first_line], b"\r\nconnection: close\r\n", &call.bytes[first_line + 2..]].concat();
    if server.write_all(&bytes).is_err() {
        return;
    }
    let watching = std::thread::spawn(move || {
        let mut buffer = [0_u8; 1024];
        while from_client.read(&mut buffer).is_ok_and(|read| read > 0) {}
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = watching.join();
}
