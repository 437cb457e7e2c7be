//! Server-sent events with bounds: the stream of answers to one request.

use crate::limits::{MCP_MESSAGE_BYTES, MCP_SESSION_ID_BYTES, MCP_STREAM_BYTES, MCP_STREAM_MESSAGES};
use std::time::Duration;

/// Longest pause that a server may ask for before its stream is asked for again.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What a stream has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamLimitError {
    /// All bytes together.
    #[error("its stream goes on after {MCP_STREAM_BYTES} bytes")]
    Bytes,
    /// One message of the stream is too long.
    #[error("a message of its stream has more than {MCP_MESSAGE_BYTES} bytes")]
    Message,
    /// The number of messages.
    #[error("its stream has more than {MCP_STREAM_MESSAGES} messages")]
    Messages,
}

/// Parser of a stream, with the bytes of an unfinished line.
#[derive(Debug, Default)]
pub struct MessageStream {
    line: Vec<u8>,
    after_return: bool,
    data: Vec<u8>,
    has_data: bool,
    seen: usize,
    messages: usize,
    last_id: Option<String>,
    /// Id of the event that isn't whole yet, if `has_next_id`.
    next_id: Option<String>,
    has_next_id: bool,
    retry: Option<Duration>,
}

impl MessageStream {
    /// Parses the next bytes, cut anywhere, and returns the messages that they complete.
    ///
    /// # Errors
    /// The stream exceeds a limit: nothing more of it may be read.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, StreamLimitError> {
        self.seen = self.seen.saturating_add(bytes.len());
        if self.seen > MCP_STREAM_BYTES {
            return Err(StreamLimitError::Bytes);
        }
        let mut found = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\r' | b'\n' => {
                    self.after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    found.extend(self.end_line(&line)?);
                }
                _ if self.line.len() >= MCP_MESSAGE_BYTES => return Err(StreamLimitError::Message),
                _ => self.line.push(*byte),
            }
        }
        Ok(found)
    }

    /// Drops the event that isn't whole: the connection broke off in it, and the next one repeats it.
    pub fn break_off(&mut self) {
        self.line.clear();
        self.data.clear();
        (self.after_return, self.has_data, self.has_next_id) = (false, false, false);
    }

    /// Returns the id of the last whole event: a broken stream goes on after it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the pause before the stream is asked for again.
    pub fn retry(&self) -> Duration {
        self.retry.unwrap_or(Duration::from_secs(1)).min(RETRY_MAX)
    }

    /// Handles one line; returns the message that an empty line ends.
    fn end_line(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, StreamLimitError> {
        if line.is_empty() {
            if std::mem::take(&mut self.has_next_id) {
                self.last_id = self.next_id.take();
            }
            let data = std::mem::take(&mut self.data);
            // An event without data is there for its id.
            if !std::mem::take(&mut self.has_data) || data.is_empty() {
                return Ok(None);
            }
            self.messages += 1;
            return if self.messages > MCP_STREAM_MESSAGES { Err(StreamLimitError::Messages) } else { Ok(Some(data)) };
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len() + value.len() >= MCP_MESSAGE_BYTES {
                    return Err(StreamLimitError::Message);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"id" => {
                let id = std::str::from_utf8(value).ok().filter(|id| is_id(id));
                self.next_id = id.map(str::to_owned);
                self.has_next_id = true;
            }
            b"retry" => {
                let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            // Comments keep the connection open; the type of an event says nothing here.
            _ => {}
        }
        Ok(None)
    }
}

/// Whether the id of an event or a session can go back in a header.
pub fn is_id(id: &str) -> bool {
    (1..=MCP_SESSION_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_may_arrive_in_any_pieces() {
        let text =
            "id: 1\nretry: 250\ndata:\n\n: ping\n\nevent: message\ndata: {\"a\":\ndata: 1}\r\n\r\ndata: x\r\rdata: cut";
        for size in [1, 2, 7, 1000] {
            let mut stream = MessageStream::default();
            let found: Vec<_> = text.as_bytes().chunks(size).flat_map(|bytes| stream.feed(bytes).unwrap()).collect();
            assert_eq!(found, [b"{\"a\":\n1}".to_vec(), b"x".to_vec()], "{size}");
            assert_eq!((stream.last_id(), stream.retry()), (Some("1"), Duration::from_millis(250)));
        }
    }

    #[test]
    fn a_stream_that_breaks_off_goes_on_after_its_last_whole_event() {
        let mut stream = MessageStream::default();
        assert!(stream.feed(b"id: 1\ndata:\n\nid: 2\ndata: {\"a\":\ndata: 1").unwrap().is_empty());
        stream.break_off();
        assert_eq!(stream.last_id(), Some("1"), "event 2 was not whole");
        assert_eq!(stream.feed(b"id: 2\ndata: {}\n\n").unwrap(), [b"{}".to_vec()]);
        assert_eq!(stream.last_id(), Some("2"));
    }

    #[test]
    fn a_stream_without_end_is_given_up() {
        let feed_all = |bytes: &[u8], times: usize| {
            let mut stream = MessageStream::default();
            (0..times).find_map(|_| stream.feed(bytes).err())
        };
        let line = vec![b'x'; 1 << 20];
        assert_eq!(feed_all(&line, 5), Some(StreamLimitError::Message));
        let data: Vec<u8> = [b"data: ".as_slice(), &line, b"\n"].concat();
        assert_eq!(feed_all(&data, 5), Some(StreamLimitError::Message));
        let comments: Vec<u8> = [b":".as_slice(), &line, b"\n"].concat();
        assert_eq!(feed_all(&comments, 17), Some(StreamLimitError::Bytes));
        assert_eq!(feed_all(b"data: x\n\n", MCP_STREAM_MESSAGES + 1), Some(StreamLimitError::Messages));
    }

    #[test]
    fn ids_go_back_only_as_they_can() {
        for (id, is_legal) in
            [("a-1", true), ("", false), ("a b", false), ("a\u{e4}", false), (&*"x".repeat(1_025), false)]
        {
            assert_eq!(is_id(id), is_legal, "{id}");
        }
        let mut stream = MessageStream::default();
        stream.feed(b"id: a b\nretry: soon\n\n").unwrap();
        assert_eq!((stream.last_id(), stream.retry()), (None, Duration::from_secs(1)));
    }
}
