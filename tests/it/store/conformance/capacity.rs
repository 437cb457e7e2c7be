//! How many sessions of an agent run, and who waits.

use super::*;
use trellis::store::{Intake, LeaseCheck, ReleaseOutcome};

async fn give_back(w: &World, now: Millis, grant: &Grant) {
    let released = w.store.release(now, &grant.lease, release(grant.arrivals)).await.unwrap();
    assert!(matches!(released, ReleaseOutcome::Done(Continuation::Released { .. })), "{released:?}");
}

pub async fn concurrency_counts_unexpired_leases(w: World) {
    w.gate("ACTIVE 2 100 queue").await;
    w.gate_of("other", "ACTIVE 1 100 queue").await;
    granted(w.admit(T0, "a", message("a")).await);
    granted(w.admit(at(10_000), "b", message("b")).await);
    granted(w.admit(at(10_000), "other/a", message("oa")).await);
    let third = w.admit(at(10_001), "c", message("c")).await;
    assert_eq!((third.intake, third.lease), (Intake::New, LeaseOutcome::Waiting));
    assert_eq!(w.wake(at(29_999), "c").await, LeaseOutcome::Waiting);
    // The first lease has lapsed.
    assert!(matches!(w.wake(at(30_000), "c").await, LeaseOutcome::Run(_)));
    assert_eq!(w.wake(at(30_001), "a").await, LeaseOutcome::Waiting);
}

pub async fn a_release_wakes_the_longest_waiting(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = granted(w.admit(T0, "a", message("a")).await);
    for (n, name) in (1..).zip(["c", "b", "d"]) {
        assert_eq!(w.admit(at(n), name, message(name)).await.lease, LeaseOutcome::Waiting);
    }
    assert!(w.take_wakes().await.is_empty());
    w.done(at(10), &grant).await;
    assert_eq!(w.take_wakes().await, ["c"]);
    let LeaseOutcome::Run(grant) = w.wake(at(11), "c").await else { panic!("expected a lease for `c`") };
    give_back(&w, at(12), &grant).await;
    assert_eq!(w.take_wakes().await, ["b"]);
}

pub async fn a_sweep_wakes_a_waiter_when_a_lease_lapses(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    granted(w.admit(T0, "a", message("a")).await);
    assert_eq!(w.admit(at(1), "b", message("b")).await.lease, LeaseOutcome::Waiting);
    assert_eq!(w.admit(at(2), "c", message("c")).await.lease, LeaseOutcome::Waiting);
    assert!(w.swept_wakes(at(20_000)).await.is_empty(), "nobody is woken in vain");
    // `a` is due for its lapsed lease, `b` for the free slot.
    assert_eq!(w.swept_wakes(at(30_000)).await, ["a", "b"]);
    // The wake was lost: the next one comes after the grace.
    let later = at(30_000).plus(GRACE);
    assert!(w.swept_wakes(later).await.contains(&"b".to_owned()));
    assert!(matches!(w.wake(later, "b").await, LeaseOutcome::Run(_)));
}

pub async fn an_unpublished_wake_is_not_made_again(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    granted(w.admit(T0, "a", message("a")).await);
    w.admit(at(1), "b", message("b")).await;
    let first = w.sweep(at(30_000)).await.outbox;
    assert_eq!(first.len(), 1);
    for n in 1..20_u32 {
        let swept = w.sweep(at(30_000).plus(GRACE * n)).await;
        assert_eq!(swept.outbox, first, "the same one, handed out again");
    }
    assert_eq!(w.store.outbox(&w.owner).await.unwrap(), first);
    w.store.remove_published(&w.owner, &[first[0].id.clone()]).await.unwrap();
    let again = w.sweep(at(30_000).plus(GRACE * 20)).await.outbox;
    assert_eq!(again.iter().filter_map(woken).collect::<Vec<_>>(), ["b"], "it was published, and nobody came");
}

pub async fn a_newcomer_does_not_overtake_those_who_wait(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = granted(w.admit(T0, "a", message("a")).await);
    w.admit(at(1), "b", message("b")).await;
    w.done(at(2), &grant).await;
    assert_eq!(w.admit(at(3), "c", message("c")).await.lease, LeaseOutcome::Waiting);
    let LeaseOutcome::Run(grant) = w.wake(at(4), "b").await else { panic!("expected a lease for `b`") };
    // One that is told to wait again keeps its place.
    assert_eq!(w.wake(at(5), "c").await, LeaseOutcome::Waiting);
    assert_eq!(w.admit(at(6), "d", message("d")).await.lease, LeaseOutcome::Waiting);
    assert_eq!(w.wake(at(7), "c").await, LeaseOutcome::Waiting);
    w.take_wakes().await;
    w.done(at(8), &grant).await;
    assert_eq!(w.take_wakes().await, ["c"]);
}

pub async fn a_suspended_agent_takes_but_does_not_run(w: World) {
    w.gate("SUSPENDED 8 100 queue").await;
    let admitted = w.admit(T0, "main", task("e1")).await;
    assert_eq!((admitted.intake, admitted.lease), (Intake::New, LeaseOutcome::Suspended));
    assert_eq!(w.status("e1").await, Some(JobStatus::Pending));
    assert_eq!(w.wake(at(1), "main").await, LeaseOutcome::Suspended);
    assert!(w.swept_wakes(at(60_000)).await.is_empty());
}

pub async fn resumption_wakes_the_waiting(w: World) {
    w.gate("SUSPENDED 8 100 queue").await;
    w.admit(T0, "a", message("a")).await;
    w.admit(T0, "b", message("b")).await;
    w.gate("ACTIVE 8 100 queue").await;
    // At once or by the next sweep.
    let mut woken = w.take_wakes().await;
    woken.extend(w.swept_wakes(at(1)).await);
    woken.sort();
    woken.dedup();
    assert_eq!(woken, ["a", "b"]);
    assert!(matches!(w.wake(at(2), "a").await, LeaseOutcome::Run(_)));
    assert!(matches!(w.wake(at(2), "b").await, LeaseOutcome::Run(_)));
}

pub async fn a_waiter_whose_work_went_away_lets_the_next_one_in(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = granted(w.admit(T0, "a", message("a")).await);
    w.admit(at(1), "b", task("b")).await;
    w.admit(at(2), "c", task("c")).await;
    let end = ends("b", JobStatus::Cancelled);
    w.store.finish(at(3), &w.owner, &session("b"), &end, None, &[]).await.unwrap();
    w.done(at(4), &grant).await;
    assert_eq!(w.wake(at(5), "b").await, LeaseOutcome::Empty);
    let mut woken = w.take_wakes().await;
    woken.extend(w.swept_wakes(at(20_000)).await);
    assert!(woken.contains(&"c".to_owned()), "{woken:?}");
    assert!(matches!(w.wake(at(20_001), "c").await, LeaseOutcome::Run(_)));
}

pub async fn a_release_returns_the_wake_of_the_next_waiting_session(w: World) {
    let woken_by = |next: &Continuation| next.wakes().iter().filter_map(woken).collect::<Vec<_>>();
    w.gate("ACTIVE 1 100 queue").await;
    let first = granted(w.admit(T0, "a", message("a")).await);
    w.admit(at(1), "b", message("b")).await;
    w.admit(at(1), "c", message("c")).await;
    let commit = last_turn(&first);
    let CommitOutcome::Done(next) = w.commit(at(2), &first, &commit).await else { panic!("expected a commit") };
    assert_eq!(woken_by(&next), ["b"]);
    assert_eq!(next.wakes(), w.store.outbox(&w.owner).await.unwrap(), "they lie in the outbox too");
    assert_eq!(w.commit(at(2), &first, &commit).await, CommitOutcome::Done(RELEASED), "nobody is woken twice");
    // A holder that dies now: the very next sweep has it, and the one after doesn't.
    assert_eq!(w.sweep(at(2)).await.outbox, next.wakes());
    w.nothing_is_due(at(3)).await;
    w.take_wakes().await;

    let LeaseOutcome::Run(second) = w.wake(at(4), "b").await else { panic!("expected a lease for `b`") };
    let give_back = || w.store.release(at(5), &second.lease, release(second.arrivals));
    let ReleaseOutcome::Done(next) = give_back().await.unwrap() else { panic!("expected to be the holder") };
    assert_eq!(woken_by(&next), ["c"]);
    assert_eq!(give_back().await.unwrap(), ReleaseOutcome::Done(RELEASED));
    let ids: Vec<_> = next.wakes().iter().map(|wake| wake.id.clone()).collect();
    w.store.remove_published(&w.owner, &ids).await.unwrap();
    w.nothing_is_due(at(5)).await; // The holder published it.
    assert!(matches!(w.wake(at(6), "c").await, LeaseOutcome::Run(_)));
}

/// A holder whose lease lapsed unnoticed waits for a slot that it has.
pub async fn a_holder_who_comes_back_waits_for_no_slot(w: World) {
    w.gate("ACTIVE 2 100 queue").await;
    let slow = granted(w.admit(T0, "slow", message("e1")).await);
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        granted(w.admit(at(30_000), name, message(&format!("x{n}"))).await);
    }
    assert_eq!(w.wake(at(30_001), "slow").await, LeaseOutcome::Waiting);
    assert!(matches!(w.store.renew(at(30_002), &slow.lease, TTL * 10).await.unwrap(), LeaseCheck::Held { .. }));
    assert_eq!(w.admit(at(30_003), "next", message("e2")).await.lease, LeaseOutcome::Waiting);
    // Both others lapse; the slot that is free now isn't the slow one's.
    granted(w.admit_with(at(60_000), "next", None, Some(ask())).await);
}

/// The same holder, who gives up and backs off instead: those behind must not wait for that.
pub async fn a_holder_who_backs_off_leaves_the_queue(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let slow = granted(w.admit(T0, "slow", message("e1")).await);
    let other = granted(w.admit(at(30_000), "other", message("e2")).await);
    assert_eq!(w.wake(at(30_001), "slow").await, LeaseOutcome::Waiting);
    assert_eq!(w.admit(at(30_002), "next", message("e3")).await.lease, LeaseOutcome::Waiting);
    let backoff = LeaseUse::Release { arrivals: 1, due: Some(at(90_000)), backoff: true };
    w.store.release(at(30_003), &slow.lease, backoff).await.unwrap();
    w.done(at(30_004), &other).await;
    assert_eq!(w.wake(at(30_005), "slow").await, LeaseOutcome::Backoff(at(90_000)));
    granted(w.admit_with(at(30_006), "next", None, Some(ask())).await);
}
