//! How a store over Redis is opened.

use super::servers::RedisTls;
use crate::domain::shard::Shards;

/// Which clock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOrInjected {
    /// The server's own, for leases of a fleet whose clocks differ.
    Server,
    /// The `now` of each call, for tests.
    Injected,
}

/// How to open a [`super::RedisStore`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis[s]://[user:password@]host:port/db`, or `redis[s]+cluster://[user:password@]host:port,host:port`.
    pub url: String,
    /// Certificates, where the URL says TLS.
    pub tls: Option<RedisTls>,
    /// All keys start with it.
    pub prefix: String,
    /// Connections: with several, one fsync of the server covers the commits of all of them.
    pub connections: usize,
    /// Replicas that must have a change before it is answered.
    pub wait_replicas: u32,
    /// Calls wait for a cluster to make a replica the primary; else they fail in some seconds.
    pub waits_for_failover: bool,
    /// Which clock counts.
    pub clock: ServerOrInjected,
    /// Nothing is written, no function is loaded: what needs one is read by plain commands, or fails.
    pub reads_only: bool,
    /// How many shards owners lie in: fixed with the first key that is written.
    pub shards: Shards,
}

impl RedisOptions {
    /// Prefix `trellis`, 8 connections, no replica waited for, the server's clock, 256 shards.
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
