//! How many sessions of an owner run at once, and how its agents take turns for them.

use super::*;

const fn capped(owner_cap: u32) -> impl Fn() -> LeaseRequest {
    move || LeaseRequest { owner_cap, ..ask() }
}

/// Admits a message with the session's name for an id.
async fn admit(w: &World, now: Millis, to: &str, cap: u32) -> LeaseOutcome {
    w.admit_with(now, to, Some(message(&to.replace('/', "-"))), Some(capped(cap)())).await.lease
}

async fn wake(w: &World, now: Millis, to: &str, cap: u32) -> LeaseOutcome {
    w.admit_with(now, to, None, Some(capped(cap)())).await.lease
}

fn run(outcome: LeaseOutcome) -> Grant {
    match outcome {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Ends the grant's last turn; the sessions that are told to come.
async fn done(w: &World, now: Millis, grant: &Grant) -> Vec<String> {
    let CommitOutcome::Done(next) = w.commit(now, grant, &last_turn(grant)).await else { panic!("expected a commit") };
    let woken = next.wakes().iter().filter_map(woken).collect();
    w.take_wakes().await;
    woken
}

async fn agents(w: &World) {
    w.gate("ACTIVE 8 100 queue").await;
    w.gate_of("other", "ACTIVE 8 100 queue").await;
}

pub async fn a_cap_counts_the_leases_of_all_agents_of_an_owner(w: World) {
    agents(&w).await;
    run(admit(&w, T0, "a", 2).await);
    run(admit(&w, at(10_000), "other/a", 2).await);
    assert_eq!(admit(&w, at(10_001), "b", 2).await, LeaseOutcome::Waiting);
    assert_eq!(admit(&w, at(10_002), "other/b", 2).await, LeaseOutcome::Waiting);
    let neighbour = World { owner: "acme/bob".parse().unwrap(), store: Arc::clone(&w.store) };
    agents(&neighbour).await;
    run(admit(&neighbour, at(10_003), "a", 2).await);
    // The first lease has lapsed: one of those who wait is told to come, the other isn't.
    assert!(w.swept_wakes(at(30_000)).await.contains(&"b".to_owned()));
    assert_eq!(wake(&w, at(30_001), "other/b", 2).await, LeaseOutcome::Waiting);
    run(wake(&w, at(30_001), "b", 2).await);
}

pub async fn agents_take_turns_for_the_slots_of_their_owner(w: World) {
    agents(&w).await;
    let mut running = run(admit(&w, T0, "a", 1).await);
    for (n, to) in (1..).zip(["b", "c", "d", "other/x", "other/y"]) {
        assert_eq!(admit(&w, at(n), to, 1).await, LeaseOutcome::Waiting);
    }
    // Those of one agent that came first don't keep the other agent waiting.
    for (n, (session, to)) in (10..).zip([("b", "b"), ("x", "other/x"), ("c", "c"), ("y", "other/y"), ("d", "d")]) {
        assert_eq!(done(&w, at(n), &running).await, [session]);
        running = run(wake(&w, at(n), to, 1).await);
    }
    assert!(done(&w, at(20), &running).await.is_empty());
}

pub async fn a_newcomer_does_not_take_the_slot_of_a_woken_waiter(w: World) {
    agents(&w).await;
    let first = run(admit(&w, T0, "a", 1).await);
    assert_eq!(admit(&w, at(1), "b", 1).await, LeaseOutcome::Waiting);
    assert_eq!(done(&w, at(2), &first).await, ["b"]);
    assert_eq!(admit(&w, at(3), "other/x", 1).await, LeaseOutcome::Waiting);
    let second = run(wake(&w, at(4), "b", 1).await);
    assert_eq!(done(&w, at(5), &second).await, ["x"]);
}

pub async fn an_agent_without_a_slot_leaves_its_turn_to_the_next(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    w.gate_of("other", "ACTIVE 8 100 queue").await;
    let first = run(admit(&w, T0, "a", 2).await);
    let second = run(admit(&w, at(1), "other/x", 2).await);
    assert_eq!(admit(&w, at(2), "b", 2).await, LeaseOutcome::Waiting);
    assert_eq!(admit(&w, at(3), "other/y", 2).await, LeaseOutcome::Waiting);
    // `clerk` runs one already.
    assert_eq!(done(&w, at(4), &second).await, ["y"]);
    run(wake(&w, at(5), "other/y", 2).await);
    assert_eq!(done(&w, at(6), &first).await, ["b"]);
    run(wake(&w, at(7), "b", 2).await);
}

pub async fn a_suspended_agent_keeps_nobody_waiting(w: World) {
    agents(&w).await;
    let first = run(admit(&w, T0, "a", 1).await);
    assert_eq!(admit(&w, at(1), "b", 1).await, LeaseOutcome::Waiting);
    assert_eq!(admit(&w, at(2), "other/x", 1).await, LeaseOutcome::Waiting);
    w.gate("SUSPENDED 8 100 queue").await;
    assert_eq!(done(&w, at(3), &first).await, ["x"]);
    let second = run(wake(&w, at(4), "other/x", 1).await);
    w.gate("ACTIVE 8 100 queue").await;
    assert!(w.take_wakes().await.is_empty(), "there is no slot for it yet");
    assert_eq!(done(&w, at(5), &second).await, ["b"]);
}

pub async fn a_lost_wake_of_an_owners_slot_is_made_again(w: World) {
    agents(&w).await;
    run(admit(&w, T0, "a", 1).await);
    assert_eq!(admit(&w, at(1), "b", 1).await, LeaseOutcome::Waiting);
    assert!(w.swept_wakes(at(20_000)).await.is_empty(), "nobody is woken in vain");
    assert!(w.swept_wakes(at(30_000)).await.contains(&"b".to_owned()));
    let later = at(30_000).plus(GRACE);
    assert!(w.swept_wakes(later).await.contains(&"b".to_owned()));
    run(wake(&w, later, "b", 1).await);
}

pub async fn a_higher_cap_lets_all_in(w: World) {
    agents(&w).await;
    run(admit(&w, T0, "a", 1).await);
    for (n, to) in (1..).zip(["b", "c", "d"]) {
        assert_eq!(admit(&w, at(n), to, 1).await, LeaseOutcome::Waiting);
    }
    // Whoever asks with another cap makes it known.
    assert_eq!(admit(&w, at(5), "e", 4).await, LeaseOutcome::Waiting);
    assert_eq!(w.swept_wakes(at(6)).await, ["b", "c", "d"], "one slot each, and none for `e`");
    for (n, to) in (7..).zip(["b", "c", "d"]) {
        run(wake(&w, at(n), to, 4).await);
    }
    assert_eq!(wake(&w, at(10), "e", 4).await, LeaseOutcome::Waiting);
    run(wake(&w, at(11), "e", 0).await);
}

pub async fn a_holder_keeps_its_slot_when_the_cap_sinks(w: World) {
    agents(&w).await;
    let first = run(admit(&w, T0, "a", 0).await);
    let second = run(admit(&w, at(1), "b", 0).await);
    assert_eq!(admit(&w, at(2), "c", 1).await, LeaseOutcome::Waiting);
    assert!(matches!(w.store.renew(at(3), &first.lease, TTL).await.unwrap(), trellis::store::LeaseCheck::Held { .. }));
    assert!(done(&w, at(4), &second).await.is_empty(), "one is still running");
    assert_eq!(done(&w, at(5), &first).await, ["c"]);
}

pub async fn a_resumed_agent_is_told_of_each_free_slot_once(w: World) {
    agents(&w).await;
    run(admit(&w, T0, "other/x", 5).await);
    w.gate("SUSPENDED 8 100 queue").await;
    for (n, to) in (1..).zip(["b", "c", "d"]) {
        assert_eq!(admit(&w, at(n), to, 5).await, LeaseOutcome::Suspended);
    }
    w.gate("ACTIVE 8 100 queue").await;
    let told = || async { w.store.outbox(&w.owner).await.unwrap().len() };
    assert_eq!(told().await, 3);
    w.gate_of("third", "ACTIVE 8 100 queue").await;
    assert_eq!(told().await, 3, "they have been told");
    assert_eq!(w.take_wakes().await, ["b", "c", "d"]);
}

pub async fn a_queue_at_one_agent_keeps_no_other_from_free_slots(w: World) {
    w.gate("ACTIVE 1 100 queue").await;
    w.gate_of("other", "ACTIVE 8 100 queue").await;
    let first = run(admit(&w, T0, "a", 4).await);
    for (n, to) in (1..).zip(["b", "c"]) {
        assert_eq!(admit(&w, at(n), to, 4).await, LeaseOutcome::Waiting);
    }
    assert_eq!(done(&w, at(3), &first).await, ["b"]);
    // `b` was told and has its slot for sure, and there are three more.
    for (n, to) in (4..).zip(["other/x", "other/y", "other/z"]) {
        run(admit(&w, at(n), to, 4).await);
    }
    assert_eq!(admit(&w, at(7), "other/late", 4).await, LeaseOutcome::Waiting);
    run(wake(&w, at(8), "b", 4).await);
}

pub async fn many_agents_are_told_in_their_turn_and_none_twice(w: World) {
    let names: Vec<String> = (0..100).map(|n| format!("agent{n:03}")).collect();
    for name in &names {
        w.gate_of(name, "ACTIVE 8 100 queue").await;
    }
    let mut running = Vec::new();
    for name in names.iter().take(2) {
        running.push(run(admit(&w, T0, &format!("{name}/first"), 2).await));
    }
    for (n, name) in (1..).zip(&names) {
        for session in ["s", "t"] {
            assert_eq!(admit(&w, at(n), &format!("{name}/{session}{n:03}"), 2).await, LeaseOutcome::Waiting);
        }
    }
    // All are let in at once: one of each agent, then the others.
    assert_eq!(wake(&w, at(200), "agent000/s001", 150).await, LeaseOutcome::Waiting);
    w.sweep(at(201)).await;
    let entries = w.store.outbox(&w.owner).await.unwrap();
    let told: Vec<_> = entries.iter().filter_map(woken).collect();
    let first = told.iter().filter(|session| session.starts_with('s')).count();
    assert_eq!((told.len(), first), (148, 100));
    w.sweep(at(202)).await;
    assert_eq!(w.store.outbox(&w.owner).await.unwrap().len(), 148);
}
