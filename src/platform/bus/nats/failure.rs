//! Errors of opening the queue.

use crate::domain::identity::BusOwner;

/// Why the bus can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum BusOpenError {
    /// No server answered within the policy's time, or the server refuses the credentials.
    #[error("can't connect to NATS at `{bus}`: {reason}")]
    Connect {
        /// Address of the queue, without credentials.
        bus: String,
        /// Error of the driver, in words.
        reason: String,
    },
    /// The server's version is too old.
    #[error("NATS at `{bus}`: expected version 2.12 or newer, got {version}")]
    Version {
        /// Address of the queue, without credentials.
        bus: String,
        /// Version of the server.
        version: String,
    },
    /// The queue belongs to another store.
    #[error(
        "NATS at `{bus}` belongs to another store: its stream `{stream}` was made for {owner}, and this process works on {own}; set the `store.url` and `store.prefix` of that store, or another `bus.prefix` or `bus.url`; if that store is gone for good, start one process with `venue.adopt = true`"
    )]
    ForeignStore {
        /// Address of the queue, without credentials.
        bus: String,
        /// Name of the stream whose metadata name the store.
        stream: String,
        /// The store that the queue belongs to.
        owner: Box<BusOwner>,
        /// The store of this process.
        own: Box<BusOwner>,
    },
    /// A stream of this name has other settings.
    #[error(
        "NATS at `{bus}`: stream `{stream}` can't be used: {reason}; use another `bus.prefix`, or delete it when nothing in it matters"
    )]
    Incompatible {
        /// Address of the queue, without credentials.
        bus: String,
        /// Name of the stream.
        stream: String,
        /// The settings that differ, in words.
        reason: String,
    },
    /// A consumer has other settings, or is a stranger's that takes messages of workers.
    #[error(
        "NATS at `{bus}`: consumer `{consumer}` of stream `{stream}` can't stay: {reason}; delete it (`nats consumer rm {stream} {consumer}`): messages stay, and a worker makes its own anew"
    )]
    Consumer {
        /// Address of the queue, without credentials.
        bus: String,
        /// Name of its stream.
        stream: String,
        /// Name of the consumer.
        consumer: String,
        /// The settings that differ, in words.
        reason: String,
    },
    /// A cluster can't create a stream or consumer while too few of its servers are up.
    #[error("NATS at `{bus}`: stream `{stream}` can't be set up yet: {reason}")]
    NotYet {
        /// Address of the queue, without credentials.
        bus: String,
        /// Name of the stream.
        stream: String,
        /// Error of the server in words, and what the cluster lacks.
        reason: String,
        /// Whether the server gave no answer at all.
        is_silent: bool,
    },
    /// The server refuses to create a stream or consumer, e.g. because `JetStream` is off or full.
    #[error("NATS at `{bus}`: can't set up stream `{stream}`: {reason}")]
    Setup {
        /// Address of the queue, without credentials.
        bus: String,
        /// Name of the stream.
        stream: String,
        /// Error of the server, in words.
        reason: String,
    },
}
