//! Bus over NATS `JetStream`.
//!
//! `line` has the connection, `reconnect` its replacement, `streams` the streams and consumers, `receive` the requests
//! for messages, `out_batches` the completions, `direct` submissions whose senders wait, `broken` the messages that break connections, `partitions` the spread over streams, `alarms` the
//! timers, `inspect` the reads of operators.

mod alarms;
mod publish_errors;
mod backlog;
mod broken;
mod connect;
mod differences;
mod direct;
mod expected;
mod failure;
mod inbound;
mod inspect;
mod journal;
mod line;
mod live;
mod made_again;
mod monitor;
mod options;
mod out_batches;
mod ownership;
mod partitions;
mod receive;
mod reconnect;
mod replicas;
mod report;
mod service;
mod streams;
mod witness;

use super::{
    Alarms, Bus, BusError, BusMessage, Delivery, LiveFeed, LiveSubject, MessageAddress, Signal, UndecodedMessage,
    WhenEmpty, Witness, error_chain, headers, subject,
};
use crate::config::mask_url;
use crate::domain::ids::{JobId, Owner};
use crate::domain::time::Millis;
use crate::store::BackendSetting;
use async_nats::HeaderMap;
use async_nats::client::PublishErrorKind as PlainErrorKind;
use async_nats::connection::State;
use async_trait::async_trait;
use bytes::Bytes;
use connect::now;
pub use failure::BusOpenError;
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use line::NatsLine;
pub use options::NatsOptions;
use options::TIMEOUT;
use out_batches::OutMessage;
use parking_lot::{Mutex, RwLock};
pub use service::{ServiceDescription, ServiceStatus, ServiceStatusSource};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Pause and tries while another publish on the same subject, or with the same id, is in flight.
const IN_FLIGHT_WAIT: Duration = Duration::from_millis(5);
const IN_FLIGHT_TRIES: u32 = 20;

/// Time between two attempts to create a missing stream or consumer again.
const REPAIR_EVERY: Duration = Duration::from_secs(1);

/// Pause and tries while a stream takes no message because its leader changes, or because a server doesn't know a new
/// stream yet: both are over within a second. What lasts longer, e.g. an election after a leader's death, is for the
/// caller to wait for.
const LEADERLESS_WAIT: Duration = Duration::from_millis(250);
const LEADERLESS_TRIES: u32 = 4;

/// The bus over one NATS server or cluster.
pub struct NatsBus {
    /// Address of the queue, without credentials.
    name: String,
    options: NatsOptions,
    line: RwLock<Arc<NatsLine>>,
    /// Held while a new line is opened.
    reopening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    pulling: tokio::sync::Mutex<receive::PullState>,
    /// Received messages that can't be delivered.
    undeliverable: Mutex<Vec<UndecodedMessage>>,
    /// Search for messages that break connections.
    broken: broken::BrokenSearch,
    /// Time of the next search for stuck messages.
    janitor_due: Mutex<Instant>,
    /// Completions on their way.
    out: out_batches::OutBatches,
    /// Earliest time at which missing streams are created again.
    repair_due: Mutex<Instant>,
    creations: made_again::StreamCreations,
}

impl NatsBus {
    /// Connects, with retries as the policy says, and creates the streams and the consumer.
    pub async fn open(options: &NatsOptions) -> Result<Self, BusOpenError> {
        let name = mask_url(&options.url);
        let line = NatsLine::open(options, &name).await?;
        Ok(Self {
            name,
            options: options.clone(),
            line: RwLock::new(Arc::new(line)),
            reopening: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            pulling: tokio::sync::Mutex::default(),
            undeliverable: Mutex::default(),
            broken: broken::BrokenSearch::default(),
            janitor_due: Mutex::new(Instant::now()),
            out: out_batches::OutBatches::default(),
            repair_due: Mutex::new(Instant::now()),
            creations: made_again::StreamCreations::default(),
        })
    }

    /// Returns the first token of every subject.
    pub fn prefix(&self) -> &str {
        &self.options.prefix
    }

    /// Creates missing streams and consumers again after an error that they can have caused, at most once in
    /// `REPAIR_EVERY`. An operator may have deleted them, or a server lost its disk.
    async fn repair(&self) {
        if self.options.reads_only || !claim_due(&self.repair_due, REPAIR_EVERY) {
            return;
        }
        let line = self.last_line();
        match streams::ensure(&line.context, &self.name, &self.options).await {
            Ok(inbound) => line.set_inbound(inbound),
            // The caller reports the failure, and the cluster repairs itself.
            Err(error @ BusOpenError::NotYet { .. }) => tracing::debug!("{error}"),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Returns messages that weren't taken to the server, sends what is buffered (acknowledgements included) and closes
    /// the connection; without a server, which the driver would wait for, nothing is sent.
    pub async fn close(&self) {
        let client = self.last_line().client.clone();
        let sent = async {
            self.put_back_all().await;
            client.flush().await.map_err(|error| error.to_string())
        };
        let sent = match client.connection_state() {
            State::Connected => {
                tokio::time::timeout(TIMEOUT, sent).await.unwrap_or_else(|_| Err("no answer".to_owned()))
            }
            State::Disconnected | State::Pending => Err("there is no connection".to_owned()),
        };
        self.closed.store(true, Ordering::Relaxed);
        if let Err(error) = sent {
            tracing::warn!("NATS at `{}`: not everything was sent before closing: {error}", self.name);
        }
        let _ = tokio::time::timeout(TIMEOUT, client.drain()).await;
    }

    /// Publishes a message; one that is stored is acknowledged by the server before this returns.
    async fn publish_message(&self, message: &BusMessage) -> Result<(), BusError> {
        let line = self.connected_line().await?;
        let headers = header_map(message).map_err(|error| self.refused_error(error.to_string()))?;
        let body = match subject::worker_body(self.prefix(), message) {
            Some(body) => serde_json::to_vec(&body),
            None => serde_json::to_vec(&message.body),
        };
        let body = body.map_err(|error| self.refused_error(error.to_string()))?.into();
        let subject = self.subject(&message.to);
        match message.to {
            MessageAddress::In { .. } | MessageAddress::Event { .. } => {
                self.publish_stored(subject, headers, body, false).await
            }
            MessageAddress::Out { .. } => self.publish_out(OutMessage { subject, headers, body }).await,
            MessageAddress::Job { .. } => self.publish_stored(subject, headers, body, true).await,
            MessageAddress::Reply(_) => {
                let sent = line.client.publish_with_headers(subject, headers, body).await;
                sent.map_err(|error| match error.kind() {
                    PlainErrorKind::MaxPayloadExceeded => {
                        let reason = "it exceeds the server's `max_payload`".to_owned();
                        BusError::TooLarge { bus: self.name.clone(), reason }
                    }
                    _ => self.refused_error(error_chain(&error)),
                })?;
                let flushed = tokio::time::timeout(TIMEOUT, line.client.flush()).await;
                let flushed = flushed.map_err(|error| self.unavailable(&error))?;
                flushed.map_err(|error| self.unavailable(&error))
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn unavailable(&self, error: &dyn Error) -> BusError {
        self.unavailable_reason(error_chain(error))
    }

    /// Returns the error of a call that may have been executed, with what is known of the reason.
    fn unavailable_reason(&self, reason: String) -> BusError {
        BusError::Unavailable { bus: self.name.clone(), reason: self.last_line().rights.explain(reason) }
    }

    /// Returns the error of a publish whose connection was lost: the driver doesn't fail what is in flight.
    fn lost_acknowledgement(&self) -> BusError {
        let reason = "the connection was lost before the acknowledgement".to_owned();
        BusError::Unavailable { bus: self.name.clone(), reason }
    }

    fn refused_error(&self, reason: impl Into<String>) -> BusError {
        BusError::Refused { bus: self.name.clone(), reason: reason.into() }
    }

    fn no_stream(&self) -> BusError {
        let stream = streams::jobs_name(self.prefix());
        let reason =
            format!("stream `{stream}` was gone; it is made again where the server permits, `trellis doctor` shows it");
        BusError::NoStream { bus: self.name.clone(), reason }
    }

    /// Publishes to a stream and waits until the message is stored.
    async fn publish_stored(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        is_job: bool,
    ) -> Result<(), BusError> {
        let (mut tries, mut leaderless) = (0, 0);
        loop {
            let line = self.working_line().await?;
            let mut lost = line.fresh_link();
            let sent = line.context.publish_with_headers(subject.clone(), headers.clone(), body.clone()).await;
            let acked = match sent {
                Ok(ack) => tokio::select! {
                    acked = ack.into_future() => acked.map(|_| ()),
                    _ = lost.changed() => {
                        return Err(self.lost_acknowledgement());
                    }
                },
                Err(error) => Err(error),
            };
            let Err(error) = acked else { return Ok(()) };
            tries += 1;
            if publish_errors::is_in_flight(&error) && tries < IN_FLIGHT_TRIES {
                tokio::time::sleep(IN_FLIGHT_WAIT).await;
                continue;
            }
            if publish_errors::is_not_taken(&error) {
                leaderless += 1;
                // If that was just tried without success, others needn't wait as well.
                let in_vain = *self.repair_due.lock() > Instant::now();
                if leaderless < LEADERLESS_TRIES && !in_vain {
                    tokio::time::sleep(LEADERLESS_WAIT).await;
                    continue;
                }
                let gone = is_job && streams::is_gone(&line.context, &streams::jobs_name(self.prefix())).await;
                Box::pin(self.repair()).await;
                if gone {
                    return Err(self.no_stream());
                }
            }
            return Err(match publish_errors::publish_error(&self.name, &error, &subject, is_job) {
                BusError::Unavailable { reason, .. } => self.unavailable_reason(reason),
                other => other,
            });
        }
    }

    async fn subscribe_confirmed(&self, subject: String) -> Result<async_nats::Subscriber, BusError> {
        let line = self.working_line().await?;
        let messages = line.client.subscribe(subject).await.map_err(|error| self.unavailable(&error))?;
        // A connection is served in order: the answer to a request means that the server has the subscription, so that
        // no later message is missed. Other servers of a cluster learn of it a moment later.
        line.context.query_account().await.map_err(|error| self.unavailable(&error))?;
        Ok(messages)
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        self.take(max, when_empty).await
    }

    fn take_unreadable(&self) -> Vec<UndecodedMessage> {
        std::mem::take(&mut *self.undeliverable.lock())
    }

    fn outage(&self) -> Option<Millis> {
        let line = self.last_line();
        match line.client.connection_state() {
            State::Connected => None,
            State::Disconnected | State::Pending => Some(*line.away_since.lock().get_or_insert_with(now)),
        }
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        let began = Instant::now();
        let sent = self.publish_message(message).await;
        self.options.metrics.backends.record_bus_call("publish", began.elapsed(), sent.is_err());
        sent
    }

    fn has_outside_listeners(&self, _to: &MessageAddress) -> bool {
        true
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        let subject = subject::live_subject(self.prefix(), to);
        self.working_line().await?.client.publish(subject, body).await.map_err(|error| self.unavailable(&error))
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        let messages = self.subscribe_confirmed(subject::live_subject(self.prefix(), from)).await?;
        Ok(messages.map(|message| message.payload).boxed())
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        let subject = subject::completion_pattern(self.prefix(), owner, job);
        let told =
            self.connected_line().await?.client.subscribe(subject).await.map_err(|error| self.unavailable(&error))?;
        Ok(Box::pin(async move {
            let mut told = told;
            if told.next().await.is_none() {
                // The connection is gone, and no announcement can come any more.
                std::future::pending::<()>().await;
            }
        }))
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        let prefix = self.prefix().to_owned();
        let messages = self.subscribe_confirmed(subject::all_control(&prefix)).await?;
        let signal = move |message: async_nats::Message| {
            let owner = subject::parse_control(&prefix, &message.subject);
            std::future::ready(owner.map(|owner| Signal { owner, body: message.payload }))
        };
        Ok(messages.filter_map(signal).boxed())
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.list_unacknowledged().await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        self.server_settings().await
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }

    fn alarms(&self) -> Option<&dyn Alarms> {
        Some(self)
    }
}

/// Returns whether the time has come, and sets the next one `every` later.
fn claim_due(due: &Mutex<Instant>, every: Duration) -> bool {
    let mut due = due.lock();
    let now = Instant::now();
    let yes = *due <= now;
    if yes {
        *due = now + every;
    }
    yes
}

/// A message id that no header can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal message id `{}`: control characters are not allowed", .id.escape_debug())]
struct MessageIdError {
    id: String,
}

fn header_map(message: &BusMessage) -> Result<HeaderMap, MessageIdError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers(message) {
        if value.chars().any(char::is_control) {
            return Err(MessageIdError { id: value });
        }
        map.insert(name, value);
    }
    Ok(map)
}
