//! One connection to a server, byte by byte.

use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(20);

/// A connection.
pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// What was answered on it.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: Value,
}

impl Raw {
    /// To `http://host:port`.
    pub async fn to(url: &str) -> Self {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        Self { stream, read: Vec::new() }
    }

    /// Writes bytes; an error of a connection that is closed shows when it is read.
    pub async fn send(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    /// Writes a request with a body, which may be empty.
    pub async fn request(&mut self, method: &str, path: &str, body: &str) {
        let length = body.len();
        self.send(&format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n\r\n{body}"))
            .await;
    }

    /// Reads one answer that states its length.
    pub async fn answer(&mut self) -> Heard {
        let end = self.until(|bytes| bytes.windows(4).position(|four| four == b"\r\n\r\n")).await + 4;
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap().to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        self.until(|bytes| (bytes.len() >= length).then_some(length)).await;
        let body: Vec<u8> = self.read.drain(..length).collect();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Heard { status, body: serde_json::from_slice(&body).unwrap_or_default(), head }
    }

    /// Reads until `found` gives a place.
    pub async fn until(&mut self, found: impl Fn(&[u8]) -> Option<usize>) -> usize {
        loop {
            if let Some(place) = found(&self.read) {
                return place;
            }
            let got = tokio::time::timeout(LIMIT, self.stream.read_buf(&mut self.read)).await;
            let n = got.expect("something is answered in time").unwrap();
            assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Waits until the server closes it: how long that took, and how many bytes came before.
    pub async fn closed(&mut self) -> (Duration, usize) {
        let start = Instant::now();
        let mut bytes = self.read.len();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match tokio::time::timeout(LIMIT, self.stream.read(&mut buffer)).await.expect("closed in time") {
                Ok(0) | Err(_) => return (start.elapsed(), bytes),
                Ok(n) => bytes += n,
            }
        }
    }
}
