//! What is for a paused job waits with it; what others want goes on.

use super::tests::{job, keys, message, result, state, task};
use super::*;
use crate::budget::{Budget, Deadline, LimitOrigin};
use crate::job::ErrorCode;
use serde_json::json;

const PAUSED: JobStatus = JobStatus::Paused;

fn run(state: SessionState, inbox: &[PendingEvent]) -> SessionRun {
    SessionRun::new(1, state, inbox.to_vec(), false)
}

fn message_to_job(n: u8, to: u8, status: Option<JobStatus>) -> PendingEvent {
    let mut pending = message(n);
    pending.event.payload = Payload::Message { input: json!("hi"), to: Some(job(to)) };
    pending.event.session_context.insert("k".into(), "its sender's".into());
    PendingEvent { status, ..pending }
}

#[test]
fn no_turn_begins_for_a_paused_job() {
    let begun = || state(Some(1), false, &[7]);
    for (state, inbox, goes_on) in [
        // Its results, messages and the tasks behind it wait with it, begun or not.
        (begun(), vec![task(1, PAUSED)], false),
        (begun(), vec![task(1, PAUSED), result(7), message(4), task(2, JobStatus::Pending)], false),
        (SessionState::default(), vec![task(1, PAUSED)], false),
        (SessionState::default(), vec![task(1, PAUSED), message(4), task(2, JobStatus::Pending)], false),
        // One behind the open task holds nothing up.
        (begun(), vec![task(1, JobStatus::Started), task(2, PAUSED), message(4)], true),
        (begun(), vec![task(2, PAUSED), task(1, JobStatus::Started)], true),
    ] {
        let run = run(state, &inbox);
        assert_eq!(matches!(run.next_step(5), NextStep::Turn(_)), goes_on, "{:?}", keys(&inbox));
        assert!(goes_on || (run.next_step(5) == NextStep::Rest && !run.has_answers(Millis(9))));
    }
    let held = run(SessionState::default(), &[task(1, PAUSED), task(2, JobStatus::Pending)]);
    assert!(held.is_paused(Some(&job(1))) && !held.is_paused(Some(&job(2))) && !held.is_paused(None));
}

#[test]
fn ended_tasks_do_not_wait_with_a_paused_one() {
    let inbox = [task(1, PAUSED), task(2, JobStatus::Cancelled)];
    let NextStep::Settle(settled) = run(state(Some(1), false, &[]), &inbox).next_step(5) else {
        panic!("it has ended")
    };
    assert_eq!(keys(&settled), ["k2"]);
}

#[test]
fn the_time_of_a_paused_job_goes_on() {
    let mut begun = state(Some(1), false, &[]);
    begun.task.as_mut().unwrap().deadline = Some(Deadline { at: Millis(50), origin: LimitOrigin::Request });
    let paused = run(begun.clone(), &[task(1, PAUSED)]);
    let any = Budget::default();
    assert_eq!((paused.next_deadline(&any), paused.find_overdue_task(&any, Millis(49))), (Some(Millis(50)), None));
    let (ended, how) = paused.find_overdue_task(&any, Millis(50)).unwrap();
    assert_eq!((ended, how.status, how.error_code), (job(1), JobStatus::Failed, Some(ErrorCode::BudgetExceeded)));
    assert!(how.error.unwrap().ends_with("while it was paused"));
    assert_eq!(run(begun, &[task(1, JobStatus::Started)]).find_overdue_task(&any, Millis(50)), None, "a turn ends it");
}

#[test]
fn the_time_of_an_unstarted_job_counts_from_acceptance() {
    let within = |n, status, seconds| {
        let mut pending = task(n, status);
        pending.event.received = Millis(1_000);
        pending.event.budget.wall_clock = Some(seconds);
        pending
    };
    let (any, agent) = (Budget::default(), Budget { wall_clock: Some(2), ..Budget::default() });
    let paused = run(SessionState::default(), &[within(1, PAUSED, 3), within(2, JobStatus::Pending, 4)]);
    assert_eq!((paused.next_deadline(&any), paused.next_deadline(&agent)), (Some(Millis(4_000)), Some(Millis(3_000))));
    assert_eq!(paused.find_overdue_task(&any, Millis(3_999)), None);
    let ends = |run: &SessionRun, limits: &Budget, at| {
        run.find_overdue_task(limits, Millis(at)).map(|(job, how)| (job, how.error_code.unwrap(), how.error.unwrap()))
    };
    let (ended, code, how) = ends(&paused, &any, 4_000).unwrap();
    assert!(ended == job(1) && code == ErrorCode::BudgetExceeded && how.ends_with("while it was paused"), "{how}");
    assert_eq!(ends(&paused, &agent, 3_000).unwrap().1, ErrorCode::LimitReached);
    // What stands behind it, too; whoever is next and not paused has a turn that says so.
    let behind = run(SessionState::default(), &[task(1, PAUSED), within(2, JobStatus::Pending, 4)]);
    let (ended, _, how) = ends(&behind, &any, 5_000).unwrap();
    assert!(ended == job(2) && how.ends_with("before it began"), "{how}");
    let next = run(SessionState::default(), &[within(2, JobStatus::Pending, 4)]);
    assert_eq!((next.next_deadline(&any), ends(&next, &any, 9_000)), (Some(Millis(5_000)), None));
    assert_eq!(run(SessionState::default(), &[task(1, PAUSED)]).next_deadline(&any), None);
}

#[test]
fn a_message_to_a_job_is_read_only_in_that_jobs_turns() {
    let open = Some(JobStatus::Started);
    let run = |inbox: &[PendingEvent]| run(SessionState::default(), inbox);
    let mine =
        run(&[message_to_job(4, 1, open), message_to_job(5, 2, Some(JobStatus::Pending)), task(1, JobStatus::Started)]);
    let plan = mine.plan();
    assert_eq!((keys(&plan.messages), plan.settled.len()), (vec!["k4"], 0), "another's waits for its turn");
    assert!(mine.mandate(&plan).session_context.is_empty(), "its sender's values are not the request's");
    let held = run(&[message_to_job(4, 1, Some(PAUSED)), task(1, PAUSED)]);
    assert_eq!(held.next_step(5), NextStep::Rest);
    for over in [None, Some(JobStatus::Complete)] {
        let NextStep::Settle(settled) = run(&[message_to_job(4, 1, over)]).next_step(5) else {
            panic!("nobody reads it")
        };
        assert_eq!(keys(&settled), ["k4"]);
    }
}
