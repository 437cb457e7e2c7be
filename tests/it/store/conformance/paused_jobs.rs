//! Jobs that are paused and go on.

use super::*;
use trellis::store::ParkOutcome;

async fn park(w: &World, now: Millis, id: &str, pause: bool) -> ParkOutcome {
    w.store.set_job_paused(now, &w.owner, &session("main"), &job(id), pause).await.unwrap()
}

async fn look(w: &World, now: Millis) -> Grant {
    granted(w.admit_with(now, "main", None, Some(ask())).await)
}

pub async fn a_paused_job_is_leased_as_paused_and_resumes_unchanged(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    assert_eq!(park(&w, at(1), "e1", true).await, ParkOutcome::Done);
    assert_eq!(park(&w, at(2), "e1", true).await, ParkOutcome::Already(JobStatus::Paused));
    let line = w.text(&keys::job_status(&job("e1"))).await.unwrap();
    assert_eq!(line, keys::encode_paused(JobStatus::Pending, at(1)));
    let grant = look(&w, at(3)).await;
    assert_eq!(grant.mailbox[0].job_status, Some(JobStatus::Paused), "nothing starts it");
    w.store.release(at(4), &grant.lease, release(1)).await.unwrap();
    assert_eq!(w.due("main").await, None);
    assert_eq!(park(&w, at(5), "e1", false).await, ParkOutcome::Done);
    assert_eq!((w.status("e1").await, w.due("main").await), (Some(JobStatus::Pending), Some(at(5))));
    assert_eq!(park(&w, at(6), "e1", false).await, ParkOutcome::Already(JobStatus::Pending));
    assert_eq!(look(&w, at(7)).await.mailbox[0].job_status, Some(JobStatus::Started));
    assert_eq!(park(&w, at(8), "e2", true).await, ParkOutcome::Unknown);
}

pub async fn a_turns_result_for_a_paused_job_counts_on_resume(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    park(&w, at(1), "e1", true).await;
    let asks = Commit { consume: Vec::new(), status: Some((job("e1"), JobStatus::InputRequired)), ..turn(&grant) };
    let done = w.store.commit(at(2), &grant.lease, &asks).await.unwrap();
    let CommitOutcome::Done(trellis::store::Continuation::Held { mailbox, .. }) = done else { panic!("{done:?}") };
    assert_eq!(mailbox[0].job_status, Some(JobStatus::Paused), "the holder sees it");
    assert_eq!(w.status("e1").await, Some(JobStatus::Paused));
    park(&w, at(3), "e1", false).await;
    assert_eq!(w.status("e1").await, Some(JobStatus::InputRequired));
}

pub async fn an_ended_job_cannot_be_paused(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    park(&w, at(1), "e1", true).await;
    let ended = Commit { finish: vec![ends("e1", JobStatus::Complete)], ..turn(&grant) };
    w.store.commit(at(2), &grant.lease, &ended).await.unwrap();
    assert_eq!(w.status("e1").await, Some(JobStatus::Complete), "the running turn was its last");
    for pause in [true, false] {
        assert_eq!(park(&w, at(3), "e1", pause).await, ParkOutcome::Already(JobStatus::Complete));
    }
    let late = Commit { turn: 2, status: Some((job("e1"), JobStatus::Started)), ..turn(&grant) };
    w.store.commit(at(4), &grant.lease, &late).await.unwrap();
    assert_eq!(w.status("e1").await, Some(JobStatus::Complete));
}

pub async fn a_job_resumed_during_a_lease_is_due_again(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    park(&w, at(1), "e1", true).await;
    let grant = look(&w, at(2)).await;
    park(&w, at(3), "e1", false).await;
    w.store.release(at(4), &grant.lease, release(1)).await.unwrap();
    assert_eq!(w.due("main").await, Some(at(4)), "its holder has seen it paused");
}

/// Nobody is to read them any more.
pub async fn messages_to_a_job_leave_with_its_task(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.append(T0, "main", NewEvent { job: Some(job("e1")), ..message("e2") }).await;
    w.append(T0, "main", NewEvent { job: Some(job("other")), ..message("e3") }).await;
    let end = ends("e1", JobStatus::Cancelled);
    w.store.finish(at(1), &w.owner, &session("main"), &end, None, &[]).await.unwrap();
    assert_eq!(w.mailbox("main").await, ["0001|e3"]);
}

pub async fn no_crash_counts_against_a_paused_task(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.append(T0, "main", task("e2")).await;
    park(&w, at(1), "e1", true).await;
    let lapsed = look(&w, at(2)).await;
    let next = look(&w, lapsed.until).await;
    let counts: Vec<_> = next.mailbox.iter().map(|entry| (entry.job_status, entry.crashes)).collect();
    assert_eq!(counts, [(Some(JobStatus::Paused), 0), (Some(JobStatus::Pending), 0)], "nor against those behind it");
}
