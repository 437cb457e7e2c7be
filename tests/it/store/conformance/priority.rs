//! Priorities of tasks: within a mailbox, and among the sessions of an agent that wait.

use super::*;
use trellis::domain::event::mailbox_key;
use trellis::domain::priority::Priority;
use trellis::store::ReleaseOutcome;

fn of(priority: Priority, time: u64, id: &str) -> NewEvent {
    NewEvent { order: mailbox_key(EventKind::Task, priority, Millis(time), 0), ..task(id) }
}

fn says(kind: EventKind, id: &str) -> NewEvent {
    NewEvent { order: mailbox_key(kind, Priority::Normal, Millis(9), 0), ..event(kind, id) }
}

/// Ids of the events of a mailbox, in order.
fn ids(keys: impl IntoIterator<Item = String>) -> Vec<String> {
    keys.into_iter().map(|key| key.split_once('|').unwrap().1.to_owned()).collect()
}

fn handed_out(grant: &Grant) -> Vec<String> {
    ids(grant.mailbox.iter().map(|entry| entry.key.clone()))
}

async fn look(w: &World, now: Millis) -> Grant {
    granted(w.admit_with(now, "main", None, Some(ask())).await)
}

pub async fn urgent_tasks_come_first_and_each_priority_in_its_order(w: World) {
    w.agent().await;
    for event in [
        of(Priority::Low, 1, "low1"),
        of(Priority::Normal, 2, "any1"),
        of(Priority::High, 4, "high2"),
        of(Priority::Low, 5, "low2"),
        of(Priority::Normal, 6, "any2"),
        of(Priority::High, 3, "high1"),
        says(EventKind::Message, "message"),
        says(EventKind::Result, "result"),
    ] {
        w.append(T0, "main", event).await;
    }
    let expected = ["result", "message", "high1", "high2", "any1", "any2", "low1", "low2"];
    assert_eq!(ids(w.mailbox("main").await), expected);
    let grant = look(&w, at(1)).await;
    assert_eq!(handed_out(&grant), expected);
    let started: Vec<_> = grant.mailbox.iter().map(|e| e.job_status == Some(JobStatus::Started)).collect();
    assert_eq!(started.iter().filter(|started| **started).count(), 1);
    assert!(started[2], "the first urgent one");
}

pub async fn a_task_that_was_begun_stays_the_first(w: World) {
    w.agent().await;
    let grant = w.run(T0, of(Priority::Low, 1, "begun")).await;
    w.append(at(1), "main", of(Priority::High, 2, "urgent")).await;
    let noted = Commit { consume: Vec::new(), ..turn(&grant) };
    let CommitOutcome::Done(next) = w.commit(at(2), &grant, &noted).await else { panic!("not committed") };
    assert_eq!(ids(held(next).0), ["begun", "urgent"]);
    assert_eq!(w.status("urgent").await, Some(JobStatus::Pending));
    w.append(at(3), "main", says(EventKind::Result, "result")).await;
    assert_eq!(ids(w.mailbox("main").await), ["result", "begun", "urgent"]);
    let released = w.store.release(at(4), &grant.lease, release(3)).await.unwrap();
    assert!(matches!(released, ReleaseOutcome::Done(_)), "{released:?}");
    let again = look(&w, at(5)).await;
    assert_eq!(handed_out(&again), ["result", "begun", "urgent"], "it was parked and goes on");
    let consume = again.mailbox[..2].iter().map(|entry| entry.key.clone()).collect();
    let ended = Commit { consume, finish: vec![ends("begun", JobStatus::Complete)], ..turn(&again) };
    let CommitOutcome::Done(next) = w.commit(at(6), &again, &ended).await else { panic!("not committed") };
    assert_eq!(ids(held(next).0), ["urgent"]);
    assert_eq!(w.status("urgent").await, Some(JobStatus::Started));
}

pub async fn a_task_that_was_begun_is_handed_out_within_the_limit(w: World) {
    w.agent().await;
    let grant = w.run(T0, of(Priority::Low, 1, "begun")).await;
    for n in 0..4 {
        w.append(at(1), "main", of(Priority::High, 2, &format!("u{n}"))).await;
    }
    w.store.release(at(2), &grant.lease, release(5)).await.unwrap();
    let narrow = LeaseRequest { mailbox_limit: 2, ..ask() };
    let again = granted(w.admit_with(at(3), "main", None, Some(narrow)).await);
    assert_eq!(handed_out(&again), ["begun", "u0"]);
}

pub async fn a_task_is_handed_out_however_much_lies_before_it(w: World) {
    w.agent().await;
    for n in 0..3 {
        w.append(T0, "main", says(EventKind::Message, &format!("m{n}"))).await;
    }
    w.append(T0, "main", of(Priority::Normal, 1, "any")).await;
    w.append(T0, "main", of(Priority::Low, 1, "low")).await;
    let narrow = || LeaseRequest { mailbox_limit: 2, ..ask() };
    let first = granted(w.admit_with(at(1), "main", None, Some(narrow())).await);
    assert_eq!(handed_out(&first), ["m0", "any"]);
    assert_eq!(w.status("any").await, Some(JobStatus::Started));
    let again = narrow();
    w.append(at(2), "main", of(Priority::High, 2, "urgent")).await;
    let next = granted(w.admit_with(first.until, "main", None, Some(again)).await);
    assert_eq!(handed_out(&next), ["m0", "any"], "it was begun");
    let counted: Vec<_> = next.mailbox.iter().map(|entry| entry.crashes).collect();
    assert_eq!(counted, [1, 1]);
}

pub async fn a_task_is_handed_out_however_large_what_lies_before_it_is(w: World) {
    w.agent().await;
    for n in 0..3 {
        let body = Bytes::from(vec![b'x'; 600 * 1024]);
        w.append(T0, "main", NewEvent { body, ..says(EventKind::Message, &format!("m{n}")) }).await;
    }
    w.append(T0, "main", of(Priority::Normal, 1, "any")).await;
    let grant = look(&w, at(1)).await;
    assert_eq!(handed_out(&grant), ["m0", "m1", "any"]);
    assert_eq!(w.status("any").await, Some(JobStatus::Started));
}

pub async fn a_crash_and_a_new_grant_keep_what_was_begun(w: World) {
    w.agent().await;
    let lapsed = w.run(T0, of(Priority::Normal, 1, "begun")).await;
    w.append(at(1), "main", of(Priority::High, 2, "urgent")).await;
    // The same event once more: it is known, and where it was.
    w.append(at(2), "main", of(Priority::Normal, 1, "begun")).await;
    let next = look(&w, lapsed.until).await;
    let seen: Vec<_> = next.mailbox.iter().map(|entry| (entry.job_status.unwrap(), entry.crashes)).collect();
    assert_eq!(handed_out(&next), ["begun", "urgent"]);
    assert_eq!(seen, [(JobStatus::Started, 1), (JobStatus::Pending, 0)]);
}

pub async fn a_pause_before_its_first_turn_holds_no_place(w: World) {
    w.agent().await;
    w.append(T0, "main", of(Priority::Normal, 1, "paused")).await;
    w.store.set_job_paused(at(1), &w.owner, &session("main"), &job("paused"), true).await.unwrap();
    assert_eq!(handed_out(&look(&w, at(2)).await), ["paused"]);
    w.append(at(3), "main", of(Priority::High, 2, "urgent")).await;
    let next = look(&w, at(2).plus(TTL)).await;
    assert_eq!(handed_out(&next), ["urgent", "paused"], "nothing of it was begun");
    assert_eq!(w.status("urgent").await, Some(JobStatus::Started));
}

async fn give_back(w: &World, now: Millis, grant: &Grant) -> Vec<String> {
    w.done(now, grant).await;
    w.take_wakes().await
}

async fn come(w: &World, now: Millis, name: &str) -> Grant {
    match w.wake(now, name).await {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a lease for `{name}`, got {other:?}"),
    }
}

pub async fn urgent_sessions_wait_before_others_and_low_ones_behind(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let mut grant = granted(w.admit(T0, "a", of(Priority::Normal, 1, "a")).await);
    for (priority, name) in [
        (Priority::Low, "low1"),
        (Priority::Normal, "any1"),
        (Priority::Low, "low2"),
        (Priority::High, "high1"),
        (Priority::Normal, "any2"),
        (Priority::High, "high2"),
    ] {
        assert_eq!(w.admit(at(1), name, of(priority, 2, name)).await.lease, LeaseOutcome::Waiting);
    }
    let m = w.admit(at(2), "message", says(EventKind::Message, "m")).await;
    assert_eq!(m.lease, LeaseOutcome::Waiting);
    for (n, name) in (10..).zip(["high1", "high2", "any1", "any2", "message", "low1", "low2"]) {
        assert_eq!(give_back(&w, at(n), &grant).await, [name]);
        grant = come(&w, at(n), name).await;
    }
}

pub async fn a_session_that_waits_moves_up_with_an_urgent_task(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = granted(w.admit(T0, "a", of(Priority::Normal, 1, "a")).await);
    w.admit(at(1), "b", of(Priority::Normal, 1, "b")).await;
    w.admit(at(2), "c", of(Priority::Low, 1, "c")).await;
    w.append(at(3), "c", of(Priority::High, 2, "urgent")).await;
    assert_eq!(give_back(&w, at(4), &grant).await, ["c"]);
    let grant = come(&w, at(5), "c").await;
    assert_eq!(handed_out(&grant), ["urgent", "c"]);
    assert_eq!(give_back(&w, at(6), &grant).await, ["b"]);
}

pub async fn a_woken_waiter_yields_to_an_urgent_session(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let capped = || Some(LeaseRequest { owner_cap: 1, ..ask() });
    let grant = granted(w.admit_with(T0, "a", Some(of(Priority::Normal, 1, "a")), capped()).await);
    w.admit_with(at(1), "b", Some(of(Priority::Normal, 1, "b")), capped()).await;
    assert_eq!(give_back(&w, at(2), &grant).await, ["b"]);
    let urgent = w.admit_with(at(3), "c", Some(of(Priority::High, 1, "c")), capped()).await;
    assert_eq!(urgent.lease, LeaseOutcome::Waiting, "the owner's slot is promised");
    assert_eq!(w.admit_with(at(4), "b", None, capped()).await.lease, LeaseOutcome::Waiting);
    assert_eq!(w.take_wakes().await, ["c"]);
    let grant = granted(w.admit_with(at(5), "c", None, capped()).await);
    assert_eq!(give_back(&w, at(6), &grant).await, ["b"]);
}
