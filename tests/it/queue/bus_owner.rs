//! A queue and a store that belong together, and who only looks at them.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};
use crate::support::redis::RedisServer;
use serde_json::json;
use std::sync::Arc;
use trellis::domain::identity::VenueNames;
use trellis::domain::time::Millis;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::identity::{NameCheckError, NameRule, compare_names};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

#[test]
fn doctor_and_audit_change_nothing_on_empty_servers() {
    let (Some(nats), Some(redis)) = (NatsServer::start(), RedisServer::start()) else { return };
    let fleet = Fleet::new(nats.url(), &redis);
    fleet.run(&["audit"]).expect(0, "");
    let report = fleet.run(&["doctor"]).expect(0, "").out;
    assert!(report.contains("none yet, a worker that starts makes them"), "{report}");
    block_on(async {
        let asked = async |words: &[&str]| redis.command(words).await.unwrap();
        assert_eq!(asked(&["DBSIZE"]).await, redis::Value::Int(0));
        assert_eq!(asked(&["FUNCTION", "LIST"]).await, redis::Value::Array(Vec::new()));
        let context = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
        let names: serde_json::Value = context.request("STREAM.NAMES", &json!({})).await.unwrap();
        assert_eq!(names["total"], 0, "{names}");
    });
}

fn stops(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.ended().code(), Some(0), "{}", process.log());
}

#[test]
fn a_worker_of_another_store_or_name_does_not_start() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let mut worker = fleet.start("worker");
    worker.says("worker `");
    for role in ["worker", "serve"] {
        let other = fleet.run(&[role, "--set", "store.prefix=other"]);
        let other = other.expect(8, "belongs to another store: its stream");
        assert!(other.err.contains("store.prefix = \"other\"") && other.err.contains("venue.adopt"), "{}", other.err);
        fleet.run(&[role, "--set", "venue.name=other"]).expect(6, "`venue.name = \"trellis\"`");
        fleet.run(&[role, "--set", "bus.prefix=other"]).expect(6, "`bus.prefix = ");
    }
    let looked = fleet.run(&["doctor", "--set", "store.prefix=other2"]);
    assert!(looked.code == 1 && looked.out.contains("nats owner"), "{looked:?}");
    stops(worker);
    // The name is changed on purpose.
    let renamed = ["worker", "--config", "fleet.toml", "--set", "venue.name=other"];
    let mut adopting = Process::start(fleet.path(), [&renamed[..], &["--set", "venue.adopt=true"]].concat());
    adopting.says("worker `");
    stops(adopting);
    let mut worker = Process::start(fleet.path(), renamed);
    worker.says("worker `");
    stops(worker);
    fleet.run(&["worker"]).expect(6, "`venue.name = \"other\"`");
}

#[test]
fn an_embedded_store_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let up = ["up", "--set", "http.listen=127.0.0.1:0"];
    let mut first = Process::start(dir.path(), up);
    first.says("worker `");
    stops(first);
    let other = [&up[..], &["--set", "venue.name=other"]].concat();
    run(dir.path(), &other).expect(6, "`venue.name = \"trellis\"`");
    let mut again = Process::start(dir.path(), up);
    again.says("worker `");
    stops(again);
}

async fn names_on(store: Arc<dyn Store>) {
    let names = |venue: &str| VenueNames { venue: venue.to_owned(), bus_prefix: Some("p".to_owned()) };
    let (a, b) = (names("a"), names("b"));
    let agree = async |names: &VenueNames, rule| match compare_names(&*store, Millis(1), names, rule).await {
        Err(NameCheckError::Store(error)) => panic!("{error}"),
        compared => compared,
    };
    assert!(agree(&b, NameRule::Compare).await.is_ok(), "who looks first leaves none");
    assert!(agree(&a, NameRule::Register).await.is_ok());
    assert!(agree(&b, NameRule::Register).await.is_err());
    assert!(agree(&a, NameRule::Compare).await.is_ok());
    assert!(agree(&b, NameRule::Adopt).await.is_ok());
    assert!(agree(&a, NameRule::Compare).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_those_of_the_first_process() {
    names_on(EmbeddedStore::in_memory()).await;
    let Some(store) = crate::support::redis::store().await else { return };
    names_on(store).await;
}
