//! The streams and consumers, created or checked at the start.

use super::differences::{self, Consequence, Difference};
use super::expected::{self, epoch, events, inbound_of, jobs, journal, live, outbound, protection, timers};
use super::inbound::{InboundStream, partition_streams};
use super::options::NatsOptions;
use super::{BusOpenError, ownership};
use crate::bus::error_chain;
use async_nats::jetstream::{
    Context, ErrorCode,
    consumer::{self as js_consumer, FromConsumer, IntoConsumerConfig, PullConsumer, pull},
    context::{
        ConsumerInfoErrorKind, CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
        RequestError, RequestErrorKind,
    },
    stream::{Config, ConsumerError, ConsumerErrorKind, Stream},
};
use futures::StreamExt;
use std::error::Error;

/// Most partitions that `bus.partitions` allows.
const MOST_PARTITIONS: usize = 64;

/// Most foreign consumers that are named.
const STRANGERS_NAMED: usize = 3;

/// Name of the consumer that all workers share.
pub(super) const CONSUMER: &str = "workers";

/// Returns the name of the inbound stream, or of a partition of it.
pub(super) fn inbound_name(prefix: &str, part: Option<usize>) -> String {
    let all = prefix.to_uppercase();
    part.map_or_else(|| all.clone(), |part| format!("{all}_PART_{part}"))
}

/// Returns the name of the stream of completions.
pub(super) fn outbound_name(prefix: &str) -> String {
    format!("{}_OUT", prefix.to_uppercase())
}

/// Returns the name of the stream of notifications.
pub(super) fn events_name(prefix: &str) -> String {
    format!("{}_EVENTS", prefix.to_uppercase())
}

/// Name of the consumer of due timers that all workers share.
pub(super) const TIMER_CONSUMER: &str = "timers";

/// Returns the name of the stream of timers.
pub(super) fn timers_name(prefix: &str) -> String {
    format!("{}_TIMERS", prefix.to_uppercase())
}

/// Returns the name of the stream of jobs for external workers.
pub(super) fn jobs_name(prefix: &str) -> String {
    format!("{}_JOBS", prefix.to_uppercase())
}

/// Returns the name of the stream of live text.
pub(super) fn live_name(prefix: &str) -> String {
    format!("{}_LIVE", prefix.to_uppercase())
}

/// Returns the names of all streams but the inbound ones, with the consumer that workers share.
pub(super) fn other_streams(prefix: &str) -> [(String, Option<&'static str>); 8] {
    [
        (outbound_name(prefix), None),
        (events_name(prefix), None),
        (live_name(prefix), None),
        (timers_name(prefix), Some(TIMER_CONSUMER)),
        (jobs_name(prefix), None),
        (epoch_name(prefix), None),
        (protection_name(prefix), None),
        (journal_name(prefix), None),
    ]
}

/// Creates or updates the streams and consumers; returns the streams of messages to agents. One that can't be put right
/// keeps none of the others from it.
pub(super) async fn ensure(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
) -> Result<Vec<InboundStream>, BusOpenError> {
    check_owner(context, bus, options).await?;
    // Boxed for callers whose futures would be too large for a stack.
    Box::pin(ensure_each(context, bus, options)).await
}

async fn ensure_each(context: &Context, bus: &str, options: &NatsOptions) -> Result<Vec<InboundStream>, BusOpenError> {
    let (mut all, mut first) = (Vec::new(), None);
    for wanted in [outbound(options), events(options), live(options)] {
        keep_incompatible(&mut first, ensure_stream(context, bus, options, wanted).await)?;
    }
    keep_incompatible(&mut first, ensure_timers(context, bus, options).await)?;
    for wanted in [jobs(options), epoch(options), protection(options), journal(options)] {
        keep_incompatible(&mut first, ensure_stream(context, bus, options, wanted).await)?;
    }
    all.extend(keep_incompatible(&mut first, ensure_inbound(context, bus, options, None).await)?);
    for part in 0.. {
        if part >= partition_streams(options.partitions) && !partition_exists(context, bus, options, part).await? {
            break;
        }
        all.extend(keep_incompatible(&mut first, ensure_inbound(context, bus, options, Some(part)).await)?);
    }
    first.map_or(Ok(all), Err)
}

/// Returns a stream that was ensured. Of the errors of streams that can't be put right the first is kept.
fn keep_incompatible<T>(
    first: &mut Option<BusOpenError>,
    ensured: Result<T, BusOpenError>,
) -> Result<Option<T>, BusOpenError> {
    match ensured {
        Err(error @ BusOpenError::Incompatible { .. }) => {
            first.get_or_insert(error);
            Ok(None)
        }
        ensured => ensured.map(Some),
    }
}

/// Checks that the queue doesn't belong to another store, before anything is changed.
async fn check_owner(context: &Context, bus: &str, options: &NatsOptions) -> Result<(), BusOpenError> {
    let name = inbound_name(&options.prefix, None);
    match context.get_stream(&name).await {
        Ok(stream) => ownership::check(bus, &stream.cached_info().config, options),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(get_error(bus, &name, &error)),
    }
}

/// Returns the inbound streams that exist; creates nothing.
pub(super) async fn find_inbound(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
) -> Result<Vec<InboundStream>, BusOpenError> {
    let mut all = Vec::new();
    for part in std::iter::once(None).chain((0..MOST_PARTITIONS).map(Some)) {
        let name = inbound_name(&options.prefix, part);
        let stream = match context.get_stream(&name).await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error) && part.is_none() => continue,
            Err(_) if part.is_some() => break,
            Err(error) => return Err(get_error(bus, &name, &error)),
        };
        if let Ok(consumer) = stream.get_consumer(CONSUMER).await {
            all.push(InboundStream { part, stream, consumer });
        }
    }
    Ok(all)
}

/// Whether a partition exists beyond the configured ones: its messages are received, too.
async fn partition_exists(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
    part: usize,
) -> Result<bool, BusOpenError> {
    let name = inbound_name(&options.prefix, Some(part));
    match context.get_stream(&name).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        // A configuration without partitions doesn't need the right to ask.
        Err(_) if options.partitions == 1 && part == 0 => Ok(false),
        Err(error) => Err(get_error(bus, &name, &error)),
    }
}

async fn ensure_inbound(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
    part: Option<usize>,
) -> Result<InboundStream, BusOpenError> {
    let stream = ensure_stream(context, bus, options, inbound_of(options, part)).await?;
    // Two stores may have created it at the same moment.
    ownership::check(bus, &stream.cached_info().config, options)?;
    let consumer = ensure_consumer(&stream, bus, expected::consumer(options)).await?;
    Ok(InboundStream { part, stream, consumer })
}

/// Creates or updates the stream of timers and its consumer.
pub(super) async fn ensure_timers(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
) -> Result<PullConsumer, BusOpenError> {
    let stream = ensure_stream(context, bus, options, timers(options)).await?;
    ensure_consumer(&stream, bus, expected::timer_consumer(options)).await
}

/// Creates or updates the shared consumer of a stream. Any other consumer would take messages that workers never get.
async fn ensure_consumer(stream: &Stream, bus: &str, wanted: pull::Config) -> Result<PullConsumer, BusOpenError> {
    let name = wanted.durable_name.clone().unwrap_or_default();
    let unfit = |reason: String| BusOpenError::Consumer {
        bus: bus.to_owned(),
        stream: stream.cached_info().config.name.clone(),
        consumer: name.clone(),
        reason,
    };
    let found =
        find_consumer_config(stream, &name).await.map_err(|error| consumer_error(stream, bus, &name, &error))?;
    let own = usize::from(found.is_some());
    if stream.cached_info().state.consumer_count > own {
        check_foreign_consumers(stream, bus, &name).await?;
    }
    let wanted = match found {
        None => wanted,
        Some(found) => {
            let all = differences::compare_consumers(&found, &wanted.into_consumer_config());
            if let Some(reason) = differences::describe_fatal(&all) {
                return Err(unfit(reason));
            }
            log_differences(bus, &format!("consumer `{name}` of stream `{}`", stream.cached_info().config.name), &all);
            if found.pause_until.is_some() {
                // An update doesn't end a pause.
                let resumed = stream.resume_consumer(&name).await;
                resumed.map_err(|error| consumer_error(stream, bus, &name, &error))?;
            }
            let mended = differences::repaired_settings(&found, &all).map_err(|error| unfit(error.to_string()))?;
            pull::Config::try_from_consumer_config(mended).map_err(|error| unfit(error.to_string()))?
        }
    };
    stream.create_consumer(wanted).await.map_err(|error| consumer_error(stream, bus, &name, &error))
}

fn consumer_error(stream: &Stream, bus: &str, name: &str, error: &ConsumerError) -> BusOpenError {
    let refusal = match error.kind() {
        ConsumerErrorKind::JetStream(answer) => StreamRefusal::Code(answer.error_code()),
        ConsumerErrorKind::TimedOut => StreamRefusal::Silence,
        _ => StreamRefusal::Other,
    };
    refusal.into_error(bus, &stream.cached_info().config.name, format!("consumer `{name}`: {}", error_chain(error)))
}

/// Returns the settings of a consumer; `None` if it doesn't exist.
pub(super) async fn find_consumer_config(
    stream: &Stream,
    name: &str,
) -> Result<Option<js_consumer::Config>, ConsumerError> {
    match stream.consumer_info(name).await {
        Ok(info) => Ok(Some(info.config)),
        Err(error) => match error.kind() {
            ConsumerInfoErrorKind::NotFound => Ok(None),
            ConsumerInfoErrorKind::TimedOut => Err(ConsumerErrorKind::TimedOut.into()),
            ConsumerInfoErrorKind::JetStream(answer) => Err(ConsumerErrorKind::JetStream(answer).into()),
            _ => Err(ConsumerError::with_source(ConsumerErrorKind::Other, error)),
        },
    }
}

/// Returns consumers beside the workers' of a stream that gives each message to only one of them.
pub(super) async fn foreign_consumers(stream: &Stream, own: &str) -> Vec<String> {
    // Stops at an error: the driver would ask again and again.
    let names = stream.consumer_names().take_while(|name| std::future::ready(name.is_ok()));
    let names = names.filter_map(|name| std::future::ready(name.ok()));
    names.filter(|name| std::future::ready(name != own)).take(STRANGERS_NAMED).collect().await
}

async fn check_foreign_consumers(stream: &Stream, bus: &str, own: &str) -> Result<(), BusOpenError> {
    let Some(consumer) = foreign_consumers(stream, own).await.into_iter().next() else { return Ok(()) };
    let (bus, stream) = (bus.to_owned(), stream.cached_info().config.name.clone());
    Err(BusOpenError::Consumer {
        bus,
        stream,
        consumer,
        reason: "it takes messages that no worker gets then".to_owned(),
    })
}

/// Logs what was set back, and what can't be.
fn log_differences(bus: &str, what: &str, all: &[Difference]) {
    for difference in all {
        match difference.consequence {
            Consequence::Configured => tracing::info!("NATS at `{bus}`: {what}: {difference}; it is set"),
            Consequence::Repaired(_) => tracing::warn!(
                "NATS at `{bus}`: {what} was changed: {difference}; it is put right, and what it has done meanwhile isn't: see `trellis audit`"
            ),
            Consequence::Reported(_) | Consequence::Fatal(_) => {
                tracing::warn!("NATS at `{bus}`: {what}: {difference}; it stays so");
            }
        }
    }
}

/// Why a server refuses a request for a stream.
enum StreamRefusal {
    /// The error code of its answer.
    Code(ErrorCode),
    /// The server doesn't answer.
    Silence,
    Other,
}

impl StreamRefusal {
    fn into_error(self, bus: &str, stream: &str, reason: String) -> BusOpenError {
        let (bus, stream, is_silent) = (bus.to_owned(), stream.to_owned(), matches!(self, Self::Silence));
        match self {
            Self::Silence
            | Self::Code(
                ErrorCode::CLUSTER_NOT_AVAILABLE
                | ErrorCode::CLUSTER_NOT_LEADER
                | ErrorCode::CLUSTER_NOT_ACTIVE
                | ErrorCode::CLUSTER_NOT_ASSIGNED
                | ErrorCode::CLUSTER_INCOMPLETE,
            ) => {
                let reason = format!("{reason}; most servers of the cluster must be up");
                BusOpenError::NotYet { bus, stream, reason, is_silent }
            }
            Self::Code(ErrorCode::CLUSTER_NO_PEERS) => {
                let reason = format!("{reason}; `bus.replicas` needs so many servers that are up and have room");
                BusOpenError::NotYet { bus, stream, reason, is_silent }
            }
            Self::Code(ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED) => {
                let reason = format!(
                    "{reason}; set `bus.replicas = 1`, or run three servers as a cluster (config/nats-cluster.conf)"
                );
                BusOpenError::Setup { bus, stream, reason }
            }
            Self::Code(_) | Self::Other => BusOpenError::Setup { bus, stream, reason },
        }
    }
}

fn get_error(bus: &str, stream: &str, error: &GetStreamError) -> BusOpenError {
    let silent = error.source().and_then(|source| source.downcast_ref::<RequestError>());
    let refusal = match error.kind() {
        GetStreamErrorKind::JetStream(answer) => StreamRefusal::Code(answer.error_code()),
        _ if silent.is_some_and(|request| request.kind() == RequestErrorKind::TimedOut) => StreamRefusal::Silence,
        _ => StreamRefusal::Other,
    };
    refusal.into_error(bus, stream, error_chain(error))
}

fn create_error(bus: &str, stream: &str, error: &CreateStreamError) -> BusOpenError {
    let refusal = match error.kind() {
        CreateStreamErrorKind::JetStream(answer) => StreamRefusal::Code(answer.error_code()),
        CreateStreamErrorKind::TimedOut => StreamRefusal::Silence,
        _ => StreamRefusal::Other,
    };
    refusal.into_error(bus, stream, error_chain(error))
}

/// Returns the name of the stream of the store's epoch.
pub(super) fn epoch_name(prefix: &str) -> String {
    format!("{}_EPOCH", prefix.to_uppercase())
}

/// Returns the name of the stream of protective records.
pub(super) fn protection_name(prefix: &str) -> String {
    format!("{}_PROTECTION", prefix.to_uppercase())
}

/// Returns the name of the stream of the journal.
pub(super) fn journal_name(prefix: &str) -> String {
    format!("{}_JOURNAL", prefix.to_uppercase())
}

/// Whether a stream doesn't exist. A server that elects a leader may answer a publish as if there were no stream.
pub(super) async fn is_gone(context: &Context, name: &str) -> bool {
    matches!(context.get_stream(name).await, Err(error) if is_missing(&error))
}

async fn ensure_stream(
    context: &Context,
    bus: &str,
    options: &NatsOptions,
    wanted: Config,
) -> Result<Stream, BusOpenError> {
    let name = wanted.name.clone();
    let existing = match context.get_stream(&name).await {
        Ok(stream) => stream,
        Err(error) if is_missing(&error) => {
            // Another process may create it at the same moment: the same request twice makes one stream.
            return context.create_stream(wanted).await.map_err(|error| create_error(bus, &name, &error));
        }
        Err(error) => return Err(get_error(bus, &name, &error)),
    };
    let actual = existing.cached_info().config.clone();
    if !wanted.metadata.is_empty() {
        // Another store may have created it a moment ago.
        ownership::check(bus, &actual, options)?;
    }
    let incompatible = |reason| BusOpenError::Incompatible { bus: bus.to_owned(), stream: name.clone(), reason };
    let all = differences::compare_streams(&options.prefix, &actual, &wanted);
    if let Some(reason) = differences::describe_fatal(&all) {
        return Err(incompatible(reason));
    }
    // What an operator added (placement, compression, …) stays.
    let mut updated = differences::repaired_settings(&actual, &all).map_err(|error| incompatible(error.to_string()))?;
    updated.metadata.extend(wanted.metadata.clone());
    if updated == actual {
        return Ok(existing);
    }
    if let Err(error) = context.update_stream(&updated).await {
        let (subjects, metadata) = (actual.subjects.clone(), actual.metadata.clone());
        let only_said = Config { subjects, metadata, ..updated } == actual;
        if !only_said {
            return Err(create_error(bus, &name, &error));
        }
        // The stream stores too many subjects: unknown ones are recorded, and `doctor` reports it.
        tracing::warn!("NATS at `{bus}`: stream `{name}` keeps its subjects and metadata: {}", error_chain(&error));
        return Ok(existing);
    }
    log_differences(bus, &format!("stream `{name}`"), &all);
    context.get_stream(&name).await.map_err(|error| get_error(bus, &name, &error))
}

pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
