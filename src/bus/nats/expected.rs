//! What each stream and shared consumer must be like.

use super::super::subject;
use super::partitions::spread_over;
use super::streams::{
    CONSUMER, TIMER_CONSUMER, epoch_name, inbound_name, jobs_name, journal_name, live_name, outbound_name,
    protection_name, timers_name,
};
use super::{NatsOptions, ownership};
use crate::domain::limits::OUTBOUND_DEADLINE_MAX;
use async_nats::jetstream::{
    consumer::{AckPolicy, DeliverPolicy, pull},
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};
use std::time::Duration;

/// Window of a stream that strangers publish to: the shortest that a server takes (0 means its default of two minutes).
/// All owners share the ids of such a stream, and one owner's `Nats-Msg-Id` drops another's message while the window
/// lasts. The store deduplicates, by owner.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

/// Window of a stream that only the venue publishes to. Its ids are made with the venue's key, and nobody knows one
/// before its message is stored: a republish after a crash is seen once.
const OUT_DUPLICATES: Duration = Duration::from_mins(10);

/// Running turns of the whole fleet plus delayed ones; the server's default of 1000 would cap the
/// fleet.
const MAX_ACK_PENDING: i64 = 100_000;

/// Requests for work waiting at the same time: one for each worker process, with room.
const MAX_WAITING: i64 = 4096;

/// How long live text can be read again: a watcher whose connection broke is back in seconds.
const LIVE_AGE: Duration = Duration::from_mins(10);

/// Bytes of live text that are kept, in memory.
const LIVE_BYTES: i64 = 64 * 1024 * 1024;

/// How long the journal tells of a change: longer than a store's disk or replicas lag behind its answers.
const JOURNAL_AGE: Duration = Duration::from_hours(1);

/// Bytes of the journal, at most: a million changes and more.
const JOURNAL_BYTES: u64 = 256 << 20;

/// Every stream that a start makes, with the consumer that workers share.
pub(super) fn all_streams(options: &NatsOptions) -> Vec<(Config, Option<pull::Config>)> {
    let spread = (0..spread_over(options.partitions)).map(Some);
    let inbound = std::iter::once(None).chain(spread);
    let mut all: Vec<_> = inbound.map(|part| (inbound_of(options, part), Some(consumer(options)))).collect();
    all.push((timers(options), Some(timer_consumer(options))));
    all.extend([outbound, jobs, live, epoch, protection, journal].map(|config| (config(options), None)));
    all
}

pub(super) fn inbound_of(options: &NatsOptions, part: Option<usize>) -> Config {
    let prefix = &options.prefix;
    Config {
        name: inbound_name(prefix, part),
        subjects: subject::inbound(prefix, part),
        retention: RetentionPolicy::WorkQueue,
        // Never drop accepted work to make room: refuse new work.
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
        ..common(options)
    }
}

/// Keeps one message, the epoch of the store.
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

/// One message for each thing. None makes room for another: a record that isn't taken is an error that its caller meets.
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

/// Batches of names of acknowledged changes. Who reads it is told how far back it reaches.
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
        // Nobody waits any more for what is older, and it would take the room of others.
        max_age: OUTBOUND_DEADLINE_MAX,
        duplicate_window: OUT_DUPLICATES,
        ..common(options)
    }
}

/// Live text may be lost: it is in memory, and nobody waits for it to be stored. It has as many replicas as what may
/// not: with one, nobody could watch a job, and no worker start, while a server of a cluster is away.
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

/// Alarms of timers: those to come on one subject for each timer, and those that ring until a worker has
/// looked. Old ones are never in the way, so there is no limit that could push out one to come.
pub(super) fn timers(options: &NatsOptions) -> Config {
    Config {
        name: timers_name(&options.prefix),
        subjects: vec![subject::all_scheduled(&options.prefix), subject::all_due(&options.prefix)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        max_bytes: -1,
        allow_message_schedules: true,
        // A server sets it with schedules.
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
