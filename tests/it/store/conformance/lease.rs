//! Stages 3 to 5 for the holder: grant, renew, checkpoint, release.

use super::*;
use trellis::store::{Amend, AmendOutcome, Amendment, Checkpoint, Intake, LeaseCheck, ReleaseOutcome, Versions};

const YES: LeaseCheck = LeaseCheck::Held { cancelled: false, policy: 0 };

fn checkpoint(reply: &'static str, calls: &[(u32, &'static str)]) -> Checkpoint {
    let calls = calls.iter().map(|(i, c)| (*i, Bytes::from_static(c.as_bytes()))).collect();
    Checkpoint { turn: 1, reply: Some(Bytes::from_static(reply.as_bytes())), calls, ..Checkpoint::default() }
}

pub async fn a_grant_has_everything_to_go_on(w: World) {
    w.agent().await;
    let grant = w.run(T0, task("e1")).await;
    assert_eq!((&grant.lease.owner, &grant.lease.session), (&w.owner, &session("main")));
    assert_eq!((grant.lease.epoch, grant.until, grant.version, grant.arrivals), (T0.0, T0.plus(TTL), 0, 1));
    assert_eq!((grant.last_commit, grant.state, grant.checkpoint, grant.calls), (None, None, None, vec![]));
    let entry = &grant.mailbox[0];
    assert_eq!((&*entry.key, entry.kind, entry.crashes), ("0001|e1", EventKind::Task, 0));
    assert_eq!((&entry.job, entry.job_status), (&Some(job("e1")), Some(JobStatus::Started)));
    assert_eq!(&entry.body[..], b"body of e1");
    let facts = w.facts("main").await;
    let expected = (grant.lease.epoch, Some(grant.until), Some(grant.until));
    assert_eq!((facts.epoch, facts.lease_until, facts.due), expected);
    assert_eq!(facts.lease_worker.as_deref(), Some("w1"));
}

pub async fn a_holder_is_told_the_versions_that_it_stands_on(w: World) {
    w.agent().await;
    let write = async |writes: Vec<DocWrite>| assert_eq!(w.write(T0, &writes).await, WriteOutcome::Done, "{writes:?}");
    let of = |gate, policy, erasures| Versions { gate, policy, erasures };
    let grant = w.run(T0, task("e1")).await;
    assert_eq!(grant.versions, of(1, 0, 0));
    write(vec![put(keys::POLICY, "a")]).await;
    assert_eq!(
        w.store.renew(at(1), &grant.lease, TTL).await.unwrap(),
        LeaseCheck::Held { cancelled: false, policy: 1 }
    );
    write(vec![put(keys::POLICY, "b"), put(keys::ERASURES, "")]).await;
    let check = w.store.checkpoint(at(2), &grant.lease, &checkpoint("r", &[])).await.unwrap();
    assert_eq!(check, LeaseCheck::Held { cancelled: false, policy: 2 });
    let versions = |next: Continuation| match next {
        Continuation::Held { versions, .. } => versions,
        Continuation::Released { .. } => panic!("expected the lease to be kept"),
    };
    // A turn's own writes count.
    let own = Commit { writes: vec![put(keys::POLICY, "c")], ..turn(&grant) };
    let CommitOutcome::Done(next) = w.commit(at(3), &grant, &own).await else { panic!("expected a commit") };
    assert_eq!(versions(next), of(1, 3, 1));
    w.agent().await;
    let ReleaseOutcome::Done(next) = w.store.release(at(4), &grant.lease, LeaseUse::Keep).await.unwrap() else {
        panic!("held")
    };
    assert_eq!(versions(next), of(2, 3, 1));
    w.store.release(at(5), &grant.lease, release(grant.arrivals)).await.unwrap();
    // What is deleted has a version; an agent that is gone has none.
    write(vec![DocWrite::delete(keys::POLICY)]).await;
    let grant = w.run(at(6), message("e2")).await;
    assert_eq!(grant.versions, of(2, 4, 1));
    write(vec![DocWrite::delete(keys::agent_gate(&"clerk".parse().unwrap()))]).await;
    let ReleaseOutcome::Done(next) = w.store.release(at(7), &grant.lease, LeaseUse::Keep).await.unwrap() else {
        panic!("held")
    };
    assert_eq!(versions(next), of(0, 4, 1));
}

pub async fn epochs_grow_with_time_and_by_one_when_it_stands_still(w: World) {
    w.agent().await;
    let mut last = None;
    for (n, now, epoch) in [(1, 7, 7), (2, 7, 8), (3, 5, 9), (4, 30, 30)] {
        let grant = w.run(at(now), message(&format!("e{n}"))).await;
        assert_eq!((grant.lease.epoch, grant.version, grant.arrivals), (T0.0 + epoch, n - 1, n));
        assert_eq!((grant.state.is_some(), grant.last_commit), (n > 1, last));
        w.done(at(now), &grant).await;
        last = Some((grant.lease.epoch, n));
    }
}

pub async fn a_live_lease_is_busy(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let second = w.admit(at(1), "main", message("e2")).await;
    assert_eq!((second.intake, second.lease), (Intake::New, LeaseOutcome::Busy(grant.until)));
    assert_eq!(w.wake(Millis(grant.until.0 - 1), "main").await, LeaseOutcome::Busy(grant.until));
    assert!(matches!(w.wake(grant.until, "main").await, LeaseOutcome::Run(_)), "a lease lapses at its end");
}

pub async fn a_lost_grant_is_found_again(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e0")).await;
    let asked = Some(ask());
    let lost = granted(w.admit_with(at(1), "main", Some(message("e1")), asked.clone()).await);
    assert_eq!(w.append(at(2), "main", message("e2")).await.intake, Intake::New);
    let again = w.admit_with(at(3), "main", Some(message("e1")), asked.clone()).await;
    assert_eq!(again.intake, Intake::Duplicate);
    let again = granted(again);
    assert_eq!((&again.lease, again.until), (&lost.lease, at(3).plus(TTL)));
    assert_eq!((again.mailbox.len(), again.arrivals), (3, 3), "the mailbox of now");
    assert!(again.mailbox.iter().all(|entry| entry.crashes == 0));
    assert_eq!(again.mailbox[0].job_status, Some(JobStatus::Started));
    let facts = w.facts("main").await;
    let expected = (lost.lease.epoch, Some(again.until), Some(again.until));
    assert_eq!((facts.epoch, facts.lease_until, facts.due), expected);
    assert_eq!(w.wake(at(4), "main").await, LeaseOutcome::Busy(again.until), "another asking");
    w.store.checkpoint(at(5), &lost.lease, &checkpoint("reply", &[(0, "call")])).await.unwrap();
    let again = granted(w.admit_with(at(6), "main", None, asked).await);
    assert_eq!((again.checkpoint.as_deref(), again.calls.len()), (Some(&b"reply"[..]), 1));
    w.done(at(7), &again).await;
}

pub async fn a_lost_grant_that_lapsed_is_found_unless_taken(w: World) {
    w.agent().await;
    let asked = Some(ask());
    let lost = granted(w.admit_with(T0, "main", Some(message("e1")), asked.clone()).await);
    let again = granted(w.admit_with(at(31_000), "main", Some(message("e1")), asked.clone()).await);
    assert_eq!((&again.lease, again.until, again.mailbox[0].crashes), (&lost.lease, at(61_000), 0));
    let taken = granted(w.admit_with(at(61_000), "main", None, Some(ask())).await);
    assert!(taken.lease.epoch > lost.lease.epoch);
    assert_eq!(taken.mailbox[0].crashes, 1);
    let late = w.admit_with(at(61_001), "main", Some(message("e1")), asked).await;
    assert_eq!((late.intake, late.lease), (Intake::Duplicate, LeaseOutcome::Busy(taken.until)));
}

pub async fn a_request_whose_lease_was_given_back_is_like_any_other(w: World) {
    w.agent().await;
    let asked = Some(ask());
    let first = granted(w.admit_with(T0, "main", Some(message("e1")), asked.clone()).await);
    w.store.release(at(1), &first.lease, release(1)).await.unwrap();
    let second = granted(w.admit_with(at(2), "main", None, asked.clone()).await);
    assert!(second.lease.epoch > first.lease.epoch);
    assert_eq!(second.mailbox[0].crashes, 0);
    w.done(at(3), &second).await;
    assert_eq!(w.admit_with(at(4), "main", None, asked).await.lease, LeaseOutcome::Empty);
}

pub async fn a_wake_of_an_idle_session_is_empty(w: World) {
    w.agent().await;
    assert_eq!(w.wake(T0, "main").await, LeaseOutcome::Empty, "never seen");
    let grant = w.run(at(1), message("e1")).await;
    let parked = LeaseUse::Release { arrivals: 1, due: Some(at(60_000)), backoff: false };
    w.commit(at(2), &grant, &Commit { after_commit: parked, ..turn(&grant) }).await;
    assert_eq!(w.due("main").await, Some(at(60_000)));
    assert_eq!(w.wake(at(3), "main").await, LeaseOutcome::Empty);
    assert_eq!(w.due("main").await, None);
}

pub async fn a_wake_of_an_unknown_agent_is_empty(w: World) {
    let request = w.admit_with(T0, "main", None, Some(ask())).await;
    assert_eq!((request.intake, request.lease), (Intake::Nothing, LeaseOutcome::Empty));
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    w.gate("TERMINATED 8 100 queue").await;
    assert_eq!(w.wake(at(1), "main").await, LeaseOutcome::Empty);
    assert_eq!(w.due("main").await, None);
    assert_eq!(w.mailbox("main").await.len(), 1, "what was accepted stays visible");
}

pub async fn the_mailbox_limit_is_kept(w: World) {
    w.agent().await;
    for n in 0..5 {
        w.append(T0, "main", message(&format!("e{n}"))).await;
    }
    let ask = LeaseRequest { mailbox_limit: 2, ..ask() };
    let grant = granted(w.admit_with(at(1), "main", None, Some(ask)).await);
    assert_eq!((grant.mailbox.len(), grant.arrivals), (2, 5));
    let CommitOutcome::Done(next) = w.commit(at(2), &grant, &turn(&grant)).await else { panic!("expected a commit") };
    assert_eq!(held(next), (vec!["0001|e2".to_owned(), "0001|e3".to_owned()], 5));
}

pub async fn the_first_task_starts(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.append(T0, "main", task("e2")).await;
    let grant = w.run(at(1), message("e0")).await;
    let statuses: Vec<_> = grant.mailbox.iter().map(|e| e.job_status).collect();
    assert_eq!(statuses, [None, Some(JobStatus::Started), Some(JobStatus::Pending)]);
    let status = w.text(&keys::job_status(&job("e1"))).await.unwrap();
    assert_eq!(status, keys::encode_status(JobStatus::Started, at(1)));
    assert_eq!(w.status("e2").await, Some(JobStatus::Pending));
}

pub async fn renewal_moves_the_end(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    assert_eq!(w.store.renew(at(1000), &grant.lease, TTL).await.unwrap(), YES);
    let facts = w.facts("main").await;
    assert_eq!((facts.lease_until, facts.due), (Some(at(31_000)), Some(at(31_000))));
    assert_eq!(w.wake(at(30_500), "main").await, LeaseOutcome::Busy(at(31_000)));
}

pub async fn renewal_after_another_grant_is_fenced(w: World) {
    w.agent().await;
    let old = w.run(T0, message("e1")).await;
    let new = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(w.store.renew(at(30_001), &old.lease, TTL).await.unwrap(), LeaseCheck::Fenced);
    assert_eq!(w.store.renew(at(30_001), &new.lease, TTL).await.unwrap(), YES);
}

pub async fn renewal_after_release_is_fenced(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.store.release(at(1), &grant.lease, release(1)).await.unwrap();
    assert_eq!(w.store.renew(at(2), &grant.lease, TTL).await.unwrap(), LeaseCheck::Fenced);
    let facts = w.facts("main").await;
    assert_eq!((facts.lease_until, facts.lease_worker), (None, None));
}

pub async fn a_lapsed_lease_that_nobody_took_is_still_held(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    assert_eq!(w.store.renew(at(40_000), &grant.lease, TTL).await.unwrap(), YES);
    assert_eq!(w.wake(at(40_001), "main").await, LeaseOutcome::Busy(at(70_000)));
    w.done(at(80_000), &grant).await;
    assert_eq!(w.facts("main").await.version, 1);
}

pub async fn a_checkpoint_reaches_the_successor(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let first = checkpoint("reply", &[(10, "intent 10"), (2, "intent 2")]);
    assert_eq!(w.store.checkpoint(at(1), &grant.lease, &first).await.unwrap(), YES);
    let second = Checkpoint { reply: None, ..checkpoint("", &[(2, "outcome 2"), (300, "intent 300")]) };
    assert_eq!(w.store.checkpoint(at(2), &grant.lease, &second).await.unwrap(), YES);
    let next = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(next.checkpoint.as_deref(), Some(&b"reply"[..]));
    let calls: Vec<_> = next.calls.iter().map(|(i, c)| (*i, std::str::from_utf8(c).unwrap())).collect();
    assert_eq!(calls, [(2, "outcome 2"), (10, "intent 10"), (300, "intent 300")]);
}

pub async fn a_checkpoint_twice_is_once(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let write =
        Checkpoint { open: vec![new_job("child")], outbox: vec![entry("m1")], ..checkpoint("reply", &[(0, "intent")]) };
    for _ in 0..2 {
        assert_eq!(w.store.checkpoint(at(1), &grant.lease, &write).await.unwrap(), YES);
    }
    assert_eq!(w.outbox().await, ["m1"]);
    assert_eq!(w.doc(&keys::job_status(&job("child"))).await.version, 1);
    let next = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(next.calls.len(), 1);
}

pub async fn a_late_checkpoint_changes_nothing(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.commit(at(1), &grant, &turn(&grant)).await;
    let writes = vec![DocWrite::put("w/late", "x")];
    let late = Checkpoint { outbox: vec![entry("m1")], writes, ..checkpoint("old reply", &[]) };
    assert_eq!(w.store.checkpoint(at(2), &grant.lease, &late).await.unwrap(), YES);
    assert!(w.outbox().await.is_empty());
    assert_eq!(w.text("w/late").await, None);
    w.append(at(3), "main", message("e2")).await;
    let next = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(next.checkpoint, None);
}

pub async fn a_checkpoint_opens_jobs_and_writes_messages(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let write = Checkpoint { open: vec![new_job("child")], outbox: vec![entry("m1")], ..checkpoint("reply", &[]) };
    w.store.checkpoint(at(7), &grant.lease, &write).await.unwrap();
    assert_eq!(w.status("child").await, Some(JobStatus::Pending));
    assert_eq!(w.text(&keys::job_head(&job("child"))).await.as_deref(), Some("head of child"));
    assert!(w.text(&keys::job_list_entry(at(7), &job("child"))).await.is_some());
    assert_eq!(w.outbox().await, ["m1"]);
}

pub async fn a_checkpoint_writes_and_deletes_documents(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let writes = vec![DocWrite::put("w/a", "1"), DocWrite::put("w/b", "1")];
    let write = Checkpoint { writes, ..checkpoint("reply", &[]) };
    assert_eq!(w.store.checkpoint(at(1), &grant.lease, &write).await.unwrap(), YES);
    // Whatever their versions are.
    let writes = vec![DocWrite::put("w/a", "2"), DocWrite::delete("w/b"), DocWrite::delete("w/c")];
    let write = Checkpoint { writes, ..checkpoint("reply", &[]) };
    assert_eq!(w.store.checkpoint(at(2), &grant.lease, &write).await.unwrap(), YES);
    assert_eq!((w.text("w/a").await.as_deref(), w.text("w/b").await), (Some("2"), None));
    // They outlive the session: who forgets it leaves them.
    w.store.release(at(3), &grant.lease, release(1)).await.unwrap();
    let facts = w.facts("main").await;
    let then = Amendment::Remove { arrivals: facts.arrivals };
    let gone = Amend { version: facts.version, expected_state: facts.state, amendment: then, writes: Vec::new() };
    assert_eq!(w.store.amend(at(4), &w.owner, &facts.key, &gone).await.unwrap(), AmendOutcome::Done);
    assert_eq!(w.text("w/a").await.as_deref(), Some("2"));
}

pub async fn a_fenced_checkpoint_writes_nothing(w: World) {
    w.agent().await;
    let old = w.run(T0, message("e1")).await;
    let _new = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    let writes = vec![DocWrite::put("w/late", "x")];
    let write =
        Checkpoint { open: vec![new_job("child")], outbox: vec![entry("m1")], writes, ..checkpoint("reply", &[]) };
    assert_eq!(w.store.checkpoint(at(30_001), &old.lease, &write).await.unwrap(), LeaseCheck::Fenced);
    assert_eq!((w.status("child").await, w.outbox().await.len(), w.text("w/late").await), (None, 0, None));
    assert_eq!(granted(w.admit_with(at(60_000), "main", None, Some(ask())).await).checkpoint, None);
}

pub async fn a_release_is_idempotent(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    for _ in 0..2 {
        let released = w.store.release(at(1), &grant.lease, release(1)).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Done(RELEASED));
    }
    assert_eq!(w.mailbox("main").await.len(), 1, "it consumes nothing");
}

pub async fn a_release_sets_and_clears_the_due_time(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let park = LeaseUse::Release { arrivals: 1, due: Some(at(9000)), backoff: false };
    w.store.release(at(1), &grant.lease, park).await.unwrap();
    let facts = w.facts("main").await;
    assert_eq!((facts.due, facts.lease_until), (Some(at(9000)), None));
    let grant = granted(w.admit_with(at(2), "main", None, Some(ask())).await);
    w.store.release(at(3), &grant.lease, release(1)).await.unwrap();
    assert_eq!(w.due("main").await, None);
}

pub async fn a_release_of_a_fenced_holder_is_fenced(w: World) {
    w.agent().await;
    let old = w.run(T0, message("e1")).await;
    let new = granted(w.admit_with(at(30_000), "main", None, Some(ask())).await);
    assert_eq!(w.store.release(at(30_001), &old.lease, release(1)).await.unwrap(), ReleaseOutcome::Fenced);
    assert_eq!(w.facts("main").await.lease_until, Some(new.until));
}

pub async fn a_release_holds_on_to_new_events(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.append(at(1), "main", message("e2")).await;
    let ReleaseOutcome::Done(next) = w.store.release(at(2), &grant.lease, release(grant.arrivals)).await.unwrap()
    else {
        panic!("expected to be the holder")
    };
    let (mailbox, arrivals) = held(next);
    assert_eq!((mailbox.len(), arrivals), (2, 2));
    assert_eq!(w.store.renew(at(3), &grant.lease, TTL).await.unwrap(), YES);
    let released = w.store.release(at(4), &grant.lease, release(arrivals)).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Done(RELEASED));
}

pub async fn a_backoff_takes_events_but_gives_no_lease(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let backoff = LeaseUse::Release { arrivals: 1, due: Some(at(9000)), backoff: true };
    w.store.release(at(1), &grant.lease, backoff).await.unwrap();
    let second = w.admit(at(2), "main", message("e2")).await;
    assert_eq!((second.intake, second.lease), (Intake::New, LeaseOutcome::Backoff(at(9000))));
    assert_eq!(w.wake(at(8999), "main").await, LeaseOutcome::Backoff(at(9000)));
    assert_eq!(w.due("main").await, Some(at(9000)), "events don't bring it forward");
    let grant = granted(w.admit_with(at(9000), "main", None, Some(ask())).await);
    assert_eq!(grant.mailbox.len(), 2);
    // It is over: the next event runs at once.
    w.done(at(9001), &grant).await;
    assert!(matches!(w.admit(at(9002), "main", message("e3")).await.lease, LeaseOutcome::Run(_)));
}
