//! The expected settings of each stream and shared consumer.

use super::super::subject;
use super::inbound::partition_streams;
use super::options::NatsOptions;
use super::ownership;
use super::streams::{
    CONSUMER, TIMER_CONSUMER, epoch_name, events_name, inbound_name, jobs_name, journal_name, live_name, outbound_name,
    protection_name, timers_name,
};
use crate::domain::limits::OUTBOUND_DEADLINE_MAX;
use async_nats::jetstream::{
    consumer::{AckPolicy, DeliverPolicy, pull},
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};
use std::time::Duration;

/// Window of duplicates of a stream that others publish to: the shortest that a server accepts (0 means its default of
/// two minutes). All owners share the ids of such a stream, and one owner's `Nats-Msg-Id` drops another's message
/// within the window. The store deduplicates, by owner.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

/// Window of duplicates of a stream that only the venue publishes to. Its ids are made with the venue's key, and can't
/// be known before their message is stored: a republish after a crash is stored once.
const OUT_DUPLICATES: Duration = Duration::from_mins(10);

/// Running turns of the whole fleet plus delayed ones; the server's default of 1000 would cap the fleet.
const MAX_ACK_PENDING: i64 = 100_000;

/// Requests for messages waiting at the same time: one per worker process, with room.
const MAX_WAITING: i64 = 4096;

/// Time for which live text can be read again: a watcher whose connection broke is back in seconds.
const LIVE_AGE: Duration = Duration::from_mins(10);

/// Bytes of live text that are kept, in memory.
const LIVE_BYTES: i64 = 64 * 1024 * 1024;

/// Notifications of one agent and kind that are kept.
const EVENTS_PER_SUBJECT: i64 = 200;

/// Most bytes of notifications.
const EVENTS_BYTES: u64 = 256 << 20;

/// Time for which the journal keeps a change: longer than a store's disk or replicas lag behind its answers.
const JOURNAL_AGE: Duration = Duration::from_hours(1);

/// Most bytes of the journal, enough for a million changes.
const JOURNAL_BYTES: u64 = 256 << 20;

/// Returns every stream that a start creates, with the consumer that workers share.
pub(super) fn all_streams(options: &NatsOptions) -> Vec<(Config, Option<pull::Config>)> {
    let spread = (0..partition_streams(options.partitions)).map(Some);
    let inbound = std::iter::once(None).chain(spread);
    let mut all: Vec<_> = inbound.map(|part| (inbound_of(options, part), Some(consumer(options)))).collect();
    all.push((timers(options), Some(timer_consumer(options))));
    all.extend([outbound, events, jobs, live, epoch, protection, journal].map(|config| (config(options), None)));
    all
}

pub(super) fn inbound_of(options: &NatsOptions, part: Option<usize>) -> Config {
    let prefix = &options.prefix;
    Config {
        name: inbound_name(prefix, part),
        subjects: subject::inbound_patterns(prefix, part),
        retention: RetentionPolicy::WorkQueue,
        // Accepted work must never be dropped to make room: new work is refused.
        discard: DiscardPolicy::New,
        duplicate_window: SHORTEST_WINDOW,
        metadata: options.owner.as_ref().map(ownership::metadata).unwrap_or_default(),
        ..common(options)
    }
}

pub(super) fn outbound(options: &NatsOptions) -> Config {
    Config {
        name: outbound_name(&options.prefix),
        subjects: vec![subject::all_outbound(&options.prefix)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: options.out_max_age,
        // The server refuses a window that is longer than the age.
        duplicate_window: OUT_DUPLICATES.min(options.out_max_age),
        allow_atomic_publish: true,
        ..common(options)
    }
}

/// Returns the stream of notifications, apart from that of completions: neither takes room from the other. They are
/// kept as long as those; of one agent and kind only the newest, so that it doesn't push out those of others.
pub(super) fn events(options: &NatsOptions) -> Config {
    Config {
        name: events_name(&options.prefix),
        subjects: vec![subject::all_events(&options.prefix)],
        max_messages_per_subject: EVENTS_PER_SUBJECT,
        max_bytes: i64::try_from(options.max_bytes.min(EVENTS_BYTES)).unwrap_or(i64::MAX),
        ..outbound(options)
    }
}

/// Returns the stream of one message, the mark of the store's epoch.
pub(super) fn epoch(options: &NatsOptions) -> Config {
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

/// Returns the stream with one message per protected thing. None makes room for another: a refused record is an error
/// for its caller.
pub(super) fn protection(options: &NatsOptions) -> Config {
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

/// Returns the stream of batches of names of acknowledged changes. Readers get how far back it reaches.
pub(super) fn journal(options: &NatsOptions) -> Config {
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

pub(super) fn jobs(options: &NatsOptions) -> Config {
    Config {
        name: jobs_name(&options.prefix),
        subjects: vec![subject::all_jobs(&options.prefix)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        // No session waits for older jobs, and they would take the room of others.
        max_age: OUTBOUND_DEADLINE_MAX,
        duplicate_window: OUT_DUPLICATES,
        ..common(options)
    }
}

/// Returns the stream of live text, which may be lost: it is in memory, and no publisher waits until it is stored. It
/// has as many replicas as the other streams: with one, no job could be watched, and no worker start, while a server of
/// a cluster is away.
pub(super) fn live(options: &NatsOptions) -> Config {
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

/// Returns the stream of timers' alarms: future ones on one subject per timer, and ringing ones until a worker has
/// handled them. Old ones need no space of others, so there is no limit that could push out a future one.
pub(super) fn timers(options: &NatsOptions) -> Config {
    Config {
        name: timers_name(&options.prefix),
        subjects: vec![subject::all_scheduled(&options.prefix), subject::all_due(&options.prefix)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        max_bytes: -1,
        allow_message_schedules: true,
        // The server requires it for schedules.
        allow_rollup: true,
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

pub(super) fn consumer(options: &NatsOptions) -> pull::Config {
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

pub(super) fn timer_consumer(options: &NatsOptions) -> pull::Config {
    pull::Config {
        durable_name: Some(TIMER_CONSUMER.to_owned()),
        filter_subject: subject::all_due(&options.prefix),
        ..consumer(options)
    }
}
