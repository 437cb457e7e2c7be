//! Jobs ended from outside their turn.

use super::*;
use trellis::store::{Checkpoint, FinishOutcome, LeaseCheck};

async fn finish(w: &World, now: Millis, id: &str, status: JobStatus) -> FinishOutcome {
    w.store.finish(now, &w.owner, &session("main"), &ends(id, status), None, &[entry("end")]).await.unwrap()
}

async fn cancel(w: &World, now: Millis, id: &str) {
    assert_eq!(finish(w, now, id, JobStatus::Cancelled).await, FinishOutcome::Done);
}

pub async fn an_unknown_job_stays_unknown(w: World) {
    w.agent().await;
    assert_eq!(finish(&w, T0, "e1", JobStatus::Cancelled).await, FinishOutcome::Unknown);
    assert_eq!((w.status("e1").await, w.outbox().await.len()), (None, 0));
}

pub async fn an_unknown_job_is_made_with_open(w: World) {
    let end = ends("e1", JobStatus::Rejected);
    let made = w.store.finish(T0, &w.owner, &session("main"), &end, Some(&new_job("e1")), &[]).await.unwrap();
    assert_eq!(made, FinishOutcome::Done);
    assert_eq!(w.status("e1").await, Some(JobStatus::Rejected));
    assert_eq!(w.result("e1").await.as_deref(), Some("REJECTED e1"));
    assert_eq!(w.text(&keys::job_head(&job("e1"))).await.as_deref(), Some("head of e1"));
    assert!(w.text(&keys::job_list_entry(T0, &job("e1"))).await.is_some());
    let again = w.store.finish(at(1), &w.owner, &session("main"), &end, Some(&new_job("e1")), &[]).await.unwrap();
    assert_eq!(again, FinishOutcome::Already(JobStatus::Rejected));
}

pub async fn the_first_end_of_a_job_wins(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    cancel(&w, at(1), "e1").await;
    assert_eq!(finish(&w, at(2), "e1", JobStatus::Failed).await, FinishOutcome::Already(JobStatus::Cancelled));
    assert_eq!(w.result("e1").await.as_deref(), Some("CANCELLED e1"));
    let status = w.text(&keys::job_status(&job("e1"))).await.unwrap();
    assert_eq!(status, keys::encode_status(JobStatus::Cancelled, at(1)));
}

pub async fn a_finished_jobs_entry_leaves_an_idle_session(w: World) {
    w.agent().await;
    for event in [task("e1"), task("e2"), message("e3")] {
        w.append(T0, "main", event).await;
    }
    cancel(&w, at(1), "e1").await;
    let facts = w.facts("main").await;
    assert_eq!((facts.arrivals, facts.consumed, facts.due), (3, 1, Some(at(1))));
    assert_eq!(w.mailbox("main").await, ["0001|e2", "0001|e3"]);
    // A lapsed lease serves nobody.
    let grant = granted(w.admit_with(at(2), "main", None, Some(ask())).await);
    cancel(&w, grant.until, "e2").await;
    assert_eq!(w.mailbox("main").await, ["0001|e3"]);
}

pub async fn a_finished_jobs_entry_stays_during_a_lease(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    cancel(&w, at(1), "e1").await;
    let facts = w.facts("main").await;
    assert_eq!((facts.consumed, facts.mailbox[0].job_status), (0, Some(JobStatus::Cancelled)));
    // The holder drops it.
    w.done(at(2), &grant).await;
    let facts = w.facts("main").await;
    assert_eq!((facts.consumed, facts.mailbox.len(), facts.due), (1, 0, None));
}

pub async fn the_holder_learns_of_a_cancellation(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    let grant = w.run(T0, task("e2")).await;
    let renew = async |now| w.store.renew(now, &grant.lease, TTL).await.unwrap();
    cancel(&w, at(1), "e2").await;
    assert_eq!(
        renew(at(2)).await,
        LeaseCheck::Held { cancelled: false, policy: 0 },
        "another task than the served one"
    );
    cancel(&w, at(3), "e1").await;
    assert_eq!(renew(at(4)).await, LeaseCheck::Held { cancelled: true, policy: 0 });
    let nothing = trellis::store::Checkpoint { turn: 1, ..Default::default() };
    let held = w.store.checkpoint(at(5), &grant.lease, &nothing).await.unwrap();
    assert_eq!(held, LeaseCheck::Held { cancelled: true, policy: 0 });
}

pub async fn an_end_during_the_lease_leaves_the_session_due(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    cancel(&w, at(1), "e1").await;
    // The holder didn't notice and parks the session for a result that never comes.
    w.store.release(at(2), &grant.lease, release(1)).await.unwrap();
    let due = w.due("main").await.expect("somebody must drop the cancelled task");
    assert!(due <= at(5002), "{due}");
    let next = granted(w.admit_with(due, "main", None, Some(ask())).await);
    assert_eq!(next.mailbox[0].job_status, Some(JobStatus::Cancelled));
}

pub async fn an_end_clears_the_backoff(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e0")).await;
    let grant = w.run(T0, task("e1")).await;
    let backoff = LeaseUse::Release { arrivals: 2, due: Some(at(60_000)), backoff: true };
    w.store.release(at(1), &grant.lease, backoff).await.unwrap();
    cancel(&w, at(2), "e1").await;
    assert_eq!(w.due("main").await, Some(at(2)));
    let grant = granted(w.admit_with(at(3), "main", None, Some(ask())).await);
    assert_eq!(grant.mailbox.len(), 1);
}

/// One that others do for the session, whose result comes as an event.
pub async fn an_end_without_an_entry_leaves_the_session_alone(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e0")).await;
    let grant = w.run(T0, task("e1")).await;
    let child = Checkpoint { turn: 1, open: vec![new_job("child")], ..Checkpoint::default() };
    w.store.checkpoint(at(1), &grant.lease, &child).await.unwrap();
    let backoff = LeaseUse::Release { arrivals: 2, due: Some(at(60_000)), backoff: true };
    assert_eq!(finish(&w, at(2), "child", JobStatus::Complete).await, FinishOutcome::Done);
    w.store.release(at(3), &grant.lease, backoff).await.unwrap();
    assert_eq!(w.due("main").await, Some(at(60_000)), "it ended during the lease");
    w.store
        .finish(at(4), &w.owner, &session("main"), &ends("other", JobStatus::Complete), Some(&new_job("other")), &[])
        .await
        .unwrap();
    assert_eq!(w.due("main").await, Some(at(60_000)));
    assert_eq!(w.wake(at(5), "main").await, LeaseOutcome::Backoff(at(60_000)));
}

pub async fn messages_of_an_end_are_written_with_it(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    cancel(&w, at(1), "e1").await;
    assert_eq!(w.outbox().await, ["end"]);
    w.store.remove_published(&w.owner, &["end".to_owned()]).await.unwrap();
    assert_eq!(finish(&w, at(2), "e1", JobStatus::Failed).await, FinishOutcome::Already(JobStatus::Cancelled));
    assert!(w.outbox().await.is_empty(), "the later end says nothing");
}

/// A result may end a job that has no head here.
pub async fn an_ended_job_gets_no_head(w: World) {
    w.agent().await;
    let result = NewEvent {
        job: Some(job("c")),
        finish: Some(ends("c", JobStatus::Complete)),
        ..event(EventKind::Result, "e1")
    };
    w.append(T0, "main", result).await;
    let finish = ends("c", JobStatus::Cancelled);
    let ended = w.store.finish(at(1), &w.owner, &session("main"), &finish, Some(&new_job("c")), &[]).await.unwrap();
    assert_eq!(ended, trellis::store::FinishOutcome::Already(JobStatus::Complete));
    assert_eq!(w.doc(&keys::job_head(&job("c"))).await.version, 0);
}
