//! Parser of server-sent events.

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Type of the event; `message` if the server names none.
    pub name: String,
    /// Data of the event, its lines joined by `\n`.
    pub data: String,
    /// Id of the event, if it has one: a new stream goes on after it.
    pub id: Option<String>,
}

/// Parser with the bytes of an unfinished event.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    bytes: Vec<u8>,
    name: String,
    data: Vec<String>,
    id: Option<String>,
}

impl SseParser {
    /// Parses the next bytes of the stream, cut anywhere, and returns the events that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events.extend(self.parse_line(line.trim_end_matches(['\n', '\r'])));
        }
        events
    }

    /// Parses one line without its end; returns the event that an empty line ends, unless it has no data.
    fn parse_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            let id = self.id.take();
            let name = if name.is_empty() { "message".to_owned() } else { name };
            return (!data.is_empty()).then(|| SseEvent { name, data: data.join("\n"), id });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            // Comments (`: keep-alive`) and `retry` have no effect here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_may_arrive_in_any_pieces() {
        let stream =
            "event: job-update\ndata: {\"a\":1}\n\n: keep-alive\n\nid: 7\ndata: one\r\ndata: two\r\n\r\nevent: x\n\n";
        for size in [1, 7, 1000] {
            let mut parser = SseParser::default();
            let events: Vec<_> = stream.as_bytes().chunks(size).flat_map(|chunk| parser.feed(chunk)).collect();
            let event = |name: &str, data: &str, id: Option<&str>| SseEvent {
                name: name.into(),
                data: data.into(),
                id: id.map(str::to_owned),
            };
            let expected = [event("job-update", "{\"a\":1}", None), event("message", "one\ntwo", Some("7"))];
            assert_eq!(events, expected, "{size}");
        }
    }
}
