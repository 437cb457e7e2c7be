//! What waits in the queue, on both queues, and the job that it will be.

use crate::support::http::Server;
use crate::support::nats::{options, shared};
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::nats::NatsBus;
use trellis::bus::{Backlog, Bus, WhenEmpty};
use trellis::domain::ids::{EventId, JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;

fn message(owner: &str, kind: InboundKind, id: &str) -> BusMessage {
    let to = MessageAddress::In { owner: owner.parse().unwrap(), agent: "helper".parse().unwrap(), kind };
    BusMessage { to, id: Some(id.to_owned()), body: json!({"input": id}), trace: None }
}

async fn what_waits_is_counted(bus: Arc<dyn Bus>) {
    assert_eq!(bus.backlog().await.unwrap(), Backlog::default());
    for (owner, kind, id) in [
        ("acme/jo.x", InboundKind::Task, "a"),
        ("acme/jo.x", InboundKind::Message, "b"),
        ("acme/ann", InboundKind::Task, "c"),
        ("acme/jo.x", InboundKind::Wake, "w"),
    ] {
        bus.publish(&message(owner, kind, id)).await.unwrap();
    }
    let (jo, ann): (Owner, Owner) = ("acme/jo.x".parse().unwrap(), "acme/ann".parse().unwrap());
    let backlog = bus.backlog().await.unwrap();
    assert_eq!(backlog.largest_owners(9), [(&jo, 2), (&ann, 1)]);
    let now = Clock::system().now();
    assert!(backlog.oldest.is_some_and(|oldest| now.elapsed_since(oldest) < Duration::from_mins(2)), "{backlog:?}");
    let said = backlog.describe(now, 1);
    assert!(
        said.starts_with("3 messages wait, the oldest for ") && said.ends_with(": acme/jo.x 2, 1 other owners"),
        "{said}"
    );
    let waiting = bus.waiting_messages(&jo, 9).await.unwrap();
    let ids: Vec<_> = waiting.iter().filter(|one| one.kind != InboundKind::Wake).map(|one| one.id.as_deref()).collect();
    assert_eq!(ids, [Some("a"), Some("b")]);
    // What is worked at waits still; what is done doesn't.
    let mut left = 4;
    while left > 0 {
        for delivery in bus.receive(4, WhenEmpty::Wait).await.unwrap() {
            delivery.settle.ack().await;
            left -= 1;
        }
    }
    for _ in 0..600 {
        if bus.backlog().await.unwrap() == Backlog::default() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", bus.backlog().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_of_one_process_are_counted_by_owner() {
    let bus = EmbeddedBus::with_limit(EmbeddedStore::in_memory(), Duration::from_secs(30), Clock::system(), 1 << 20);
    what_waits_is_counted(Arc::new(bus.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_of_streams_are_counted_by_owner() {
    let Some(url) = shared() else { return };
    what_waits_is_counted(Arc::new(NatsBus::open(&options(&url)).await.unwrap())).await;
    let spread = trellis::bus::nats::NatsOptions { partitions: 3, ..options(&url) };
    what_waits_is_counted(Arc::new(NatsBus::open(&spread).await.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_message_waits_is_told() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let owner = venue.owner.clone();
    venue.venue.bus.publish(&message(&owner.to_string(), InboundKind::Task, "mine")).await.unwrap();
    let id = |event: &str| JobId::derive(&venue.venue.key, &owner, &EventId::new(event).unwrap());
    let waits = api.get(&format!("/api/v1/jobs/{}", id("mine"))).await;
    waits.is_problem(404, "its message to agent `helper` waits in the queue since");
    api.get(&format!("/api/v1/jobs/{}", id("other"))).await.is_problem(404, "no job `");
}
