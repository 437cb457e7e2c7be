//! How a store over Redis is opened.

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
    /// `redis://[user:password@]host:port/db`.
    pub url: String,
    /// All keys start with it.
    pub prefix: String,
    /// Connections: with several, one fsync of the server covers the commits of all of them.
    pub connections: usize,
    /// Which clock counts.
    pub clock: ServerOrInjected,
    /// How many shards owners lie in: fixed with the first key that is written.
    pub shards: Shards,
}

impl RedisOptions {
    /// Prefix `trellis`, 8 connections, the server's clock, 256 shards.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "trellis".to_owned(),
            connections: 8,
            clock: ServerOrInjected::Server,
            shards: Shards::default(),
        }
    }
}
