//! How much of a reply is passed on: whole frames, each of bounded size, up to a bounded sum.

use crate::domain::chat::{Arguments, ModelSettings, Reply};
use crate::domain::limits::{
    REPLY_BYTES, REPLY_BYTES_LEAST, REPLY_FRAME_BYTES, REPLY_TOKEN_BYTES, REPLY_TOKEN_WIRE_BYTES, REPLY_WIRE_BYTES,
    REPLY_WIRE_BYTES_LEAST,
};
use bytes::Bytes;
use serde_json::Value;

/// What ends a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// An empty line: server-sent events.
    Events,
    /// The end of a line.
    Lines,
    /// The end of the reply.
    Whole,
}

/// Why no more of a reply is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// It goes on for too long.
    #[error("its reply goes on after {0} bytes; set `maxTokens` if the model writes without end")]
    Bytes(usize),
    /// What it says does.
    #[error("its reply says more than {0} bytes; set `maxTokens` if the model writes without end")]
    Said(usize),
    /// One event of it does.
    #[error("one piece of its reply has more than {REPLY_FRAME_BYTES} bytes")]
    Frame,
    /// Calls are numbered as none are made.
    #[error("its reply has call number {0} without those before it")]
    Call(u64),
}

/// A reply that is passed on frame by frame.
#[derive(Debug)]
pub struct Bounded {
    framing: Framing,
    limit: usize,
    seen: usize,
    /// The frame that has begun.
    frame: Vec<u8>,
    /// The line that has begun is empty so far.
    blank: bool,
    after_return: bool,
    /// One more than the highest number of a call so far.
    calls: u64,
    /// Why it says nothing, in the provider's words: the library drops them.
    refusal: String,
}

/// Longest refusal that is told.
const REFUSAL_BYTES: usize = 1_000;

/// Most bytes of a reply as it comes over the wire.
pub fn wire_bytes(max_tokens: Option<u32>) -> usize {
    within(max_tokens, REPLY_TOKEN_WIRE_BYTES, REPLY_WIRE_BYTES_LEAST, REPLY_WIRE_BYTES)
}

/// Most bytes of what a reply says.
pub fn said_bytes(max_tokens: Option<u32>) -> usize {
    within(max_tokens, REPLY_TOKEN_BYTES, REPLY_BYTES_LEAST, REPLY_BYTES)
}

fn within(max_tokens: Option<u32>, each: usize, least: usize, most: usize) -> usize {
    let tokens = max_tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    tokens.map_or(most, |tokens| tokens.saturating_mul(each).saturating_add(least).min(most))
}

/// Whether a whole reply, of whatever provider, says no more than it may.
pub fn check(settings: &ModelSettings, reply: &Reply) -> Result<(), TooMuch> {
    let limit = said_bytes(settings.max_tokens);
    let arguments = |arguments: &Arguments| match arguments {
        Arguments::Json(value) => value.to_string().len(),
        Arguments::Malformed(text) => text.len(),
    };
    let calls: usize = reply.calls.iter().map(|call| call.name.len() + arguments(&call.arguments)).sum();
    if reply.text.len() + calls > limit { Err(TooMuch::Said(limit)) } else { Ok(()) }
}

impl Bounded {
    /// Of at most so many bytes.
    pub const fn new(framing: Framing, limit: usize) -> Self {
        Self {
            framing,
            limit,
            seen: 0,
            frame: Vec::new(),
            blank: true,
            after_return: false,
            calls: 0,
            refusal: String::new(),
        }
    }

    /// The frames that are whole by now.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Bytes, TooMuch> {
        self.seen = self.seen.saturating_add(bytes.len());
        if self.seen > self.limit {
            return Err(TooMuch::Bytes(self.limit));
        }
        let mut whole = Vec::new();
        for byte in bytes {
            if self.ends_with(*byte) {
                self.check()?;
                whole.append(&mut self.frame);
            } else if self.frame.len() > REPLY_FRAME_BYTES {
                return Err(TooMuch::Frame);
            }
        }
        Ok(whole.into())
    }

    /// Why it refuses to answer, as far as it has said it.
    pub fn refusal(&self) -> &str {
        &self.refusal
    }

    /// What is left at the end.
    pub fn end(mut self) -> Result<Bytes, TooMuch> {
        self.check()?;
        Ok(self.frame.into())
    }

    /// Takes a byte; whether it ends a frame. Lines of events may end with CR, LF or both.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.framing != Framing::Events {
            self.frame.push(byte);
            return self.framing == Framing::Lines && byte == b'\n';
        }
        let second = byte == b'\n' && std::mem::take(&mut self.after_return);
        if second {
            return false;
        }
        self.after_return = byte == b'\r';
        let is_end = matches!(byte, b'\r' | b'\n');
        self.frame.push(if is_end { b'\n' } else { byte });
        is_end && std::mem::replace(&mut self.blank, is_end) || {
            self.blank = is_end;
            false
        }
    }

    /// The library makes room for as many calls as the highest number says: a number follows those before it.
    fn check(&mut self) -> Result<(), TooMuch> {
        let named = |word: &[u8]| self.frame.windows(word.len()).any(|part| part == word);
        // A key may be written with escapes.
        if self.framing != Framing::Events || !(named(b"tool_calls") || named(b"refusal") || named(b"\\u")) {
            return Ok(());
        }
        let Ok(event) = serde_json::from_slice::<Value>(&data_of(&self.frame)) else { return Ok(()) };
        let choices = event.get("choices").and_then(Value::as_array).into_iter().flatten();
        let deltas: Vec<&Value> = choices.filter_map(|choice| choice.get("delta")).collect();
        for said in deltas.iter().filter_map(|delta| delta.get("refusal")?.as_str()) {
            let room = REFUSAL_BYTES.saturating_sub(self.refusal.len());
            self.refusal.push_str(&said[..said.floor_char_boundary(room)]);
        }
        let calls = deltas.iter().filter_map(|delta| delta.get("tool_calls")?.as_array()).flatten();
        for number in calls.filter_map(|call| call.get("index")?.as_u64()) {
            // Some count from 1.
            if number > self.calls + 1 {
                return Err(TooMuch::Call(number));
            }
            self.calls = self.calls.max(number + 1);
        }
        Ok(())
    }
}

/// The data of an event, as the library reads it.
fn data_of(event: &[u8]) -> Vec<u8> {
    let lines = event.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let data: Vec<_> = lines.filter_map(|line| line.strip_prefix(b"data:")).map(<[u8]>::trim_ascii).collect();
    data.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::ToolCall;
    use serde_json::json;

    /// Everything that is passed on of these pieces.
    fn check(framing: Framing, limit: usize, pieces: &[&[u8]]) -> Result<Vec<String>, TooMuch> {
        let mut bounded = Bounded::new(framing, limit);
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let mut passed = Vec::new();
        for piece in pieces {
            passed.push(text(bounded.push(piece)?));
        }
        passed.push(text(bounded.end()?));
        Ok(passed)
    }

    #[test]
    fn a_refusal_is_kept_in_bounds() {
        let event = |said: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"refusal": said}}]}));
        let mut bounded = Bounded::new(Framing::Events, 1 << 20);
        for (piece, expected) in [("I will ", "I will "), ("not", "I will not")] {
            bounded.push(event(piece).as_bytes()).unwrap();
            assert_eq!(bounded.refusal(), expected);
        }
        bounded.push(event(&"ü".repeat(2_000)).as_bytes()).unwrap();
        assert!(bounded.refusal().len() <= REFUSAL_BYTES && bounded.refusal().ends_with('ü'));
        bounded.push(b"data: {\"choices\": [{\"delta\": {\"refusal\": null}}, 7, null]}\n\n").unwrap();
    }

    #[test]
    fn only_whole_frames_pass_before_the_end() {
        type Given<'t> = (Framing, &'t [&'t [u8]], &'t [&'t str]);
        let table: [Given; 6] = [
            (Framing::Events, &[b"data: a\n", b"\ndata: b", b"\n\n"], &["", "data: a\n\n", "data: b\n\n", ""]),
            (Framing::Events, &[b"data: a\r\n\r", b"\ndata: b\r\r", b"x"], &["data: a\n\n", "data: b\n\n", "", "x"]),
            (Framing::Events, &[b"a\nb\n", b"c\n\n"], &["", "a\nb\nc\n\n", ""]),
            (Framing::Lines, &[b"{\"a\"", b":1}\n{\"b\"", b":2}\r\n"], &["", "{\"a\":1}\n", "{\"b\":2}\r\n", ""]),
            (Framing::Whole, &[b"{\n\n", b"}"], &["", "", "{\n\n}"]),
            (Framing::Events, &[], &[""]),
        ];
        for (framing, pieces, expected) in table {
            assert_eq!(check(framing, 1_000, pieces).unwrap(), expected, "{pieces:?}");
        }
    }

    #[test]
    fn no_reply_and_no_piece_of_it_goes_on_for_ever() {
        let long = vec![b'x'; REPLY_FRAME_BYTES];
        for framing in [Framing::Events, Framing::Lines, Framing::Whole] {
            assert_eq!(check(framing, 10, &[b"data: a\n\n", b"1"]).map(|_| ()), Ok(()));
            assert_eq!(check(framing, 10, &[b"data: a\n\n", b"12"]), Err(TooMuch::Bytes(10)));
            assert_eq!(check(framing, usize::MAX, &[&long, b"xx"]), Err(TooMuch::Frame), "{framing:?}");
        }
        let comments = vec![b": \n\n".as_slice(); 30];
        assert_eq!(
            check(Framing::Events, 100, &comments),
            Err(TooMuch::Bytes(100)),
            "they count though none sees them"
        );
    }

    #[test]
    fn a_limit_follows_from_the_tokens_that_were_asked_for() {
        assert_eq!(wire_bytes(None), REPLY_WIRE_BYTES);
        assert_eq!(wire_bytes(Some(0)), REPLY_WIRE_BYTES_LEAST);
        assert_eq!(wire_bytes(Some(1_000)), REPLY_WIRE_BYTES_LEAST + 1_000 * REPLY_TOKEN_WIRE_BYTES);
        assert_eq!(wire_bytes(Some(u32::MAX)), REPLY_WIRE_BYTES);
        assert_eq!((said_bytes(None), said_bytes(Some(9))), (REPLY_BYTES, REPLY_BYTES_LEAST + 9 * REPLY_TOKEN_BYTES));
    }

    #[test]
    fn a_whole_reply_says_no_more_than_it_may() {
        let settings = ModelSettings { max_tokens: Some(0), ..ModelSettings::new("scripted", "x") };
        let call = |arguments| ToolCall { id: "1".into(), name: "f".into(), arguments };
        let reply = |text: usize, calls| Reply { text: "x".repeat(text), calls, ..Reply::default() };
        let (full, limit) = (REPLY_BYTES_LEAST, Err(TooMuch::Said(REPLY_BYTES_LEAST)));
        let table = [
            (reply(full, vec![]), Ok(())),
            (reply(full + 1, vec![]), limit.clone()),
            (reply(full - 3, vec![call(Arguments::Json(serde_json::json!({})))]), Ok(())),
            (reply(full - 2, vec![call(Arguments::Json(serde_json::json!({})))]), limit.clone()),
            (reply(0, vec![call(Arguments::Malformed("x".repeat(full)))]), limit),
        ];
        for (reply, expected) in table {
            assert_eq!(super::check(&settings, &reply), expected, "{}", reply.text.len());
        }
    }

    #[test]
    fn calls_are_numbered_one_after_the_other() {
        let event = |number: u64| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{number},\"function\":{{}}}}]}}}}]}}\n\n"
            )
        };
        let check = |numbers: &[u64]| {
            let events: Vec<String> = numbers.iter().map(|number| event(*number)).collect();
            let pieces: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
            check(Framing::Events, 100_000, &pieces).map(|_| ())
        };
        for legal in [&[0, 0, 1, 1, 0, 2][..], &[1, 2, 3], &[]] {
            assert_eq!(check(legal), Ok(()), "{legal:?}");
        }
        assert_eq!(check(&[2]), Err(TooMuch::Call(2)));
        assert_eq!(check(&[0, 4_294_967_295]), Err(TooMuch::Call(4_294_967_295)));
    }

    #[test]
    fn a_number_can_not_be_hidden_in_the_form_of_an_event() {
        for event in [
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":\ndata: 99}]}}]}\n\n",
            "event: x\n : {\n data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":99}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"\\u0074ool_calls\":[{\"\\u0069ndex\":99}]}}]}\r\r",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0},{\"index\":99}]}}]}",
        ] {
            assert_eq!(check(Framing::Events, 1_000, &[event.as_bytes()]), Err(TooMuch::Call(99)), "{event}");
        }
    }
}
