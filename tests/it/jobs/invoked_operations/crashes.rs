//! The process dies before or after each write of an invoked operation's life; another goes on.

use crate::support::operate;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::ids::{EventId, JobId, VenueIdSubject};
use trellis::domain::invocation::{InvokedOperation, OperationCaller, session};
use trellis::domain::job::{JobHead, JobStatus};
use trellis::domain::principal::Principal;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::keys;
use trellis::venue::jobs;
use trellis::venue::operation_jobs::{self, InvokedAdmission};
use trellis::venue::upkeep::audit;

/// The head of an operation's job, and its record.
fn ordered(venue: &TestVenue, op: &str, input: &Value) -> (JobHead, InvokedOperation) {
    let (key, now) = (EventId::new("k1").unwrap(), venue.venue.now());
    let event = EventId::of_venue(&venue.venue.key, VenueIdSubject::Operation { owner: &venue.owner, key: &key });
    let id = JobId::derive(&venue.venue.key, &venue.owner, &event);
    let session = session(&id);
    let head = json!({"id": id, "event": event, "op": op, "agent": session.agent, "session": session.session, "input": input, "created": now});
    let caller = operate::boss(&venue.owner);
    let asker = OperationCaller {
        name: caller.name,
        operator: true,
        authority: caller.authority,
        envelope: caller.envelope,
        principal: Principal::ANYBODY,
        token_owner: None,
    };
    (serde_json::from_value(head).unwrap(), InvokedOperation::new(id, key, asker, now))
}

/// Two processes on one store: the first dies at its `n`-th write. Whether it came that far.
async fn dies_at(redis: bool, n: u64, at: FaultAt, op: &str, input: &Value) -> Option<bool> {
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let (second, dir) = if redis {
        let (venue, dir, _) = TestVenue::redis_at(RedisServer::shared()?, "", clock.clone()).await;
        (venue, dir)
    } else {
        TestVenue::embedded_at("", clock.clone()).await
    };
    let faulty = FaultyStore::new(Arc::clone(&second.venue.store), FaultPlan::Never);
    let queue = EmbeddedStore::open(&dir.path().join("first")).unwrap();
    let bus = EmbeddedBus::new(queue, Duration::from_secs(2), clock.clone()).unwrap();
    let first = TestVenue::at(faulty.clone(), Arc::new(bus), dir.path(), "", clock.clone()).await;
    faulty.set_plan(FaultPlan::From { n, at });
    let (head, record) = ordered(&first, op, input);
    let accepted = operation_jobs::admit(&first.venue, &first.owner, &head, &record).await;
    if accepted.is_ok() {
        operate::try_as_worker(&first.venue, &first.owner).await;
    }
    let came = !faulty.injected_faults().is_empty();
    // The second one, once what the first held has lapsed.
    clock.advance(Duration::from_mins(1));
    operate::as_worker(&second.venue, &second.owner).await;
    let job = jobs::get(&second.venue, &second.owner, &head.id).await.unwrap();
    if matches!(accepted, Ok(InvokedAdmission::Done)) {
        let job = job.expect("what was accepted is there");
        assert!(job.status.is_terminal(), "{op} at {n} {at:?}: {:?}", job.status);
    } else if let Some(job) = job {
        assert!(job.status.is_terminal(), "the answer was lost, and it ran");
    }
    let log = second.read("w/log").await;
    assert!(log.is_none() || log == Some(json!([1])), "never twice: {log:?} at {n} {at:?}");
    if let Some(job) = jobs::get(&second.venue, &second.owner, &head.id).await.unwrap() {
        let known = job.status == JobStatus::Complete;
        let code = job.result.and_then(|result| result.error_code).map(|code| json!(code));
        assert!(known || code == Some(json!("OUTCOME_UNKNOWN")), "{op} at {n} {at:?}: {:?} {code:?}", job.status);
        assert!(known || op != "v/ops/test/echo", "what only reads is run again");
        assert!(log.is_some() || !known || op == "v/ops/test/echo", "what is said to be done is done");
    }
    for prefix in ["i/", keys::INVOKED_DUE] {
        let left = second.venue.store.scan(&second.owner, prefix, None, false, 10).await.unwrap();
        assert!(left.is_empty(), "{op} at {n} {at:?}: {left:?}");
    }
    assert_eq!(audit::audit_owner(&second.venue, &second.owner).await.unwrap().unaccounted, 0);
    Some(came)
}

async fn accepted_work_is_done_once(redis: bool) {
    for (op, input) in
        [("v/ops/test/echo", json!({"a": 1})), ("v/ops/lattice/append", json!({"path": "w/log", "value": 1}))]
    {
        for at in [FaultAt::Before, FaultAt::After] {
            let mut n = 1;
            loop {
                match dies_at(redis, n, at, op, &input).await {
                    Some(true) => n += 1,
                    Some(false) => break,
                    None => return,
                }
            }
            assert!(n > 3, "admitted, taken, ended at least: {n}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_work_is_done_once_on_the_embedded_store() {
    accepted_work_is_done_once(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_work_is_done_once_on_redis() {
    accepted_work_is_done_once(true).await;
}
