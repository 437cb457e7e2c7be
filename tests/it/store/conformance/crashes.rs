//! Failure counting: leases that lapse unreleased.

use super::*;
use trellis::domain::dead::Attempt;
use trellis::domain::job::JobResult;
use trellis::domain::limits::ATTEMPTS_KEPT;
use trellis::store::ReleaseOutcome;

/// Lets the holder crash `n` times; the grants start at `now`, the last one is returned.
async fn crash(w: &World, now: Millis, n: u64) -> Grant {
    let mut grant = granted(w.admit_with(now, "main", None, Some(ask())).await);
    for _ in 0..n {
        grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    }
    grant
}

fn counts(grant: &Grant) -> Vec<(&str, u32)> {
    grant.mailbox.iter().map(|e| (&*e.key, e.crashes)).collect()
}

pub async fn an_expired_lease_counts_a_crash_on_what_it_served(w: World) {
    w.agent().await;
    for event in [message("a"), task("b"), task("c"), event(EventKind::Result, "d")] {
        w.append(T0, "main", event).await;
    }
    let grant = crash(&w, T0, 2).await;
    assert_eq!(counts(&grant), [("0001|a", 2), ("0001|b", 2), ("0001|c", 0), ("0001|d", 2)]);
    assert_eq!(w.facts("main").await.mailbox[0].crashes, 2);
}

pub async fn a_release_counts_no_crash(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    let grant = crash(&w, T0, 1).await;
    // Even long after its end, as long as nobody took it over.
    let late = Millis(grant.until.0 + 1);
    w.store.release(late, &grant.lease, release(1)).await.unwrap();
    let grant = granted(w.admit_with(late, "main", None, Some(ask())).await);
    assert_eq!(counts(&grant), [("0001|e1", 1)], "it neither adds nor resets");
}

pub async fn a_commit_resets_crash_counts(w: World) {
    w.agent().await;
    w.append(T0, "main", message("a")).await;
    w.append(T0, "main", message("b")).await;
    let mut grant = crash(&w, T0, 2).await;
    grant.mailbox.truncate(1);
    let CommitOutcome::Done(Continuation::Held { mailbox, .. }) = w.commit(grant.until, &grant, &turn(&grant)).await
    else {
        panic!("expected to go on")
    };
    assert_eq!((&*mailbox[0].key, mailbox[0].crashes), ("0001|b", 0));
}

pub async fn a_crash_is_not_counted_on_later_arrivals(w: World) {
    w.agent().await;
    w.append(T0, "main", message("b")).await;
    let grant = crash(&w, T0, 0).await;
    w.append(at(1), "main", message("a")).await;
    w.append(at(1), "main", message("c")).await;
    let grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    assert_eq!(counts(&grant), [("0001|a", 0), ("0001|b", 1), ("0001|c", 0)]);
    // What the mailbox limit left behind wasn't served either.
    let limited = LeaseRequest { mailbox_limit: 1, ..ask() };
    let grant = granted(w.admit_with(grant.until, "main", None, Some(limited)).await);
    assert_eq!(counts(&grant), [("0001|a", 1)]);
    let grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    assert_eq!(counts(&grant), [("0001|a", 2), ("0001|b", 2), ("0001|c", 1)]);
}

pub async fn the_limit_fails_the_job_and_still_hands_out_the_entry(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.append(T0, "main", task("e2")).await;
    let grant = crash(&w, T0, 2).await;
    assert_eq!((w.status("e1").await, grant.mailbox[0].crashes), (Some(JobStatus::Started), 2));
    let grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    let dead = &grant.mailbox[0];
    assert_eq!((&*dead.key, dead.crashes, dead.job_status), ("0001|e1", 3, Some(JobStatus::Failed)));
    assert_eq!(w.status("e1").await, Some(JobStatus::Failed));
    assert!(is_dead(&w.result("e1").await.unwrap()));
    assert_eq!(w.status("e2").await, Some(JobStatus::Pending));
    assert_eq!(w.mailbox("main").await.len(), 2, "the worker consumes it");
}

pub async fn a_dead_letter_does_not_undo_an_end(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    let grant = crash(&w, T0, 2).await;
    let end = ends("e1", JobStatus::Cancelled);
    w.store.finish(at(1), &w.owner, &session("main"), &end, None, &[]).await.unwrap();
    let grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    assert_eq!(grant.mailbox[0].job_status, Some(JobStatus::Cancelled));
    assert_eq!(w.result("e1").await.as_deref(), Some("CANCELLED e1"));
}

pub async fn messages_never_fail_a_job(w: World) {
    w.agent().await;
    w.append(T0, "main", NewEvent { order: "0000".into(), ..message("m") }).await;
    let grant = crash(&w, T0, 3).await;
    assert_eq!(grant.mailbox[0].crashes, 3);
    w.append(grant.until, "main", task("e1")).await;
    let grant = granted(w.admit_with(grant.until, "main", None, Some(ask())).await);
    assert_eq!(counts(&grant), [("0000|m", 4), ("0001|e1", 0)]);
    assert_eq!(w.status("e1").await, Some(JobStatus::Started));
}

/// A name that has all that JSON and a line of words make hard.
const WORKER: &str = "büro/3 \"a\\b\" {verdict} %1";

pub async fn a_grant_tells_who_died_before_it(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.append(T0, "main", task("e2")).await;
    let by = |worker: &str| LeaseRequest { worker: worker.to_owned(), ..ask() };
    let mut grant = granted(w.admit_with(T0, "main", None, Some(by("w1"))).await);
    assert!(grant.attempts.is_empty());
    let mut died: Vec<Attempt> = Vec::new();
    for (worker, next) in [("w1", "w2"), ("w2", WORKER), (WORKER, WORKER)] {
        assert_eq!(grant.attempts, died);
        let epoch = grant.lease.epoch;
        died.push(Attempt { worker: worker.into(), epoch, turn: 1, lapsed: grant.until, job: Some(job("e1")) });
        // It is found out some time later.
        let later = Millis(grant.until.0 + 7);
        grant = granted(w.admit_with(later, "main", None, Some(by(next))).await);
    }
    assert_eq!(grant.attempts, died);
    let result: JobResult = serde_json::from_str(&w.result("e1").await.unwrap()).unwrap();
    let told = "its worker died 3 times while serving it: `w1`, `w2`, `büro/3 \"a\\b\" {verdict} %1`";
    assert_eq!(result.error.as_deref(), Some(told));
    // The turn that takes it out of the mailbox forgets them; the next task starts anew.
    grant.mailbox.truncate(1);
    w.commit(grant.until, &grant, &turn(&grant)).await;
    let grant = granted(w.admit_with(grant.until, "main", None, Some(by("w4"))).await);
    let [second] = grant.attempts.as_slice() else { panic!("one since the commit, got {:?}", grant.attempts) };
    assert_eq!((second.turn, &second.job), (2, &Some(job("e2"))));
    let told = granted(w.admit_with(grant.until, "main", None, Some(by("w5"))).await).attempts;
    assert_eq!(told.iter().map(|attempt| attempt.epoch).collect::<Vec<_>>(), [second.epoch, grant.lease.epoch]);
}

pub async fn crash_reports_are_bounded(w: World) {
    w.agent().await;
    w.append(T0, "main", message("m")).await;
    let grant = crash(&w, T0, ATTEMPTS_KEPT as u64 + 5).await;
    let epochs: Vec<u64> = grant.attempts.iter().map(|attempt| attempt.epoch).collect();
    assert!(
        epochs.len() == ATTEMPTS_KEPT && epochs.is_sorted() && epochs.last() < Some(&grant.lease.epoch),
        "{epochs:?}"
    );
    assert_eq!((grant.mailbox[0].crashes as usize, &grant.attempts[0].job), (ATTEMPTS_KEPT + 5, &None));
}

pub async fn a_holder_that_lives_is_charged_with_nothing(w: World) {
    w.agent().await;
    for event in [message("a"), task("b"), task("c")] {
        w.append(T0, "main", event).await;
    }
    let first = crash(&w, T0, 0).await;
    let second = granted(w.admit_with(first.until, "main", None, Some(ask())).await);
    let third = granted(w.admit_with(second.until, "main", None, Some(ask())).await);
    let charged = async || {
        let found = w.facts("main").await.mailbox;
        found.iter().map(|entry| entry.crashes).collect::<Vec<_>>()
    };
    assert_eq!(charged().await, [2, 2, 0]);
    // Only the last one can tell; of the first nobody knows any more what it served.
    for (lease, expected) in [(&first, [2, 2, 0]), (&second, [1, 1, 0]), (&second, [1, 1, 0]), (&first, [1, 1, 0])] {
        let late = w.store.release(third.until, &lease.lease, release(3)).await.unwrap();
        assert_eq!((late, charged().await), (ReleaseOutcome::Fenced, expected.to_vec()));
    }
    let grant = granted(w.admit_with(third.until, "main", None, Some(ask())).await);
    assert_eq!(counts(&grant), [("0001|a", 2), ("0001|b", 2), ("0001|c", 0)]);
    let epochs: Vec<_> = grant.attempts.iter().map(|attempt| attempt.epoch).collect();
    assert_eq!(epochs, [first.lease.epoch, third.lease.epoch]);
}
