//! Many owners share the slots of a worker: one that submits very much keeps the others waiting for a slot, and not
//! for all that it has submitted.

use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::job::JobStatus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::jobs;

/// Whoever is told to think never ends.
const RULES: &str = r#"
[[rule]]
when = { text = "think" }
then = { fault = "hang" }

[[rule]]
then = { text = "done" }
"#;

/// Slots of a worker of these tests.
const SLOTS: usize = 8;

async fn laptop() -> (TestVenue, tempfile::TempDir) {
    TestVenue::embedded(RULES).await
}

async fn fleet() -> Option<(TestVenue, tempfile::TempDir)> {
    fleet_on(&nats::options(&nats::shared()?)).await
}

async fn fleet_on(options: &NatsOptions) -> Option<(TestVenue, tempfile::TempDir)> {
    let server = RedisServer::shared()?;
    let dir = tempfile::tempdir().unwrap();
    let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
    let bus = NatsBus::open(options).await.unwrap();
    Some((TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await, dir))
}

/// An owner with an agent.
async fn owner(venue: &mut TestVenue, name: &str) -> Owner {
    venue.owner = name.parse().unwrap();
    venue.agent("a", json!({"concurrency": 1000})).await;
    venue.owner.clone()
}

/// A task over the queue.
async fn publish(venue: &TestVenue, owner: &Owner, id: &str, input: &str) -> JobId {
    let to = MessageAddress::In { owner: owner.clone(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
    let message = BusMessage { to, id: Some(id.to_owned()), body: json!({"input": input}), trace: None };
    venue.venue.bus.publish(&message).await.unwrap();
    JobId::derive(&venue.venue.key, owner, &id.parse().unwrap())
}

async fn status(venue: &TestVenue, owner: &Owner, job: &JobId) -> Option<JobStatus> {
    jobs::get(&venue.venue, owner, job).await.unwrap().map(|job| job.status)
}

/// Waits for it, for a minute.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

fn thinking(venue: &TestVenue) -> usize {
    venue.model_calls().iter().filter(|call| call["event"] == "started").count()
}

/// Three owners hold all slots for ever, two of them have more in the queue than a worker takes at once, and a fourth
/// submits a task behind all that.
async fn a_latecomer_waits_only_for_a_slot(mut venue: TestVenue) {
    venue.owner_share = 50;
    let [one, two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let [three, small] = [owner(&mut venue, "big/three").await, owner(&mut venue, "big/four").await];
    let mut running = Vec::new();
    for n in 0..300 {
        running.push(publish(&venue, &one, &format!("one-{n}"), "think").await);
        publish(&venue, &two, &format!("two-{n}"), "think").await;
    }
    publish(&venue, &three, "three", "think").await;
    venue.worker();
    until("all slots are taken", async || thinking(&venue) == SLOTS).await;
    let last = publish(&venue, &small, "last", "hello").await;
    until("it is seen behind what came before", async || status(&venue, &small, &last).await.is_some()).await;
    // One slot after the other becomes free: the owners whose sessions wait take turns.
    let mut freed = 0;
    while status(&venue, &small, &last).await != Some(JobStatus::Complete) {
        let mut started = None;
        for job in &running {
            if status(&venue, &one, job).await == Some(JobStatus::Started) {
                started = Some(job.clone());
                break;
            }
        }
        let before = thinking(&venue);
        jobs::cancel(&venue.venue, &one, &started.expect("one that runs"), None).await.unwrap();
        freed += 1;
        assert!(freed <= 3, "the fourth owner still waits after {freed} slots became free");
        // Or the fourth owner has begun beyond the slots, and what is free now is kept for others like it.
        let is_done = async || status(&venue, &small, &last).await == Some(JobStatus::Complete);
        until("the slot has its next session", async || thinking(&venue) > before || is_done().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_a_latecomer_waits_only_for_a_slot() {
    let Some((venue, _dir)) = fleet().await else { return };
    a_latecomer_waits_only_for_a_slot(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_a_latecomer_waits_only_for_a_slot() {
    let (venue, _dir) = laptop().await;
    a_latecomer_waits_only_for_a_slot(venue).await;
}

/// A worker that begins with a backlog of tasks that never end, of one owner or of two, has a slot for another owner.
async fn an_owner_without_a_slot_gets_one_at_once(mut venue: TestVenue) {
    let [one, two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let small = owner(&mut venue, "big/three").await;
    for n in 0..5 * SLOTS {
        publish(&venue, &one, &format!("one-{n}"), "think").await;
    }
    for n in 0..5 * SLOTS {
        publish(&venue, &two, &format!("two-{n}"), "think").await;
    }
    venue.worker();
    // 75 % of the slots for the one, one for the other, and one that is left.
    until("two owners hold what they may", async || thinking(&venue) == SLOTS - 1).await;
    let mut last = None;
    for n in 0..3 {
        last = Some(publish(&venue, &small, &format!("small-{n}"), "hello").await);
    }
    let last = last.unwrap();
    until("it has ended", async || status(&venue, &small, &last).await == Some(JobStatus::Complete)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_an_owner_without_a_slot_gets_one_at_once() {
    let Some((venue, _dir)) = fleet().await else { return };
    an_owner_without_a_slot_gets_one_at_once(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_an_owner_without_a_slot_gets_one_at_once() {
    let (venue, _dir) = laptop().await;
    an_owner_without_a_slot_gets_one_at_once(venue).await;
}

/// Sessions that wait at a worker for a slot are called elsewhere when it stops. No sweep comes before the test fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_workers_messages_go_to_another_at_once() {
    let Some((mut venue, dir)) = fleet().await else { return };
    venue.sweep = Duration::from_mins(10);
    // Nothing begins beyond the slots.
    venue.owner_share = 100;
    let [one, two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let [three, small] = [owner(&mut venue, "big/three").await, owner(&mut venue, "big/four").await];
    for n in 0..SLOTS {
        publish(&venue, &one, &format!("one-{n}"), "think").await;
        publish(&venue, &two, &format!("two-{n}"), "think").await;
    }
    publish(&venue, &three, "three", "think").await;
    venue.worker();
    until("all slots are taken", async || thinking(&venue) == SLOTS).await;
    let mut waiting = Vec::new();
    for n in 0..20 {
        waiting.push(publish(&venue, &small, &format!("small-{n}"), "hello").await);
    }
    for job in &waiting {
        until("it waits there", async || status(&venue, &small, job).await.is_some()).await;
    }
    let other = tempfile::tempdir_in(dir.path()).unwrap();
    let store = Arc::clone(&venue.venue.store);
    let mut second =
        TestVenue::new(store, Arc::clone(&venue.venue.bus), other.path(), "[[rule]]\nthen = { text = \"done\" }\n")
            .await;
    second.sweep = Duration::from_mins(10);
    venue.shutdown.trigger();
    venue.shutdown.cancel_token().cancel();
    second.worker();
    for job in &waiting {
        until("another runs it", async || status(&second, &small, job).await == Some(JobStatus::Complete)).await;
    }
}

/// Whoever has no slot for more of an owner's sessions calls a few of them per sweep, not all, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_wakes_few_sessions_of_an_owner_without_a_slot() {
    let Some(url) = nats::shared() else { return };
    let options = nats::options(&url);
    let Some((mut venue, _dir)) = fleet_on(&options).await else { return };
    venue.owner_share = 50;
    let [one, _two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let client = async_nats::connect(&url).await.unwrap();
    let mut wakes = client.subscribe(format!("{}.in.big.one.*.wake", options.prefix)).await.unwrap();
    let mut last = None;
    for n in 0..300 {
        last = Some(publish(&venue, &one, &format!("one-{n}"), "think").await);
    }
    venue.worker();
    let last = last.unwrap();
    until("all are there", async || status(&venue, &one, &last).await.is_some()).await;
    // When they began to wait, and one of the first sweep that they are due for.
    for _ in 0..17 {
        tokio::time::timeout(Duration::from_mins(1), wakes.next()).await.unwrap().unwrap();
    }
    let (sweeps, mut called) = (venue.venue.metrics.sweeps.get(), 0);
    until("it has swept a few times", async || venue.venue.metrics.sweeps.get() >= sweeps + 5).await;
    let swept = venue.venue.metrics.sweeps.get() - sweeps;
    while tokio::time::timeout(Duration::from_millis(1), wakes.next()).await.is_ok() {
        called += 1;
    }
    assert!(called >= 1 && called <= (swept + 2) * 2, "{called} sessions were called in {swept} sweeps");
}

/// The queue shows those who scale a fleet what waits in a worker, and nothing when nothing waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_message_stays_in_the_queue_until_it_has_run() {
    let Some(url) = nats::shared() else { return };
    let options = nats::options(&url);
    let Some((mut venue, _dir)) = fleet_on(&options).await else { return };
    venue.owner_share = 50;
    // Messages that wait must not come again.
    venue.lease = Duration::from_secs(1);
    let [one, _two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let stream = context.get_stream(options.prefix.to_uppercase()).await.unwrap();
    let lag = async || {
        let info = stream.consumer_info("workers").await.unwrap();
        usize::try_from(info.num_pending).unwrap() + info.num_ack_pending
    };
    venue.worker();
    let (mut thinks, mut waits) = (Vec::new(), Vec::new());
    for n in 0..SLOTS / 2 {
        thinks.push(publish(&venue, &one, &format!("thinks-{n}"), "think").await);
    }
    until("its share is taken", async || thinking(&venue) == SLOTS / 2).await;
    for n in 0..20 {
        waits.push(publish(&venue, &one, &format!("waits-{n}"), "hello").await);
    }
    for job in &waits {
        until("it waits there", async || status(&venue, &one, job).await.is_some()).await;
    }
    // Through a few leases.
    for _ in 0..30 {
        let lag = lag().await;
        // What runs, and wakes for other workers, are in it, too.
        assert!((20..=20 + SLOTS + 20).contains(&lag), "the queue shows {lag}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for job in &thinks {
        jobs::cancel(&venue.venue, &one, job, None).await.unwrap();
    }
    for job in &waits {
        until("it runs", async || status(&venue, &one, job).await == Some(JobStatus::Complete)).await;
    }
    until("the queue is empty", async || lag().await == 0).await;
}

/// What one worker has taken and has no slot for runs where there is one, long before a sweep.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_room_runs_what_waits_at_another() {
    let Some(url) = nats::shared() else { return };
    let options = nats::options(&url);
    let Some((mut venue, dir)) = fleet_on(&options).await else { return };
    venue.sweep = Duration::from_mins(10);
    venue.owner_share = 50;
    let [one, _two] = [owner(&mut venue, "big/one").await, owner(&mut venue, "big/two").await];
    let other = tempfile::tempdir_in(dir.path()).unwrap();
    let (store, bus) = (Arc::clone(&venue.venue.store), NatsBus::open(&options).await.unwrap());
    let mut second = TestVenue::new(store, Arc::new(bus), other.path(), RULES).await;
    (second.sweep, second.owner_share) = (Duration::from_mins(10), 50);
    venue.worker();
    second.worker();
    // Whoever takes them takes most of them: half of the slots of both are for them.
    for round in 1..=10 {
        let ids: Vec<_> = (0..SLOTS).map(|n| format!("r{round}-{n}")).collect();
        let all = futures::future::join_all(ids.iter().map(|id| publish(&venue, &one, id, "think"))).await;
        until("all run", async || thinking(&venue) + thinking(&second) == SLOTS * round).await;
        for job in &all {
            jobs::cancel(&venue.venue, &one, job, None).await.unwrap();
        }
    }
}

/// An owner that has all slots can still cancel what holds them.
async fn a_cancellation_needs_no_slot(mut venue: TestVenue) {
    let one = owner(&mut venue, "big/one").await;
    venue.worker();
    let mut running = Vec::new();
    for n in 0..SLOTS {
        running.push(publish(&venue, &one, &format!("one-{n}"), "think").await);
    }
    until("all slots are taken", async || thinking(&venue) == SLOTS).await;
    let behind = publish(&venue, &one, "behind", "hello").await;
    let to = MessageAddress::In { owner: one.clone(), agent: "a".parse().unwrap(), kind: InboundKind::Cancel };
    let cancel = BusMessage { to, id: None, body: json!({"job": running[0]}), trace: None };
    venue.venue.bus.publish(&cancel).await.unwrap();
    until("it is cancelled", async || status(&venue, &one, &running[0]).await == Some(JobStatus::Cancelled)).await;
    until("the next one runs", async || status(&venue, &one, &behind).await == Some(JobStatus::Complete)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_a_cancellation_needs_no_slot() {
    let Some((venue, _dir)) = fleet().await else { return };
    a_cancellation_needs_no_slot(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_a_cancellation_needs_no_slot() {
    let (venue, _dir) = laptop().await;
    a_cancellation_needs_no_slot(venue).await;
}

/// Whoever gives tokens makes users at will: those of one tenant hold together what one owner alone would.
async fn a_tenant_of_many_users_leaves_slots_to_another(mut venue: TestVenue) {
    let mut users = Vec::new();
    for name in ["big/one", "big/two", "big/three", "big/four"] {
        users.push(owner(&mut venue, name).await);
    }
    let small = owner(&mut venue, "small/one").await;
    for n in 0..2 * SLOTS {
        for user in &users {
            publish(&venue, user, &format!("big-{n}"), "think").await;
        }
    }
    venue.worker();
    // 75 % of the slots, of which one is left for a user that has none.
    let held = SLOTS * 3 / 4 - 1;
    until("the tenant holds what it may", async || thinking(&venue) >= held).await;
    for n in 0..3 {
        let job = publish(&venue, &small, &format!("small-{n}"), "hello").await;
        until("it has ended", async || status(&venue, &small, &job).await == Some(JobStatus::Complete)).await;
    }
    assert_eq!(thinking(&venue), held + 3, "the calls of `small/one` are the other three");
    let mut held = Vec::new();
    for user in &users {
        let all = jobs::list(&venue.venue, user, 0, 100).await.unwrap().items;
        held.push(all.iter().filter(|job| job.status == JobStatus::Started).count());
    }
    assert!(held.iter().filter(|held| **held > 0).count() >= 2, "no user of it has all of that: {held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_a_large_tenant_leaves_slots_to_another() {
    let Some((venue, _dir)) = fleet().await else { return };
    a_tenant_of_many_users_leaves_slots_to_another(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_a_large_tenant_leaves_slots_to_another() {
    let (venue, _dir) = laptop().await;
    a_tenant_of_many_users_leaves_slots_to_another(venue).await;
}

/// Ten times as many owners as there are slots, each with tasks that never end: another owner's task is done.
async fn owners_that_hang_keep_nobody_out(mut venue: TestVenue) {
    venue.sweep = Duration::from_mins(10);
    let mut hanging = Vec::new();
    for n in 0..10 * SLOTS {
        hanging.push(owner(&mut venue, &format!("big/o{n}")).await);
    }
    let small = owner(&mut venue, "big/small").await;
    venue.worker();
    for round in 0..2 {
        for owner in &hanging {
            publish(&venue, owner, &format!("hangs-{round}"), "think").await;
        }
    }
    until("all slots are taken", async || thinking(&venue) >= SLOTS).await;
    for n in 0..3 {
        let job = publish(&venue, &small, &format!("small-{n}"), "hello").await;
        until("it has ended", async || status(&venue, &small, &job).await == Some(JobStatus::Complete)).await;
    }
    assert!(thinking(&venue) <= 11 * SLOTS + 3, "{} calls at work", thinking(&venue));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_owners_that_hang_keep_nobody_out() {
    let Some((venue, _dir)) = fleet().await else { return };
    owners_that_hang_keep_nobody_out(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_owners_that_hang_keep_nobody_out() {
    let (venue, _dir) = laptop().await;
    owners_that_hang_keep_nobody_out(venue).await;
}

/// An owner that was alone has taken all slots for tasks that never end. The next owner is met before any sweep.
async fn an_owner_that_was_alone_keeps_nobody_out(mut venue: TestVenue) {
    venue.sweep = Duration::from_mins(10);
    let one = owner(&mut venue, "big/one").await;
    venue.worker();
    for n in 0..2 * SLOTS {
        publish(&venue, &one, &format!("one-{n}"), "think").await;
    }
    until("it has all slots", async || thinking(&venue) == SLOTS).await;
    let small = owner(&mut venue, "big/small").await;
    for n in 0..3 {
        let job = publish(&venue, &small, &format!("small-{n}"), "hello").await;
        until("it has ended", async || status(&venue, &small, &job).await == Some(JobStatus::Complete)).await;
    }
    assert_eq!(thinking(&venue), SLOTS + 3, "the first owner has no more than it had");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fleet_an_owner_that_was_alone_keeps_nobody_out() {
    let Some((venue, _dir)) = fleet().await else { return };
    an_owner_that_was_alone_keeps_nobody_out(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_process_an_owner_that_was_alone_keeps_nobody_out() {
    let (venue, _dir) = laptop().await;
    an_owner_that_was_alone_keeps_nobody_out(venue).await;
}
