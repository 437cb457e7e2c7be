//! Every state with every step, and what holds of all of them.

use super::{
    Availability, Handout, HolderState, LeaseRecord, LeaseUse, LeasedEvents, SessionRecord, StateAmendment,
    StateChange, TaskStart, TurnClaim,
};
use crate::dead::Attempt;
use crate::event::EventKind;
use crate::gate::GateStatus;
use crate::ids::JobId;
use crate::job::JobStatus;
use crate::limits::ATTEMPTS_KEPT;
use crate::time::Millis;
use std::fmt::Write;

const NOW: Millis = Millis(10_000);
const BEFORE: Millis = Millis(9_000);
const LATER: Millis = Millis(11_000);
/// The lease's epoch in the states that had one, and the last turn.
const EPOCH: u64 = 3;
const TURN: u64 = 7;

fn job() -> JobId {
    JobId::new(&format!("{:032x}", 1)).unwrap()
}

fn lease(until: Millis) -> LeaseRecord {
    let serving = LeasedEvents { arrivals: 5, last: String::new(), task: Some(("3-0".into(), Some(job()))) };
    LeaseRecord { until, token: "mine".into(), worker: "w1".into(), limit: 4, serving }
}

/// One of each kind, all with one event more than they consumed unless they say otherwise.
fn states() -> Vec<(&'static str, SessionRecord)> {
    let new = SessionRecord::default();
    let idle = SessionRecord {
        version: TURN,
        epoch: EPOCH,
        last: Some((EPOCH, TURN)),
        touched: Millis(1),
        arrivals: 5,
        consumed: 5,
        ..new.clone()
    };
    let due = SessionRecord { consumed: 4, due: Some(LATER), ..idle.clone() };
    let held = SessionRecord { lease: Some(lease(LATER)), ..due.clone() };
    vec![
        ("new", new.clone()),
        ("restored", SessionRecord { version: TURN, touched: Millis(1), ..new.clone() }),
        ("first event", SessionRecord { arrivals: 1, due: Some(LATER), ..new }),
        ("idle", idle.clone()),
        ("idle, looked at later", SessionRecord { due: Some(LATER), ..idle.clone() }),
        ("due", due.clone()),
        ("waiting", SessionRecord { due: None, waiting: Some(1), ..due.clone() }),
        ("waiting, emptied", SessionRecord { waiting: Some(1), ..idle.clone() }),
        ("backing off", SessionRecord { backoff: Some(LATER), ..due.clone() }),
        ("backoff over", SessionRecord { backoff: Some(NOW), due: Some(NOW), ..due }),
        ("held", held.clone()),
        ("held, emptied", SessionRecord { consumed: 5, ..held.clone() }),
        ("held, a job ended", SessionRecord { nudged: true, due: Some(NOW), ..held.clone() }),
        ("held for its first turn", SessionRecord { version: 0, last: None, ..held.clone() }),
        ("lapsed", SessionRecord { lease: Some(lease(NOW)), due: Some(NOW), ..held.clone() }),
        ("lapsed, emptied", SessionRecord { lease: Some(lease(NOW)), due: None, consumed: 5, ..held.clone() }),
        ("lapsed, queues", SessionRecord { lease: Some(lease(BEFORE)), due: None, waiting: Some(1), ..held.clone() }),
        ("void", SessionRecord { lease: Some(lease(Millis(0))), due: Some(Millis(0)), crashed: true, ..held }),
    ]
}

type Step = fn(&mut SessionRecord) -> String;

fn release(due: Option<Millis>, backoff: bool) -> LeaseUse {
    LeaseUse::Release { arrivals: 5, due, backoff }
}

fn change(session: &mut SessionRecord, then: Option<&[u8]>, arrivals: u64) -> String {
    let amending = StateAmendment { version: TURN, was: Some(b"was"), then, arrivals };
    format!("{:?}", session.check_amendment(Some(b"was"), &amending))
}

/// A message, a task in this status and another task are handed out.
fn serve(session: &mut SessionRecord, status: JobStatus) -> String {
    let job = job();
    let task = |place| Handout { place, kind: EventKind::Task, job: Some(&job), status: Some(status) };
    let message = Handout { place: "1-0", kind: EventKind::Message, job: None, status: None };
    format!("{:?}", session.serve([message, task("3-1"), task("3-2")].into_iter()))
}

const STEPS: [(&str, Step); 39] = [
    ("append", |s| format!("{:?}", s.append(NOW, "2-0"))),
    ("consume", |s| format!("{:?}", s.consume(b"3-0", true))),
    ("consume what is gone", |s| format!("{:?}", s.consume(b"3-0", false))),
    ("serve", |s| serve(s, JobStatus::Pending)),
    ("serve a paused task", |s| serve(s, JobStatus::Paused)),
    ("ask of an active agent", |s| format!("{:?}", s.request_lease(NOW, "other", LATER, Some(GateStatus::Active)))),
    ("ask of a suspended agent", |s| {
        format!("{:?}", s.request_lease(NOW, "other", LATER, Some(GateStatus::Suspended)))
    }),
    ("ask of a terminated agent", |s| {
        format!("{:?}", s.request_lease(NOW, "other", LATER, Some(GateStatus::Terminated)))
    }),
    ("ask of no agent", |s| format!("{:?}", s.request_lease(NOW, "other", LATER, None))),
    ("ask again", |s| format!("{:?}", s.request_lease(NOW, "mine", Millis(12_000), Some(GateStatus::Active)))),
    ("wait", |s| format!("{:?}", s.enqueue(-1, || 9))),
    ("grant", |s| {
        let (token, worker, serving) = ("other".into(), "w2".into(), LeasedEvents::default());
        let served = s.grant(NOW, LeaseRecord { until: LATER, token, worker, limit: 4, serving }, 20);
        format!("crash counts: {}", served.is_some())
    }),
    ("renew", |s| format!("{:?}", s.renew(EPOCH, Millis(12_000)))),
    ("renew of another", |s| format!("{:?}", s.renew(EPOCH - 1, Millis(12_000)))),
    ("claim", |s| format!("{:?}", s.holder_state(EPOCH))),
    ("claim of another", |s| format!("{:?}", s.holder_state(EPOCH - 1))),
    ("checkpoint", |s| format!("{:?}", s.checkpoint_state(EPOCH, TURN + 1))),
    ("checkpoint, late", |s| format!("{:?}", s.checkpoint_state(EPOCH, TURN))),
    ("checkpoint of another", |s| format!("{:?}", s.checkpoint_state(EPOCH - 1, TURN + 1))),
    ("claim turn", |s| format!("{:?}", s.claim_turn(EPOCH, TURN + 1))),
    ("claim turn again", |s| format!("{:?}", s.claim_turn(EPOCH, TURN))),
    ("claim turn of another", |s| format!("{:?}", s.claim_turn(EPOCH - 1, TURN + 1))),
    ("commit", |s| format!("{:?}", s.commit(NOW, TURN + 1))),
    ("keep", |s| format!("{:?}", s.keep_or_release(NOW, LeaseUse::Keep))),
    ("release", |s| format!("{:?}", s.keep_or_release(NOW, release(None, false)))),
    ("release until", |s| format!("{:?}", s.keep_or_release(NOW, release(Some(LATER), false)))),
    ("release and back off", |s| format!("{:?}", s.keep_or_release(NOW, release(Some(LATER), true)))),
    ("release, more came", |s| {
        let after = LeaseUse::Release { arrivals: s.arrivals.saturating_sub(1), due: None, backoff: false };
        format!("{:?}", s.keep_or_release(NOW, after))
    }),
    ("void", |s| format!("{:?}", s.void_lease())),
    ("end job", |s| format!("{:?}", s.end_job(NOW))),
    ("resume job", |s| format!("{:?}", s.resume_job(NOW))),
    ("vacant", |s| format!("{:?}", s.is_vacant(TURN, false))),
    ("vacant, same state", |s| format!("{:?}", s.is_vacant(TURN, true))),
    ("restore", |s| format!("{:?}", s.restore(NOW, 9))),
    ("amend", |s| change(s, Some(b"then"), 0)),
    ("amend again", |s| change(s, Some(b"was"), 0)),
    ("drop", |s| change(s, None, 5)),
    ("drop, more came", |s| change(s, None, 4)),
    ("forget", |s| format!("{:?}", s.is_idle())),
];

/// Whether a step is allowed at all: the one before it must have said so.
fn is_legal(step: &str, before: &SessionRecord) -> bool {
    match step {
        "grant" => before.clone().request_lease(NOW, "other", LATER, Some(GateStatus::Active)) == Availability::Free,
        "serve" | "serve a paused task" => before.lease.is_some(),
        "commit" => before.claim_turn(EPOCH, TURN + 1) == TurnClaim::Next,
        "keep" | "release" | "release until" | "release and back off" | "release, more came" => {
            before.holder_state(EPOCH) == HolderState::Holds
        }
        "restore" => before.is_vacant(9, false),
        _ => true,
    }
}

/// What can be seen of a record, one fact each.
fn facts(s: &SessionRecord) -> Vec<String> {
    let lease = s.lease.as_ref().map(|lease| {
        let LeasedEvents { arrivals, last, task } = &lease.serving;
        let task = task.as_ref().map_or("-", |(place, _)| place);
        format!("{} of {} serving {arrivals} last {last:?} task {task}", lease.until.0, lease.worker)
    });
    vec![
        format!("version {}", s.version),
        format!("epoch {}", s.epoch),
        format!("lease {}", lease.unwrap_or_else(|| "-".into())),
        format!("due {}", s.due.map_or("-".into(), |due| due.0.to_string())),
        format!("backoff {}", s.backoff.map_or("-".into(), |until| until.0.to_string())),
        format!("ticket {}", s.ticket().map_or("-".into(), |(rank, number)| format!("{rank}/{number}"))),
        format!("touched {}", s.touched.0),
        format!("arrivals {}", s.arrivals),
        format!("consumed {}", s.consumed),
        format!("head {}", s.head.as_deref().unwrap_or("-")),
        format!("task {}", s.task.as_deref().unwrap_or("-")),
        format!("last {:?}", s.last),
        format!("flags {} {} {}", s.nudged, s.checkpointed, s.crashed),
        format!("attempts {}", s.attempts.len()),
    ]
}

fn table() -> String {
    let mut text = String::new();
    for (state, before) in states() {
        writeln!(text, "{state}").unwrap();
        for (name, step) in STEPS.into_iter().filter(|(name, _)| is_legal(name, &before)) {
            let mut after = before.clone();
            let answer = step(&mut after);
            let changes = facts(&before).into_iter().zip(facts(&after)).filter(|(was, is)| was != is);
            let changes: Vec<_> = changes.map(|(_, is)| is).collect();
            let line = [vec![answer], changes].concat().join("; ");
            writeln!(text, "  {name}: {}", line.trim_start_matches("(); ")).unwrap();
        }
    }
    text
}

#[test]
fn every_state_takes_every_step_as_written() {
    let (found, written) = (table(), include_str!("steps.txt"));
    let unlike = found.lines().zip(written.lines()).find(|(found, written)| found != written);
    assert!(found == written, "first difference (found, written): {unlike:?}\nall that is found:\n{found}");
}

#[test]
fn reads_change_nothing_and_epochs_and_turns_only_grow() {
    for (state, before) in states() {
        for (name, step) in STEPS.into_iter().filter(|(name, _)| is_legal(name, &before)) {
            let mut after = before.clone();
            let answer = step(&mut after);
            if answer.contains("Fenced") || answer.contains("Held(") || answer.contains("Changed") {
                assert_eq!(after, before, "{state}, {name}");
            }
            assert!(after.epoch >= before.epoch && after.version >= before.version, "{state}, {name}");
            assert!(after.waiting.is_none() || after.live_until(NOW).is_none() || name == "wait", "{state}, {name}");
        }
    }
}

/// Between two grants exactly one epoch is the holder, whatever else happens.
#[test]
fn a_grant_fences_every_holder_before_it() {
    for (state, before) in states() {
        let mut after = before.clone();
        let Availability::Free = after.request_lease(NOW, "other", LATER, Some(GateStatus::Active)) else { continue };
        after.grant(NOW, LeaseRecord { token: "other".into(), ..lease(LATER) }, 20);
        for epoch in [0, before.epoch.saturating_sub(1), before.epoch] {
            assert_eq!(after.holder_state(epoch), HolderState::Fenced, "{state}");
        }
        assert!(after.is_held_by(after.epoch), "{state}");
        assert_eq!(
            after.request_lease(NOW, "third", LATER, Some(GateStatus::Active)),
            Availability::Held(LATER),
            "{state}"
        );
        assert_eq!(after.request_lease(LATER, "other", Millis(12_000), None), Availability::Yours, "{state}");
    }
}

#[test]
fn crashes_are_noted_up_to_a_limit_and_a_commit_forgets_them() {
    let mut session = SessionRecord { arrivals: 1, ..SessionRecord::default() };
    for n in 0..ATTEMPTS_KEPT as u64 + 3 {
        let lease = LeaseRecord { worker: format!("w{n}"), ..lease(Millis(n)) };
        assert_eq!(session.grant(Millis(n), lease, 40).is_some(), n > 0);
        assert_eq!(session.epoch, 41 + n, "behind those that were forgotten, however early it is");
    }
    let Some(Attempt { worker, epoch, turn, lapsed, job: served }) = session.attempts.first().cloned() else {
        panic!("expected attempts")
    };
    assert_eq!((session.attempts.len(), &*worker, epoch, turn, lapsed), (ATTEMPTS_KEPT, "w2", 43, 1, Millis(2)));
    assert_eq!(served, Some(job()));
    session.commit(NOW, 1);
    assert!(session.attempts.is_empty());
}

#[test]
fn only_the_crash_that_was_counted_last_is_taken_back_and_once() {
    let mut session = SessionRecord { arrivals: 1, ..SessionRecord::default() };
    for n in 0..3 {
        session.grant(Millis(n), lease(Millis(n)), 0);
    }
    let epochs = |session: &SessionRecord| session.attempts.iter().map(|a| a.epoch).collect::<Vec<_>>();
    for (epoch, is_taken_back, left) in [(3, false, vec![1, 2]), (1, false, vec![1, 2]), (2, true, vec![1])] {
        let charged = session.charged.clone();
        assert_eq!(session.uncount_crash(epoch), charged.filter(|_| is_taken_back), "{epoch}");
        assert_eq!(epochs(&session), left);
    }
    assert_eq!((session.uncount_crash(2), session.uncount_crash(1)), (None, None));
    session.grant(Millis(4), lease(Millis(5)), 0);
    session.commit(NOW, 1);
    assert_eq!((session.uncount_crash(3), session.charged), (None, None), "a commit counts for all before it");
}

#[test]
fn a_task_dies_of_crashes_alone_and_only_at_a_grant() {
    let session = SessionRecord::default();
    let start = |status, crashes, limit| session.task_fate(&job(), Some(status), crashes, limit);
    assert_eq!(start(JobStatus::Pending, 0, Some(0)), TaskStart::Starts);
    assert_eq!(start(JobStatus::Pending, 1, Some(2)), TaskStart::Starts);
    assert_eq!(start(JobStatus::Started, 5, None), TaskStart::GoesOn);
    assert_eq!(start(JobStatus::Cancelled, 5, Some(2)), TaskStart::GoesOn);
    let TaskStart::Dead(said) = start(JobStatus::Started, 2, Some(2)) else { panic!("expected its end") };
    assert_eq!(said, "its worker died 2 times while serving it");
}

#[test]
fn a_lease_serves_the_first_task_and_what_else_was_handed_out() {
    let serving = LeasedEvents { arrivals: 3, last: "5".into(), task: Some(("2".into(), None)) };
    for (place, is_task, arrival, expected) in [
        ("2", true, 1, true),
        ("4", true, 2, false),
        ("4", false, 3, true),
        ("6", false, 3, false),
        ("1", false, 4, false),
    ] {
        assert_eq!(serving.covers(place, is_task, arrival), expected, "{place} {is_task} {arrival}");
    }
}

#[test]
fn a_session_is_amended_only_with_the_state_that_was_seen() {
    let session = SessionRecord { version: 1, ..SessionRecord::default() };
    let amending = StateAmendment { version: 1, was: Some(b"a"), then: Some(b"b"), arrivals: 0 };
    assert_eq!(session.check_amendment(Some(b"a"), &amending), StateChange::Allowed);
    assert_eq!(session.check_amendment(Some(b"c"), &amending), StateChange::Changed);
    assert_eq!(session.check_amendment(Some(b"b"), &amending), StateChange::Repeated);
}

#[test]
fn older_records_decode() {
    let old = r#"{"version":3,"epoch":4,"lease":{"until":9,"worker":"w","limit":2},"due":9,"touched":5,"arrivals":2,
        "consumed":1,"nudged":false,"checkpointed":false,"crashed":false}"#;
    let session: SessionRecord = serde_json::from_str(old).unwrap();
    assert_eq!(
        (session.live_until(Millis(1)), session.due, session.touched),
        (Some(Millis(9)), Some(Millis(9)), Millis(5))
    );
    let again: SessionRecord = serde_json::from_str(&serde_json::to_string(&session).unwrap()).unwrap();
    assert_eq!(again, session);
}
