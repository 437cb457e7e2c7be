//! Reception of messages from the shared consumers, never more than asked for.

use super::super::{
    AUTHORIZATION_HEADER, Acknowledge, BusError, Delivery, ID_HEADER, RECEIVE_BYTES, UndecodedMessage, WhenEmpty,
    subject,
};
use super::NatsBus;
use super::inbound::InboundStream;
use super::line::NatsLine;
use crate::domain::time::Millis;
use crate::domain::trace::{TRACEPARENT, TraceParent};
use crate::process::retry::LogPace;
use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::pull::Batch},
};
use async_trait::async_trait;
use futures::future::{join_all, select_all};
use futures::{FutureExt, StreamExt};
use std::sync::Arc;
use std::{collections::VecDeque, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Longest wait for the answer to a request for present messages.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of the first answer: as many of the largest size as fit into the limit of bytes. (A limit of bytes in the
/// request doesn't work: from a consumer with replicas the end of such an answer comes before its messages.)
const FIRST: usize = RECEIVE_BYTES >> 20;

/// Factor by which answers may grow from one to the next.
const GROWTH: usize = 4;

/// Pause after a failed request, so that a server that refuses isn't asked in a tight loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Pause after an error of one stream while others deliver.
const REST_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Share of a request that goes to streams without messages at the last one: one in this many.
const IDLE: usize = 8;

/// Time after which a stream that hasn't answered doesn't delay the others.
const SLOW: Duration = Duration::from_millis(250);

/// Shortest wait that is worth a request.
const SHORT: Duration = Duration::from_millis(50);

/// Requests and received messages, by stream. It is kept in the bus: when the caller of `receive` drops its future, the
/// next call continues, and no message waits for the ack wait.
#[derive(Default)]
pub(super) struct PullState {
    pulls: Vec<StreamPull>,
    /// Stream that is asked first: with fewer messages wanted than there are streams, each has its turn.
    first: usize,
}

/// Request and messages of one stream.
struct StreamPull {
    request: Option<PullRequest>,
    taken: VecDeque<jetstream::Message>,
    /// Most messages of the next answer, by the size of the last ones.
    most: usize,
    /// Whether the last answer had messages.
    is_busy: bool,
    /// Error of the last request.
    problem: Option<String>,
    /// Earliest time of the next request.
    rests_until: Option<Instant>,
    pace: LogPace,
}

struct PullRequest {
    batch: Batch,
    lost: watch::Receiver<u64>,
    deadline: Instant,
    /// Whether it isn't waited for to its end: it is for the first message, or late.
    is_waiting: bool,
}

impl Default for StreamPull {
    fn default() -> Self {
        let (request, taken, problem) = (None, VecDeque::new(), None);
        Self { request, taken, most: FIRST, is_busy: false, problem, rests_until: None, pace: LogPace::default() }
    }
}

impl StreamPull {
    fn may_be_asked(&self) -> bool {
        self.request.is_none() && self.problem.is_none() && self.rests_until.is_none_or(|until| until <= Instant::now())
    }

    /// Waits for a message of its request, or for the request's end.
    async fn next(&mut self) {
        let Some(PullRequest { batch, lost, deadline, .. }) = &mut self.request else { return };
        let problem = tokio::select! {
            biased;
            next = batch.next() => match next {
                Some(Ok(message)) => {
                    self.taken.push_back(message);
                    return;
                }
                Some(Err(error)) => Some(error.to_string()),
                None => None,
            },
            // After a loss of the connection the server has forgotten the request.
            _ = lost.changed() => None,
            () = tokio::time::sleep_until(*deadline) => Some("no answer to a request for messages".to_owned()),
        };
        self.request = None;
        if problem.is_some() {
            self.most = FIRST;
            self.problem = problem;
        }
    }

    /// Waits until a request for present messages is answered completely, or can't be any more.
    async fn drain(&mut self) {
        while self.request.as_ref().is_some_and(|request| !request.is_waiting) {
            self.next().await;
        }
    }

    /// Takes the messages that have arrived.
    fn collect(&mut self) {
        while self.request.is_some() && self.next().now_or_never().is_some() {}
    }

    /// Sets the size of the next answer: as many of the largest message received as fit into `bytes`, but not much more
    /// than in this answer, since others may be larger.
    fn set_next_size(&mut self, bytes: usize) {
        let largest = self.taken.iter().map(|message| message.payload.len()).max();
        self.is_busy = largest.is_some();
        if let Some(largest) = largest {
            self.most = (bytes / largest.max(1)).min(self.most * GROWTH).max(1);
        }
    }
}

impl PullState {
    fn len(&self) -> usize {
        self.pulls.iter().map(|pull| pull.taken.len()).sum()
    }

    /// Waits until the present messages have arrived, but only briefly for one stream of several: its messages may come
    /// later.
    async fn drain(&mut self) {
        let limit = if self.pulls.len() == 1 { Duration::MAX } else { SLOW };
        let _ = tokio::time::timeout(limit, join_all(self.pulls.iter_mut().map(StreamPull::drain))).await;
        let bytes = RECEIVE_BYTES / self.pulls.len().max(1);
        for pull in &mut self.pulls {
            pull.set_next_size(bytes);
            // What arrives later is taken when it arrives.
            if let Some(request) = &mut pull.request {
                request.is_waiting = true;
            }
        }
    }

    /// Returns a future for the next message of any request; `None` if there is no request.
    fn next_message(&mut self) -> Option<impl Future<Output = ()>> {
        let waits = self.pulls.iter_mut().filter(|pull| pull.request.is_some());
        let waits: Vec<_> = waits.map(|pull| Box::pin(pull.next())).collect();
        (!waits.is_empty()).then(|| select_all(waits).map(drop))
    }

    /// Divides a request for `max` messages over the streams: those without messages last time get a small share, so
    /// that a busy stream is emptied nearly as fast as alone.
    fn divide(&mut self, max: usize) -> Vec<(usize, usize)> {
        let count = self.pulls.len();
        let mut left = max.saturating_sub(self.len());
        self.first = (self.first + 1) % count.max(1);
        let asked: Vec<_> =
            (self.first..count).chain(0..self.first).filter(|at| self.pulls[*at].may_be_asked()).collect();
        let busy = asked.iter().filter(|at| self.pulls[**at].is_busy).count();
        let idle = asked.len() - busy;
        let (of_busy, of_idle) = match (busy, idle) {
            (0, _) | (_, 0) => (left / asked.len().max(1), left / asked.len().max(1)),
            (_, _) => ((left - left / IDLE) / busy, left / IDLE / idle),
        };
        let mut shares = Vec::new();
        for at in asked {
            let pull = &self.pulls[at];
            // One message of each stream can be large before its size is known.
            let most = if pull.is_busy || count == 1 { pull.most } else { pull.most.min((FIRST / count).max(1)) };
            let share = if pull.is_busy { of_busy } else { of_idle }.max(1).min(left).min(most);
            left -= share;
            shares.extend((share > 0).then_some((at, share)));
        }
        shares
    }
}

impl NatsBus {
    /// Implements [`super::Bus::receive`]. It first requests present messages; if there are none, exactly one message
    /// of each stream, and then what came with the first of them. A larger waiting request would have to be dropped
    /// half-filled, and messages on their way to it would come only after the ack wait.
    ///
    /// Requests carry no idle heartbeat: `Batch` of async-nats 0.51 returns `Pending` on one without a waker and sleeps
    /// through the messages after it. `link` shows a lost connection at once; a silent server is noticed five seconds
    /// after `poll`.
    pub(super) async fn take(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        if max == 0 {
            return Ok(self.take_outstanding().await);
        }
        self.clean_when_due().await;
        if self.search_broken().await {
            // They are handled before a request for messages brings more of them.
            return Ok(Vec::new());
        }
        let line = self.working_line().await?;
        let all = line.inbound();
        let mut pulling = self.pulling.lock().await;
        pulling.pulls.resize_with(all.len(), StreamPull::default);
        pulling.pulls.iter_mut().for_each(StreamPull::collect);
        self.ask_for_present(&line, &all, &mut pulling, max).await?;
        pulling.drain().await;
        if pulling.len() == 0 && when_empty == WhenEmpty::Wait {
            self.wait_for_one(&line, &all, &mut pulling).await?;
            if (1..max).contains(&pulling.len()) {
                // An error here must not lose the message that came.
                if let Err(error) = self.ask_for_present(&line, &all, &mut pulling, max).await {
                    tracing::debug!("asking for more messages: {error}");
                }
                pulling.drain().await;
            }
        }
        self.handle_problems(&all, &mut pulling).await?;
        self.put_back(&all, &mut pulling, max).await;
        // Nothing is awaited from here on: the caller settles the deliveries.
        Ok(self.deliveries(&all, &mut pulling))
    }

    fn deliveries(&self, all: &[InboundStream], pulling: &mut PullState) -> Vec<Delivery> {
        let taken = pulling.pulls.iter_mut().zip(all);
        let deliveries = taken.flat_map(|(pull, inbound)| {
            pull.taken.drain(..).filter_map(|message| delivery(self.prefix(), inbound, message))
        });
        deliveries.collect()
    }

    /// Returns what still arrives for earlier requests, as soon as something does; empty when all are answered.
    async fn take_outstanding(&self) -> Vec<Delivery> {
        let all = self.last_line().inbound();
        let mut pulling = self.pulling.lock().await;
        while pulling.len() == 0 {
            let Some(waits) = pulling.next_message() else { break };
            waits.await;
        }
        self.deliveries(&all, &mut pulling)
    }

    /// Requests present messages, up to `max` with those that are here.
    async fn ask_for_present(
        &self,
        line: &NatsLine,
        all: &[InboundStream],
        pulling: &mut PullState,
        max: usize,
    ) -> Result<(), BusError> {
        for (at, share) in pulling.divide(max) {
            let lost = line.fresh_link();
            let batch = all[at].consumer.fetch().max_messages(share).messages().await;
            let batch = batch.map_err(|error| self.unavailable(&error))?;
            let deadline = Instant::now() + FETCH_TIMEOUT;
            pulling.pulls[at].request = Some(PullRequest { batch, lost, deadline, is_waiting: false });
        }
        Ok(())
    }

    /// Waits for the first message of any stream, or until all streams have failed.
    async fn wait_for_one(
        &self,
        line: &NatsLine,
        all: &[InboundStream],
        pulling: &mut PullState,
    ) -> Result<(), BusError> {
        let end = Instant::now() + self.options.poll;
        while pulling.len() == 0 && pulling.pulls.iter().any(|pull| pull.problem.is_none()) {
            let left = end.saturating_duration_since(Instant::now());
            if left < SHORT {
                break;
            }
            for (pull, inbound) in pulling.pulls.iter_mut().zip(all).filter(|(pull, _)| pull.may_be_asked()) {
                let lost = line.fresh_link();
                let batch = inbound.consumer.batch().max_messages(1).expires(left).messages().await;
                let batch = batch.map_err(|error| self.unavailable(&error))?;
                let deadline = Instant::now() + left + FETCH_TIMEOUT;
                pull.request = Some(PullRequest { batch, lost, deadline, is_waiting: true });
            }
            let rested =
                pulling.pulls.iter().filter_map(|pull| pull.rests_until).filter(|at| *at > Instant::now()).min();
            match pulling.next_message() {
                Some(waits) => drop(tokio::time::timeout_at(rested.unwrap_or(end).min(end), waits).await),
                None => tokio::time::sleep(SHORT).await,
            }
            // A request of an earlier call has ended without a message, and its stream is asked again.
        }
        Ok(())
    }

    /// Pauses streams that failed; returns an error if all failed and no message came.
    async fn handle_problems(&self, all: &[InboundStream], pulling: &mut PullState) -> Result<(), BusError> {
        let count = pulling.pulls.iter().filter(|pull| pull.problem.is_some()).count();
        if count == 0 {
            return Ok(());
        }
        let all_failed = count == pulling.pulls.len();
        let mut first = None;
        for (pull, inbound) in pulling.pulls.iter_mut().zip(all) {
            let Some(problem) = pull.problem.take() else { continue };
            let reason = describe_failure(inbound.name(), &problem);
            if !all_failed {
                pull.rests_until = Some(Instant::now() + REST_AFTER_ERROR);
                if pull.pace.claim_due() {
                    tracing::warn!("NATS at `{}`: stream `{}`: {reason}", self.name, inbound.name());
                }
            }
            first.get_or_insert(reason);
        }
        if all_failed {
            tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            Box::pin(self.repair()).await;
        } else if pulling.len() == 0 {
            // The other streams have no message now; what arrives for them waits no longer than this.
            let _ = tokio::time::timeout(REST_AFTER_ERROR, Box::pin(self.repair())).await;
        }
        match first {
            Some(reason) if all_failed && pulling.len() == 0 => Err(self.unavailable_reason(reason)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns surplus messages to the server (an earlier call asked for more) and puts aside those that can't be
    /// delivered.
    async fn put_back(&self, all: &[InboundStream], pulling: &mut PullState, max: usize) {
        let mut left = max;
        for (pull, inbound) in pulling.pulls.iter_mut().zip(all) {
            let (readable, unreadable): (VecDeque<_>, VecDeque<_>) =
                pull.taken.drain(..).partition(|message| delivery(self.prefix(), inbound, message.clone()).is_some());
            pull.taken = readable;
            for message in unreadable {
                match to_unreadable(self.prefix(), inbound, message.clone()) {
                    // Messages beyond the room stay with the server until the ack wait is over.
                    Some(unreadable) => drop(self.put_aside(unreadable)),
                    // Without an acknowledgement subject it isn't a message of the stream.
                    None => acknowledge(&message, AckKind::Term).await,
                }
            }
            while pull.taken.len() > left {
                let Some(message) = pull.taken.pop_back() else { break };
                acknowledge(&message, AckKind::Nak(None)).await;
            }
            left -= pull.taken.len();
        }
    }

    /// Returns all messages that weren't taken to the server, before the connection closes.
    pub(super) async fn put_back_all(&self) {
        let mut pulling = self.pulling.lock().await;
        for pull in &mut pulling.pulls {
            pull.collect();
            pull.request = None;
            for message in pull.taken.drain(..) {
                acknowledge(&message, AckKind::Nak(None)).await;
            }
        }
    }
}

/// Describes a failed request for messages; the driver reports a number.
fn describe_failure(stream: &str, error: &str) -> String {
    if !error.contains(": 503") {
        return error.to_owned();
    }
    format!(
        "nobody gives messages of stream `{stream}`: it has no leader as long as most of the servers that have it are down"
    )
}

/// Returns a message that can't be delivered, with the reason.
fn to_unreadable(prefix: &str, inbound: &InboundStream, message: jetstream::Message) -> Option<UndecodedMessage> {
    let error = subject::parse_inbound(prefix, &message.subject).err()?;
    let (sequence, published) = place_and_time(inbound, &message)?;
    Some(UndecodedMessage {
        subject: message.subject.to_string(),
        reason: error.to_string(),
        has_unknown_kind: error.is_of_kind,
        owner: subject::owner_of(prefix, &message.subject),
        id: message.headers.as_ref().and_then(producer_id),
        body: message.payload.clone(),
        sequence,
        published,
        settle: Arc::new(NatsAck(message)),
    })
}

/// Returns place and publication time of a message; `None` if it has no acknowledgement subject.
fn place_and_time(inbound: &InboundStream, message: &jetstream::Message) -> Option<(u64, Millis)> {
    let info = message.info().ok()?;
    let published = u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Some((inbound.message_place(info.stream_sequence), Millis(published)))
}

/// Converts a message to a delivery; `None` if it is unreadable, see [`to_unreadable`].
fn delivery(prefix: &str, inbound: &InboundStream, message: jetstream::Message) -> Option<Delivery> {
    let (owner, agent, kind) = subject::parse_inbound(prefix, &message.subject).ok()?;
    let (sequence, published) = place_and_time(inbound, &message)?;
    let delivered = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
    let id = message.headers.as_ref().and_then(producer_id);
    let token = message.headers.as_ref().and_then(|headers| headers.get(AUTHORIZATION_HEADER));
    let authorization = token.map(|value| value.as_str().to_owned());
    let trace = message.headers.as_ref().and_then(trace_parent);
    let body = message.payload.clone();
    let settle = Arc::new(NatsAck(message));
    Some(Delivery { owner, agent, kind, id, authorization, trace, body, sequence, delivered, published, settle })
}

/// Returns the producer's event id, [`ID_HEADER`]. `Nats-Msg-Id` isn't used, because all owners share the ids that a
/// stream compares.
pub(super) fn producer_id(headers: &HeaderMap) -> Option<String> {
    headers.get(ID_HEADER).map(|value| value.as_str().to_owned())
}

/// Returns the trace that a message belongs to. Clients write the name of the header in any case.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let named = headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name).eq_ignore_ascii_case(TRACEPARENT));
    TraceParent::parse_only(named.flat_map(|(_, values)| values).map(async_nats::HeaderValue::as_str))
}

pub(super) struct NatsAck(pub(super) jetstream::Message);

pub(super) async fn acknowledge(message: &jetstream::Message, kind: AckKind) {
    if let Err(error) = message.ack_with(kind).await {
        let subject = &message.subject;
        tracing::warn!("acknowledgement of a message on `{subject}` was lost, it will be delivered again: {error}");
    }
}

#[async_trait]
impl Acknowledge for NatsAck {
    async fn ack(&self) {
        acknowledge(&self.0, AckKind::Ack).await;
    }

    async fn nak(&self, delay: Duration) {
        // A zero delay would be sent as "no delay given", which means the same.
        acknowledge(&self.0, AckKind::Nak(Some(delay).filter(|delay| !delay.is_zero()))).await;
    }

    async fn progress(&self) {
        acknowledge(&self.0, AckKind::Progress).await;
    }
}
