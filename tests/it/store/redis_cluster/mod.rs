//! A store on a Redis Cluster whose slots move and whose nodes are killed and paused: calls wait, nothing that was
//! acknowledged is lost.

mod servers;

use crate::support::redis_cluster::{PRIMARIES, RedisCluster};
use crate::support::redis_load::Load;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::domain::ids::Owner;
use trellis::domain::shard::Shards;
use trellis::store::StoreInspection;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};

/// Slot and the primary that has it, of the shard of an owner.
async fn place(cluster: &RedisCluster, owner: &Owner) -> (u16, usize) {
    let shard = Shards::default().shard_of(&owner.token());
    let slot = cluster.slot(&format!("{{{shard}}}")).await;
    (slot, RedisCluster::primary_of(slot))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_moves_to_a_new_node_stays_complete() {
    let Some(mut cluster) = RedisCluster::start().await else { return };
    let store = RedisStore::open(cluster.options(ServerOrInjected::Injected)).await.unwrap();
    let load = Load::start(store, 4).await;
    load.wait_for_progress(20).await;
    let new = cluster.nodes.len();
    // It has no functions: they come with the first call.
    cluster.grow().await;
    for owner in load.owners() {
        let (slot, primary) = place(&cluster, &owner).await;
        cluster.move_slot(slot, primary, new, Duration::from_millis(30)).await;
        load.wait_for_progress(20).await;
    }
    let seen = load.stop().await;
    assert_eq!(seen.errors, [""; 0], "a move is waited for");
    seen.assert_nothing_lost().await;
    let left = cluster.nodes[new].text(&["INFO", "keyspace"]).await;
    assert!(left.contains("db0:keys="), "the new node has them: {left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_killed_is_replaced_and_no_commit_is_lost() {
    let Some(mut cluster) = RedisCluster::start().await else { return };
    let options = RedisOptions { wait_replicas: 1, ..cluster.options(ServerOrInjected::Injected) };
    let store = RedisStore::open(options).await.unwrap();
    let load = Load::start(Arc::clone(&store), 6).await;
    load.wait_for_progress(20).await;
    let (_, killed) = place(&cluster, &load.owners()[0]).await;
    cluster.nodes[killed].kill();
    cluster.promoted(PRIMARIES + killed).await;
    // It has no replica now, so that nothing counts, until it is back as one.
    assert!(cluster.nodes[killed].start_again());
    load.wait_for_progress(20).await;
    let seen = load.stop().await;
    seen.assert_nothing_lost().await;
    let said = seen.errors.join("\n");
    assert!(!said.contains("invalid record or reply"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_primary_is_replaced_and_the_new_one_found() {
    let Some(cluster) = RedisCluster::start().await else { return };
    let store = RedisStore::open(cluster.options(ServerOrInjected::Injected)).await.unwrap();
    let load = Load::start(store, 3).await;
    load.wait_for_progress(20).await;
    let (_, paused) = place(&cluster, &load.owners()[0]).await;
    cluster.nodes[paused].pause(true);
    let since = Instant::now();
    cluster.promoted(PRIMARIES + paused).await;
    load.wait_for_progress(20).await;
    let away = since.elapsed();
    cluster.nodes[paused].pause(false);
    load.wait_for_progress(20).await;
    load.stop().await;
    // A call to it that was under way ends after 5 s, and another is made anew.
    assert!(away < Duration::from_secs(45), "{away:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_shows_primary_settings_and_failover_losses() {
    let Some(cluster) = RedisCluster::start().await else { return };
    let settings = async |wait_replicas| {
        let options = RedisOptions { wait_replicas, ..cluster.options(ServerOrInjected::Injected) };
        let settings = RedisStore::open(options).await.unwrap().settings().await.unwrap();
        settings
            .into_iter()
            .map(|one| (one.name, (one.value, one.problem)))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let plain = settings(0).await;
    assert_eq!(plain["redis appendfsync"], ("always".to_owned(), None));
    let (value, problem) = &plain["redis commits"];
    assert_eq!(value, "on the primary and 0 of 1 replicas");
    assert!(problem.as_ref().unwrap().contains("store.wait_replicas = 1"));
    cluster.nodes[1].command(&["CONFIG", "SET", "appendfsync", "everysec"]).await.unwrap();
    let waiting = settings(1).await;
    assert_eq!(waiting["redis commits"], ("on the primary and 1 of 1 replicas".to_owned(), None));
    let other = format!("redis appendfsync at 127.0.0.1:{}", cluster.nodes[1].port());
    assert!(waiting[&other].1.as_ref().unwrap().contains("appendfsync always"), "{waiting:?}");
}
