//! What a killed worker held is free after its lease and a sweep; what may have killed it waits without a slot.

use crate::support::both_stores::On;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::JobStatus;
use trellis::domain::limits::GRANT_EVENTS;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{Admit, Grant, LeaseOutcome, LeaseRequest, SessionFacts};
use trellis::venue::ingress::SubmitReceipt;
use trellis::venue::jobs;

const START: Millis = Millis(1_767_225_600_000);
const LEASE: Duration = Duration::from_secs(30);
const SWEEP: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(1);

/// `stuck` has nothing to say for ever, `quick` answers.
const RULES: &str = r#"
[[rule]]
when = { agent = "stuck" }
then = { delay_ms = 3600000, text = "at last" }

[[rule]]
then = { text = "done" }
"#;

async fn venue(on: On) -> Option<(TestVenue, TempDir)> {
    let clock = Clock::manual(START);
    let (mut venue, dir) = on.venue(RULES, clock).await?;
    (venue.lease, venue.sweep) = (LEASE, SWEEP);
    Some((venue, dir))
}

/// A worker takes a session, and is killed.
async fn killed(venue: &TestVenue, session: &SessionKey, worker: &str) -> Grant {
    let lease = LeaseRequest {
        token: format!("{worker}-{}", session.session),
        worker: worker.into(),
        ttl: LEASE,
        mailbox_limit: GRANT_EVENTS,
        crash_limit: 5,
        owner_cap: venue.owner_cap,
    };
    let admit = Admit { owner: venue.owner.clone(), session: session.clone(), event: None, lease: Some(lease) };
    let answer = venue.venue.store.admit(venue.venue.now(), &admit).await.unwrap();
    let LeaseOutcome::Run(grant) = answer.lease else { panic!("expected a grant, got {:?}", answer.lease) };
    *grant
}

async fn session(venue: &TestVenue, key: &SessionKey) -> SessionFacts {
    let all = venue.venue.store.sessions(&venue.owner, Some(&key.agent), None, 10).await.unwrap();
    all.into_iter().find(|facts| facts.key == *key).unwrap()
}

async fn status(venue: &TestVenue, submitted: &SubmitReceipt) -> JobStatus {
    let job = submitted.job.as_ref().unwrap();
    jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap().status
}

/// Moves the clock until the task is over, and says how far.
async fn waited(venue: &TestVenue, submitted: &SubmitReceipt) -> Duration {
    let (begin, start) = (venue.venue.now(), Instant::now());
    loop {
        for _ in 0..20 {
            if status(venue, submitted).await.is_terminal() {
                return venue.venue.now().elapsed_since(begin);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{:?} after {:?}",
            status(venue, submitted).await,
            venue.venue.now().elapsed_since(begin)
        );
        venue.venue.clock.advance(Duration::from_millis(250));
    }
}

async fn a_slot_is_free_after_lease_and_sweep(on: On, owner_cap: u32) {
    let Some((mut venue, _dir)) = venue(on).await else { return };
    venue.owner_cap = owner_cap;
    // One slot: of the agent, or of the owner.
    let concurrency = if owner_cap == 0 { 1 } else { 8 };
    venue.agent("quick", json!({"concurrency": concurrency})).await;
    let first = venue.submit("quick", "t1", json!("first")).await;
    let grant = killed(&venue, &first.session, "victim").await;
    let second = venue.submit("quick", "t2", json!("second")).await;
    venue.worker();
    // Nobody runs before the lease is over.
    venue.venue.clock.advance(LEASE.saturating_sub(Duration::from_millis(1)));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(status(&venue, &second).await, JobStatus::Pending);
    }
    assert!(venue.venue.now() < grant.until);
    let most = SWEEP + Duration::from_millis(500);
    assert!(waited(&venue, &second).await <= most, "the one that waited");
    let rest = waited(&venue, &first).await;
    assert!(rest <= most, "the one whose worker was killed, after {rest:?}");
}

#[tokio::test]
async fn a_killed_workers_slot_is_free_after_the_sweep() {
    a_slot_is_free_after_lease_and_sweep(On::Embedded, 0).await;
    a_slot_is_free_after_lease_and_sweep(On::Embedded, 1).await;
}

#[tokio::test]
async fn a_killed_workers_slot_is_free_after_the_sweep_on_redis() {
    a_slot_is_free_after_lease_and_sweep(On::Redis, 0).await;
    a_slot_is_free_after_lease_and_sweep(On::Redis, 1).await;
}

/// Two sessions whose workers were killed twice: they run one at a time, and the one that waits leaves its slot
/// to others.
async fn a_suspect_holds_no_slot_while_it_waits(on: On) {
    let Some((mut venue, _dir)) = venue(on).await else { return };
    // Two slots for all agents of the owner.
    venue.owner_cap = 2;
    venue.agent("stuck", json!({})).await;
    venue.agent("quick", json!({})).await;
    let suspects = [venue.submit("stuck", "s1", json!("x")).await, venue.submit("stuck", "s2", json!("y")).await];
    for n in 0..2 {
        for suspect in &suspects {
            killed(&venue, &suspect.session, &format!("victim {n}")).await;
        }
        venue.venue.clock.advance(LEASE + Duration::from_millis(1));
    }
    venue.worker();
    let start = Instant::now();
    let held = |facts: &SessionFacts, now: Millis| facts.lease_until.is_some_and(|until| until > now);
    loop {
        let (first, second) =
            (session(&venue, &suspects[0].session).await, session(&venue, &suspects[1].session).await);
        let now = venue.venue.now();
        let crashes: Vec<_> = [&first, &second].map(|facts| facts.mailbox[0].crashes).into();
        // One is served, the other was looked at and given back.
        if crashes == [2, 2] && held(&first, now) != held(&second, now) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{first:?} {second:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        venue.venue.clock.advance(Duration::from_millis(50));
    }
    let quick = venue.submit("quick", "q1", json!("z")).await;
    let waited = waited(&venue, &quick).await;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    for suspect in &suspects {
        let facts = session(&venue, &suspect.session).await;
        assert_eq!(facts.mailbox[0].crashes, 2, "to wait is no crash");
    }
}

#[tokio::test]
async fn a_suspect_task_waits_without_a_slot() {
    a_suspect_holds_no_slot_while_it_waits(On::Embedded).await;
}

#[tokio::test]
async fn a_suspect_task_waits_without_a_slot_on_redis() {
    a_suspect_holds_no_slot_while_it_waits(On::Redis).await;
}
