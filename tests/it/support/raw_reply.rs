//! Replies of a server written byte by byte: odd streams, cuts, waits, and bodies without an end.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes after which a body without an end ends all the same.
const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of one write of a repeated piece, so that system calls aren't the slowest part.
const WRITE_BYTES: usize = 64 * 1024;

/// A part of a body.
#[derive(Debug, Clone)]
pub enum Piece {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// The bytes again and again, with a pause between.
    Repeat(Vec<u8>, Duration),
    /// Nothing more, until the client leaves.
    Hold,
    /// The connection ends in the middle of the reply.
    Cut,
}

/// What tells a client where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Each piece is a chunk.
    Chunked,
    Length,
    /// The end of the connection.
    Close,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct RawReply {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Piece>,
    framing: Framing,
}

impl RawReply {
    pub fn new(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status: 200, headers, pieces: vec![Piece::Bytes(body.as_ref().to_vec())], framing: Framing::Chunked }
    }

    /// A stream of events as it stands on the wire.
    pub fn sse(body: impl AsRef<[u8]>) -> Self {
        Self::new("text/event-stream", body)
    }

    /// A stream with one `data:` line for each text.
    pub fn events<T: AsRef<str>>(events: &[T]) -> Self {
        let lines: Vec<String> = events.iter().map(|event| format!("data: {}\n\n", event.as_ref())).collect();
        Self::sse(lines.concat())
    }

    pub fn json(body: &Value) -> Self {
        Self::new("application/json", body.to_string())
    }

    /// Without a status line: the connection is held until the client leaves.
    pub fn silence() -> Self {
        Self { status: 0, headers: Vec::new(), pieces: vec![Piece::Hold], framing: Framing::Close }
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub fn then(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes.as_slice()),
            Piece::Wait(_) | Piece::Repeat(..) | Piece::Hold | Piece::Cut => None,
        });
        texts.collect::<Vec<_>>().concat()
    }

    /// The same bytes in pieces that begin at these places, which may lie inside a character.
    pub fn split_at(mut self, places: &[usize]) -> Self {
        let bytes = self.bytes();
        let mut ends: Vec<usize> = places.iter().copied().filter(|end| *end < bytes.len()).collect();
        ends.push(bytes.len());
        let mut begin = 0;
        self.pieces.clear();
        for end in ends {
            self.pieces.push(Piece::Bytes(bytes[begin..end].to_vec()));
            begin = end;
        }
        self
    }

    /// The first `count` bytes, then the end of the connection.
    pub fn cut_after(mut self, count: usize) -> Self {
        let mut bytes = self.bytes();
        bytes.truncate(count);
        self.pieces = vec![Piece::Bytes(bytes), Piece::Cut];
        self
    }

    fn head(&self) -> String {
        let reason = axum::http::StatusCode::from_u16(self.status).unwrap().canonical_reason().unwrap_or("Unknown");
        let length = format!("content-length: {}\r\n", self.bytes().len());
        let mut head = format!("HTTP/1.1 {} {reason}\r\nconnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head = head + name + ": " + value + "\r\n";
        }
        head += match self.framing {
            Framing::Chunked => "transfer-encoding: chunked\r\n",
            Framing::Length => &length,
            Framing::Close => "",
        };
        head + "\r\n"
    }

    /// Sends it; an error is a client that left. Body bytes are added to `sent`.
    pub fn write(&self, stream: &mut TcpStream, sent: &AtomicU64) -> std::io::Result<()> {
        if self.status != 0 {
            stream.write_all(self.head().as_bytes())?;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => self.write_piece(stream, bytes, sent)?,
                Piece::Wait(time) => std::thread::sleep(*time),
                Piece::Repeat(bytes, pause) => self.write_repeated(stream, bytes, *pause, sent)?,
                Piece::Hold => return wait_until_left(stream),
                Piece::Cut => return Ok(()),
            }
        }
        if self.framing == Framing::Chunked { stream.write_all(b"0\r\n\r\n") } else { Ok(()) }
    }

    fn write_piece(&self, stream: &mut TcpStream, bytes: &[u8], sent: &AtomicU64) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.framing == Framing::Chunked {
            let begin = format!("{:x}\r\n", bytes.len()).into_bytes();
            stream.write_all(&[&begin, bytes, b"\r\n"].concat())?;
        } else {
            stream.write_all(bytes)?;
        }
        sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        stream.flush()
    }

    fn write_repeated(
        &self,
        stream: &mut TcpStream,
        bytes: &[u8],
        pause: Duration,
        sent: &AtomicU64,
    ) -> std::io::Result<()> {
        let times = if pause.is_zero() { (WRITE_BYTES / bytes.len()).max(1) } else { 1 };
        let many = bytes.repeat(times);
        while sent.load(Ordering::Relaxed) < BODY_BYTES_MAX {
            self.write_piece(stream, &many, sent)?;
            std::thread::sleep(pause);
        }
        Ok(())
    }
}

fn wait_until_left(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0_u8; 1024];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}
