//! The Redis store under the suite.

use super::{Fixture, T0, at, conformance};
use crate::support::redis::{RedisServer, store};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::Owner;
use trellis::domain::shard::Shards;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{DocWrite, DocumentStore, Store, keys};

/// A store under a prefix of its own, on the server that all cases share.
pub struct RedisFixture {
    store: Arc<RedisStore>,
}

impl Fixture for RedisFixture {
    async fn new() -> Option<Self> {
        Some(Self { store: store().await? })
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

conformance!(cases, super::RedisFixture);

/// How workers divide what is due is the matter of `domain::shard`; that they do is this one's.
#[tokio::test]
async fn each_owner_is_named_to_one_of_the_workers_that_live() {
    let Some(store) = store().await else { return };
    let owners: Vec<Owner> = (0..40).map(|n| format!("acme/u{n}").parse().unwrap()).collect();
    for owner in &owners {
        store.write(T0, owner, &[DocWrite::index_entry(keys::garbage("g/gone/"))]).await.unwrap();
    }
    let due = async |now, worker: &str| {
        let found = store.due_owners(now, worker, Duration::from_secs(2), 100).await.unwrap();
        found.owners.into_iter().map(|(owner, _)| owner).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<Owner> = owners.into_iter().collect();
    assert_eq!(due(T0, "a").await, all, "alone");
    due(T0, "b").await;
    let (of_a, of_b) = (due(at(1), "a").await, due(at(1), "b").await);
    assert!(of_a.is_disjoint(&of_b) && !of_a.is_empty() && !of_b.is_empty(), "{of_a:?} {of_b:?}");
    assert_eq!(&of_a | &of_b, all);
    // One is silent for so long.
    assert_eq!(due(at(3002), "b").await, all);
    due(at(3003), "a").await;
    assert_ne!(due(at(3004), "b").await, all);
    for _ in 0..2 {
        store.sign_off("a").await.unwrap();
    }
    assert_eq!(due(at(3005), "b").await, all, "it said so");
}

#[tokio::test]
async fn the_number_of_shards_stays_as_it_was_made() {
    let Some(server) = RedisServer::shared() else { return };
    let options = server.options(ServerOrInjected::Injected);
    let with = |shards| RedisOptions { shards: Shards::new(shards).unwrap(), ..options.clone() };
    RedisStore::open(with(16)).await.unwrap();
    RedisStore::open(with(16)).await.unwrap();
    let refused = RedisStore::open(with(256)).await.err().expect("another number").to_string();
    assert!(refused.contains("`store.shards = 16`, which can't be changed any more, and 256 is set"), "{refused}");
}

#[tokio::test]
async fn data_from_before_shards_is_refused() {
    let Some(server) = RedisServer::shared() else { return };
    let options = server.options(ServerOrInjected::Injected);
    server.command(&["ZADD", &format!("{}:owners", options.prefix), "0", "acme/u1"]).await.unwrap();
    let refused = RedisStore::open(options).await.err().expect("the old layout").to_string();
    assert!(refused.contains("from before there were shards") && refused.contains("store.prefix"), "{refused}");
}
