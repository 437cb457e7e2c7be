//! Taking messages from the shared consumer, never more than asked for.

use super::super::{BusError, Delivery, ID_HEADER, Settle, subject};
use super::NatsBus;
use crate::domain::time::Millis;
use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::pull::Batch, message::Acker},
};
use async_trait::async_trait;
use futures::StreamExt;
use std::time::Duration;

/// Longest wait for the answer to "what is there now".
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait after a failed pull, so that a server that refuses isn't asked in a tight loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

enum Pulled {
    Message(Box<jetstream::Message>),
    /// The server has nothing (more).
    End,
    /// The connection was lost: the server doesn't know the request any more.
    LinkLost,
}

impl NatsBus {
    /// [`super::Bus::receive`]. First what is there; when nothing is, a request for exactly one
    /// message and then what came with it. A larger waiting request would have to be dropped
    /// half-filled, and what was on its way to it would come only after the ack wait.
    ///
    /// Requests carry no idle heartbeat: `Batch` of async-nats 0.51 returns `Pending` on one
    /// without a waker and sleeps through the messages after it. A lost connection is noticed by
    /// `link` at once, a silent server five seconds after `poll`.
    pub(super) async fn take(&self, max: usize) -> Result<Vec<Delivery>, BusError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.clean_when_due().await;
        let mut messages = self.fetch_present(max).await?;
        if messages.is_empty() {
            messages.extend(self.wait_for_one().await?);
            if !messages.is_empty() && max > 1 {
                // An error here must not lose the message that came.
                messages.extend(self.fetch_present(max - 1).await.unwrap_or_default());
            }
        }
        let mut deliveries = Vec::with_capacity(messages.len());
        for message in messages {
            deliveries.extend(self.delivery(message).await);
        }
        Ok(deliveries)
    }

    /// Up to `max` messages that are there now.
    async fn fetch_present(&self, max: usize) -> Result<Vec<jetstream::Message>, BusError> {
        let mut link = self.link.clone();
        link.mark_unchanged();
        let batch = self.consumer.fetch().max_messages(max).messages().await;
        let mut batch = batch.map_err(|error| self.unavailable(&error))?;
        let mut messages = Vec::new();
        let deadline = tokio::time::Instant::now() + FETCH_TIMEOUT;
        loop {
            match tokio::time::timeout_at(deadline, self.next(&mut batch, &mut link)).await {
                Ok(Ok(Pulled::Message(message))) => messages.push(*message),
                Ok(Ok(Pulled::End | Pulled::LinkLost)) => return Ok(messages),
                Ok(Err(_)) | Err(_) if !messages.is_empty() => return Ok(messages),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let reason = "no answer to a request for messages".to_owned();
                    return Err(BusError::Unavailable { bus: self.name.clone(), reason });
                }
            }
        }
    }

    async fn wait_for_one(&self) -> Result<Option<jetstream::Message>, BusError> {
        let mut link = self.link.clone();
        link.mark_unchanged();
        let batch = self.consumer.batch().max_messages(1).expires(self.poll).messages().await;
        let mut batch = batch.map_err(|error| self.unavailable(&error))?;
        match self.next(&mut batch, &mut link).await? {
            Pulled::Message(message) => Ok(Some(*message)),
            Pulled::End | Pulled::LinkLost => Ok(None),
        }
    }

    async fn next(&self, batch: &mut Batch, link: &mut tokio::sync::watch::Receiver<u64>) -> Result<Pulled, BusError> {
        tokio::select! {
            biased;
            next = batch.next() => match next {
                Some(Ok(message)) => Ok(Pulled::Message(Box::new(message))),
                Some(Err(error)) => {
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                    Err(BusError::Unavailable { bus: self.name.clone(), reason: error.to_string() })
                }
                None => Ok(Pulled::End),
            },
            _ = link.changed() => Ok(Pulled::LinkLost),
        }
    }

    /// What a message says about itself. One that names no owner can't be answered to anybody: it
    /// is logged, counted and never delivered again.
    async fn delivery(&self, message: jetstream::Message) -> Option<Delivery> {
        let subject = message.subject.to_string();
        let facts = message.info().map(|info| {
            let published = info.published.unix_timestamp_nanos() / 1_000_000;
            let delivered = u64::try_from(info.delivered).unwrap_or(1);
            (info.stream_sequence, delivered, Millis(u64::try_from(published).unwrap_or_default()))
        });
        let (message, acker) = message.split();
        let settle = NatsSettle { acker, subject: subject.clone() };
        let address = subject::parse_inbound(&self.prefix, &subject);
        let ((owner, agent, kind), (sequence, delivered, published)) = match (address, facts) {
            (Ok(address), Ok(facts)) => (address, facts),
            (Err(error), _) => {
                tracing::warn!("dropping an unreadable message of {} bytes: {error}", message.payload.len());
                self.metrics.messages_unreadable.inc();
                settle.send(AckKind::Term).await;
                return None;
            }
            (_, Err(error)) => {
                tracing::warn!("leaving a message on `{subject}` that can't be acknowledged: {error}");
                self.metrics.messages_unreadable.inc();
                return None;
            }
        };
        Some(Delivery {
            owner,
            agent,
            kind,
            id: message.headers.as_ref().and_then(producer_id),
            body: message.payload,
            sequence,
            delivered,
            published,
            settle: Box::new(settle),
        })
    }
}

/// [`ID_HEADER`], else `Nats-Msg-Id`.
pub(super) fn producer_id(headers: &HeaderMap) -> Option<String> {
    headers.get(ID_HEADER).or_else(|| headers.get("Nats-Msg-Id")).map(|value| value.as_str().to_owned())
}

struct NatsSettle {
    acker: Acker,
    subject: String,
}

impl NatsSettle {
    async fn send(&self, kind: AckKind) {
        if let Err(error) = self.acker.ack_with(kind).await {
            tracing::warn!(
                "acknowledgement of a message on `{}` was lost, it will be delivered again: {error}",
                self.subject
            );
        }
    }
}

#[async_trait]
impl Settle for NatsSettle {
    async fn ack(&self) {
        self.send(AckKind::Ack).await;
    }

    async fn nak(&self, delay: Duration) {
        // A zero delay would be sent as "no delay given", which means the same.
        self.send(AckKind::Nak(Some(delay).filter(|delay| !delay.is_zero()))).await;
    }

    async fn progress(&self) {
        self.send(AckKind::Progress).await;
    }
}
