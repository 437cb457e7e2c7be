//! Options by which a store over Redis is opened.

use super::servers::RedisTls;
use crate::domain::shard::Shards;

/// The clock that decides about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOrInjected {
    /// The server's own, for the leases of a fleet whose clocks differ.
    Server,
    /// The `now` of each call, for tests.
    Injected,
}

/// Options of [`super::RedisStore::open`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis[s]://[user:password@]host:port/db`, or `redis[s]+cluster://[user:password@]host:port,host:port`.
    pub url: String,
    /// Certificates, if the URL says TLS.
    pub tls: Option<RedisTls>,
    /// Start of all keys.
    pub prefix: String,
    /// Number of connections: with several, one fsync of the server covers the commits of all of them.
    pub connections: usize,
    /// Replicas that must confirm a change before it is answered.
    pub wait_replicas: u32,
    /// Whether calls wait for a replica to become the primary; else they fail within some seconds.
    pub waits_for_failover: bool,
    /// The clock that decides about time.
    pub clock: ServerOrInjected,
    /// Whether nothing is written and no function loaded: reads use plain commands where there is one, or fail.
    pub reads_only: bool,
    /// Number of shards that owners are divided into: fixed with the first key that is written.
    pub shards: Shards,
}

impl RedisOptions {
    /// Returns options with prefix `trellis`, 8 connections, no replicas to wait for, the server's clock and 256
    /// shards.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: None,
            wait_replicas: 0,
            waits_for_failover: true,
            prefix: "trellis".to_owned(),
            connections: 8,
            clock: ServerOrInjected::Server,
            reads_only: false,
            shards: Shards::default(),
        }
    }
}
