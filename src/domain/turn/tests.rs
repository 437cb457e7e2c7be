//! The turn machine driven by hand: one table per rule.

use super::decide::Decision;
use super::run::{NextStep, PendingEvent, Plan, SessionRun};
use super::*;
use crate::agent::{AgentConfig, PromptStyle};
use crate::authority::Authority;
use crate::budget::Purse;
use crate::call::{CallRefusal, ReplyStart, ResolvedCall, ToolTarget};
use crate::chat::{Arguments, ToolCall};
use crate::context::budget::PromptBudget;
use crate::context::inputs::{Layout, Moment, PromptFrame};
use crate::context::item::{Absence, ItemContent, PromptItem, Section};
use crate::context::record::{pack_system, pack_tools, part::PartNamer, period::Period};
use crate::event::{Event, Mandate, Payload};
use crate::ids::{JobId, SessionKey};
use crate::job::{JobResult, JobStatus};
use crate::lattice::catalog::RUN;
use crate::session::{PendingJob, SessionState, TaskProgress};
use crate::spend::ModelUse;
use crate::tools::{OperationInfo, resolve};
use crate::values::Resolver;
use crate::values::inject::Injection;
use crate::values::inserted_values::KnownValues;
use serde_json::json;
use std::collections::BTreeMap;

mod bindings;
mod fallback;
mod goals;
mod limits;
mod pipelines;
mod taskless_runs;
mod scoped;
mod settle;
mod silence;
mod reply_room;
mod truncated;
mod waiting_turns;

const NOW: Millis = Millis(9_000);

fn job(n: u8) -> JobId {
    JobId::new(&format!("{n:032x}")).unwrap()
}

fn pending(n: u8, payload: Payload) -> PendingEvent {
    let event = Event::new(format!("e{n}").parse().unwrap(), Millis(0), payload);
    PendingEvent { key: format!("k{n}"), event, crashes: 0, status: None }
}

fn task(n: u8) -> PendingEvent {
    PendingEvent {
        status: Some(JobStatus::Started),
        ..pending(n, Payload::Task { job: job(n), input: json!("do it") })
    }
}

fn message(n: u8) -> PendingEvent {
    pending(n, Payload::Message { input: json!("hi"), to: None })
}

fn result(n: u8) -> PendingEvent {
    pending(n, Payload::Result { job: job(n), result: JobResult::complete(json!("done")) })
}

fn awaiting(mut state: SessionState, child: u8) -> SessionState {
    state
        .pending
        .insert(job(child), PendingJob { agent: "b".parse().unwrap(), started: Millis(0), under: None, frame: 0 });
    state
}

fn begun(n: u8, turns: u32, reminded: bool) -> SessionState {
    SessionState {
        task: Some(TaskProgress { turns, reminded, ..TaskProgress::new(job(n)) }),
        ..SessionState::default()
    }
}

/// An agent with a limit of 3 turns.
fn config(completion: &str) -> AgentConfig {
    let config = json!({
        "model": {"provider": "scripted", "name": "x"}, "completion": completion, "limits": {"turns": 3},
    });
    AgentConfig::parse(&config).unwrap()
}

fn turn_input(completion: &str, state: SessionState, inbox: Vec<PendingEvent>) -> TurnInput {
    let run = SessionRun::new(4, state, inbox, false);
    TurnInput {
        owner: "local/me".parse().unwrap(),
        session: SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() },
        turn: 5,
        date: "2026-11-22".into(),
        start: Millis(8_000),
        config: Arc::new(config(completion)),
        config_version: 2,
        mandate: run.mandate(&run.plan()),
        authority: Authority::default(),
        purse: Purse::default(),
        last: None,
        opener: None,
        plan: run.plan(),
        state: run.state,
        counted: ModelCalls::default(),
    }
}

fn inputs(turn: &Turn, items: Vec<PromptItem>) -> Observation {
    let turn_input = turn.input();
    let known = ["v/ops/lattice/read", "v/ops/agent/request", "v/ops/job/run"].map(|path| OperationInfo {
        requested_path: path.to_owned(),
        path: path.to_owned(),
        description: "d".into(),
        input: json!({"type": "object"}),
        entities: Vec::new(),
        aliases: Vec::new(),
    });
    let values = Resolver::default();
    let tools = resolve(&turn_input.config, &[], turn_input.ends(), &values, &known[..]);
    let inputs = Inputs {
        frame: PromptFrame {
            agent: turn_input.session.agent.clone(),
            venue: "test".into(),
            model: turn_input.config.model.clone(),
            authority: Authority::default(),
            disclosure: None,
            bound: Authority::default(),
            completion: turn_input.config.completion,
            strict: false,
            aliases: false,
            bare: false,
            prompt: PromptStyle::Full,
        },
        moment: Moment { turn: "x/y/z/1".into(), date: "2026-01-01".into(), budget: PromptBudget::default() },
        system: turn_input.config.system_prompt.clone(),
        values: KnownValues::default(),
        items,
        transcript: Vec::new(),
        tools: tools.into(),
        served: turn_input.plan.served_events(&turn_input.state, &turn_input.mandate),
        layout: Layout::StableFirst(None),
        attachments: Vec::new(),
    };
    let namer = PartNamer::new(b"key", &turn_input.owner);
    let scribe = RecordWriter {
        period: Period::from_start(Millis(0)),
        base: None,
        tools: pack_tools(&namer, &inputs.tools).into(),
        system: pack_system(&namer, &inputs.system).into(),
        namer,
    };
    Observation::Gathered(Box::new(inputs), Box::new(scribe))
}

fn text(text: &str) -> Reply {
    Reply { text: text.into(), ..Reply::default() }
}

fn calls(tools: &[(&str, Value)]) -> Reply {
    let call = |(at, (name, arguments)): (usize, &(&str, Value))| ToolCall {
        id: format!("c{at}"),
        name: (*name).to_owned(),
        arguments: Arguments::Json(arguments.clone()),
    };
    Reply { text: "calling".into(), calls: tools.iter().enumerate().map(call).collect(), ..Reply::default() }
}

fn ok() -> CallOutcome {
    CallOutcome::from_text(Outcome::Ok, "fine")
}

fn started(n: u8) -> CallOutcome {
    CallOutcome { started: Some((job(n), "b".parse().unwrap())), ..ok() }
}

/// Drives a turn to its commit; `outcomes` are those of its calls.
fn drive(turn_input: TurnInput, reply: Reply, outcomes: Vec<CallOutcome>) -> Decision {
    let (mut turn, action) = Turn::begin(turn_input, NOW);
    assert_eq!(action, Action::Gather);
    let Action::Ask(_) = turn.step(inputs(&turn, Vec::new()), NOW) else { panic!("expected a model call") };
    let mut action = turn.step(Observation::Answered(Ok(reply)), NOW);
    if let Action::Record(_) = action {
        let Action::Call(planned) = turn.step(Observation::Recorded, NOW) else { panic!("expected calls") };
        assert_eq!(planned.len(), outcomes.len());
        action = turn.step(Observation::Called(outcomes), NOW);
    }
    let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
    *decision
}

fn ended(decision: &Decision) -> Option<(JobStatus, Option<ErrorCode>)> {
    decision.ended_task.as_ref().map(|(_, result)| (result.status, result.error_code))
}

const READ: &str = "lattice_read";

#[test]
fn a_task_ends_or_goes_on_as_its_reply_says() {
    let done = Some((JobStatus::Complete, None));
    let failed = |code| Some((JobStatus::Failed, Some(code)));
    let read = || calls(&[(READ, json!({}))]);
    for (name, completion, state, reply, outcomes, expected) in vec![
        ("text completes", "implicit", SessionState::default(), text("42"), vec![], done),
        ("text with a child open parks", "implicit", awaiting(begun(1, 1, false), 2), text("so far"), vec![], None),
        ("text is reminded once", "explicit", begun(1, 1, false), text("hm"), vec![], None),
        ("and fails then", "explicit", begun(1, 2, true), text("hm"), vec![], failed(ErrorCode::NoCompletion)),
        (
            "no reminder at the limit",
            "explicit",
            begun(1, 2, false),
            text("hm"),
            vec![],
            failed(ErrorCode::NoCompletion),
        ),
        ("a call goes on", "implicit", begun(1, 1, false), read(), vec![ok()], None),
        ("not past the limit", "implicit", begun(1, 2, false), read(), vec![ok()], failed(ErrorCode::LimitReached)),
        (
            "complete_task",
            "explicit",
            awaiting(begun(1, 1, false), 2),
            calls(&[(READ, json!({})), ("complete_task", json!({"result": 7})), ("fail_task", json!({"error": "x"}))]),
            vec![ok(), ok(), ok()],
            done,
        ),
        (
            "fail_task",
            "implicit",
            begun(1, 2, false),
            calls(&[("fail_task", json!({"error": "no"}))]),
            vec![ok()],
            failed(ErrorCode::TaskFailed),
        ),
    ] {
        let decision = drive(turn_input(completion, state, vec![task(1)]), reply, outcomes);
        assert_eq!(ended(&decision), expected, "{name}");
        let is_over = expected.is_some();
        assert_eq!(decision.consume.contains(&"k1".to_owned()), is_over, "{name}");
        assert_eq!(decision.record.ended.len(), usize::from(is_over), "{name}");
        assert_eq!(decision.state.task.is_none(), is_over, "{name}");
        if is_over {
            assert_eq!(without_prefixes(decision.state), SessionState::default(), "{name}");
        }
    }
}

#[test]
fn text_while_a_child_is_open_parks_the_task() {
    for completion in ["implicit", "explicit"] {
        let decision =
            drive(turn_input(completion, awaiting(begun(1, 1, false), 2), vec![task(1)]), text("wait"), vec![]);
        assert!(decision.state.parked && !decision.state.task.as_ref().unwrap().reminded);
        assert!(decision.state.pending.contains_key(&job(2)));
    }
    let mut state = awaiting(begun(1, 1, false), 2);
    state.pending.get_mut(&job(2)).unwrap().under = Some(Mandate::default());
    let decision = drive(turn_input("implicit", state, vec![task(1)]), text("done"), vec![]);
    assert!(
        decision.ended_task.is_some() && decision.state.pending.contains_key(&job(2)),
        "what a message has started"
    );
}

#[test]
fn outcomes_that_are_all_started_park() {
    let reply = || calls(&[("agent_request", json!({})), (READ, json!({}))]);
    for (outcomes, parked) in [(vec![started(2), started(3)], true), (vec![started(2), ok()], false)] {
        let decision = drive(turn_input("implicit", begun(1, 1, false), vec![task(1)]), reply(), outcomes.clone());
        assert_eq!(decision.state.parked, parked);
        assert_eq!(decision.state.pending.len(), outcomes.iter().filter(|o| o.started.is_some()).count());
    }
}

#[test]
fn a_result_that_was_shown_is_not_awaited_any_more() {
    let state = SessionState { parked: true, ..awaiting(awaiting(begun(1, 1, false), 2), 3) };
    let decision = drive(turn_input("implicit", state, vec![result(2), task(1)]), text("one of two"), vec![]);
    assert_eq!(decision.state.pending.keys().collect::<Vec<_>>(), [&job(3)]);
    assert_eq!((decision.consume, decision.state.parked), (vec!["k2".to_owned()], true));
}

#[test]
fn unknown_tools_and_bad_arguments_are_outcomes() {
    let mut reply = calls(&[("lattice_raed", json!({})), (READ, json!({})), (READ, json!({}))]);
    reply.calls[1].arguments = Arguments::Malformed("{not json".into());
    reply.calls[2].arguments = Arguments::Malformed(r#"{"n": 123456789012345678901}"#.into());
    let turn_input = turn_input("implicit", SessionState::default(), vec![task(1)]);
    let (mut turn, _) = Turn::begin(turn_input, NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    let Action::Record(recorded) = turn.step(Observation::Answered(Ok(reply)), NOW) else {
        panic!("expected a record")
    };
    let errors: Vec<_> = recorded.calls.iter().map(|call| call.what.clone().unwrap_err()).collect();
    let unknown = "unknown tool `lattice_raed`, did you mean `lattice_read`";
    assert_eq!(errors[0], CallRefusal::new(Outcome::Unknown, unknown));
    assert_eq!(errors[1].outcome, Outcome::Arguments);
    assert_eq!(
        errors[1].text,
        "the arguments of `lattice_read` are not JSON: key must be a string at line 1 column 2: {not json"
    );
    let inexact =
        "the arguments of `lattice_read` can't be taken: `n`: number 123456789012345678901 is larger than 64 bits";
    assert!(errors[2].text.starts_with(inexact), "{}", errors[2].text);
}

#[test]
fn a_cancelled_turn_keeps_its_transcript_and_drops_its_output() {
    let reply = calls(&[("complete_task", json!({"result": 7}))]);
    let turn_input = turn_input("implicit", awaiting(begun(1, 1, false), 2), vec![message(4), task(1)]);
    let (mut turn, _) = Turn::begin(turn_input.clone(), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    turn.step(Observation::Answered(Ok(reply.clone())), NOW);
    let Action::Commit(while_recording) = turn.step(Observation::Cancelled(Vec::new()), NOW) else {
        panic!("expected a commit")
    };
    assert_eq!(while_recording.record.calls[0].outcome, "cancelled");
    let unknown = CallOutcome { outcome: Outcome::OutcomeUnknown, ..ok() };
    let (mut turn, _) = Turn::begin(turn_input.clone(), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    turn.step(Observation::Answered(Ok(reply.clone())), NOW);
    turn.step(Observation::Recorded, NOW);
    let cancelled = turn.step(Observation::Cancelled(vec![(0, unknown)]), NOW);
    let Action::Commit(while_calling) = cancelled else { panic!("expected a commit") };
    assert_eq!(while_calling.record.calls[0].outcome, "outcome unknown");
    let at_commit = drive(turn_input.clone(), reply, vec![ok()]).cancel(&turn_input);
    assert_eq!(at_commit.record.calls[0].outcome, "ok");
    for decision in [*while_recording, *while_calling, at_commit] {
        assert!(decision.cancelled && decision.ended_task.is_none() && decision.record.ended.is_empty());
        assert_eq!(decision.record.said.len(), 2);
        assert_eq!(decision.consume, ["k4", "k1"]);
        assert_eq!(without_prefixes(decision.state), SessionState::default());
    }
}

#[test]
fn a_failing_provider_is_retried_until_its_attempts_end() {
    let transient = |exhausted| ModelFailure::Transient { reason: "503".into(), exhausted };
    for (failure, waits) in
        [(transient(false), true), (transient(true), false), (ModelFailure::Permanent { reason: "401".into() }, false)]
    {
        let turn_input = turn_input("implicit", SessionState::default(), vec![message(4), task(1)]);
        let (mut turn, _) = Turn::begin(turn_input, NOW);
        turn.step(inputs(&turn, Vec::new()), NOW);
        match turn.step(Observation::Answered(Err(failure)), NOW) {
            Action::Wait { .. } => assert!(waits),
            Action::Commit(decision) => {
                assert!(!waits);
                assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::ModelError))));
                // What it could not answer is on record all the same.
                assert_eq!(decision.record.events.len(), 2);
            }
            other => panic!("expected a wait or a commit, got {other:?}"),
        }
    }
}

#[test]
fn missing_or_oversized_context_fails_before_a_model_call() {
    let entry = |required, content| PromptItem {
        section: Section::Context,
        key: "context/doc".into(),
        label: Some("doc".into()),
        source: None,
        allowed: None,
        asked: None,
        priority: 500,
        required,
        unresolved: Vec::new(),
        tags: crate::context::item::HandOffTags::default(),
        origin: crate::origin::Origin::default(),
        content,
        attachments: Vec::new(),
    };
    let missing = || ItemContent::Absent(Absence::Missing, "nothing is there".into());
    let large = "x".repeat(crate::limits::CONTEXT_BYTES + 1);
    for (system, entry, expected) in [
        (large.as_str(), entry(false, ItemContent::Text("t".into())), Some(ErrorCode::ContextOverflow)),
        ("", entry(true, missing()), Some(ErrorCode::ContextRequiredMissing)),
        ("", entry(false, missing()), None),
    ] {
        let mut turn_input = turn_input("implicit", SessionState::default(), vec![task(1)]);
        Arc::make_mut(&mut turn_input.config).system_prompt = system.to_owned();
        let (mut turn, _) = Turn::begin(turn_input, NOW);
        match (turn.step(inputs(&turn, vec![entry]), NOW), expected) {
            (Action::Ask(_), None) => {}
            (Action::Commit(decision), Some(code)) => {
                assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(code))));
            }
            (action, expected) => panic!("expected {expected:?}, got {action:?}"),
        }
    }
}

/// A reply recorded for a task with a tool that the configuration of now doesn't offer.
/// The state without what its prompts had in their stable parts.
fn without_prefixes(state: SessionState) -> SessionState {
    SessionState { prefixes: BTreeMap::new(), ..state }
}

fn recorded(job: Option<JobId>, consume: &[&str]) -> RecordedReply {
    let target = ToolTarget::Operation("v/ops/of/then".into());
    let what = Ok(ResolvedCall { target, arguments: json!({"x": 1}) });
    RecordedReply {
        used: Vec::new(),
        frame: 0,
        job,
        reply: calls(&[("then", json!({"x": 1}))]),
        calls: vec![PlannedCall {
            id: "c0".into(),
            tool: "then".into(),
            what,
            injection: Injection::default(),
            instance: None,
            scoped: Vec::new(),
            published: None,
        }],
        prompt: "hash".into(),
        consume: consume.iter().map(|key| (*key).to_owned()).collect(),
        heard: Vec::new(),
        events: Vec::new(),
        unpinned: Vec::new(),
        start: ReplyStart::Dated(Millis(7_000)),
        config_version: 1,
        authority: Authority::default(),
        last: None,
        ledger: None,
        prefix: None,
        spent: ModelUse::default(),
        asked: None,
        pipeline: None,
    }
}

fn resume(state: SessionState, inbox: Vec<PendingEvent>, recorded: RecordedReply) -> (Turn, Action) {
    let run = SessionRun::new(4, state, inbox, false);
    let plan = run.plan_for_recorded(&recorded);
    Turn::resume(
        TurnInput { plan, state: run.state, ..turn_input("implicit", SessionState::default(), vec![]) },
        recorded,
        &[(0, CallOutcome { text: "noted".into(), ..ok() })],
        NOW,
    )
}

#[test]
fn a_resumed_turn_keeps_its_reply_tools_and_events() {
    let inbox = vec![message(4), message(5), task(1), task(2)];
    let (mut turn, action) = resume(begun(1, 1, false), inbox, recorded(Some(job(1)), &["k4"]));
    let Action::Call(planned) = action else { panic!("expected the recorded calls, got {action:?}") };
    assert_eq!(planned, (0..).zip(recorded(None, &[]).calls).collect::<Vec<_>>());
    let Action::Commit(decision) = turn.step(Observation::Called(vec![ok()]), NOW) else { panic!("expected a commit") };
    assert_eq!(decision.consume, ["k4"]);
    assert_eq!((decision.record.config_version, decision.record.start), (1, Millis(7_000)));
    assert_eq!(decision.record.calls[0].operation, "v/ops/of/then");
    assert_eq!(decision.state.task.as_ref().map(|t| (t.job.clone(), t.turns)), Some((job(1), 2)));
}

#[test]
fn a_recorded_reply_whose_task_has_ended_reaches_no_other_task() {
    let cancelled = PendingEvent { status: Some(JobStatus::Cancelled), ..task(1) };
    for inbox in [vec![task(2)], vec![cancelled, task(2)], vec![]] {
        let (_, action) = resume(begun(1, 1, false), inbox, recorded(Some(job(1)), &["k4"]));
        let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
        assert!(decision.cancelled && decision.ended_task.is_none());
        // What was noted of a call that can't be undone stands in the transcript.
        assert_eq!(decision.record.calls[0].outcome, "ok");
        assert!(matches!(&decision.record.said[1], crate::chat::ChatMessage::Tool { text, .. } if text == "noted"));
        // What the reply had heard is consumed; the next task stays.
        assert_eq!((decision.consume, decision.record.job), (vec!["k4".to_owned()], Some(job(1))));
        assert_eq!(decision.state, SessionState::default());
    }
}

#[test]
fn a_recorded_reply_to_a_message_serves_no_later_task() {
    let (mut turn, action) = resume(SessionState::default(), vec![message(4), task(1)], recorded(None, &["k4"]));
    assert!(matches!(action, Action::Call(_)));
    let Action::Commit(decision) = turn.step(Observation::Called(vec![ok()]), NOW) else { panic!("expected a commit") };
    assert_eq!((decision.state.task, decision.state.shown), (None, vec!["k4".to_owned()]));
}

#[test]
fn messages_that_were_given_up_leave_the_session_as_it_was() {
    let poisoned = Plan { messages: vec![message(4)], ..Plan::default() };
    let state = SessionState { parked: true, ..awaiting(begun(1, 1, false), 2) };
    let turn_input = TurnInput { plan: poisoned, ..turn_input("implicit", state.clone(), vec![message(4), task(1)]) };
    let (_, action) = Turn::give_up(turn_input, NOW);
    let Action::Commit(decision) = action else { panic!("expected a commit") };
    assert_eq!((decision.consume, decision.ended_task, decision.state), (vec!["k4".to_owned()], None, state));
    assert_eq!(decision.record.events.len(), 1);
}

#[test]
fn a_turn_driven_out_of_order_fails_its_task() {
    let (mut turn, _) = Turn::begin(turn_input("implicit", SessionState::default(), vec![task(1)]), NOW);
    let Action::Commit(decision) = turn.step(Observation::Recorded, NOW) else { panic!("expected a commit") };
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::Internal))));
}
