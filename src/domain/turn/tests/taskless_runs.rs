//! Turns without a task.

use super::*;

/// A session that does what its commits say, for runs over several turns.
fn after(run: &SessionRun, decision: &Decision, arrived: Vec<PendingEvent>) -> SessionRun {
    let mut next = run.after_commit(&decision.state, &decision.consume);
    let mut inbox = next.inbox.clone();
    inbox.extend(arrived);
    next.refresh(inbox, false);
    next
}

fn loose(run: &SessionRun) -> TurnInput {
    let NextStep::Turn(plan) = run.next_step(5) else { panic!("expected a turn, got {:?}", run.next_step(5)) };
    let mandate = run.mandate(&plan);
    TurnInput {
        plan: *plan,
        state: run.state.clone(),
        mandate,
        ..turn_input("implicit", SessionState::default(), vec![])
    }
}

#[test]
fn a_message_stays_in_the_mailbox_until_its_run_is_through() {
    let run = SessionRun::new(0, SessionState::default(), vec![message(4)], false);
    let first = drive(loose(&run), calls(&[(READ, json!({}))]), vec![ok()]);
    assert_eq!((first.consume.len(), first.state.shown.clone()), (0, vec!["k4".to_owned()]));
    // Another message joins; the first is not shown again.
    let run = after(&run, &first, vec![message(5)]);
    let turn_input = loose(&run);
    assert_eq!(turn_input.plan.messages.iter().map(|p| p.key.as_str()).collect::<Vec<_>>(), ["k5"]);
    let last = drive(turn_input, text("noted"), vec![]);
    assert_eq!(last.consume, ["k4", "k5"]);
    let run = after(&run, &last, vec![]);
    assert_eq!((run.next_step(5), without_prefixes(run.state)), (NextStep::Rest, SessionState::default()));
}

#[test]
fn a_task_takes_over_from_a_loose_run() {
    let state = SessionState { shown: vec!["k4".into()], loose_turns: 1, ..SessionState::default() };
    let decision =
        drive(turn_input("implicit", state, vec![message(4), task(1)]), calls(&[(READ, json!({}))]), vec![ok()]);
    assert_eq!((decision.consume, decision.state.shown.len()), (vec!["k4".to_owned()], 0));
}

#[test]
fn turns_without_a_task_are_bounded() {
    let mut run = SessionRun::new(0, SessionState::default(), vec![message(4)], false);
    let mut turns = 0;
    while let NextStep::Turn(_) = run.next_step(5) {
        turns += 1;
        assert!(turns <= 3, "the limit is 3 turns");
        let decision = drive(loose(&run), calls(&[(READ, json!({}))]), vec![ok()]);
        run = after(&run, &decision, vec![]);
    }
    assert_eq!((turns, run.inbox.len(), without_prefixes(run.state)), (3, 0, SessionState::default()));
}

#[test]
fn children_do_not_keep_taskless_turns_going_forever() {
    let mut run = SessionRun::new(0, SessionState::default(), vec![message(4)], false);
    let mut turns = 0u8;
    while let NextStep::Turn(_) = run.next_step(5) {
        turns += 1;
        assert!(turns <= 3, "the limit is 3 turns");
        let decision = drive(loose(&run), calls(&[("agent_request", json!({}))]), vec![started(10 + turns)]);
        run = after(&run, &decision, vec![result(10 + turns)]);
    }
    assert!(matches!(run.next_step(5), NextStep::Settle(_)), "the last result is awaited by nobody");
}

#[test]
fn of_several_messages_the_one_with_the_longest_way_counts() {
    let caused = |n: u8, chain: &[&str]| {
        let mut pending = message(n);
        let lineage = &mut pending.event.envelope.lineage;
        lineage.origin = Some("e0".parse().unwrap());
        lineage.chain = chain.iter().map(|agent| agent.parse().unwrap()).collect();
        pending
    };
    let way = |run: &SessionRun| run.mandate(&run.plan()).lineage();
    let run =
        SessionRun::new(0, SessionState::default(), vec![message(4), caused(5, &["b", "c"]), caused(6, &["b"])], false);
    assert_eq!(run.plan().messages.len(), 3, "they are heard together");
    assert_eq!(way(&run).path(None), "b -> c");
    let own = message(4).event.id;
    assert_eq!(
        way(&SessionRun::new(0, SessionState::default(), vec![message(4), message(5)], false)).origin,
        Some(own)
    );
    // What joins a run that was begun from outside takes it over, and a task stands for itself.
    let run = SessionRun::new(0, SessionState::default(), vec![message(4)], false);
    let first = drive(loose(&run), calls(&[(READ, json!({}))]), vec![ok()]);
    let joined = after(&run, &first, vec![caused(5, &["b"])]);
    assert_eq!(way(&joined).path(None), "b");
    let second = drive(loose(&joined), calls(&[(READ, json!({}))]), vec![ok()]);
    assert_eq!(way(&after(&joined, &second, vec![])).path(None), "b", "it stays so");
    let run = SessionRun::new(0, SessionState::default(), vec![caused(4, &["b"]), task(1)], false);
    assert!(!run.mandate(&run.plan()).is_caused());
}
