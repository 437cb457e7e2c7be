//! Splits the bytes of a reply into frames: server-sent events, lines of JSON, or one JSON body. It accepts the
//! deviations of real servers.

use super::{DecodeError, ProviderReport};
use crate::decode;
use crate::limits::{
    REPLY_BYTES, REPLY_BYTES_LEAST, REPLY_FRAME_BYTES, REPLY_TOKEN_BYTES, REPLY_TOKEN_WIRE_BYTES, REPLY_WIRE_BYTES,
    REPLY_WIRE_BYTES_LEAST,
};
use serde_json::Value;

/// Characters of an invalid answer that its error shows.
const BEGINNING_CHARS: usize = 200;
/// Characters of an event's name; the longest known one has 40.
const EVENT_CHARS: usize = 64;
/// Bytes that a line of an event counts beside its text, for its memory.
const LINE_BYTES: usize = 32;
/// Data line that ends a stream in OpenAI's formats.
const DONE: &str = "[DONE]";

/// One piece of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyFrame {
    /// A JSON value, with the name of its event where the stream has names.
    Json {
        /// Name from an `event:` line.
        event: Option<String>,
        /// Value of its `data:` lines, or of the body.
        value: Value,
    },
    /// The end of the stream, `[DONE]`.
    Done,
}

/// Which limit a reply exceeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyLimitError {
    /// Bytes over the wire.
    #[error("its reply goes on after {0} bytes; set `maxTokens` if the model writes without end")]
    Bytes(usize),
    /// Bytes of text, reasoning and calls.
    #[error("its reply says more than {0} bytes; set `maxTokens` if the model writes without end")]
    Content(usize),
    /// Number of calls or pieces of reasoning.
    #[error("its reply has more calls or pieces of reasoning than any model makes")]
    Pieces,
    /// Bytes of one frame.
    #[error("one piece of its reply has more than {REPLY_FRAME_BYTES} bytes")]
    Frame,
}

/// Returns the most bytes of a reply over the wire.
pub fn wire_bytes_limit(max_tokens: Option<u32>) -> usize {
    scaled_limit(max_tokens, REPLY_TOKEN_WIRE_BYTES, REPLY_WIRE_BYTES_LEAST, REPLY_WIRE_BYTES)
}

/// Returns the most bytes of text, reasoning and calls in a reply.
pub fn content_bytes_limit(max_tokens: Option<u32>) -> usize {
    scaled_limit(max_tokens, REPLY_TOKEN_BYTES, REPLY_BYTES_LEAST, REPLY_BYTES)
}

fn scaled_limit(max_tokens: Option<u32>, each: usize, least: usize, most: usize) -> usize {
    let tokens = max_tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    tokens.map_or(most, |tokens| tokens.saturating_mul(each).saturating_add(least).min(most))
}

/// The form of a reply, decided by its first byte that is not blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyForm {
    Unknown,
    /// Lines of server-sent events.
    Events,
    /// A JSON text: one value, a list of them, or one in each line.
    Body,
}

/// Splits the bytes of a reply into frames.
#[derive(Debug)]
pub struct FrameSplitter {
    limit: usize,
    seen: usize,
    form: ReplyForm,
    /// Bytes of the incomplete line, or of the whole body.
    pending: Vec<u8>,
    after_return: bool,
    /// `data:` lines of the incomplete event.
    data: Vec<String>,
    /// Bytes of `data`, with [`LINE_BYTES`] for each line.
    data_bytes: usize,
    event: Option<String>,
    found: usize,
    beginning: String,
}

impl FrameSplitter {
    /// Makes a splitter that accepts at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            seen: 0,
            form: ReplyForm::Unknown,
            pending: Vec::new(),
            after_return: false,
            data: Vec::new(),
            data_bytes: 0,
            event: None,
            found: 0,
            beginning: String::new(),
        }
    }

    /// Adds the frames that are complete to `found`, also those before an error.
    pub fn push(&mut self, bytes: &[u8], found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        let before = found.len();
        let outcome = self.split(bytes, found);
        self.found += found.len() - before;
        outcome
    }

    fn split(&mut self, bytes: &[u8], found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        self.seen = self.seen.saturating_add(bytes.len());
        if self.seen > self.limit {
            return Err(ReplyLimitError::Bytes(self.limit).into());
        }
        for byte in bytes {
            self.detect_form(*byte);
            if self.form == ReplyForm::Body {
                self.pending.push(*byte);
            } else {
                self.take_byte(*byte, found)?;
            }
            if self.pending.len() > REPLY_FRAME_BYTES {
                return Err(ReplyLimitError::Frame.into());
            }
        }
        Ok(())
    }

    /// Adds the remaining frames to `found` after the connection has ended.
    pub fn end(&mut self, found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        let before = found.len();
        let outcome = match self.form {
            ReplyForm::Body => body_frames(&std::mem::take(&mut self.pending)).map(|frames| found.extend(frames)),
            ReplyForm::Events | ReplyForm::Unknown => self.take_line(found).and_then(|()| self.dispatch(found)),
        };
        self.found += found.len() - before;
        outcome
    }

    /// Whether there were bytes and none of them was a frame.
    pub const fn is_foreign(&self) -> bool {
        self.found == 0 && self.seen > 0
    }

    /// Returns the first characters of the answer, at most 200.
    pub fn beginning(&self) -> String {
        self.beginning.chars().take(BEGINNING_CHARS).collect()
    }

    /// Decides the form by the first byte that is not blank and not part of a byte order mark.
    fn detect_form(&mut self, byte: u8) {
        if self.form == ReplyForm::Unknown && !byte.is_ascii_whitespace() && !matches!(byte, 0xEF | 0xBB | 0xBF) {
            self.form = if matches!(byte, b'{' | b'[') { ReplyForm::Body } else { ReplyForm::Events };
            // The bytes before it are blank.
            self.pending.clear();
        }
    }

    /// Adds a byte to the line. Lines end with CR, LF or both.
    fn take_byte(&mut self, byte: u8, found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
        match byte {
            b'\n' if after_return => Ok(()),
            b'\n' | b'\r' => self.take_line(found),
            byte => {
                self.pending.push(byte);
                Ok(())
            }
        }
    }

    fn take_line(&mut self, found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
        if self.beginning.len() < BEGINNING_CHARS {
            // Nothing is added behind a cut line, because masking of secrets looks at the end of the text.
            if !self.beginning.is_empty() {
                self.beginning.push(' ');
            }
            self.beginning.push_str(line.get(..BEGINNING_CHARS).unwrap_or(&line));
        }
        if line.trim().is_empty() {
            return self.dispatch(found);
        }
        match line.split_once(':') {
            Some(("data", data)) => self.push_line(data.trim())?,
            Some(("event", name)) => self.event = Some(name.trim().chars().take(EVENT_CHARS).collect()),
            // A comment, `id`, `retry`, or JSON without `data:` among events.
            Some(_) | None if line.trim_start().starts_with('{') => self.push_line(&line)?,
            Some(_) | None => {}
        }
        Ok(())
    }

    fn push_line(&mut self, data: &str) -> Result<(), DecodeError> {
        self.data_bytes += data.len() + LINE_BYTES;
        if self.data_bytes > REPLY_FRAME_BYTES {
            return Err(ReplyLimitError::Frame.into());
        }
        if !data.is_empty() {
            self.data.push(data.to_owned());
        }
        Ok(())
    }

    /// Adds the event that an empty line ends. Some servers end events with one line break; then each line is an event.
    fn dispatch(&mut self, found: &mut Vec<ReplyFrame>) -> Result<(), DecodeError> {
        let (data, event) = (std::mem::take(&mut self.data), self.event.take());
        self.data_bytes = 0;
        if data.is_empty() {
            return Ok(());
        }
        if let Ok(value) = decode::lenient_json(data.join("\n").as_bytes()) {
            found.push(ReplyFrame::Json { event, value });
            return Ok(());
        }
        for line in data {
            found.push(if line == DONE {
                ReplyFrame::Done
            } else {
                ReplyFrame::Json { event: event.clone(), value: read_line(&line)? }
            });
        }
        Ok(())
    }
}

/// Splits a body that is one value, a list of them, or one in each line.
fn body_frames(bytes: &[u8]) -> Result<Vec<ReplyFrame>, DecodeError> {
    let frame = |value| ReplyFrame::Json { event: None, value };
    match decode::lenient_json(bytes) {
        Ok(Value::Array(items)) => Ok(items.into_iter().map(frame).collect()),
        Ok(value) => Ok(vec![frame(value)]),
        Err(error) => {
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            // The last line of a cut body is no complete value; the decoder notices that the end is missing.
            if lines.len() < 2 || decode::lenient_json(lines[0].as_bytes()).is_err() {
                return Err(unreadable_reply(&error.to_string()));
            }
            let whole = lines.iter().take(lines.len() - 1).map(|line| read_line(line));
            let last = decode::lenient_json(lines[lines.len() - 1].as_bytes()).ok().map(Ok);
            whole.chain(last).map(|value| value.map(frame)).collect()
        }
    }
}

fn read_line(line: &str) -> Result<Value, DecodeError> {
    decode::lenient_json(line.as_bytes()).map_err(|error| unreadable_reply(&error.to_string()))
}

fn unreadable_reply(reason: &str) -> DecodeError {
    DecodeError::Reported(ProviderReport {
        message: format!("the reply can't be read: {reason}"),
        ..ProviderReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of these pieces, as text.
    fn check(pieces: &[&[u8]]) -> Result<Vec<String>, String> {
        let mut frames = FrameSplitter::new(1 << 20);
        let mut found = Vec::new();
        for piece in pieces {
            frames.push(piece, &mut found).map_err(|error| error.to_string())?;
        }
        frames.end(&mut found).map_err(|error| error.to_string())?;
        let shown = |frame: ReplyFrame| match frame {
            ReplyFrame::Json { event: Some(event), value } => format!("{event} {value}"),
            ReplyFrame::Json { event: None, value } => value.to_string(),
            ReplyFrame::Done => "done".into(),
        };
        Ok(found.into_iter().map(shown).collect())
    }

    #[test]
    fn streams_are_read_as_servers_write_them() {
        type Given<'t> = (&'t str, &'t [&'t str]);
        let table: [Given; 13] = [
            ("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "done"]),
            ("\u{feff}data: {\"a\":1}\r\n\r\ndata:{\"b\":2}\r\r", &["{\"a\":1}", "{\"b\":2}"]),
            (": ping\n\nid: 7\nretry: 3\nevent: x\ndata: {\"a\":\ndata: 1}\n\n", &["x {\"a\":1}"]),
            ("data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n", &["{\"a\":1}", "{\"b\":2}", "done"]),
            ("data: {\"a\":1}", &["{\"a\":1}"]),
            ("data:\n\ndata: \n\n", &[]),
            ("\n\n {\n \"a\": 1 }\n", &["{\"a\":1}"]),
            ("[{\"a\":1},\n{\"b\":2}]", &["{\"a\":1}", "{\"b\":2}"]),
            ("{\"a\":1}\n{\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"]),
            ("{\"a\":1}\n{\"b\":2}\n{\"c\"", &["{\"a\":1}", "{\"b\":2}"]),
            ("event: error\n{\"error\": 1}\n\n", &["error {\"error\":1}"]),
            ("", &[]),
            ("<html>no</html>", &[]),
        ];
        for (given, expected) in table {
            let bytes = given.as_bytes();
            assert_eq!(check(&[bytes]).unwrap(), expected, "{given:?}");
            for at in 0..bytes.len() {
                assert_eq!(check(&[&bytes[..at], &bytes[at..]]).unwrap(), expected, "{given:?} cut at {at}");
            }
        }
    }

    #[test]
    fn a_frame_that_is_no_json_is_an_error_with_its_place() {
        for given in ["data: {\"a\":}\n\n", "{\"a\":"] {
            assert!(check(&[given.as_bytes()]).unwrap_err().starts_with("the reply can't be read: "), "{given}");
        }
    }

    #[test]
    fn an_answer_without_frames_is_shown_by_its_beginning() {
        let mut frames = FrameSplitter::new(1_000);
        frames.push(b"<html>\n<body>not here</body>", &mut Vec::new()).unwrap();
        frames.end(&mut Vec::new()).unwrap();
        assert!(frames.is_foreign() && frames.beginning().starts_with("<html> <body>not here"));
        assert!(!FrameSplitter::new(9).is_foreign());
        let mut frames = FrameSplitter::new(1_000);
        frames.push(format!("é{}\nz", "x".repeat(250)).as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(frames.beginning(), format!("é{}", "x".repeat(198)), "it ends where it was cut");
    }

    #[test]
    fn no_reply_and_no_frame_goes_on_for_ever() {
        assert_eq!(FrameSplitter::new(10).push(&[b'x'; 11], &mut Vec::new()), Err(ReplyLimitError::Bytes(10).into()));
        let long = vec![b'x'; REPLY_FRAME_BYTES + 1];
        for begin in ["data: ", "{", "x"] {
            let mut frames = FrameSplitter::new(usize::MAX);
            frames.push(begin.as_bytes(), &mut Vec::new()).unwrap();
            assert_eq!(frames.push(&long, &mut Vec::new()), Err(ReplyLimitError::Frame.into()), "{begin}");
        }
        let mut frames = FrameSplitter::new(usize::MAX);
        let half = REPLY_FRAME_BYTES / 2 - LINE_BYTES;
        let line = [b"data: ".as_slice(), &vec![b'x'; half], b"\n"].concat();
        assert!(frames.push(&line, &mut Vec::new()).is_ok() && frames.push(&line, &mut Vec::new()).is_ok());
        assert_eq!(
            frames.push(&line, &mut Vec::new()),
            Err(ReplyLimitError::Frame.into()),
            "lines of one event count together"
        );
    }

    #[test]
    fn a_limit_follows_from_the_tokens_that_were_asked_for() {
        assert_eq!(wire_bytes_limit(None), REPLY_WIRE_BYTES);
        assert_eq!(wire_bytes_limit(Some(0)), REPLY_WIRE_BYTES_LEAST);
        assert_eq!(wire_bytes_limit(Some(1_000)), REPLY_WIRE_BYTES_LEAST + 1_000 * REPLY_TOKEN_WIRE_BYTES);
        assert_eq!(wire_bytes_limit(Some(u32::MAX)), REPLY_WIRE_BYTES);
        assert_eq!(
            (content_bytes_limit(None), content_bytes_limit(Some(9))),
            (REPLY_BYTES, REPLY_BYTES_LEAST + 9 * REPLY_TOKEN_BYTES)
        );
    }

    #[test]
    fn many_short_lines_of_one_event_count_as_they_lie_in_memory() {
        for line in ["{\n", "data:1\n"] {
            let mut frames = FrameSplitter::new(usize::MAX);
            frames.push(b":\n", &mut Vec::new()).unwrap();
            let lines = line.repeat(REPLY_FRAME_BYTES / LINE_BYTES);
            assert_eq!(frames.push(lines.as_bytes(), &mut Vec::new()), Err(ReplyLimitError::Frame.into()), "{line:?}");
        }
        let mut frames = FrameSplitter::new(usize::MAX);
        let mut found = Vec::new();
        let name = "A".repeat(100_000);
        frames.push(format!("event: {name}\ndata: {{}}\ndata: 1\n\n").as_bytes(), &mut found).unwrap();
        let names = found.iter().map(|frame| match frame {
            ReplyFrame::Json { event, .. } => event.as_ref().map_or(0, String::len),
            ReplyFrame::Done => 0,
        });
        assert_eq!(names.collect::<Vec<_>>(), [EVENT_CHARS, EVENT_CHARS]);
    }
}
