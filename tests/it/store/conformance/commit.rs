//! Stage 7: everything or nothing, fenced, idempotent.

use super::*;
use trellis::store::{Checkpoint, DocConflict, FinishOutcome};

async fn cancel(w: &World, now: Millis, id: &str) -> FinishOutcome {
    let end = ends(id, JobStatus::Cancelled);
    w.store.finish(now, &w.owner, &session("main"), &end, None, &[]).await.unwrap()
}

/// A commit with a bit of everything.
fn full(grant: &Grant) -> Commit {
    Commit {
        writes: vec![put("w/a", "1"), put("w/b", "2")],
        finish: vec![ends("e1", JobStatus::Complete)],
        outbox: vec![entry("m1")],
        ..turn(grant)
    }
}

pub async fn a_commit_applies_everything(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    let commit = Commit { after_commit: release(1), ..full(&grant) };
    assert_eq!(w.commit(at(1), &grant, &commit).await, CommitOutcome::Done(RELEASED));
    assert_eq!(w.text("w/a").await.as_deref(), Some("1"));
    let status = w.text(&keys::job_status(&job("e1"))).await.unwrap();
    assert_eq!(status, keys::encode_status(JobStatus::Complete, at(1)));
    assert_eq!(w.result("e1").await.as_deref(), Some("COMPLETE e1"));
    assert_eq!(w.outbox().await, ["m1"]);
    let facts = w.facts("main").await;
    assert_eq!((facts.version, facts.consumed, facts.lease_until, facts.due), (1, 1, None, None));
    assert!(facts.mailbox.is_empty());
    let next = w.run(at(2), message("e2")).await;
    assert_eq!((next.version, next.state.as_deref()), (1, Some(&b"state"[..])));
}

pub async fn a_commit_is_idempotent_while_held(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    w.append(T0, "main", message("e2")).await;
    let CommitOutcome::Done(first) = w.commit(at(1), &grant, &full(&grant)).await else { panic!("expected a commit") };
    w.store.remove_published(&w.owner, &["m1".to_owned()]).await.unwrap();
    let CommitOutcome::Done(again) = w.commit(at(2), &grant, &full(&grant)).await else { panic!("expected the same") };
    assert_eq!(held(first), held(again));
    assert_eq!((w.doc("w/a").await.version, w.facts("main").await.version), (1, 1));
    assert!(w.outbox().await.is_empty(), "a published message isn't written again");
}

pub async fn a_commit_is_idempotent_after_its_release(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    let commit = Commit { after_commit: release(1), ..full(&grant) };
    for _ in 0..2 {
        assert_eq!(w.commit(at(1), &grant, &commit).await, CommitOutcome::Done(RELEASED));
    }
    assert_eq!((w.doc("w/a").await.version, w.facts("main").await.consumed), (1, 1));
}

pub async fn a_commit_is_known_after_another_was_granted(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    let commit = Commit { after_commit: release(1), ..full(&grant) };
    w.commit(at(1), &grant, &commit).await;
    let next = w.run(at(2), message("e2")).await;
    assert_eq!(w.commit(at(3), &grant, &commit).await, CommitOutcome::Done(RELEASED));
    w.done(at(4), &next).await;
}

pub async fn a_later_commit_of_a_holder_that_released_is_fenced(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.done(at(1), &grant).await;
    let second = Commit { turn: 2, ..full(&grant) };
    assert_eq!(w.commit(at(2), &grant, &second).await, CommitOutcome::Fenced);
    assert_eq!(w.doc("w/a").await.version, 0);
}

pub async fn a_commit_of_another_turn_is_fenced(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    for turn in [0, 2] {
        assert_eq!(w.commit(at(1), &grant, &Commit { turn, ..full(&grant) }).await, CommitOutcome::Fenced);
    }
    assert_eq!((w.doc("w/a").await.version, w.facts("main").await.version), (0, 0));
}

pub async fn a_commit_of_an_old_epoch_is_fenced(w: World) {
    w.agent().await;
    let old = w.run(T0, task("e1")).await;
    let new = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(w.commit(at(30_001), &old, &full(&old)).await, CommitOutcome::Fenced);
    assert_eq!((w.doc("w/a").await.version, w.outbox().await.len()), (0, 0));
    assert_eq!((w.status("e1").await, w.mailbox("main").await.len()), (Some(JobStatus::Started), 1));
    w.done(at(30_002), &new).await;
    assert_eq!(w.commit(at(30_003), &old, &full(&old)).await, CommitOutcome::Fenced);
}

pub async fn a_conflict_writes_nothing(w: World) {
    w.agent().await;
    w.write(T0, &[put("w/a", "0")]).await;
    let grant = w.run(T0, task("e1")).await;
    let expecting = |key: &str, version| DocWrite { expect: Expect::Version(version), ..put(key, "x") };
    let writes = vec![put("w/c", "x"), expecting("w/a", 2), expecting("w/b", 0), expecting("w/d", 7)];
    let commit = Commit { writes, ..full(&grant) };
    let CommitOutcome::Conflict(mut conflicts) = w.commit(at(1), &grant, &commit).await else {
        panic!("expected a conflict")
    };
    conflicts.sort_by(|a, b| a.key.cmp(&b.key));
    let conflict = |key: &str, actual| DocConflict { key: key.to_owned(), actual };
    assert_eq!(conflicts, [conflict("w/a", 1), conflict("w/d", 0)]);
    assert_eq!((w.doc("w/b").await.version, w.doc("w/c").await.version), (0, 0));
    let facts = w.facts("main").await;
    assert_eq!((facts.version, facts.mailbox.len(), w.outbox().await.len()), (0, 1, 0));
    // The same turn again, on the newer version.
    let commit = Commit { writes: vec![expecting("w/a", 1)], ..full(&grant) };
    assert!(matches!(w.commit(at(2), &grant, &commit).await, CommitOutcome::Done(_)));
}

pub async fn a_cancelled_task_stops_the_commit(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    assert_eq!(cancel(&w, at(1), "e1").await, FinishOutcome::Done);
    let commit = Commit { unless_cancelled: Some(job("e1")), ..full(&grant) };
    assert_eq!(w.commit(at(2), &grant, &commit).await, CommitOutcome::Cancelled);
    assert_eq!((w.doc("w/a").await.version, w.facts("main").await.version), (0, 0));
    assert!(w.outbox().await.is_empty());
}

pub async fn a_commit_that_knows_of_the_cancellation_passes(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    cancel(&w, at(1), "e1").await;
    assert!(matches!(w.commit(at(2), &grant, &full(&grant)).await, CommitOutcome::Done(_)));
    assert_eq!(w.status("e1").await, Some(JobStatus::Cancelled), "the first end stays");
    assert_eq!(w.result("e1").await.as_deref(), Some("CANCELLED e1"));
    assert!(w.mailbox("main").await.is_empty());
}

pub async fn a_keep_hands_out_the_mailbox(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.append(at(1), "main", message("e2")).await;
    let CommitOutcome::Done(next) = w.commit(at(2), &grant, &turn(&grant)).await else { panic!("expected a commit") };
    assert_eq!(held(next), (vec!["0001|e2".to_owned()], 2));
    let facts = w.facts("main").await;
    assert_eq!((facts.lease_until, facts.due), (Some(grant.until), Some(grant.until)));
}

pub async fn a_keep_starts_the_next_task(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    let mut grant = w.run(T0, task("e2")).await;
    grant.mailbox.truncate(1);
    let CommitOutcome::Done(next) = w.commit(at(1), &grant, &turn(&grant)).await else { panic!("expected a commit") };
    let Continuation::Held { mailbox, .. } = next else { panic!("expected to keep the lease") };
    assert_eq!(mailbox[0].job_status, Some(JobStatus::Started));
    assert_eq!(w.status("e2").await, Some(JobStatus::Started));
    // It is the served one now: its cancellation reaches the holder.
    cancel(&w, at(2), "e2").await;
    let renewed = w.store.renew(at(3), &grant.lease, TTL).await.unwrap();
    assert_eq!(renewed, trellis::store::LeaseCheck::Held { cancelled: true, policy: 0 });
}

pub async fn a_release_holds_on_when_more_arrived(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.append(at(1), "main", message("e2")).await;
    let CommitOutcome::Done(next) = w.commit(at(2), &grant, &last_turn(&grant)).await else {
        panic!("expected a commit")
    };
    assert_eq!(held(next), (vec!["0001|e2".to_owned()], 2));
    assert_eq!(w.facts("main").await.lease_until, Some(grant.until));
    // Its answer was lost: the same again.
    let CommitOutcome::Done(next) = w.commit(at(3), &grant, &last_turn(&grant)).await else {
        panic!("expected the same")
    };
    assert_eq!(held(next).1, 2);
}

pub async fn a_commit_clears_the_checkpoint(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let calls = vec![(0, Bytes::from_static(b"intent")), (1, Bytes::from_static(b"intent"))];
    let write = Checkpoint { turn: 1, reply: Some(Bytes::from_static(b"reply")), calls, ..Checkpoint::default() };
    w.store.checkpoint(at(1), &grant.lease, &write).await.unwrap();
    w.done(at(2), &grant).await;
    let next = w.run(at(3), message("e2")).await;
    assert_eq!((next.checkpoint, next.calls), (None, vec![]));
}

pub async fn a_finished_job_keeps_its_first_result(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    w.commit(at(1), &grant, &full(&grant)).await;
    let later = Commit {
        turn: 2,
        consume: vec![],
        writes: vec![],
        finish: vec![ends("e1", JobStatus::Failed)],
        ..full(&grant)
    };
    assert!(matches!(w.commit(at(2), &grant, &later).await, CommitOutcome::Done(_)));
    assert_eq!(w.status("e1").await, Some(JobStatus::Complete));
    assert_eq!(w.result("e1").await.as_deref(), Some("COMPLETE e1"));
}

pub async fn a_commit_consumes_only_what_is_there(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let consume = vec!["0001|e1".to_owned(), "0001|e1".to_owned(), "0001|none".to_owned()];
    w.commit(at(1), &grant, &Commit { consume, ..turn(&grant) }).await;
    assert_eq!(w.facts("main").await.consumed, 1);
}

/// More values than a Lua stack takes.
pub async fn a_big_commit_is_one_commit(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let key = |n: usize| format!("w/big/{n:05}");
    let writes: Vec<_> = (0..5_000).map(|n| put(&key(n), "v")).collect();
    let outbox: Vec<_> = (0..5_000).map(|n| entry(&format!("o{n:05}"))).collect();
    let commit = Commit { writes, outbox, ..last_turn(&grant) };
    assert_eq!(w.commit(at(1), &grant, &commit).await, CommitOutcome::Done(RELEASED));
    assert_eq!(w.commit(at(2), &grant, &commit).await, CommitOutcome::Done(RELEASED));
    assert_eq!(w.doc(&key(4_999)).await.version, 1);
    let all = w.store.scan(&w.owner, "w/big/", None, false, 10_000).await.unwrap();
    let published = w.outbox().await;
    assert_eq!((all.len(), published.len()), (5_000, 5_000));
    w.store.remove_published(&w.owner, &published).await.unwrap();
    assert!(w.outbox().await.is_empty());
}
