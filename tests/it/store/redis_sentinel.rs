//! A store whose primary is named by Sentinels: a real one with two replicas, killed and paused.

use crate::support::redis::RedisServer;
use crate::support::redis_load::Load;
use crate::support::redis_sentinel::RedisSentinel;
use std::time::{Duration, Instant};
use trellis::store::StoreInspection;
use trellis::store::redis::{RedisOptions, RedisStore};

const PASSWORD: &str = "open-sesame";
const SENTINEL_PASSWORD: &str = "open-barley";

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_killed_is_replaced_and_no_commit_is_lost() {
    let Some(mut all) = RedisSentinel::start(PASSWORD, None).await else { return };
    let store = RedisStore::open(RedisOptions { wait_replicas: 1, ..all.options() }).await.unwrap();
    let before = store.history().await.unwrap();
    let load = Load::start(store.clone(), 6).await;
    load.wait_for_progress(20).await;
    all.servers[0].kill();
    all.failed_over().await;
    load.wait_for_progress(20).await;
    // It comes back as a replica.
    assert!(all.servers[0].start_again());
    load.wait_for_progress(20).await;
    load.stop().await.assert_nothing_lost().await;
    assert_ne!(store.history().await.unwrap(), before, "what was lost is looked for after it");
    let settings = store.settings().await.unwrap();
    let commits = settings.iter().find(|setting| setting.name == "redis commits").unwrap();
    assert!(commits.value.starts_with("on the primary and 1 of "), "{commits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_primary_is_not_written_to_when_it_returns() {
    let Some(all) = RedisSentinel::start(PASSWORD, Some(SENTINEL_PASSWORD)).await else { return };
    let store = RedisStore::open(RedisOptions { wait_replicas: 1, ..all.options() }).await.unwrap();
    let load = Load::start(store, 3).await;
    load.wait_for_progress(20).await;
    all.servers[0].pause(true);
    let since = Instant::now();
    all.failed_over().await;
    load.wait_for_progress(20).await;
    let away = since.elapsed();
    all.servers[0].pause(false);
    load.wait_for_progress(20).await;
    load.stop().await.assert_nothing_lost().await;
    assert!(away < Duration::from_secs(50), "{away:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_sentinel_settings_are_reported() {
    let Some(all) = RedisSentinel::start(PASSWORD, Some(SENTINEL_PASSWORD)).await else { return };
    let Some(plain) = RedisServer::shared() else { return };
    let open = async |url: String| {
        let options = RedisOptions { url, waits_for_failover: false, ..all.options() };
        RedisStore::open(options).await.err().unwrap().to_string()
    };
    let url = all.url();
    let (wrong, login) = ("the Sentinel wants another login: see `sentinel_password` in `store.url`", "?sentinel_");
    let without = url.split_once(login).unwrap().0;
    for (url, said) in [
        (without.to_owned(), wrong),
        (url.replace(SENTINEL_PASSWORD, "wrong"), wrong),
        (url.replace(login, "?sentinel_username=x&sentinel_"), wrong),
        (url.replace("/main", "/mein"), "no Sentinel knows a primary of that name"),
        (url.replace(PASSWORD, "wrong"), "Password authentication failed"),
        (format!("redis+sentinel://127.0.0.1:{}/main", plain.port()), "it is no Sentinel"),
        ("redis+sentinel://127.0.0.1:1/main".to_owned(), "refused"),
    ] {
        let error = open(url.clone()).await;
        assert!(error.contains(said) && !error.contains(PASSWORD) && !error.contains("barley"), "{url}: {error}");
    }
}
