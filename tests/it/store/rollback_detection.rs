//! A store that lost its tail: the queue tells what it doesn't know any more.

use crate::support::nats::{self, NatsServer, options};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::venue::jobs;
use trellis::venue::upkeep::audit;
use trellis::venue::upkeep::doctor;
use trellis::venue::upkeep::retention;

async fn venue(store: &RedisOptions, bus: &NatsOptions) -> (TestVenue, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = RedisStore::open(store.clone()).await.unwrap();
    let bus = Arc::new(NatsBus::open(bus).await.unwrap());
    (TestVenue::new(store, bus, dir.path(), "[[rule]]\nthen = { text = \"done\" }\n").await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_names_what_a_store_lost_whose_log_was_cut() {
    let (Some(mut server), Some(url)) = (RedisServer::start(), nats::shared()) else { return };
    let (store, bus) = (server.options(ServerOrInjected::Server), options(&url));
    let (first, _first) = venue(&store, &bus).await;
    first.agent("helper", json!({})).await;
    first.worker();
    let mut ids = Vec::new();
    let mut cut = None;
    for n in 0..25 {
        if n == 10 {
            assert_eq!(audit::advance_mark(&first.venue).await.unwrap(), None);
            cut = Some(server.log_file());
        }
        ids.push(first.run("helper", &format!("t{n}"), json!(n)).await.head.id);
    }
    assert_eq!(audit::advance_mark(&first.venue).await.unwrap(), None);
    let books = audit::audit_all(&first.venue).await.unwrap();
    assert_eq!((books.completed, books.unknown, books.unaccounted, books.set_back.len()), (25, 0, 0, 0), "{books:?}");
    first.shutdown.trigger();
    drop(first);
    server.kill();
    let (path, bytes) = cut.unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    assert!(server.start_again());

    let (second, _second) = venue(&store, &bus).await;
    let books = audit::audit_all(&second.venue).await.unwrap();
    assert_eq!((books.completed, books.unknown, books.unaccounted, books.set_back.len()), (10, 15, 15, 1), "{books:?}");
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(books.missing.iter().any(|line| line.contains(id.as_str())), n >= 10, "{n}: {books:?}");
    }
    // It is kept when the store goes on, and told once.
    assert!(audit::advance_mark(&second.venue).await.unwrap().is_some());
    assert_eq!(audit::advance_mark(&second.venue).await.unwrap(), None);
    assert_eq!(audit::audit_all(&second.venue).await.unwrap().set_back.len(), 1);
    let found = trellis::view::to_json(&doctor::examine(&second.venue).await.unwrap().view()).to_string();
    assert!(found.contains("store history") && found.contains("(epoch 1)"), "{found}");
    // What somebody deletes isn't lost.
    let job = jobs::get(&second.venue, &second.owner, &ids[0]).await.unwrap().unwrap();
    let deleted = retention::delete(&second.venue, &second.owner, &job).await.unwrap();
    assert_eq!(deleted, retention::DeletionOutcome::Done);
    let books = audit::audit_all(&second.venue).await.unwrap();
    assert_eq!((books.completed, books.unknown), (9, 15), "{books:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_often_nats_syncs_is_read_from_its_monitoring_port() {
    let port = crate::support::port::lasting();
    let argument: &'static str = Box::leak(port.to_string().into_boxed_str());
    let Some(server) = NatsServer::start_with(&["-m", argument]) else { return };
    let setting = async |monitor: Option<String>| {
        let bus = NatsBus::open(&NatsOptions { monitor, ..options(&server.url()) }).await.unwrap();
        let found = bus.settings().await.unwrap().into_iter().find(|setting| setting.name == "nats sync_interval");
        found.map(|setting| (setting.value, setting.problem)).unwrap()
    };
    assert_eq!(setting(Some(format!("http://127.0.0.1:{port}"))).await, ("always".to_owned(), None));
    let (value, problem) = setting(None).await;
    assert!(value == "not shown to clients" && problem.unwrap().contains("set `bus.monitor`"));
    let (_, problem) = setting(Some("http://127.0.0.1:1".to_owned())).await;
    assert!(problem.unwrap().contains("`http://127.0.0.1:1/jsz` (`bus.monitor`) doesn't say it"));
}
