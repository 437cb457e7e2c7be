//! Deleting a job takes all that belongs to it, and nothing that is still needed.

use crate::support::venue::TestVenue;
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::time::Millis;
use trellis::domain::timer::{CatchUpPolicy, OverlapPolicy, Schedule, TimerId, TimerKind, TimerRequest};
use trellis::process::clock::Clock;
use trellis::store::{Admit, DocEffect, DocWrite, Expect, Grant, LeaseOutcome, LeaseRequest, LeaseUse, keys};
use trellis::venue::dead_letters;
use trellis::venue::jobs;
use trellis::venue::timers;
use trellis::venue::upkeep::retention::{DeletionOutcome, delete};

/// 2026-01-01T00:00:00Z.
const START: Millis = Millis(1_767_225_600_000);

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "clerk", input = "count", wait = 0 } }] }

# What a job waits for is kept with it.
[[rule]]
when = { agent = "boss" }
then = { text = "done", fault = "overloaded", times = 1 }

[[rule]]
then = { text = "done" }
"#;

/// Documents that are named after a job.
async fn named(venue: &TestVenue, job: &JobId) -> Vec<String> {
    let all = venue.venue.store.scan(&venue.owner, "", None, false, 100_000).await.unwrap();
    all.into_iter().map(|(key, _)| key).filter(|key| key.contains(job.as_str())).collect()
}

async fn found(venue: &TestVenue, job: &JobId) -> Job {
    jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap()
}

async fn deleted(venue: &TestVenue, job: &JobId) -> DeletionOutcome {
    delete(&venue.venue, &venue.owner, &found(venue, job).await).await.unwrap()
}

/// Deletes it when its worker has let go of it.
async fn gone(venue: &TestVenue, job: &JobId) {
    for _ in 0..6_000 {
        match deleted(venue, job).await {
            DeletionOutcome::Done => return,
            DeletionOutcome::InMailbox => tokio::time::sleep(Duration::from_millis(10)).await,
            kept @ (DeletionOutcome::Open | DeletionOutcome::Spending) => panic!("{kept:?}"),
        }
    }
    panic!("job {job} lies in its mailbox for ever");
}

/// A worker that takes a session, and dies.
async fn grant(venue: &TestVenue, session: &SessionKey, worker: &str) -> Grant {
    let lease = LeaseRequest {
        token: worker.to_owned(),
        worker: worker.to_owned(),
        ttl: Duration::from_secs(10),
        mailbox_limit: 9,
        crash_limit: 5,
        owner_cap: 0,
    };
    let request = Admit { owner: venue.owner.clone(), session: session.clone(), event: None, lease: Some(lease) };
    match venue.venue.store.admit(venue.venue.now(), &request).await.unwrap().lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_job_leaves_nothing_and_its_id_is_new_again() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.agent("boss", json!({"tools": ["agent/request"]})).await;
    venue.agent("clerk", json!({})).await;
    venue.worker();
    let submission = || {
        let budget = serde_json::from_value(json!({"turns": 20})).unwrap();
        Submission { input: json!("go"), budget, ..Submission::default() }
    };
    let parent = venue.arrive("boss", "t1", true, submission()).await.job.unwrap();
    assert_eq!(venue.ended(&parent).await.status, JobStatus::Complete);
    let kept = named(&venue, &parent).await;
    for belongs in [keys::job_wait(&parent), keys::account(&format!("{parent}-request"))] {
        assert!(kept.contains(&belongs), "{belongs} of {kept:#?}");
    }
    let prefix = keys::job_children(&parent);
    let child: JobId = kept.iter().find_map(|key| key.strip_prefix(&prefix)).unwrap().parse().unwrap();
    gone(&venue, &parent).await;
    assert_eq!(named(&venue, &parent).await, Vec::<String>::new());
    gone(&venue, &child).await;
    assert_eq!(named(&venue, &child).await, Vec::<String>::new());
    assert_eq!(jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().total, 0);
    let again = venue.arrive("boss", "t1", true, submission()).await;
    assert_eq!((again.duplicate, again.job.as_ref()), (false, Some(&parent)));
    assert_eq!(venue.ended(&parent).await.status, JobStatus::Complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_dead_job_deletes_its_dead_letter() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    venue.agent("clerk", json!({})).await;
    let submitted = venue.submit("clerk", "t1", json!("go")).await;
    let (job, session) = (submitted.job.unwrap(), submitted.session);
    for n in 0..5 {
        let until = grant(&venue, &session, &format!("victim {n}")).await.until;
        venue.venue.clock.advance(until.elapsed_since(venue.venue.now()));
    }
    venue.worker();
    let died = venue.ended(&job).await;
    assert_eq!(died.result.unwrap().error_code, Some(ErrorCode::Dead));
    gone(&venue, &job).await;
    assert_eq!(named(&venue, &job).await, Vec::<String>::new());
    assert_eq!(dead_letters::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().total, 0);
}

#[tokio::test]
async fn records_still_needed_are_not_deleted() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    venue.agent("clerk", json!({})).await;
    let submitted = venue.submit("clerk", "t1", json!("go")).await;
    let (job, session) = (submitted.job.unwrap(), submitted.session);
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::Open);
    // Its worker learns of the end with its next renewal; until then its task lies in the mailbox.
    let lease = grant(&venue, &session, "w").await;
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    assert_eq!(lease.mailbox.len(), 1);
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::InMailbox);
    // A job that it has started goes on.
    let ended = venue.submit("clerk", "t2", json!("go")).await.job.unwrap();
    let child = venue.submit("clerk", "t3", json!("go")).await.job.unwrap();
    put(&venue, keys::job_child(&ended, &child), Bytes::new()).await;
    put(&venue, keys::job_status(&ended), keys::encode_status(JobStatus::Cancelled, venue.venue.now())).await;
    assert_eq!(deleted(&venue, &ended).await, DeletionOutcome::Spending);
    for id in [&job, &ended] {
        assert_eq!(found(&venue, id).await.status, JobStatus::Cancelled);
    }
}

async fn put(venue: &TestVenue, key: String, value: impl Into<Bytes>) {
    let write = DocWrite { key, expect: Expect::Any, change: DocEffect::Put(value.into()) };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
}

#[tokio::test]
async fn a_job_of_a_working_session_stays_until_it_is_idle() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    venue.agent("clerk", json!({})).await;
    let submitted = venue.submit("clerk", "t1", json!("go")).await;
    let (job, session) = (submitted.job.unwrap(), submitted.session);
    let held = grant(&venue, &session, "w").await;
    put(&venue, keys::job_status(&job), keys::encode_status(JobStatus::Complete, venue.venue.now())).await;
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::InMailbox, "the queue may deliver it again");
    let then = LeaseUse::Release { arrivals: held.arrivals, due: None, backoff: false };
    venue.venue.store.release(venue.venue.now(), &held.lease, then).await.unwrap();
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::Done);
}

#[tokio::test]
async fn a_job_that_pays_for_a_timer_stays_as_long_as_it_fires() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    venue.agent("clerk", json!({})).await;
    let job = venue.submit("clerk", "t1", json!("go")).await.job.unwrap();
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    let account = format!("{job}-request");
    put(&venue, keys::account(&account), "{}").await;
    let envelope = Envelope { accounts: vec![account], ..Envelope::default() };
    let timer = TimerRequest {
        id: TimerId::from_text("t"),
        name: None,
        origin: "t".parse().unwrap(),
        asked: None,
        place: None,
        agent: "clerk".parse().unwrap(),
        kind: TimerKind::Task,
        submission: Submission { input: json!("go"), envelope, ..Submission::default() },
        schedule: Schedule::Every { every: 60_000, start: START },
        catch_up: CatchUpPolicy::default(),
        overlap: OverlapPolicy::default(),
    };
    trellis::venue::ingress::timers::set(&venue.venue, &venue.owner, &timer).await.unwrap();
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::Spending);
    timers::cancel(&venue.venue, &venue.owner, &timer.id).await.unwrap();
    assert_eq!(deleted(&venue, &job).await, DeletionOutcome::Done);
}
