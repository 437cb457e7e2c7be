//! A server whose answers have no end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a server gives up that nobody stops.
const MOST: u64 = 1024 * 1024 * 1024;

/// How fast it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it is read.
    Full,
    /// A piece now and then.
    Drip,
}

/// A server on this machine.
pub struct Endless {
    /// Ends with `/`.
    pub url: String,
    sent: Arc<AtomicU64>,
}

impl Endless {
    /// It answers every request with this status and these headers, then `begin`, then `piece` for ever.
    pub fn start(head: &str, begin: &str, piece: &str, pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicU64::new(0));
        let begin = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{begin}");
        // Several at once: a system call for each would be the slowest part.
        let times = if pace == Pace::Full { (64 * 1024 / piece.len()).max(1) } else { 1 };
        let (piece, count) = (piece.repeat(times), Arc::clone(&sent));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (begin, piece, count) = (begin.clone(), piece.clone(), Arc::clone(&count));
                std::thread::spawn(move || answer(stream, &begin, &piece, pace, &count));
            }
        });
        Self { url, sent }
    }

    /// Bytes that were taken from it, over all connections.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Until nobody reads any more.
fn answer(mut stream: TcpStream, begin: &str, piece: &str, pace: Pace, sent: &AtomicU64) {
    let (mut asked, mut buffer) = (Vec::new(), [0_u8; 4096]);
    while !asked.windows(4).any(|part| part == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => asked.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let mut next = begin;
    while stream.write_all(next.as_bytes()).is_ok() && sent.load(Ordering::Relaxed) < MOST {
        sent.fetch_add(next.len() as u64, Ordering::Relaxed);
        next = piece;
        if pace == Pace::Drip {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
