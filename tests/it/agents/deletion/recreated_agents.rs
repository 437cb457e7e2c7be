//! An agent that is made anew while its end goes on: the end is that of the agent that was, and of no other.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use trellis::domain::authority::trail::Trail;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::principal::Principal;
use trellis::store::{Admit, Grant, LeaseOutcome, LeaseRequest, LeaseUse, MailboxEntry};
use trellis::venue::agents::lifecycle::{AgentEditor, LifecycleError};
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::jobs;

async fn remove(venue: &TestVenue) -> Result<usize, LifecycleError> {
    let (authority, trail) = (Authority::without_limits(), Trail::default());
    let by = AgentEditor { authority: &authority, trail: &trail, turn: false };
    deletion::remove(&venue.venue, &venue.owner, &"a".parse().unwrap(), by).await
}

/// The job of a task, when it is accepted.
async fn task(venue: &TestVenue, session: &str) -> Option<JobId> {
    let arrival = Arrival {
        owner: venue.owner.clone(),
        agent: "a".parse().unwrap(),
        task: true,
        id: ingress::fresh_id(),
        submission: Submission { session_id: Some(session.parse().unwrap()), ..Submission::default() },
        received: venue.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    ingress::submit(&venue.venue, &arrival).await.ok().and_then(|submitted| submitted.job)
}

/// Every task that was accepted has ended or waits in a mailbox.
async fn are_kept(venue: &TestVenue, accepted: &[JobId]) {
    let sessions = venue.venue.store.sessions(&venue.owner, None, None, 500).await.unwrap();
    let waiting: BTreeSet<_> =
        sessions.iter().flat_map(|session| &session.mailbox).filter_map(MailboxEntry::open_task).collect();
    for job in accepted {
        let known = jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        assert!(known.status.is_terminal() || waiting.contains(job), "{:?} and in no mailbox", known.status);
    }
}

async fn grant(venue: &TestVenue, session: &str) -> Grant {
    let lease = LeaseRequest {
        token: "w".into(),
        worker: "w".into(),
        ttl: Duration::from_mins(1),
        mailbox_limit: 9,
        crash_limit: 5,
        owner_cap: 0,
    };
    let session = SessionKey { agent: "a".parse().unwrap(), session: session.parse().unwrap() };
    let request = Admit { owner: venue.owner.clone(), session, event: None, lease: Some(lease) };
    match venue.venue.store.admit(venue.venue.now(), &request).await.unwrap().lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_accepted_while_a_removal_waits_are_kept() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("a", with(&[])).await;
        task(&venue, "s").await.unwrap();
        let held = grant(&venue, "s").await;
        let submit = async {
            while json!(venue.record("a").await.status) != "TERMINATED" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let making = venue.agent("a", with(&[]));
            let others = async {
                let mut accepted = Vec::new();
                for session in ["s", "new", "s", "new", "s"] {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    accepted.extend(task(&venue, session).await);
                }
                let then = LeaseUse::Release { arrivals: u64::MAX, due: None, backoff: false };
                venue.venue.store.release(venue.venue.now(), &held.lease, then).await.unwrap();
                accepted
            };
            tokio::join!(making, others).1
        };
        let (removed, mut accepted) = tokio::join!(remove(&venue), submit);
        removed.unwrap();
        accepted.extend(Some(task(&venue, "s").await.expect("it is there, and new")));
        are_kept(&venue, &accepted).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_beside_each_other_take_nothing_of_the_next_agent() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("a", with(&[])).await;
        // Until one was accepted: how the four get their turns is the machine's.
        let is_over = AtomicBool::new(false);
        let removing = async || {
            while !is_over.load(Ordering::Relaxed) {
                match remove(&venue).await {
                    Ok(_) | Err(LifecycleError::Unknown(_) | LifecycleError::Store(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                tokio::task::yield_now().await;
            }
        };
        let making = async {
            while !is_over.load(Ordering::Relaxed) {
                venue.agent("a", with(&[])).await;
                tokio::task::yield_now().await;
            }
        };
        let submitting = async {
            let (mut accepted, mut n) = (Vec::new(), 0);
            while n < 300 || accepted.is_empty() {
                accepted.extend(task(&venue, ["s", "t", "u"][n % 3]).await);
                n += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            accepted
        };
        let (.., accepted) = tokio::join!(removing(), removing(), making, submitting);
        are_kept(&venue, &accepted).await;
    }
}
