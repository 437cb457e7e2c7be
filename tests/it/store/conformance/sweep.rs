//! What is due, and what was not published.

use super::*;

fn names(swept: &SweepResult) -> Vec<&str> {
    swept.due.iter().map(|key| key.session.as_str()).collect()
}

fn ids(swept: &SweepResult) -> Vec<&str> {
    let mut ids: Vec<_> = swept.outbox.iter().map(|e| e.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

pub async fn overdue_sessions_are_handed_out_once_per_grace(w: World) {
    w.agent().await;
    w.append(T0, "b", message("b")).await;
    w.append(at(1), "a", message("a")).await;
    assert!(w.sweep(at(4999)).await.due.is_empty());
    assert_eq!(names(&w.sweep(at(5000)).await), ["b"]);
    assert_eq!(w.due("b").await, Some(at(5000).plus(GRACE)));
    assert_eq!(names(&w.sweep(at(5001)).await), ["a"]);
    assert!(w.sweep(at(14_999)).await.due.is_empty());
    assert_eq!(names(&w.sweep(at(15_001)).await), ["b", "a"], "oldest first");
}

pub async fn a_lapsed_lease_is_due(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    assert!(w.sweep(at(29_999)).await.due.is_empty());
    assert_eq!(names(&w.sweep(grant.until).await), ["main"]);
}

pub async fn an_idle_session_is_not_due(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    w.done(at(1), &grant).await;
    let swept = w.sweep(at(1_000_000)).await;
    assert_eq!(swept, SweepResult::default());
}

pub async fn other_due_work_is_named_by_its_first_document(w: World) {
    w.agent().await;
    assert_eq!(w.sweep(T0).await.first, SweepResult::default().first);
    for prefix in keys::SWEPT {
        let place = |n: u32| format!("{prefix}{n:016}-x");
        w.write(
            T0,
            &[DocWrite::index_entry(place(2)), DocWrite::index_entry(place(1)), DocWrite::index_entry(place(3))],
        )
        .await;
        assert_eq!(w.sweep(at(1)).await.first_document(prefix), Some(&place(1)));
        w.write(at(2), &[DocWrite::delete(place(1))]).await;
        let swept = w.sweep(at(3)).await;
        assert_eq!(swept.first_document(prefix), Some(&place(2)));
        assert_eq!(swept.first_document("w/"), None);
        w.write(at(4), &[DocWrite::delete(place(2)), DocWrite::delete(place(3))]).await;
        assert_eq!(w.sweep(at(5)).await.first, SweepResult::default().first, "{prefix}");
    }
}

pub async fn a_sweep_has_a_limit(w: World) {
    w.agent().await;
    for n in 0..3 {
        let event = NewEvent { outbox: vec![entry(&format!("m{n}"))], ..message(&format!("e{n}")) };
        w.append(at(n), &format!("s{n}"), event).await;
    }
    let sweep = async || w.store.sweep(at(20_000), &w.owner, GRACE, 2).await.unwrap();
    let first = sweep().await;
    assert_eq!((names(&first).len(), ids(&first).len(), first.more), (2, 2, true));
    let second = sweep().await;
    assert_eq!((names(&second).len(), ids(&second).len(), second.more), (1, 1, false));
}

pub async fn unpublished_messages_are_handed_out_once_per_grace(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e1")).await;
    let commit = Commit { outbox: vec![entry("m1"), entry("m2")], ..last_turn(&grant) };
    w.commit(T0, &grant, &commit).await;
    assert!(ids(&w.sweep(T0).await).is_empty(), "its holder publishes it");
    let swept = w.sweep(T0.plus(GRACE)).await;
    assert_eq!(ids(&swept), ["m1", "m2"]);
    assert_eq!(&swept.outbox.iter().find(|e| e.id == "m1").unwrap().message[..], b"message m1");
    assert!(ids(&w.sweep(T0.plus(GRACE + Duration::from_millis(1))).await).is_empty());
    assert_eq!(ids(&w.sweep(T0.plus(2 * GRACE)).await), ["m1", "m2"]);
}

pub async fn published_messages_are_gone(w: World) {
    w.agent().await;
    let event = NewEvent { outbox: vec![entry("m1"), entry("m2")], ..message("e1") };
    w.append(T0, "main", event).await;
    let ids_ = ["m1", "never"].map(str::to_owned);
    for _ in 0..2 {
        w.store.remove_published(&w.owner, &ids_).await.unwrap();
    }
    assert_eq!(w.outbox().await, ["m2"]);
    assert_eq!(ids(&w.sweep(at(60_000)).await), ["m2"]);
}

pub async fn a_wake_message_names_its_session(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = w.run(T0, message("e1")).await;
    w.admit(at(1), "s-\u{e9}\"x", message("e2")).await;
    w.done(at(2), &grant).await;
    let entries = w.store.outbox(&w.owner).await.unwrap();
    let wake: BusMessage = serde_json::from_slice(&entries[0].message).unwrap();
    let to = MessageAddress::In { owner: w.owner.clone(), agent: "clerk".parse().unwrap(), kind: InboundKind::Wake };
    assert_eq!((entries.len(), wake.to, wake.id), (1, to, None));
    assert_eq!(wake.body, serde_json::json!({"session": "s-\u{e9}\"x"}));
}

/// One agent's damaged gate is that agent's matter.
pub async fn a_damaged_gate_stops_neither_sweep_nor_release(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    w.gate_of("other", "ACTIVE 1 100 queue").await;
    let grant = w.run(T0, message("e1")).await;
    assert_eq!(w.admit(at(1), "waits", message("e2")).await.lease, LeaseOutcome::Waiting);
    w.append(at(2), "other/main", message("e3")).await;
    w.gate("nonsense").await;
    let swept = w.sweep(at(10_000)).await;
    assert_eq!(swept.due, [session("other/main")]);
    let done = w.commit(at(10_001), &grant, &last_turn(&grant)).await;
    assert_eq!(done, CommitOutcome::Done(RELEASED));
    w.gate("ACTIVE 1 100 queue").await;
    assert_eq!(w.take_wakes().await, ["waits"]);
}

/// Whether the world's owner is named at that time.
async fn is_due(w: &World, now: Millis) -> bool {
    let due = w.store.due_owners(now, "w1", Duration::ZERO, 100).await.unwrap();
    due.owners.iter().any(|(owner, wait)| *owner == w.owner && wait.is_zero())
}

/// Looks, as a sweep does, and says when the next look is.
async fn next(w: &World, now: Millis) -> Option<Millis> {
    w.sweep(now).await.next
}

pub async fn an_owner_is_due_when_something_of_it_is(w: World) {
    w.agent().await;
    assert_eq!(next(&w, T0).await, None);
    assert!(!is_due(&w, at(1_000_000)).await, "an agent alone is nothing to do");

    // An event that nobody took.
    w.append(T0, "main", message("e1")).await;
    assert_eq!((is_due(&w, at(4999)).await, is_due(&w, at(5000)).await), (false, true));
    assert_eq!(next(&w, at(5000)).await, Some(at(5000).plus(GRACE)));
    assert!(!is_due(&w, at(14_999)).await);

    // A lease, until it ends.
    let grant = w.run(at(6000), message("e2")).await;
    let before = next(&w, at(20_000)).await;
    assert_eq!(before, Some(grant.until));
    assert_eq!((is_due(&w, at(35_999)).await, is_due(&w, grant.until).await), (false, true));
    w.done(at(20_001), &grant).await;
    assert_eq!(next(&w, at(40_000)).await, None);

    // A message that its holder didn't publish.
    let event = NewEvent { outbox: vec![entry("m1")], ..message("e3") };
    w.append(at(50_000), "other", event).await;
    assert!(is_due(&w, at(55_000)).await);

    // A document that says so, before what is due already, and one without a time at once.
    let (timer, mark) = (format!("{}{:016}-t", keys::TIMERS_DUE, at(51_000).0), keys::garbage("g/gone/"));
    w.write(at(50_001), &[DocWrite::index_entry(timer.clone())]).await;
    assert_eq!((is_due(&w, at(50_999)).await, is_due(&w, at(51_000)).await), (false, true));
    assert_eq!(next(&w, at(50_500)).await, Some(at(51_000)));
    assert_eq!(next(&w, at(51_000)).await, Some(at(51_200)), "whether it was done is looked at soon");
    w.write(at(51_001), &[DocWrite::delete(timer), DocWrite::index_entry(mark)]).await;
    assert!(is_due(&w, at(51_002)).await);
}

pub async fn waiting_work_keeps_its_owner_due(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    let grant = w.run(T0, message("e1")).await;
    assert_eq!(w.admit(at(1), "second", message("e2")).await.lease, LeaseOutcome::Waiting);
    assert_eq!(next(&w, at(2)).await, Some(grant.until), "it waits for a slot");
    // Its holder died: whoever waits is told, and told again while it doesn't come.
    let swept = w.sweep(grant.until).await;
    assert_eq!((swept.outbox.len(), swept.next), (1, Some(grant.until.plus(GRACE))));
    w.store.remove_published(&w.owner, &[swept.outbox[0].id.clone()]).await.unwrap();
    assert!(is_due(&w, grant.until.plus(GRACE)).await);
    assert_eq!(w.sweep(grant.until.plus(GRACE)).await.outbox.len(), 1);
}

pub async fn later_due_work_is_named_with_its_time(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    let due =
        async |horizon| w.store.due_owners(at(1000), "w1", Duration::from_millis(horizon), 100).await.unwrap().owners;
    assert_eq!(due(3999).await, []);
    assert_eq!(due(4000).await, [(w.owner.clone(), Duration::from_secs(4))]);
}

pub async fn names_that_look_like_times_are_none(w: World) {
    w.agent().await;
    let marks = [keys::deletion_mark(&"9999999999999-bot".parse().unwrap()), keys::garbage("g/9999999999999-x/")];
    for mark in marks {
        w.write(T0, &[DocWrite::index_entry(mark.clone())]).await;
        assert!(is_due(&w, T0).await, "{mark}");
        assert!(next(&w, T0).await.is_some_and(|next| next <= at(1000)), "{mark}");
        w.write(T0, &[DocWrite::delete(mark)]).await;
    }
}
