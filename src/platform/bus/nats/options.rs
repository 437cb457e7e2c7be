//! Options of a connection, and its constants.

use crate::bus::credentials::NatsFiles;
use crate::config::Config;
use crate::domain::identity::BusOwner;
use crate::process::retry::RetryPolicy;
use crate::process::telemetry::Metrics;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for an answer of the server; then it is unknown whether a publish happened.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of pings: a peer that answers none for twice as long is gone. The driver's default is a minute.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);

/// Options of a connection to NATS, and the settings of its streams.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// One or more of `nats://[user:password@]host:port`, separated by commas.
    pub url: String,
    /// Files with certificates and credentials.
    pub files: NatsFiles,
    /// First token of every subject; in capitals the name of the streams.
    pub prefix: String,
    /// Number of copies of every stream.
    pub replicas: usize,
    /// Number of streams over which messages to agents are spread; 1 = one stream.
    pub partitions: usize,
    /// Time for which completions stay readable.
    pub out_max_age: Duration,
    /// Size limit of each stream, in bytes.
    pub max_bytes: u64,
    /// URL of the server's monitoring port.
    pub monitor: Option<String>,
    /// Time after which an unacknowledged message is delivered again; the lease of a session.
    pub ack_wait: Duration,
    /// Longest wait of [`Bus::receive`](crate::bus::Bus::receive) for the first message.
    pub poll: Duration,
    /// Retries of the first connection.
    pub connect: RetryPolicy,
    /// Counters of unreadable messages.
    pub metrics: Arc<Metrics>,
    /// The store that the queue must belong to; `None` compares nothing.
    pub owner: Option<BusOwner>,
    /// Whether the queue is taken from another store.
    pub adopt: bool,
    /// Whether nothing is created or changed.
    pub reads_only: bool,
}

impl NatsOptions {
    /// Returns the options of `config` for the NATS servers at `url`.
    pub fn new(config: &Config, url: &str, connect: RetryPolicy, metrics: Arc<Metrics>) -> Self {
        Self {
            url: url.to_owned(),
            files: NatsFiles { tls: config.bus.tls.clone(), creds: config.bus.creds_file.clone() },
            prefix: config.bus.prefix.clone(),
            replicas: config.bus.replicas,
            partitions: config.bus.partitions,
            out_max_age: config.bus.out_max_age,
            max_bytes: config.bus.max_bytes,
            monitor: config.bus.monitor.clone(),
            ack_wait: config.worker.lease,
            poll: config.worker.poll,
            connect,
            metrics,
            owner: None,
            adopt: config.venue.adopt,
            reads_only: false,
        }
    }
}
