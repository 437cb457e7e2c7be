//! Completions go to the stream in atomic batches: each is stored once, whatever becomes of its batch.

use crate::support::nats::{options, shared};
use async_nats::jetstream::{self, stream::Stream};
use futures::future::join_all;
use serde_json::json;
use std::collections::BTreeSet;
use trellis::bus::Bus;
use trellis::bus::nats::NatsBus;
use trellis::domain::message::{BusMessage, MessageAddress};

fn completion(number: usize, text: &str) -> BusMessage {
    let to = MessageAddress::Out {
        owner: "t/u".parse().unwrap(),
        agent: "a".parse().unwrap(),
        job: format!("job-{number}"),
    };
    BusMessage { to, id: Some(format!("done-{number}")), body: json!({"number": number, "text": text}), trace: None }
}

async fn publish_all(bus: &NatsBus, numbers: impl Iterator<Item = usize>) {
    let all: Vec<_> = numbers.map(|number| completion(number, "x")).collect();
    for published in join_all(all.iter().map(|message| bus.publish(message))).await {
        published.unwrap();
    }
}

/// The numbers in the stream, and how many messages came in batches.
async fn stored(stream: &Stream) -> (Vec<u64>, usize) {
    let mut numbers = Vec::new();
    let mut in_batches = 0;
    let last = stream.get_info().await.unwrap().state.last_sequence;
    for sequence in 1..=last {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
        numbers.push(body["number"].as_u64().unwrap());
        in_batches += usize::from(message.headers.get("Nats-Batch-Id").is_some());
    }
    (numbers, in_batches)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_at_once_are_stored_once_and_in_batches() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = NatsBus::open(&options).await.unwrap();
    let context = jetstream::new(async_nats::connect(&url).await.unwrap());
    let stream = context.get_stream(format!("{}_OUT", options.prefix.to_uppercase())).await.unwrap();
    publish_all(&bus, 0..300).await;
    let (numbers, in_batches) = stored(&stream).await;
    assert_eq!((numbers.len(), numbers.iter().collect::<BTreeSet<_>>().len()), (300, 300));
    assert!(in_batches >= 100, "{in_batches} of 300 in batches");
    // A batch with some that are stored already is refused whole: the others are stored nevertheless.
    publish_all(&bus, 250..350).await;
    let (numbers, _) = stored(&stream).await;
    assert_eq!((numbers.len(), numbers.iter().max()), (350, Some(&349)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_batches_takes_completions_one_by_one() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = NatsBus::open(&options).await.unwrap();
    let context = jetstream::new(async_nats::connect(&url).await.unwrap());
    let name = format!("{}_OUT", options.prefix.to_uppercase());
    let mut config = context.get_stream(&name).await.unwrap().cached_info().config.clone();
    assert!(config.allow_atomic_publish, "a start lets the stream take batches");
    config.allow_atomic_publish = false;
    context.update_stream(config).await.unwrap();
    publish_all(&bus, 0..50).await;
    let (numbers, in_batches) = stored(&context.get_stream(&name).await.unwrap()).await;
    assert_eq!((numbers.len(), in_batches), (50, 0));
    // The next start sets it back.
    let again = NatsBus::open(&options).await.unwrap();
    publish_all(&again, 50..100).await;
    assert_eq!(stored(&context.get_stream(&name).await.unwrap()).await.0.len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_gives_up_loses_no_completion_of_others() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = NatsBus::open(&options).await.unwrap();
    let context = jetstream::new(async_nats::connect(&url).await.unwrap());
    let stream = context.get_stream(format!("{}_OUT", options.prefix.to_uppercase())).await.unwrap();
    let kept: Vec<_> = (100..200).map(|number| completion(number, "x")).collect();
    let (given_up, published) = tokio::join!(
        // Dropped while it sends the first batches.
        async {
            let mine: Vec<_> = (0..100).map(|number| completion(number, "x")).collect();
            let all = join_all(mine.iter().map(|message| bus.publish(message)));
            tokio::time::timeout(std::time::Duration::from_micros(300), all).await.is_err()
        },
        join_all(kept.iter().map(|message| bus.publish(message))),
    );
    for published in published {
        published.unwrap();
    }
    let numbers: BTreeSet<_> = stored(&stream).await.0.into_iter().collect();
    assert!((100..200).all(|number| numbers.contains(&number)), "given up: {given_up}, {numbers:?}");
}
