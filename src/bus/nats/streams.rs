//! The streams and the consumer, made or checked at the start (`protocol.md`, "Streams").

use super::super::subject;
use super::partitions::{Inbound, spread_over};
use super::{BusOpenError, NatsOptions, chain};
use crate::domain::limits::OUTBOUND_DEADLINE_MAX;
use async_nats::jetstream::{
    Context, ErrorCode,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
    context::{
        CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, RequestError, RequestErrorKind,
    },
    stream::{Config, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType, Stream},
};
use std::{error::Error, time::Duration};

/// Window of a stream that strangers publish to: the shortest that a server takes (0 means its default of two minutes).
/// All owners share the ids of such a stream, and one owner's `Nats-Msg-Id` drops another's message while the window
/// lasts. The store deduplicates, by owner.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

/// Window of a stream that only the venue publishes to. Its ids are made with the venue's key, and nobody knows one
/// before its message is stored: a republish after a crash is seen once.
const OUT_DUPLICATES: Duration = Duration::from_mins(10);

/// The one consumer that all workers share.
pub(super) const CONSUMER: &str = "workers";

/// Running turns of the whole fleet plus delayed ones; the server's default of 1000 would cap the
/// fleet.
const MAX_ACK_PENDING: i64 = 100_000;

/// Requests for work waiting at the same time: one for each worker process, with room.
const MAX_WAITING: i64 = 4096;

/// Name of the inbound stream, or of a partition of it.
pub(super) fn inbound_name(prefix: &str, part: Option<usize>) -> String {
    let all = prefix.to_uppercase();
    part.map_or_else(|| all.clone(), |part| format!("{all}_PART_{part}"))
}

/// Name of the stream of completions.
pub(super) fn outbound_name(prefix: &str) -> String {
    format!("{}_OUT", prefix.to_uppercase())
}

/// The one consumer of due timers that all workers share.
const TIMER_CONSUMER: &str = "timers";

/// Name of the stream of timers.
pub(super) fn timers_name(prefix: &str) -> String {
    format!("{}_TIMERS", prefix.to_uppercase())
}

/// Name of the stream of jobs for external workers.
pub(super) fn jobs_name(prefix: &str) -> String {
    format!("{}_JOBS", prefix.to_uppercase())
}

/// How long live text can be read again: a watcher whose connection broke is back in seconds.
const LIVE_AGE: Duration = Duration::from_mins(10);

/// Bytes of live text that are kept, in memory.
const LIVE_BYTES: i64 = 64 * 1024 * 1024;

/// Name of the stream of live text.
pub(super) fn live_name(prefix: &str) -> String {
    format!("{}_LIVE", prefix.to_uppercase())
}

/// Names of all streams but the inbound ones, with the consumer that workers share.
pub(super) fn others(prefix: &str) -> [(String, Option<&'static str>); 7] {
    [
        (outbound_name(prefix), None),
        (live_name(prefix), None),
        (timers_name(prefix), Some(TIMER_CONSUMER)),
        (jobs_name(prefix), None),
        (epoch_name(prefix), None),
        (protection_name(prefix), None),
        (journal_name(prefix), None),
    ]
}

/// Makes the streams and the consumers, or brings them up to date; what they are given by.
pub(super) async fn ensure(context: &Context, bus: &str, options: &NatsOptions) -> Result<Vec<Inbound>, BusOpenError> {
    let place = (bus, options.prefix.as_str());
    ensure_stream(context, place, outbound(options)).await?;
    ensure_stream(context, place, live(options)).await?;
    ensure_timers(context, bus, options).await?;
    ensure_stream(context, place, jobs(options)).await?;
    ensure_stream(context, place, epoch(options)).await?;
    ensure_stream(context, place, protection(options)).await?;
    ensure_stream(context, place, journal(options)).await?;
    let mut all = vec![ensure_inbound(context, bus, options, None).await?];
    for part in 0.. {
        if part >= spread_over(options.partitions) && !was_made(context, bus, options, part).await? {
            break;
        }
        all.push(ensure_inbound(context, bus, options, Some(part)).await?);
    }
    Ok(all)
}

/// There were more partitions than are wanted now: what is in them is taken.
async fn was_made(context: &Context, bus: &str, options: &NatsOptions, part: usize) -> Result<bool, BusOpenError> {
    let name = inbound_name(&options.prefix, Some(part));
    match context.get_stream(&name).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        // Nobody who spreads nothing needs the right to ask for it.
        Err(_) if options.partitions == 1 && part == 0 => Ok(false),
        Err(error) => Err(get_failed(bus, &name, &error)),
    }
}

async fn ensure_inbound(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
    part: Option<usize>,
) -> Result<Inbound, BusOpenError> {
    let stream = ensure_stream(context, (bus, &options.prefix), inbound(options, part)).await?;
    let consumer = ensure_consumer(&stream, bus, consumer(options)).await?;
    Ok(Inbound { part, stream, consumer })
}

/// The same for the stream of timers and its consumer.
pub(super) async fn ensure_timers(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
) -> Result<PullConsumer, BusOpenError> {
    let stream = ensure_stream(context, (bus, &options.prefix), timers(options)).await?;
    ensure_consumer(&stream, bus, timer_consumer(options)).await
}

async fn ensure_consumer(stream: &Stream, bus: &str, wanted: pull::Config) -> Result<PullConsumer, BusOpenError> {
    let name = wanted.durable_name.clone().unwrap_or_default();
    stream.create_consumer(wanted).await.map_err(|error| {
        let refusal = match error.kind() {
            ConsumerErrorKind::JetStream(answer) => Refusal::Said(answer.error_code()),
            ConsumerErrorKind::TimedOut => Refusal::Silence,
            _ => Refusal::Other,
        };
        let reason = format!("consumer `{name}`: {}", chain(&error));
        refusal.of(bus, &stream.cached_info().config.name, reason)
    })
}

/// What a server has against a request for a stream.
enum Refusal {
    /// This.
    Said(ErrorCode),
    /// It doesn't answer.
    Silence,
    Other,
}

impl Refusal {
    fn of(self, bus: &str, stream: &str, reason: String) -> BusOpenError {
        let (bus, stream, is_silent) = (bus.to_owned(), stream.to_owned(), matches!(self, Self::Silence));
        match self {
            Self::Silence
            | Self::Said(
                ErrorCode::CLUSTER_NOT_AVAILABLE
                | ErrorCode::CLUSTER_NOT_LEADER
                | ErrorCode::CLUSTER_NOT_ACTIVE
                | ErrorCode::CLUSTER_NOT_ASSIGNED
                | ErrorCode::CLUSTER_INCOMPLETE,
            ) => {
                let reason = format!("{reason}; most servers of the cluster must be up");
                BusOpenError::NotYet { bus, stream, reason, is_silent }
            }
            Self::Said(ErrorCode::CLUSTER_NO_PEERS) => {
                let reason = format!("{reason}; `bus.replicas` needs so many servers that are up and have room");
                BusOpenError::NotYet { bus, stream, reason, is_silent }
            }
            Self::Said(ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED) => {
                let reason = format!(
                    "{reason}; set `bus.replicas = 1`, or run three servers as a cluster (config/nats-cluster.conf)"
                );
                BusOpenError::Setup { bus, stream, reason }
            }
            Self::Said(_) | Self::Other => BusOpenError::Setup { bus, stream, reason },
        }
    }
}

fn get_failed(bus: &str, stream: &str, error: &GetStreamError) -> BusOpenError {
    let silent = error.source().and_then(|source| source.downcast_ref::<RequestError>());
    let refusal = match error.kind() {
        GetStreamErrorKind::JetStream(answer) => Refusal::Said(answer.error_code()),
        _ if silent.is_some_and(|request| request.kind() == RequestErrorKind::TimedOut) => Refusal::Silence,
        _ => Refusal::Other,
    };
    refusal.of(bus, stream, chain(error))
}

fn make_failed(bus: &str, stream: &str, error: &CreateStreamError) -> BusOpenError {
    let refusal = match error.kind() {
        CreateStreamErrorKind::JetStream(answer) => Refusal::Said(answer.error_code()),
        CreateStreamErrorKind::TimedOut => Refusal::Silence,
        _ => Refusal::Other,
    };
    refusal.of(bus, stream, chain(error))
}

fn inbound(options: &NatsOptions, part: Option<usize>) -> Config {
    let prefix = &options.prefix;
    Config {
        name: inbound_name(prefix, part),
        subjects: subject::inbound(prefix, part),
        retention: RetentionPolicy::WorkQueue,
        // Never drop accepted work to make room: refuse new work.
        discard: DiscardPolicy::New,
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

fn outbound(options: &NatsOptions) -> Config {
    Config {
        name: outbound_name(&options.prefix),
        subjects: vec![subject::all_outbound(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: options.out_max_age,
        // The server refuses a window that is longer than the age.
        duplicate_window: OUT_DUPLICATES.min(options.out_max_age),
        ..common(options)
    }
}

/// Name of the stream of the store's epoch.
pub(super) fn epoch_name(prefix: &str) -> String {
    format!("{}_EPOCH", prefix.to_uppercase())
}

/// One message: how far the store is.
fn epoch(options: &NatsOptions) -> Config {
    Config {
        name: epoch_name(&options.prefix),
        subjects: vec![subject::epoch(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_messages_per_subject: 1,
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

/// Name of the stream of the newest records of what protects owners.
pub(super) fn protection_name(prefix: &str) -> String {
    format!("{}_PROTECTION", prefix.to_uppercase())
}

/// One message for each thing. None makes room for another: a record that isn't taken is an error that its caller meets.
fn protection(options: &NatsOptions) -> Config {
    Config {
        name: protection_name(&options.prefix),
        subjects: vec![subject::all_protections(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        allow_message_ttl: true,
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

/// How long the journal tells of a change: longer than a store's disk or replicas lag behind its answers.
const JOURNAL_AGE: Duration = Duration::from_hours(1);

/// Bytes of the journal, at most: a million changes and more.
const JOURNAL_BYTES: u64 = 256 << 20;

/// Name of the stream of the journal.
pub(super) fn journal_name(prefix: &str) -> String {
    format!("{}_JOURNAL", prefix.to_uppercase())
}

/// Batches of names of acknowledged changes. Who reads it is told how far back it reaches.
fn journal(options: &NatsOptions) -> Config {
    Config {
        name: journal_name(&options.prefix),
        subjects: vec![subject::journal(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: JOURNAL_AGE,
        max_bytes: i64::try_from(options.max_bytes.min(JOURNAL_BYTES)).unwrap_or(i64::MAX),
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

fn jobs(options: &NatsOptions) -> Config {
    Config {
        name: jobs_name(&options.prefix),
        subjects: vec![subject::all_jobs(&options.prefix)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        // Nobody waits any more for what is older, and it would take the room of others.
        max_age: OUTBOUND_DEADLINE_MAX,
        duplicate_window: OUT_DUPLICATES,
        ..common(options)
    }
}

/// Whether a stream is surely not there. A server that is busy with itself, choosing a leader for one, may say of a
/// publish that nobody is there for it.
pub(super) async fn is_gone(context: &Context, name: &str) -> bool {
    matches!(context.get_stream(name).await, Err(error) if is_missing(&error))
}

/// Live text may be lost: it is in memory, and nobody waits for it to be stored. It has as many replicas as what may
/// not: with one, nobody could watch a job, and no worker start, while a server of a cluster is away.
fn live(options: &NatsOptions) -> Config {
    Config {
        name: live_name(&options.prefix),
        subjects: vec![subject::all_live(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::Memory,
        max_age: LIVE_AGE,
        max_bytes: LIVE_BYTES,
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

/// Alarms of timers: those to come on one subject for each timer, and those that ring until a worker has
/// looked. Old ones are never in the way, so there is no limit that could push out one to come.
fn timers(options: &NatsOptions) -> Config {
    Config {
        name: timers_name(&options.prefix),
        subjects: vec![subject::all_scheduled(&options.prefix), subject::all_due(&options.prefix)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        max_bytes: -1,
        allow_message_schedules: true,
        duplicate_window: SHORTEST_WINDOW,
        ..common(options)
    }
}

fn common(options: &NatsOptions) -> Config {
    Config {
        storage: StorageType::File,
        num_replicas: options.replicas,
        max_bytes: i64::try_from(options.max_bytes).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_message_size: -1,
        max_consumers: -1,
        ..Config::default()
    }
}

fn consumer(options: &NatsOptions) -> pull::Config {
    pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        // No filter: a stream of an earlier version has messages on other subjects, too.
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        // The store counts crashes; a message at a delivery limit would stay and never be delivered.
        max_deliver: -1,
        max_ack_pending: MAX_ACK_PENDING,
        max_waiting: MAX_WAITING,
        ..pull::Config::default()
    }
}

fn timer_consumer(options: &NatsOptions) -> pull::Config {
    pull::Config {
        durable_name: Some(TIMER_CONSUMER.to_owned()),
        filter_subject: subject::all_due(&options.prefix),
        ..consumer(options)
    }
}

async fn ensure_stream(context: &Context, (bus, prefix): (&str, &str), wanted: Config) -> Result<Stream, BusOpenError> {
    let name = wanted.name.clone();
    let existing = match context.get_stream(&name).await {
        Ok(stream) => stream,
        Err(error) if is_missing(&error) => {
            // Another process may make it at the same moment: the same request twice is one stream.
            return context.create_stream(wanted).await.map_err(|error| make_failed(bus, &name, &error));
        }
        Err(error) => return Err(get_failed(bus, &name, &error)),
    };
    let actual = existing.cached_info().config.clone();
    if let Some(reason) = difference(&actual, &wanted) {
        return Err(BusOpenError::Incompatible { bus: bus.to_owned(), stream: name, reason });
    }
    // What an operator added (placement, compression, …) stays.
    let updated = Config {
        subjects: subject::beside(prefix, &wanted.subjects, &actual.subjects),
        discard: wanted.discard,
        num_replicas: wanted.num_replicas,
        max_bytes: wanted.max_bytes,
        max_age: wanted.max_age,
        duplicate_window: wanted.duplicate_window,
        allow_message_schedules: wanted.allow_message_schedules,
        ..actual.clone()
    };
    if updated == actual {
        return Ok(existing);
    }
    if let Err(error) = context.update_stream(&updated).await {
        let only_subjects = Config { subjects: actual.subjects.clone(), ..updated } == actual;
        if !only_subjects {
            return Err(make_failed(bus, &name, &error));
        }
        // It takes more than it should: what nobody understands is recorded, and `doctor` says so.
        tracing::warn!("NATS at `{bus}`: stream `{name}` keeps its subjects: {}", chain(&error));
        return Ok(existing);
    }
    if updated.num_replicas != actual.num_replicas {
        let (from, to) = (actual.num_replicas, updated.num_replicas);
        tracing::info!("NATS at `{bus}`: stream `{name}` has {to} replicas from now on, it had {from}");
    }
    context.get_stream(&name).await.map_err(|error| get_failed(bus, &name, &error))
}

/// What can't be changed by an update and breaks a guarantee.
fn difference(actual: &Config, wanted: &Config) -> Option<String> {
    let differs = |what: &str, expected: String, got: String| Some(format!("expected {what} {expected}, got {got}"));
    if actual.retention != wanted.retention {
        return differs("retention", format!("{:?}", wanted.retention), format!("{:?}", actual.retention));
    }
    if actual.storage != wanted.storage {
        return differs("storage", format!("{:?}", wanted.storage), format!("{:?}", actual.storage));
    }
    if actual.sealed || actual.no_ack {
        return differs("a writable stream with acknowledgements", String::new(), "a sealed or silent one".to_owned());
    }
    if wanted.retention == RetentionPolicy::WorkQueue && actual.allow_message_ttl {
        return differs("no message TTL", "(it deletes accepted work)".to_owned(), "`allow_msg_ttl`".to_owned());
    }
    // The target of a schedule may be a subject that its publisher may not publish to.
    if actual.allow_message_schedules && !wanted.allow_message_schedules {
        return differs(
            "no schedules",
            "(they reach other owners' subjects)".to_owned(),
            "`allow_msg_schedules`".to_owned(),
        );
    }
    None
}

pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
