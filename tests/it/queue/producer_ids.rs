//! Ids of producers in the queue: each owner has its own.

use crate::support::nats::{options, shared};
use std::collections::BTreeSet;
use std::time::Duration;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::bus::{Bus, WhenEmpty};

/// Streams that strangers publish to compare ids no longer than they must, also those that were made otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producers_id_is_its_owners_alone() {
    let Some(url) = shared() else { return };
    let options = NatsOptions { partitions: 2, ..options(&url) };
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let name = options.prefix.to_uppercase();
    NatsBus::open(&options).await.unwrap();
    for end in ["", "_PART_0", "_LIVE", "_TIMERS"] {
        let mut config = context.get_stream(format!("{name}{end}")).await.unwrap().cached_info().config.clone();
        config.duplicate_window = Duration::from_mins(2);
        context.update_stream(config).await.unwrap();
    }
    let bus = NatsBus::open(&options).await.unwrap();
    for end in ["", "_PART_0", "_PART_1", "_LIVE", "_TIMERS", "_EPOCH", "_PROTECTION", "_JOURNAL"] {
        let stream = context.get_stream(format!("{name}{end}")).await.unwrap();
        assert_eq!(stream.cached_info().config.duplicate_window, Duration::from_millis(100), "{end}");
    }
    for (agent, id) in [("one", None), ("two", Some("mine"))] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("of-{agent}"));
        if let Some(id) = id {
            headers.insert("Trellis-Id", id);
        }
        let subject = format!("{}.in.t.u.{agent}.message", options.prefix);
        context.publish_with_headers(subject, headers, "{}".into()).await.unwrap().await.unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(bus.receive(2 - got.len(), WhenEmpty::Wait).await.unwrap());
    }
    let ids: BTreeSet<_> = got.iter().map(|delivery| delivery.id.clone()).collect();
    assert_eq!(ids, [None, Some("mine".to_owned())].into());
}
