//! How a job gets to its workers, and what becomes of one that doesn't.

use super::{Office, RULES, code, output};
use crate::support::operate::{boss, operate};
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::job::{Job, JobStatus};
use trellis::store::{DocEffect, DocWrite, Expect, keys};
use trellis::venue::erase::{self, Erasure};
use trellis::venue::external;
use trellis::venue::jobs;
use trellis::venue::operation::OpError;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_message_has_every_field_its_worker_needs() {
    let Some(office) = Office::manual().await else { return };
    let (_, taken) = office.ordered("t1", json!({"startTimeout": 60, "heartbeatTimeout": 30, "deadline": 90})).await;
    let body = &taken.body;
    let answer = format!("{}.in.local.me.clerk.result", office.prefix);
    for (key, expected) in [
        ("queue", json!("ocr")),
        ("input", json!({"page": 7})),
        ("owner", json!("local/me")),
        ("agent", json!("clerk")),
        ("created", json!(super::START)),
        ("startBy", json!(super::START.0 + 60_000)),
        ("heartbeatSeconds", json!(30)),
        ("deadline", json!(super::START.0 + 90_000)),
        ("answer", json!(answer)),
    ] {
        assert_eq!(body[key], expected, "{key}");
    }
    assert_eq!(body["token"].as_str().unwrap().len(), 64);
    let id = format!("{}-{}", taken.job, body["created"]);
    assert_eq!(taken.id.as_deref(), Some(id.as_str()), "a repetition is dropped by the stream");
    let shown = job_record(&office.job(&taken.job).await);
    assert_eq!((&shown["status"], &shown["input"]["input"]), (&json!("PENDING"), &json!({"page": 7})));
    assert!(!shown.to_string().contains(body["token"].as_str().unwrap()), "the token is nowhere else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_published_again_is_there_once() {
    let Some(office) = Office::open().await else { return };
    office.order("t1", json!({})).await;
    let job = office.published().await;
    office.becomes(&job, "published", |_| true).await;
    let venue = &office.venue.venue;
    let id = format!("{job}-{}", office.job(&job).await.head.created.0);
    for _ in 0..3 {
        let to = trellis::domain::message::MessageAddress::Job {
            queue: "ocr".parse().unwrap(),
            owner: office.venue.owner.clone(),
            agent: "clerk".parse().unwrap(),
        };
        let message =
            trellis::domain::message::BusMessage { to, id: Some(id.clone()), body: json!({"job": job}), trace: None };
        venue.bus.publish(&message).await.unwrap();
    }
    assert_eq!(office.kept().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_fails_the_job_and_is_created_again() {
    let Some(office) = Office::open().await else { return };
    office.context.delete_stream(office.jobs_stream()).await.unwrap();
    let clerks = office.order("t1", json!({})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "it failed at once");
    let job = office.job(&office.published().await).await;
    assert_eq!((job.status, code(&job)), (JobStatus::Failed, json!("QUEUE_UNAVAILABLE")));
    assert!(job.result.unwrap().error.unwrap().contains("was gone"));
    nothing_is_left(&office.venue).await;
    office.books_are_closed().await;
    // The next one finds a stream.
    let (clerks, taken) = office.ordered("t2", json!({})).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": 1})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "the worker is done");
}

/// Waits until the outbox is empty: a job ends just before its message is taken out.
async fn nothing_is_left(venue: &TestVenue) {
    for _ in 0..6_000 {
        if venue.venue.store.outbox(&venue.owner).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a message lies in the outbox for more than a minute");
}

/// Leaves room for one message.
async fn one_at_most(office: &Office) {
    let stream = office.context.get_stream(office.jobs_stream()).await.unwrap();
    let config = stream.cached_info().config.clone();
    let config = async_nats::jetstream::stream::Config { max_messages: 1, ..config };
    office.context.update_stream(config).await.unwrap();
    let full = office.context.publish(format!("{}.jobs.other", office.prefix), "{}".into()).await.unwrap();
    full.await.unwrap();
}

async fn make_room(office: &Office) {
    office.context.get_stream(office.jobs_stream()).await.unwrap().purge().await.unwrap();
}

/// Publishes what lies in the outbox, as a sweep does.
async fn relay(office: &Office) {
    let (venue, owner) = (&office.venue.venue, &office.venue.owner);
    let entries = venue.store.outbox(owner).await.unwrap();
    venue.relay(owner, &entries).await;
}

fn waits(job: &Job) -> bool {
    job.waiting.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_full_stream_and_is_delivered_later() {
    let Some(office) = Office::open().await else { return };
    one_at_most(&office).await;
    let clerks = office.order("t1", json!({})).await;
    let id = office.published().await;
    let shown = job_record(&office.becomes(&id, "waiting", waits).await);
    assert_eq!(shown["status"], "PENDING");
    let reason = shown["waiting"]["reason"].as_str().unwrap();
    assert!(reason.contains("not published yet") && reason.contains("no room"), "{reason}");
    office.books_are_closed().await;
    make_room(&office).await;
    // The sweep publishes it.
    let taken = office.take("ocr").await;
    assert_eq!(taken.job, id);
    office.becomes(&id, "waiting no more", |job| !waits(job)).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": 1})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "the worker is done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_while_waiting_for_room_is_not_published() {
    let Some(office) = Office::open().await else { return };
    one_at_most(&office).await;
    let clerks = office.order("t1", json!({})).await;
    let id = office.published().await;
    office.becomes(&id, "waiting", waits).await;
    jobs::cancel(&office.venue.venue, &office.venue.owner, &clerks, None).await.unwrap();
    office.venue.ended(&id).await;
    make_room(&office).await;
    relay(&office).await;
    assert_eq!(office.kept().await, 0);
    let left = office.venue.venue.store.outbox(&office.venue.owner).await.unwrap();
    assert!(left.iter().all(|entry| !entry.id.starts_with("venue:call-")), "{left:?}");
}

#[tokio::test]
async fn an_embedded_queue_refuses_external_workers_with_advice() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.agent("clerk", json!({"tools": ["v/ops/queue/publish"]})).await;
    venue.worker();
    let input = json!({
        "queue": "ocr", "input": 1, "wait": 0, "startTimeout": 1, "heartbeatTimeout": 1, "deadline": 1
    });
    assert_eq!(output(&venue.run("clerk", "t1", input).await), "it failed at once");
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    let job = all.into_iter().find(|job| job.head.op.is_some()).unwrap();
    assert_eq!((job.status, code(&job)), (JobStatus::Failed, json!("QUEUE_UNAVAILABLE")));
    let error = job.result.unwrap().error.unwrap();
    assert!(error.contains("embedded queue") && error.contains("bus.url"), "{error}");
    nothing_is_left(&venue).await;
}

async fn called(venue: &TestVenue, input: Value) -> Result<Value, OpError> {
    operate(&venue.venue, &boss(&venue.owner), "v/ops/queue/publish", input).await
}

#[tokio::test]
async fn publishing_outside_turns_or_with_mistakes_is_refused() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    for (input, part) in [
        (json!({"queue": "ocr", "input": 1}), "is for agents"),
        (json!({"queue": "a b", "input": 1}), "whitespace is not allowed"),
        (json!({"queue": "a/b", "input": 1}), "`/` is not allowed"),
        (json!({"queue": "ü".repeat(60), "input": 1}), "at most 100 bytes"),
        (json!({"queue": "", "input": 1}), "queue"),
        (json!({"queue": "ocr"}), "input"),
        (json!({"queue": "ocr", "input": 1, "deadline": 0}), "deadline"),
        (json!({"queue": "ocr", "input": 1, "heartbeatTimeout": 1.5}), "heartbeatTimeout"),
    ] {
        let error = called(&venue, input.clone()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{input}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_needs_queue_publish_on_the_queue() {
    let Some(office) = Office::open().await else { return };
    let caps = json!([{"with": "queue/ocr", "can": "queue/publish"}]);
    office.venue.agent("clerk", json!({"tools": ["v/ops/queue/publish"], "caps": caps})).await;
    let clerks = office.order("t1", json!({"queue": "ocr-2"})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "done");
    let session = office.job(&clerks).await.head.session;
    let turns = serde_json::to_string(&office.venue.turns("clerk", session.as_str()).await).unwrap();
    assert!(turns.contains("queue/publish on queue/ocr-2"), "{turns}");
    let (_, taken) = office.ordered("t2", json!({})).await;
    assert_eq!(taken.body["queue"], "ocr");
}

#[tokio::test(flavor = "multi_thread")]
async fn sections_that_the_agent_hands_on_stand_beside_the_input() {
    let Some(office) = Office::open().await else { return };
    let tool = json!({"operation": "v/ops/queue/publish", "scopes": {"const": ["input"]}});
    office.venue.agent("clerk", json!({"tools": [tool], "defaultTools": false})).await;
    let (_, taken) = office.ordered("t1", json!({"input": {"page": 8}})).await;
    let scoped = taken.body["scoped"].as_object().unwrap();
    assert_eq!(scoped.keys().collect::<Vec<_>>(), ["input"]);
    assert!(scoped["input"].to_string().contains("heartbeatTimeout"), "the task of the clerk: {scoped:?}");
    assert_eq!(taken.body["input"], json!({"page": 8}), "never merged into what the model says");
}

#[tokio::test]
async fn external_jobs_count_as_children_of_their_session() {
    let call = "{ tool = \"queue_publish\", arguments = { queue = \"ocr\", input = 1, wait = 0 } }";
    let rules = format!(
        "[[rule]]\nwhen = {{ turn = 1 }}\nthen = {{ calls = [{}] }}\n[[rule]]\nthen = {{ text = \"done\" }}\n",
        [call; 9].join(", ")
    );
    let (venue, _dir) = TestVenue::embedded(&rules).await;
    venue.agent("clerk", json!({"tools": ["v/ops/queue/publish"]})).await;
    venue.worker();
    let job = venue.run("clerk", "t1", json!("go")).await;
    let turns = serde_json::to_string(&venue.turns("clerk", job.head.session.as_str()).await).unwrap();
    assert!(turns.contains("8 requests are running already, at most 8 may"), "{turns}");
    let all = jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items;
    assert_eq!(all.iter().filter(|job| job.head.op.is_some()).count(), 8);
}

#[tokio::test]
async fn erasing_a_namespace_erases_its_external_jobs() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.agent("clerk", json!({"tools": ["v/ops/queue/publish"]})).await;
    venue.worker();
    let input = json!({
        "queue": "ocr", "input": "the secret of ann", "wait": 0, "startTimeout": 1, "heartbeatTimeout": 1, "deadline": 1
    });
    let submission = Submission { input, context: Some(vec![json!("app/user/ann")]), ..Submission::default() };
    let clerks = venue.arrive("clerk", "t1", true, submission).await.job.unwrap();
    venue.ended(&clerks).await;
    let erasure = Erasure { namespace: "app/user/ann", recursive: true };
    let erased = erase::erase(&venue.venue, &venue.owner, erasure).await.unwrap();
    assert_eq!(erased.jobs, 2);
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    assert_eq!(all.len(), 2);
    for job in all {
        assert_eq!(job.head.input, "[erased]", "{:?}", job.head.op);
    }
}

#[tokio::test]
async fn a_watch_whose_job_never_came_to_be_is_removed() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, trellis::process::clock::Clock::manual(super::START)).await;
    let times = trellis::domain::job::watch::ExternalTimes::with_defaults(Some(1), None, None);
    let id = trellis::domain::ids::JobId::new(&"0a".repeat(16)).unwrap();
    let watch = trellis::domain::job::watch::ExternalWatch::new(id, "ocr".parse().unwrap(), super::START, times, None);
    external::watch(&venue.venue, &venue.owner, watch.clone()).await.unwrap();
    // Its turn died, and is run again.
    let again = trellis::domain::job::watch::ExternalWatch { due: watch.due.plus(Duration::from_millis(1)), ..watch };
    external::watch(&venue.venue, &venue.owner, again).await.unwrap();
    let keys = async |prefix| venue.venue.store.scan(&venue.owner, prefix, None, false, 10).await.unwrap().len();
    let mut left = Vec::new();
    for wait in [Duration::from_secs(2), Duration::from_mins(30), Duration::from_mins(31)] {
        venue.venue.clock.advance(wait);
        external::check_due(&venue.venue, &venue.owner).await.unwrap();
        left.push((keys(keys::OUTBOUND).await, keys(keys::OUTBOUND_DUE).await));
    }
    assert_eq!(left, [(1, 1), (1, 1), (0, 0)], "it may be about to be opened for an hour");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_nobody_watches_is_missed_by_the_audit() {
    let Some(office) = Office::open().await else { return };
    office.ordered("t1", json!({})).await;
    office.books_are_closed().await;
    let (venue, owner) = (&office.venue.venue, &office.venue.owner);
    let place = office.keys(keys::OUTBOUND_DUE).await.pop().unwrap();
    let write = DocWrite { key: place, expect: Expect::Any, change: DocEffect::Delete };
    venue.store.write(venue.now(), owner, &[write]).await.unwrap();
    assert_eq!(trellis::venue::upkeep::audit::audit_owner(venue, owner).await.unwrap().unaccounted, 1);
}
