//! Which events a turn takes, and what is to be done next.

use super::*;
use crate::authority::Capability;
use crate::job::JobResult;
use crate::session::TaskProgress;
use crate::time::Millis;
use serde_json::json;

pub(super) fn job(n: u8) -> JobId {
    JobId::new(&format!("{n:032x}")).unwrap()
}

fn pending(n: u8, payload: Payload, status: Option<JobStatus>) -> PendingEvent {
    let event = Event::new(format!("e{n}").parse().unwrap(), Millis(0), payload);
    PendingEvent { key: format!("k{n}"), event, crashes: 0, status }
}

pub(super) fn task(n: u8, status: JobStatus) -> PendingEvent {
    pending(n, Payload::Task { job: job(n), input: json!(1) }, Some(status))
}

pub(super) fn message(n: u8) -> PendingEvent {
    pending(n, Payload::Message { input: json!("hi"), to: None }, None)
}

pub(super) fn result(n: u8) -> PendingEvent {
    pending(n, Payload::Result { job: job(n), result: JobResult::complete(json!(1)) }, None)
}

pub(super) fn state(task: Option<u8>, parked: bool, children: &[u8]) -> SessionState {
    let child =
        |n: &u8| (job(*n), PendingJob { agent: "b".parse().unwrap(), started: Millis(0), under: None, frame: 0 });
    SessionState {
        pending: children.iter().map(child).collect(),
        task: task.map(|n| TaskProgress { turns: 1, ..TaskProgress::new(job(n)) }),
        parked,
        ..SessionState::default()
    }
}

pub(super) fn keys(pending: &[PendingEvent]) -> Vec<&str> {
    pending.iter().map(|p| p.key.as_str()).collect()
}

#[test]
fn an_empty_mailbox_rests() {
    assert_eq!(SessionRun::default().next_step(5), NextStep::Rest);
}

#[test]
fn the_oldest_task_is_served_with_messages_and_results() {
    let inbox = vec![
        task(1, JobStatus::Cancelled),
        task(2, JobStatus::Started),
        task(3, JobStatus::Pending),
        message(4),
        result(5),
        result(6),
    ];
    let run = SessionRun { version: 1, state: state(Some(2), false, &[5]), inbox };
    let plan = run.plan();
    assert_eq!(plan.task.as_ref().unwrap().key, "k2");
    assert_eq!(keys(&plan.messages), ["k4"]);
    assert_eq!(keys(&plan.results), ["k5"]);
    assert_eq!(keys(&plan.settled), ["k1", "k6"]);
    assert_eq!(plan.event_keys(), ["k4", "k5"]);
    let NextStep::Settle(settled) = run.next_step(5) else { panic!("what has ended goes first") };
    assert_eq!(keys(&settled), ["k1", "k6"]);
}

#[test]
fn a_parked_session_wakes_for_news_only() {
    let parked = |inbox| SessionRun::new(1, state(Some(1), true, &[2]), inbox, false);
    assert_eq!(parked(vec![task(1, JobStatus::Started)]).next_step(5), NextStep::Rest);
    assert!(matches!(parked(vec![task(1, JobStatus::Started), result(2)]).next_step(5), NextStep::Turn(_)));
    assert!(matches!(parked(vec![task(1, JobStatus::Started), message(3)]).next_step(5), NextStep::Turn(_)));
}

#[test]
fn events_that_need_no_model_are_settled_without_one() {
    let run =
        SessionRun { version: 1, state: state(None, false, &[]), inbox: vec![result(2), task(1, JobStatus::Failed)] };
    let NextStep::Settle(settled) = run.next_step(5) else { panic!("expected to settle") };
    assert_eq!(keys(&settled), ["k2", "k1"]);
}

#[test]
fn a_begun_task_stays_open_when_an_older_one_arrives() {
    let run = SessionRun::new(
        1,
        state(Some(2), false, &[]),
        vec![task(1, JobStatus::Pending), task(2, JobStatus::Started)],
        false,
    );
    assert_eq!(run.plan().task.unwrap().key, "k2");
}

#[test]
fn a_task_ended_from_outside_leaves_nothing_to_the_next() {
    let (open, gone) = (task(1, JobStatus::Started), task(1, JobStatus::Cancelled));
    let next = || task(2, JobStatus::Pending);
    for (inbox, more, kept) in [
        (vec![next()], false, false),
        // It may be behind the entries that were handed out.
        (vec![next()], true, true),
        (vec![gone.clone(), next()], false, false),
        (vec![gone, next()], true, false),
        (vec![open, next()], false, true),
    ] {
        let run = SessionRun::new(1, state(Some(1), true, &[7]), inbox, more);
        assert_eq!((run.state.task.is_some(), run.state.parked, !run.state.pending.is_empty()), (kept, kept, kept));
    }
}

#[test]
fn a_loose_run_continues_and_shows_each_message_once() {
    let shown = SessionState { shown: vec!["k4".into(), "k5".into()], ..SessionState::default() };
    let run = SessionRun::new(1, shown, vec![result(5), message(4)], false);
    let NextStep::Turn(plan) = run.next_step(5) else { panic!("the run goes on") };
    assert_eq!(*plan, Plan::default());
}

#[test]
fn values_of_two_requests_never_meet_in_one_turn() {
    let with = |n: u8, value: &str| {
        let mut pending = message(n);
        pending.event.session_context.insert("k".into(), value.into());
        pending
    };
    let value = |run: &SessionRun| run.mandate(&run.plan()).session_context.get("k").cloned();
    let run =
        SessionRun::new(1, SessionState::default(), vec![message(4), with(5, "a"), with(6, "b"), with(7, "a")], false);
    assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k4"], None), "nor do those without any");
    let run =
        SessionRun::new(1, SessionState::default(), vec![with(5, "a"), message(4), with(6, "b"), with(7, "a")], false);
    assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k5", "k7"], Some("a".into())));
    let under = Some(with(5, "a").event.mandate());
    let shown = SessionState { shown: vec!["k5".into()], under, ..SessionState::default() };
    let run = SessionRun::new(1, shown, vec![with(5, "a"), with(6, "b"), message(7)], false);
    assert_eq!((keys(&run.plan().messages), value(&run)), (vec![], Some("a".into())), "through all its turns");
    let run =
        SessionRun::new(1, SessionState::default(), vec![with(6, "b"), message(7), task(1, JobStatus::Pending)], false);
    assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k7"], None));
    let mut own = task(1, JobStatus::Pending);
    own.event.session_context.insert("k".into(), "b".into());
    let run = SessionRun::new(1, SessionState::default(), vec![with(6, "b"), with(7, "a"), own], false);
    assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k6"], Some("b".into())));
    let parked = SessionRun::new(1, state(Some(1), true, &[2]), vec![with(6, "b"), task(1, JobStatus::Started)], false);
    assert_eq!(parked.next_step(5), NextStep::Rest, "what waits is no reason for a turn");
}

#[test]
fn events_of_different_authority_get_separate_turns() {
    let granted = |n: u8, path: &str| {
        let mut pending = message(n);
        let cap = Capability { with: path.into(), can: "crud".into() };
        pending.event.envelope = Envelope::default().narrow_to_grants(Some(vec![cap]));
        pending.event.envelope.holders.push(format!("caller {n}"));
        pending
    };
    let run = |state, inbox: &[PendingEvent]| SessionRun::new(1, state, inbox.to_vec(), false);
    let free = run(SessionState::default(), &[granted(4, "w/a"), granted(5, "w/b"), message(6), granted(7, "w/a")]);
    let plan = free.plan();
    assert_eq!(keys(&plan.messages), ["k4", "k7"], "whoever holds the same");
    assert_eq!(free.mandate(&plan).envelope.holders, ["caller 4"]);
    // A result runs under the request in whose service its job was started, also when that is gone.
    let mut waiting = state(None, true, &[2, 3]);
    waiting.pending.get_mut(&job(2)).unwrap().under = Some(granted(4, "w/a").event.mandate());
    waiting.pending.get_mut(&job(3)).unwrap().under = Some(Mandate::default());
    let back = run(waiting.clone(), &[result(2), result(3), message(8)]);
    let plan = back.plan();
    assert_eq!((keys(&plan.results), keys(&plan.messages)), (vec!["k2"], vec![]));
    assert_eq!(back.mandate(&plan).envelope, granted(4, "w/a").event.envelope);
    // With a task open it waits until that has ended, and is not forgotten with it.
    let mut busy = SessionState { task: state(Some(1), true, &[]).task, ..waiting };
    let with_task = run(busy.clone(), &[result(2), task(1, JobStatus::Started)]);
    assert_eq!((keys(&with_task.plan().results), with_task.plan().settled.len()), (vec![], 0));
    busy.end_task();
    assert!(busy.pending.contains_key(&job(2)));
}

#[test]
fn an_unawaited_result_goes_last_and_keeps_turn_numbers() {
    let run = |state, inbox: &[PendingEvent]| SessionRun::new(0, state, inbox.to_vec(), false).next_step(5);
    let NextStep::Turn(plan) = run(SessionState::default(), &[result(5), task(1, JobStatus::Pending)]) else {
        panic!("the turn that began its job may have been lost")
    };
    assert_eq!((plan.task.unwrap().key.as_str(), keys(&plan.settled)), ("k1", vec!["k5"]));
    for (state, inbox) in [
        (SessionState::default(), vec![result(5)]),
        (state(Some(1), true, &[6]), vec![result(5), task(1, JobStatus::Started)]),
        (SessionState::default(), vec![PendingEvent { crashes: 5, ..result(5) }, task(1, JobStatus::Pending)]),
    ] {
        let NextStep::Settle(settled) = run(state, &inbox) else { panic!("nothing else is to be done: {inbox:?}") };
        assert_eq!(keys(&settled), ["k5"]);
    }
    let many: Vec<_> = (10..27).map(result).chain([task(1, JobStatus::Pending)]).collect();
    assert!(
        matches!(run(SessionState::default(), &many), NextStep::Settle(all) if all.len() == 17),
        "they hide others"
    );
}

#[test]
fn messages_that_kill_workers_are_dropped_after_the_dead_task() {
    let killer = PendingEvent { crashes: 5, ..message(4) };
    let run = SessionRun::new(
        1,
        SessionState::default(),
        vec![killer.clone(), message(5), task(1, JobStatus::Pending)],
        false,
    );
    let NextStep::GiveUp(plan) = run.next_step(5) else { panic!("expected to give up") };
    assert_eq!((keys(&plan.messages), plan.task), (vec!["k4"], None));
    assert!(matches!(run.next_step(6), NextStep::Turn(_)));
    let dead = PendingEvent { crashes: 5, ..task(1, JobStatus::Failed) };
    let run = SessionRun::new(1, SessionState::default(), vec![killer, dead], false);
    let NextStep::Settle(settled) = run.next_step(5) else { panic!("expected to settle") };
    assert_eq!(keys(&settled), ["k1"]);
}

#[test]
fn revoked_events_start_no_turn_and_join_none() {
    let under = |pending: PendingEvent, grant: &str| {
        let envelope = Envelope { grants: vec![grant.to_owned()], ..Envelope::default() };
        PendingEvent { event: Event { envelope, ..pending.event }, ..pending }
    };
    let over = |envelope: &Envelope| envelope.grants.contains(&"lost".to_owned()).then(|| "revoked".to_owned());
    let stands = |state: SessionState, inbox: Vec<PendingEvent>| {
        let run = SessionRun { version: 1, state, inbox };
        let (plan, reason) = run.without_revoked(run.plan(), over);
        let mut all: Vec<_> = plan.task.iter().map(|task| task.key.clone()).collect();
        all.extend(plan.event_keys());
        (all.join(" "), reason.is_some())
    };
    let open = || task(1, JobStatus::Started);
    let fresh = SessionState::default;
    for (state, inbox, expected) in [
        (fresh(), vec![under(open(), "kept"), under(message(2), "kept")], ("k1 k2", false)),
        (fresh(), vec![under(open(), "lost"), under(message(2), "kept")], ("k1", true)),
        (fresh(), vec![under(open(), "lost"), under(message(2), "lost")], ("k1 k2", true)),
        (fresh(), vec![under(open(), "kept"), under(message(2), "lost"), under(message(3), "kept")], ("k2", true)),
        (fresh(), vec![under(message(2), "kept"), under(message(3), "lost")], ("k3", true)),
        (state(Some(1), true, &[4]), vec![under(open(), "kept"), under(message(2), "lost"), result(4)], ("k2", true)),
        (state(Some(1), false, &[4]), vec![under(open(), "lost"), result(4)], ("k1 k4", true)),
    ] {
        let shown = format!("{inbox:?}");
        assert_eq!(stands(state, inbox), (expected.0.to_owned(), expected.1), "{shown}");
    }
    let loose = |grant: &str| {
        let envelope = Envelope { grants: vec![grant.to_owned()], ..Envelope::default() };
        let under = Some(Mandate { envelope, ..Mandate::default() });
        SessionState { shown: vec!["k9".into()], under, ..fresh() }
    };
    let inbox = || vec![under(message(2), "lost"), under(message(3), "kept")];
    assert_eq!(stands(loose("kept"), inbox()), ("k3".to_owned(), false), "a loose run goes on without it");
    assert_eq!(stands(loose("lost"), inbox()), ("k2".to_owned(), true));
}
