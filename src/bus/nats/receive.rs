//! Taking messages from the shared consumer, never more than asked for.

use super::super::{
    AUTHORIZATION_HEADER, BusError, Delivery, ID_HEADER, RECEIVE_BYTES, Settle, Unreadable, WhenEmpty, subject,
};
use super::{NatsBus, streams};
use crate::domain::time::Millis;
use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::pull::Batch},
};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use std::sync::Arc;
use std::{collections::VecDeque, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Longest wait for the answer to "what is there now".
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of the first answer: the largest that there are fit in. (A limit of bytes is no way: from a consumer with
/// replicas the end of such an answer comes before its messages.)
const FIRST: usize = RECEIVE_BYTES >> 20;

/// Answers grow so many times from one to the next.
const GROWTH: usize = 4;

/// Wait after a failed pull, so that a server that refuses isn't asked in a tight loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// What was asked of the server and what came. It lives in the bus: when the caller of `receive`
/// goes away meanwhile, the next call goes on with it and nothing has to wait for the ack wait.
pub(super) struct Pulling {
    request: Option<Request>,
    taken: VecDeque<jetstream::Message>,
    /// Messages of the next answer at most, by what the last one had.
    most: usize,
}

impl Default for Pulling {
    fn default() -> Self {
        Self { request: None, taken: VecDeque::new(), most: FIRST }
    }
}

impl Pulling {
    /// Such messages fit into the next answer as often as that; a few more than into this one, for they may be larger.
    fn learn(&mut self) {
        if let Some(largest) = self.taken.iter().map(|message| message.payload.len()).max() {
            self.most = (RECEIVE_BYTES / largest.max(1)).min(self.most * GROWTH).max(1);
        }
    }
}

struct Request {
    batch: Batch,
    lost: watch::Receiver<u64>,
    deadline: Instant,
}

impl NatsBus {
    /// [`super::Bus::receive`]. First what is there; when nothing is, a request for exactly one
    /// message and then what came with it. A larger waiting request would have to be dropped
    /// half-filled, and what was on its way to it would come only after the ack wait.
    ///
    /// Requests carry no idle heartbeat: `Batch` of async-nats 0.51 returns `Pending` on one
    /// without a waker and sleeps through the messages after it. A lost connection is noticed by
    /// `link` at once, a silent server five seconds after `poll`.
    pub(super) async fn take(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.clean_when_due().await;
        if self.look_for_broken().await {
            // They are seen to before a request for messages would bring more of them.
            return Ok(Vec::new());
        }
        let mut pulling = self.pulling.lock().await;
        if pulling.request.is_none() && pulling.taken.len() < max {
            self.ask_for_present(&mut pulling, max).await?;
        }
        self.drain(&mut pulling).await?;
        if pulling.taken.is_empty() && when_empty == WhenEmpty::Wait {
            self.wait_for_one(&mut pulling).await?;
            self.drain(&mut pulling).await?;
            if (1..max).contains(&pulling.taken.len()) {
                // An error here must not lose the message that came.
                let topped_up = match self.ask_for_present(&mut pulling, max).await {
                    Ok(()) => self.drain(&mut pulling).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = topped_up {
                    tracing::debug!("asking for more messages: {error}");
                }
            }
        }
        self.put_back(&mut pulling, max).await;
        // Nothing is awaited from here on: whoever gets the deliveries settles them.
        Ok(pulling.taken.drain(..).filter_map(|message| delivery(self.prefix(), message).ok()).collect())
    }

    /// Asks for as many of the messages that are there now as are missing to `max`.
    async fn ask_for_present(&self, pulling: &mut Pulling, max: usize) -> Result<(), BusError> {
        let line = self.line().await?;
        let lost = line.fresh_link();
        let most = pulling.most.min(max - pulling.taken.len());
        let batch = line.consumer.fetch().max_messages(most).messages().await;
        let batch = batch.map_err(|error| self.unavailable(&error))?;
        pulling.request = Some(Request { batch, lost, deadline: Instant::now() + FETCH_TIMEOUT });
        Ok(())
    }

    async fn wait_for_one(&self, pulling: &mut Pulling) -> Result<(), BusError> {
        let line = self.line().await?;
        let lost = line.fresh_link();
        let poll = self.options.poll;
        let batch = line.consumer.batch().max_messages(1).expires(poll).messages().await;
        let batch = batch.map_err(|error| self.unavailable(&error))?;
        pulling.request = Some(Request { batch, lost, deadline: Instant::now() + poll + FETCH_TIMEOUT });
        Ok(())
    }

    /// Waits until the request is answered completely, or can't be any more.
    async fn drain(&self, pulling: &mut Pulling) -> Result<(), BusError> {
        let Pulling { request, taken, most } = pulling;
        while let Some(Request { batch, lost, deadline }) = request {
            let problem = tokio::select! {
                biased;
                next = batch.next() => match next {
                    Some(Ok(message)) => {
                        taken.push_back(message);
                        continue;
                    }
                    Some(Err(error)) => Some(self.words(&error.to_string())),
                    None => None,
                },
                // The server doesn't know the request any more.
                _ = lost.changed() => None,
                () = tokio::time::sleep_until(*deadline) => Some("no answer to a request for messages".to_owned()),
            };
            *request = None;
            if let Some(reason) = problem {
                *most = FIRST;
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                Box::pin(self.repair()).await;
                if taken.is_empty() {
                    return Err(BusError::Unavailable { bus: self.name.clone(), reason });
                }
            }
        }
        pulling.learn();
        Ok(())
    }

    /// Why a request for messages failed; the driver has a number for it.
    fn words(&self, error: &str) -> String {
        if !error.contains(": 503") {
            return error.to_owned();
        }
        let stream = streams::inbound_name(self.prefix());
        format!(
            "nobody gives messages of stream `{stream}`: it has no leader as long as most of the servers that have it are down"
        )
    }

    /// Gives back what is too much (an earlier call asked for more) and puts aside what can't be
    /// delivered.
    async fn put_back(&self, pulling: &mut Pulling, max: usize) {
        let (readable, unreadable): (VecDeque<_>, VecDeque<_>) =
            pulling.taken.drain(..).partition(|message| delivery(self.prefix(), message.clone()).is_ok());
        pulling.taken = readable;
        for message in unreadable {
            match stray(self.prefix(), message.clone()) {
                // More than anybody collects stay with the server until the ack wait is over.
                Some(unreadable) => drop(self.put_aside(unreadable)),
                // Without an acknowledgement subject it isn't of the stream.
                None => settle(&message, AckKind::Term).await,
            }
        }
        while pulling.taken.len() > max {
            if let Some(message) = pulling.taken.pop_back() {
                settle(&message, AckKind::Nak(None)).await;
            }
        }
    }

    /// Gives back everything that came and that nobody took, before the connection closes.
    pub(super) async fn put_back_all(&self) {
        let mut pulling = self.pulling.lock().await;
        if let Some(mut request) = pulling.request.take() {
            while let Some(Some(Ok(message))) = request.batch.next().now_or_never() {
                pulling.taken.push_back(message);
            }
        }
        for message in pulling.taken.drain(..) {
            settle(&message, AckKind::Nak(None)).await;
        }
    }
}

/// A message that can't be delivered, and why.
fn stray(prefix: &str, message: jetstream::Message) -> Option<Unreadable> {
    let error = subject::parse_inbound(prefix, &message.subject).err()?;
    let (sequence, published) = place(&message).ok()?;
    Some(Unreadable {
        subject: message.subject.to_string(),
        reason: error.to_string(),
        has_unknown_kind: error.is_of_kind,
        owner: subject::owner_of(prefix, &message.subject),
        id: message.headers.as_ref().and_then(producer_id),
        body: message.payload.clone(),
        sequence,
        published,
        settle: Arc::new(NatsSettle(message)),
    })
}

/// Its sequence in the stream, and when it was published.
fn place(message: &jetstream::Message) -> Result<(u64, Millis), String> {
    let info = message.info().map_err(|error| format!("no acknowledgement subject: {error}"))?;
    let published = u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Ok((info.stream_sequence, Millis(published)))
}

/// What a message says about itself, or what is wrong with it.
fn delivery(prefix: &str, message: jetstream::Message) -> Result<Delivery, String> {
    let (owner, agent, kind) = subject::parse_inbound(prefix, &message.subject).map_err(|error| error.to_string())?;
    let (sequence, published) = place(&message)?;
    let delivered = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
    let id = message.headers.as_ref().and_then(producer_id);
    let token = message.headers.as_ref().and_then(|headers| headers.get(AUTHORIZATION_HEADER));
    let authorization = token.map(|value| value.as_str().to_owned());
    let body = message.payload.clone();
    let settle = Arc::new(NatsSettle(message));
    Ok(Delivery { owner, agent, kind, id, authorization, body, sequence, delivered, published, settle })
}

/// [`ID_HEADER`], else `Nats-Msg-Id`.
pub(super) fn producer_id(headers: &HeaderMap) -> Option<String> {
    headers.get(ID_HEADER).or_else(|| headers.get("Nats-Msg-Id")).map(|value| value.as_str().to_owned())
}

pub(super) struct NatsSettle(pub(super) jetstream::Message);

pub(super) async fn settle(message: &jetstream::Message, kind: AckKind) {
    if let Err(error) = message.ack_with(kind).await {
        let subject = &message.subject;
        tracing::warn!("acknowledgement of a message on `{subject}` was lost, it will be delivered again: {error}");
    }
}

#[async_trait]
impl Settle for NatsSettle {
    async fn ack(&self) {
        settle(&self.0, AckKind::Ack).await;
    }

    async fn nak(&self, delay: Duration) {
        // A zero delay would be sent as "no delay given", which means the same.
        settle(&self.0, AckKind::Nak(Some(delay).filter(|delay| !delay.is_zero()))).await;
    }

    async fn progress(&self) {
        settle(&self.0, AckKind::Progress).await;
    }
}
