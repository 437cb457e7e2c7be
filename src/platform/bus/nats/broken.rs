//! Messages that break the connection of any client that receives them. The server stores headers as they come, and the
//! driver closes its connection at those that it can't parse. Such a message is never acknowledged, so it would be
//! delivered again, and break the connection again, for ever.
//!
//! They are read over the JSON API, which doesn't parse headers, put aside with the other unreadable messages, and
//! deleted when those are handled.

use super::super::{Acknowledge, BusError, UndecodedMessage, subject};
use super::NatsBus;
use super::inbound::InboundStream;
use super::receive::producer_id;
use crate::domain::time::Millis;
use crate::domain::visible::quote_foreign;
use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{RawMessage, Stream};
use async_nats::jetstream::{ErrorCode, stream::DeleteMessageErrorKind};
use async_trait::async_trait;
use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most undeliverable messages that wait to be collected.
const MOST_UNDELIVERABLE: usize = 100;

/// Readable messages in a row behind the delivered ones after which the search stops.
const AHEAD: usize = 64;

/// Most messages read by one search; the next one continues.
const LOOKS: usize = 10_000;

/// Longest search in one of several streams, and the pause after one that failed.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// Losses of the connection that start a search.
const LOSSES: u64 = 2;

/// First line of all headers.
const HEADERS_VERSION: &str = "NATS/1.0";

/// State of the search for broken messages.
#[derive(Default)]
pub(super) struct BrokenSearch {
    last: Mutex<SearchState>,
    /// Earliest time of the next search, after a stream didn't answer.
    rests_until: Mutex<Option<Instant>>,
    /// Sequences that were read and are readable or handled, by the name of their stream.
    seen: Arc<Mutex<BTreeMap<String, BTreeSet<u64>>>>,
}

/// Result of the last search.
#[derive(Default, Clone, Copy)]
struct SearchState {
    /// Losses of the connection up to it.
    losses: u64,
    /// Whether it ended before its end was reached.
    cut_short: bool,
}

/// Reason why the driver can't parse the headers of a stored message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoredHeadersError {
    /// The server's text of the headers is not Base64.
    #[error("its headers can't be read: {0}")]
    NotBase64(DecodeError),
    #[error("its headers are not UTF-8")]
    NotUtf8,
    #[error("its headers begin with `{}`, expected `{HEADERS_VERSION}`", quote_foreign(.first_line))]
    Version { first_line: String },
    #[error("`{}` is no header, expected `Name: value`", quote_foreign(.line))]
    NoHeader { line: String },
}

/// A message as the stream stores it.
pub(super) struct StoredMessage {
    pub(super) sequence: u64,
    subject: String,
    /// The headers, or what is wrong with them.
    pub(super) headers: Result<HeaderMap, StoredHeadersError>,
    body: Vec<u8>,
    pub(super) published: Millis,
}

#[derive(Deserialize)]
struct GetMessageReply {
    message: RawMessage,
}

impl NatsBus {
    /// Returns the first message from `sequence` on whose subject matches `filter`, from the stream's leader (a direct
    /// read may be behind); `None` if there is none.
    pub(super) async fn read_stored(
        &self,
        inbound: &InboundStream,
        sequence: u64,
        filter: &str,
    ) -> Result<Option<StoredMessage>, BusError> {
        let line = self.working_line().await?;
        let api = format!("STREAM.MSG.GET.{}", inbound.name());
        let asked = serde_json::json!({"seq": sequence, "next_by_subj": filter});
        let got: Response<GetMessageReply> =
            line.context.request(api, &asked).await.map_err(|error| self.unavailable(&error))?;
        match got {
            Response::Ok(GetMessageReply { message }) => Ok(Some(StoredMessage::from(message))),
            Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
            Response::Err { error } => Err(self.unavailable(&error)),
        }
    }

    /// Searches for broken messages after repeated losses of the connection; returns whether some were put aside.
    pub(super) async fn search_broken(&self) -> bool {
        // The line may be a new one, whose streams are searched.
        let Ok(line) = self.working_line().await else { return false };
        let losses = *line.link.borrow();
        let last = *self.broken.last.lock();
        let rests = self.broken.rests_until.lock().is_some_and(|until| until > Instant::now());
        if rests || !last.cut_short && losses < last.losses + LOSSES {
            return false;
        }
        let (found, cut_short) = self.read_pending(&line.inbound()).await;
        *self.broken.last.lock() = SearchState { losses, cut_short };
        found
    }

    /// Makes the next search due, because a message may stop the driver.
    pub(super) fn force_search(&self) {
        *self.broken.last.lock() = SearchState { losses: 0, cut_short: true };
    }

    /// Searches each stream; returns whether some messages were put aside, and whether there may be more.
    async fn read_pending(&self, all: &[InboundStream]) -> (bool, bool) {
        let (mut found, mut cut_short) = (false, false);
        for inbound in all {
            // A silent stream must not delay the others.
            let limit = if all.len() == 1 { Duration::MAX } else { LOOK_TIME };
            let looked = tokio::time::timeout(limit, self.read_pending_of(inbound)).await;
            let (some, more) = if let Ok(Ok(looked)) = looked {
                looked
            } else {
                tracing::debug!("stream `{}` isn't asked for messages that break connections", inbound.name());
                *self.broken.rests_until.lock() = Some(Instant::now() + LOOK_TIME);
                (false, true)
            };
            (found, cut_short) = (found || some, cut_short || more);
        }
        (found, cut_short)
    }

    /// Reads what is not acknowledged, and further as long as broken messages follow; returns whether some were put
    /// aside, and whether there may be more.
    async fn read_pending_of(&self, inbound: &InboundStream) -> Result<(bool, bool), BusError> {
        let info = inbound.consumer.get_info().await.map_err(|error| self.unavailable(&error))?;
        let delivered = info.delivered.stream_sequence;
        let (mut next, mut ahead, mut found) = (info.ack_floor.stream_sequence + 1, AHEAD, false);
        let name = inbound.name();
        self.with_seen(name, |seen| {
            // The sequences of a recreated stream begin again.
            let is_older = seen.last().is_some_and(|last| *last > info.delivered.stream_sequence + LOOKS as u64);
            *seen = if is_older { BTreeSet::new() } else { seen.split_off(&next) };
        });
        for _ in 0..LOOKS {
            while self.with_seen(name, |seen| seen.contains(&next)) {
                next += 1;
            }
            let Some(stored) = self.read_stored(inbound, next, ">").await? else { return Ok((found, false)) };
            let sequence = stored.sequence;
            next = sequence + 1;
            if sequence > delivered {
                ahead -= 1;
            }
            let is_new = self.with_seen(name, |seen| seen.insert(sequence));
            if let (true, Err(error)) = (is_new, &stored.headers) {
                tracing::warn!(
                    subject = %stored.subject, sequence, reason = error.to_string(),
                    "NATS at `{}`: a message breaks the connection of whoever is given it, it is taken out", self.name
                );
                if !self.put_aside(self.to_unreadable(inbound, stored)) {
                    self.with_seen(name, |seen| seen.remove(&sequence));
                    return Ok((found, true));
                }
                (ahead, found) = (AHEAD, true);
            }
            if ahead == 0 {
                return Ok((found, false));
            }
        }
        Ok((found, true))
    }

    fn with_seen<T>(&self, stream: &str, look: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        look(self.broken.seen.lock().entry(stream.to_owned()).or_default())
    }

    fn to_unreadable(&self, inbound: &InboundStream, stored: StoredMessage) -> UndecodedMessage {
        let StoredMessage { sequence, subject, headers, body, published } = stored;
        let settle = DeletionAck { stream: inbound.stream.clone(), sequence, seen: Arc::clone(&self.broken.seen) };
        UndecodedMessage {
            owner: subject::owner_of(self.prefix(), &subject),
            subject,
            reason: headers.err().map(|error| error.to_string()).unwrap_or_default(),
            has_unknown_kind: false,
            id: None,
            body: body.into(),
            sequence: inbound.message_place(sequence),
            published,
            settle: Arc::new(settle),
        }
    }

    /// Puts a message aside; returns whether there was room for it.
    pub(super) fn put_aside(&self, unreadable: UndecodedMessage) -> bool {
        let mut aside = self.undeliverable.lock();
        let has_room = aside.len() < MOST_UNDELIVERABLE;
        if has_room {
            self.options.metrics.messages_unreadable.inc();
            aside.push(unreadable);
        }
        has_room
    }
}

impl From<RawMessage> for StoredMessage {
    fn from(message: RawMessage) -> Self {
        let headers = match message.headers.as_ref().map(|text| STANDARD.decode(text)) {
            None => Ok(HeaderMap::new()),
            Some(Ok(bytes)) => parse_headers(&bytes),
            Some(Err(error)) => Err(StoredHeadersError::NotBase64(error)),
        };
        let published = u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        Self {
            sequence: message.sequence,
            subject: message.subject,
            headers,
            body: STANDARD.decode(message.payload).unwrap_or_default(),
            published: Millis(published),
        }
    }
}

impl StoredMessage {
    /// Returns the subject that the message was published to.
    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the producer's id, if it gave one.
    pub(super) fn id(&self) -> Option<String> {
        self.headers.as_ref().ok().and_then(producer_id)
    }
}

/// Parses headers as async-nats 0.51 does (`Connection::try_read_op`); the server removes a status after the version.
fn parse_headers(bytes: &[u8]) -> Result<HeaderMap, StoredHeadersError> {
    let text = std::str::from_utf8(bytes).map_err(|_| StoredHeadersError::NotUtf8)?;
    let mut lines = text.lines().peekable();
    let version = lines.next().unwrap_or_default();
    if version.trim_end() != HEADERS_VERSION {
        return Err(StoredHeadersError::Version { first_line: version.to_owned() });
    }
    let mut headers = HeaderMap::new();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let illegal = || StoredHeadersError::NoHeader { line: line.to_owned() };
        let (name, value) = line.split_once(':').ok_or_else(illegal)?;
        let name = HeaderName::from_str(name).map_err(|_| illegal())?;
        let mut value = value.trim_start().to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.push_str(more);
        }
        let value = HeaderValue::from_str(value.trim_end()).map_err(|_| illegal())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Deletes a message from the stream: it can't be acknowledged, since no client could receive it.
struct DeletionAck {
    stream: Stream,
    sequence: u64,
    seen: Arc<Mutex<BTreeMap<String, BTreeSet<u64>>>>,
}

#[async_trait]
impl Acknowledge for DeletionAck {
    async fn ack(&self) {
        let Err(error) = self.stream.delete_message(self.sequence).await else { return };
        // Another worker was faster.
        if let DeleteMessageErrorKind::JetStream(answer) = error.kind()
            && answer.code() < 500
        {
            return;
        }
        tracing::warn!("message {} of the queue, which breaks connections, isn't deleted yet: {error}", self.sequence);
        self.nak(Duration::ZERO).await;
    }

    async fn nak(&self, _delay: Duration) {
        // The next search finds it again.
        let name = &self.stream.cached_info().config.name;
        self.seen.lock().entry(name.clone()).or_default().remove(&self.sequence);
    }

    async fn progress(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed_or_the_breaking_byte_is_named() {
        for (text, expected) in [
            ("NATS/1.0\r\nTrellis-Id: a\r\n\r\n", Ok(Some("a"))),
            ("NATS/1.0\r\n\r\n", Ok(None)),
            ("NATS/1.0\r\nNats-Msg-Id: n\r\n\r\n", Ok(None)),
            ("NATS/1.0\r\nNats-Msg-Id: n\r\nTrellis-Id: a\r\n\r\n", Ok(Some("a"))),
            ("NATS/1.0 \nTrellis-Id:a", Ok(Some("a"))),
            ("NATS/1.0\r\nTrellis-Id: a\r\n b\r\n\r\n", Ok(Some("a b"))),
            ("NATS/2.0\r\nTrellis-Id: a\r\n\r\n", Err("its headers begin with `NATS/2.0`, expected `NATS/1.0`")),
            ("NATS/1.0 404 No Messages\r\n\r\n", Err("its headers begin with `NATS/1.0 404 No Messages`, expected")),
            ("NATS/1.0 abc\r\n\r\n", Err("its headers begin with `NATS/1.0 abc`, expected `NATS/1.0`")),
            ("", Err("its headers begin with ``, expected `NATS/1.0`")),
            ("NATS/1.0\r\nno colon\r\n\r\n", Err("`no colon` is no header, expected `Name: value`")),
            ("NATS/1.0\r\na b: x\r\n\r\n", Err("`a b: x` is no header, expected `Name: value`")),
        ] {
            match (parse_headers(text.as_bytes()), expected) {
                (Ok(headers), Ok(id)) => assert_eq!(producer_id(&headers).as_deref(), id, "{text:?}"),
                (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{text:?}: {error}"),
                (got, _) => panic!("{text:?}: {got:?}"),
            }
        }
        let error = parse_headers(b"NATS/1.0\r\na: \xff\r\n\r\n").unwrap_err();
        assert_eq!(error.to_string(), "its headers are not UTF-8");
    }
}
