//! A deleted stream is a loss: `trellis doctor` fails until an operator has settled it.

use crate::support::nats::{options, shared};
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::nats::NatsBus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::upkeep::{audit, doctor};
use trellis::view::audit::DoctorView;

/// State and value of the setting of the stream that was made again.
fn deleted_stream(found: &DoctorView) -> (String, String) {
    let setting = found.settings.iter().find(|setting| setting.name.starts_with("nats stream made again"));
    setting.map(|setting| (setting.state.clone(), setting.value.clone())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_made_again_is_a_problem_until_it_is_settled() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let (bus, dir) = (Arc::new(NatsBus::open(&options).await.unwrap()), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let venue = TestVenue::new(store, bus.clone(), dir.path(), "[[rule]]\nthen = { text = \"x\" }\n").await;
    let look = async || doctor::examine(&venue.venue).await.unwrap().view();
    assert!(!look().await.unsettled);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    context.delete_stream(&options.prefix.to_uppercase()).await.unwrap();
    let to =
        MessageAddress::In { owner: venue.owner.clone(), agent: "helper".parse().unwrap(), kind: InboundKind::Task };
    let task = BusMessage { to, id: Some("e1".to_owned()), body: json!({"input": "x"}), trace: None };
    bus.publish(&task).await.unwrap_err();
    bus.publish(&task).await.unwrap();
    let found = look().await;
    assert!(found.unsettled && deleted_stream(&found).0 == "problem", "{found:?}");
    assert!(found.advice.iter().any(|line| line.contains("`trellis audit --settle`")), "{found:?}");
    audit::settle(&venue.venue, "ann").await.unwrap();
    let found = look().await;
    assert!(!found.unsettled && deleted_stream(&found).0 == "ok", "{found:?}");
    assert!(deleted_stream(&found).1.contains("settled at"), "{found:?}");
}
