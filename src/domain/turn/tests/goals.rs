//! The goal tree and typed outputs, turn after turn.

use super::*;
use crate::goal::Goal;
use crate::limits::SUMMARY_BYTES;

/// A session that is driven by hand.
struct Session {
    config: AgentConfig,
    state: SessionState,
    inbox: Vec<PendingEvent>,
    records: Vec<TurnRecord>,
}

impl Session {
    fn new(config: &Value, inbox: Vec<PendingEvent>) -> Self {
        let mut all = json!({
            "model": {"provider": "scripted", "name": "x"}, "loop": "goalTree", "limits": {"turns": 20},
            "tools": ["subgoal", "complete", "fail", "compact"],
        });
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        Self { config: AgentConfig::parse(&all).unwrap(), state: SessionState::default(), inbox, records: Vec::new() }
    }

    fn tree(config: &Value) -> Self {
        Self::new(config, vec![task(1)])
    }

    fn turn(&self) -> u64 {
        self.records.len() as u64 + 1
    }

    fn turn_input(&self) -> TurnInput {
        let mut turn_input = super::turn_input("implicit", self.state.clone(), self.inbox.clone());
        let opener = self.state.goals.top().map(|frame| frame.turn);
        turn_input.opener = self.records.iter().find(|record| Some(record.turn) == opener).cloned().map(Box::new);
        turn_input.config = Arc::new(self.config.clone());
        turn_input.turn = self.turn();
        turn_input
    }

    /// One turn with this reply; tools of the harness are really called.
    fn reply(&mut self, reply: Reply) -> Decision {
        let turn_input = self.turn_input();
        let (mut turn, _) = Turn::begin(turn_input.clone(), NOW);
        let Action::Ask(_) = turn.step(inputs(&turn, Vec::new()), NOW) else { panic!("expected a model call") };
        let mut action = turn.step(Observation::Answered(Ok(reply)), NOW);
        if let Action::Record(_) = action {
            let Action::Call(planned) = turn.step(Observation::Recorded, NOW) else { panic!("expected calls") };
            let outcome = |(_, call): &(u32, PlannedCall)| match &call.what {
                Ok(ResolvedCall { target: ToolTarget::Operation(_), .. }) => ok(),
                Ok(ResolvedCall { target, arguments }) => endings::call_outcome(&turn_input, target, arguments),
                Err(unmade) => unmade.into(),
            };
            action = turn.step(Observation::Called(planned.iter().map(outcome).collect()), NOW);
        }
        let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
        if let Some(amended) = &decision.amended_record {
            let place = self.records.iter_mut().find(|record| record.turn == amended.turn).unwrap();
            place.clone_from(amended);
        }
        self.records.push(decision.record.clone());
        self.state = decision.state.clone();
        self.inbox.retain(|pending| !decision.consume.contains(&pending.key));
        *decision
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Decision {
        self.reply(calls(&[(tool, arguments)]))
    }

    fn subgoal(&mut self, description: &str) -> Decision {
        self.call("subgoal", json!({"description": description}))
    }

    /// What a call of a turn came to, as the transcript shows it.
    fn result(&self, turn: usize, call: usize) -> &str {
        let mut results = self.records[turn - 1].said.iter().filter_map(|said| match said {
            ChatMessage::Tool { text, .. } => Some(text.as_str()),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        results.nth(call).unwrap()
    }
}

use crate::chat::ChatMessage;
use crate::session::TurnRecord;

#[test]
fn a_subgoals_result_is_the_result_of_the_call_that_opened_it() {
    for (end, arguments, expected) in [
        (None, json!({}), "found it"),
        (Some("complete"), json!({"price": 3}), r#"{"price":3}"#),
        (Some(""), json!({}), "error: the goal ended with an empty reply, without a result"),
        (Some("fail"), json!({"error": "no such thing"}), "error: the goal was not reached: no such thing"),
        (
            Some("fail"),
            json!({"reason": "busy", "retry": true}),
            r#"error: the goal was not reached: {"reason":"busy","retry":true}"#,
        ),
    ] {
        let mut session = Session::tree(&json!({}));
        assert_eq!(ended(&session.subgoal("find the price")), None);
        assert_eq!((session.state.goals.active_id(), session.records[0].frame), (1, 0));
        let decision = match end {
            None => session.reply(text("found it")),
            Some("") => session.reply(text("")),
            Some(tool) => session.call(tool, arguments),
        };
        assert_eq!((ended(&decision), decision.record.frame), (None, 1), "the task goes on");
        assert_eq!(session.result(1, 0), expected);
        assert_eq!(session.state.goals.active_id(), 0);
        let done = session.reply(text("it costs 3"));
        assert_eq!(ended(&done), Some((JobStatus::Complete, None)));
    }
}

#[test]
fn several_subgoals_of_a_reply_are_worked_on_in_order() {
    let mut session = Session::tree(&json!({}));
    let goals = ["one", "two"].map(|goal| ("subgoal", json!({"description": goal})));
    session.reply(calls(&goals));
    for (at, result) in ["first", "second"].into_iter().enumerate() {
        assert_eq!(session.state.goals.top().unwrap().description, ["one", "two"][at]);
        session.reply(text(result));
        assert_eq!(session.result(1, at), result);
    }
    assert_eq!(session.state.goals.active_id(), 0);
}

#[test]
fn a_ninth_level_is_a_tool_error() {
    let mut session = Session::tree(&json!({}));
    for _ in 0..8 {
        session.subgoal("deeper");
    }
    session.subgoal("too deep");
    assert!(session.result(9, 0).starts_with("error: goals are at most 8 deep"), "{}", session.result(9, 0));
    assert_eq!(session.state.goals.path().len(), 8);
}

#[test]
fn text_with_a_child_open_parks_a_goal_and_does_not_end_it() {
    let mut session = Session::tree(&json!({}));
    session.subgoal("ask somebody");
    session.state = awaiting(session.state.clone(), 2);
    session.state.pending.values_mut().for_each(|pending| pending.frame = 1);
    let decision = session.reply(text("waiting"));
    assert_eq!((decision.state.parked, decision.state.goals.active_id()), (true, 1));
}

#[test]
fn whatever_ends_the_task_ends_its_goals() {
    let limit = json!({"limits": {"turns": 2}});
    let mut session = Session::tree(&limit);
    session.subgoal("never ends");
    let decision = session.subgoal("nor this");
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
    assert!(decision.state.goals.frames.is_empty());
    assert_eq!(session.result(2, 0), "not opened: this reply ends what it is for");

    let mut session = Session::tree(&json!({}));
    session.subgoal("cancelled");
    let turn_input = session.turn_input();
    let (mut turn, _) = Turn::begin(turn_input, NOW);
    let Action::Commit(decision) = turn.step(Observation::Cancelled(Vec::new()), NOW) else {
        panic!("expected a commit")
    };
    assert!(decision.state.goals.frames.is_empty());
}

#[test]
fn a_goal_that_ends_at_the_limit_ends_with_the_limit() {
    let mut session = Session::tree(&json!({"limits": {"turns": 2}}));
    session.subgoal("the last");
    let decision = session.reply(text("found"));
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
    assert_eq!(session.result(1, 0), "found");
}

#[test]
fn at_the_root_complete_ends_the_task_with_its_input() {
    let mut session = Session::tree(&json!({}));
    let decision = session.call("complete", json!({"total": 3}));
    assert_eq!(decision.ended_task.unwrap().1, JobResult::complete(json!({"total": 3})));
    let mut session = Session::tree(&json!({}));
    let decision = session.call("fail", json!({"error": "no"}));
    assert_eq!(decision.ended_task.unwrap().1, JobResult::failure(ErrorCode::TaskFailed, "no"));
    let mut session = Session::tree(&json!({}));
    let decision = session.call("fail", json!({"reason": "r", "details": "d"}));
    let error = r#"{"reason":"r","details":"d"}"#;
    assert_eq!(decision.ended_task.unwrap().1, JobResult::failure(ErrorCode::TaskFailed, error));
}

#[test]
fn a_stray_complete_at_the_root_of_a_chat_compacts() {
    let mut session = Session::new(&json!({}), vec![message(1)]);
    session.call("lattice_read", json!({}));
    let decision = session.call("complete", json!({"found": "three"}));
    assert_eq!(ended(&decision), None);
    let [segment] = decision.state.goals.segments.as_slice() else { panic!("one segment") };
    assert_eq!((segment.turns, segment.to, segment.summary.as_str()), (1, 1, r#"{found: "three"}"#));
}

#[test]
fn compact_replaces_earlier_turns_and_keeps_its_own() {
    let mut session = Session::tree(&json!({}));
    session.call("compact", json!({"summary": "nothing yet"}));
    assert_eq!(session.result(1, 0), "error: there are no turns to compact yet");
    session.call("lattice_read", json!({}));
    session.call("compact", json!({"summary": "x".repeat(SUMMARY_BYTES + 1)}));
    assert!(session.result(3, 0).contains("expected at most 16384 bytes"));
    let decision = session.call("compact", json!({"summary": "read it"}));
    let [segment] = decision.state.goals.segments.as_slice() else { panic!("one segment") };
    assert_eq!((segment.turns, segment.to), (3, 3));
    assert_eq!(decision.state.goals.live_turns().turns, 1, "the turn that compacts is live");
}

#[test]
fn a_loose_run_works_on_goals_too_and_ends_with_its_text() {
    let mut session = Session::new(&json!({}), vec![message(1)]);
    let decision = session.subgoal("look");
    assert_eq!(decision.state.shown, ["k1"]);
    let decision = session.reply(text("seen"));
    assert_eq!((decision.state.shown.as_slice(), decision.state.goals.active_id()), (&["k1".to_owned()][..], 0));
    let decision = session.reply(text("done"));
    assert_eq!((decision.state.shown.len(), decision.consume), (0, vec!["k1".to_owned()]));
}

const TYPED: &str = r#"{"outputs": {"complete": {"schema": {
    "type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]
}}}}"#;

fn typed() -> Value {
    serde_json::from_str(TYPED).unwrap()
}

#[test]
fn a_typed_output_is_refused_twice_and_fails_then() {
    let wrong = || calls(&[("complete", json!({"total": "three"}))]);
    let right = || calls(&[("complete", json!({"total": 3}))]);
    let invalid = Some((JobStatus::Failed, Some(ErrorCode::OutputInvalid)));
    for (name, replies, expected) in [
        ("fits", vec![right()], Some((JobStatus::Complete, None))),
        ("text that is it", vec![text("{\"total\": 3}")], Some((JobStatus::Complete, None))),
        ("fenced", vec![text("```json\n{\"total\": 3}\n```\n")], Some((JobStatus::Complete, None))),
        ("in prose", vec![text("Here:\n```json\n{\"total\": 3}\n```")], Some((JobStatus::Complete, None))),
        ("text, then fits", vec![text("3"), right()], Some((JobStatus::Complete, None))),
        ("wrong twice, then fits", vec![wrong(), wrong(), right()], Some((JobStatus::Complete, None))),
        ("wrong three times", vec![wrong(), wrong(), wrong()], invalid),
        ("text three times", vec![text("3"), text("3"), text("3")], invalid),
        ("mixed", vec![text("3"), wrong(), text("3")], invalid),
    ] {
        let mut session = Session::tree(&typed());
        let last = replies.len() - 1;
        for (at, reply) in replies.into_iter().enumerate() {
            let decision = session.reply(reply);
            assert_eq!(ended(&decision), expected.filter(|_| at == last), "{name}, reply {at}");
            let reminded = decision.state.task.as_ref().is_some_and(|progress| progress.reminded);
            assert_eq!(
                reminded,
                at < last && name != "wrong twice, then fits" && name != "wrong three times",
                "{name}"
            );
        }
    }
    let mut session = Session::tree(&typed());
    session.reply(wrong());
    let told = "error: refused: the result is not what it must be: at `/total`: \"three\" is not of type \"number\"";
    assert!(session.result(1, 0).starts_with(told), "{}", session.result(1, 0));
}

#[test]
fn typed_outputs_bring_the_tools_that_end_a_goal_and_only_those() {
    let names = |config: Value, inner: bool, task_open: bool| {
        let mut session = Session::new(&config, if task_open { vec![task(1)] } else { vec![message(1)] });
        if inner {
            session.state.goals.open(
                1,
                vec![(0, Goal { description: "g".into(), output: None })],
                None,
                &Mandate::default(),
            );
        }
        let turn_input = session.turn_input();
        let none: [OperationInfo; 0] = [];
        let table = resolve(&turn_input.config, &[], turn_input.ends(), &Resolver::default(), &none[..]);
        table.names().into_iter().filter(|name| !name.starts_with("context_")).map(str::to_owned).collect::<Vec<_>>()
    };
    let with = |mut config: Value, tools: Value| {
        config["tools"] = tools;
        config
    };
    for (config, inner, task_open, expected) in [
        (with(json!({}), json!([])), false, true, vec!["complete_task", "fail_task"]),
        (with(json!({}), json!([])), true, true, vec![]),
        (with(json!({}), json!(["subgoal"])), false, true, vec!["complete_task", "fail_task", "subgoal"]),
        (with(typed(), json!([])), false, true, vec!["complete", "fail"]),
        (with(typed(), json!([])), true, true, vec!["complete", "fail"]),
        (with(json!({}), json!(["complete"])), true, true, vec!["complete"]),
        (with(json!({}), json!(["complete", "compact"])), false, false, vec!["complete", "compact"]),
        (with(json!({"loop": "chat"}), json!([])), false, true, vec!["complete_task", "fail_task"]),
    ] {
        assert_eq!(names(config.clone(), inner, task_open), expected, "{config} inner {inner} task {task_open}");
    }
}

#[test]
fn a_requests_own_schema_goes_before_the_agents() {
    let mut request = task(1);
    request.event.response_schema = Some(json!({"type": "array", "items": {"type": "integer"}}));
    let mut session = Session::new(&typed(), vec![request]);
    session.call("complete", json!({"total": 3}));
    assert!(session.result(1, 0).contains("`result` is missing, got `total`"), "{}", session.result(1, 0));
    let decision = session.call("complete", json!({"result": [1, 2]}));
    assert_eq!(decision.ended_task.unwrap().1, JobResult::complete(json!([1, 2])));
}

#[test]
fn in_a_chat_loop_complete_task_takes_the_typed_result() {
    let mut config = typed();
    config["loop"] = "chat".into();
    config["tools"] = json!([]);
    for (result, expected) in [
        (json!({"total": 3}), Some(json!({"total": 3}))),
        (json!(r#"{"total": 3}"#), Some(json!({"total": 3}))),
        (json!("three"), None),
    ] {
        let mut session = Session::tree(&config);
        let decision = session.call("complete_task", json!({"result": result}));
        assert_eq!(decision.ended_task.and_then(|(_, ended)| ended.output), expected, "{result}");
    }
}

#[test]
fn a_conflicting_call_is_shown_again_in_its_own_turn() {
    let mut session = Session::tree(&json!({}));
    session.subgoal("write it down");
    let mut decision = session.reply(calls(&[(READ, json!({})), ("complete", json!({"done": true}))]));
    assert!(decision.amended_record.is_some());
    let turn = decision.record.turn;
    assert_eq!(decision.results_record_mut().turn, turn, "not in the one that opened the goal");
}

#[test]
fn a_child_belongs_to_the_goal_that_started_it() {
    let mut session = Session::tree(&json!({}));
    session.state = awaiting(session.state.clone(), 2);
    session.subgoal("something else");
    // It isn't waited for inside the goal, and its result isn't heard there.
    session.inbox.push(result(2));
    let plan = SessionRun::new(1, session.state.clone(), session.inbox.clone(), false).plan();
    assert!(plan.results.is_empty() && plan.settled.is_empty(), "{plan:?}");
    let decision = session.reply(text("done"));
    assert_eq!(decision.state.goals.active_id(), 0, "the goal ends with its text");
    let plan = SessionRun::new(2, session.state.clone(), session.inbox.clone(), false).plan();
    assert_eq!(plan.results.len(), 1);
}

#[test]
fn messages_reach_the_conversation_and_not_its_goals() {
    let mut session = Session::tree(&json!({}));
    session.subgoal("look");
    session.inbox.push(message(3));
    let heard = |session: &Session| {
        SessionRun::new(1, session.state.clone(), session.inbox.clone(), false).plan().messages.len()
    };
    assert_eq!(heard(&session), 0);
    session.reply(text("seen"));
    assert_eq!(heard(&session), 1);
}

#[test]
fn goals_of_another_request_are_over() {
    let mut session = Session::new(&json!({}), vec![message(1)]);
    session.subgoal("of a message");
    let mut goals = session.state.goals.clone();
    goals.end_unless_served(None, &Mandate::default());
    assert_eq!(goals.active_id(), 1, "the same request goes on");
    goals.end_unless_served(Some(&job(1)), &Mandate::default());
    assert_eq!(goals.active_id(), 0);
}

#[test]
fn the_last_turn_opens_no_goal_and_takes_no_goals_text() {
    let windy = json!({"limits": {"turns": 1, "windDown": true}});
    let mut session = Session::tree(&windy);
    let decision = session.subgoal("too late");
    assert_eq!((decision.state.goals.active_id(), ended(&decision)), (0, None));
    assert_eq!(session.result(1, 0), "not opened: this reply ends what it is for");

    let mut session = Session::tree(&json!({}));
    session.subgoal("inner");
    let last = Some(FinalTurn { code: ErrorCode::BudgetExceeded, reason: "it is used up".into() });
    let turn_input = TurnInput { last, ..session.turn_input() };
    let decision = drive(turn_input, text("half of it"), vec![]);
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::BudgetExceeded))));
}

#[test]
fn a_summary_is_hidden_from_who_may_not_see_what_it_was_made_of() {
    use crate::context::goals::GoalView;
    use crate::context::sight::Viewer;
    use crate::context::transcript_turn::TranscriptTurn;
    let open = crate::authority::Capability { with: "w/open".into(), can: "crud".into() };
    let narrow = Authority::new(Some(vec![open]));
    let mut session = Session::tree(&json!({}));
    session.call(READ, json!({}));
    session.call("compact", json!({"summary": "the salaries"}));
    let goals = &session.state.goals;
    let records: Vec<_> = session.records.iter().cloned().map(TranscriptTurn::from).map(Arc::new).collect();
    let seen = |authority: &Authority| {
        GoalView::for_session(goals, &records, None, Viewer { authority, bound: authority }).segments.len()
    };
    assert_eq!((seen(&Authority::default()), seen(&narrow)), (1, 0));
}

#[test]
fn a_goal_with_a_type_returns_such_data_or_an_error() {
    let price = || json!({"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]});
    let list = || json!({"type": "array", "items": {"type": "integer"}});
    let refused = "error: refused: the result is not what it must be: at `/price`: \"3\" is not of type \"number\"";
    for (schema, ends, expected) in [
        (price(), vec![(Some("complete"), json!({"price": 3}))], r#"{"price":3}"#),
        (price(), vec![(None, json!("```json\n{\"price\": 3}\n```"))], r#"{"price":3}"#),
        (list(), vec![(Some("complete"), json!({"result": [1, 2]}))], "[1,2]"),
        (list(), vec![(None, json!("one and two"))], "error: the goal ended without a result of the type"),
        (
            price(),
            vec![(Some("complete"), json!({"price": "3"})), (Some("complete"), json!({"price": 4}))],
            r#"{"price":4}"#,
        ),
        (price(), vec![(Some("fail"), json!({"error": "none"}))], "error: the goal was not reached: none"),
    ] {
        // The tools that end it are there unasked.
        let mut session = Session::tree(&json!({"tools": ["subgoal"]}));
        session.call("subgoal", json!({"description": "find the price", "responseSchema": schema}));
        let wrong = ends.len() > 1;
        for (tool, said) in ends {
            let decision = match tool {
                Some(tool) => session.call(tool, said),
                None => session.reply(text(said.as_str().unwrap())),
            };
            assert_eq!(ended(&decision), None, "the task goes on");
        }
        assert!(session.result(1, 0).starts_with(expected), "{}", session.result(1, 0));
        assert_eq!(session.state.goals.active_id(), 0);
        if wrong {
            assert!(session.result(2, 0).starts_with(refused), "{}", session.result(2, 0));
            assert_eq!(session.records[1].calls[0].outcome, "bad arguments");
        }
    }
}

#[test]
fn wrong_harness_arguments_are_reported_with_their_place() {
    for (tool, arguments, expected) in [
        ("subgoal", json!({}), "arguments of `subgoal` are not valid: \"description\" is a required property"),
        ("subgoal", json!({"description": 7}), "at `/description`: 7 is not of type \"string\""),
        ("subgoal", json!({"description": "d", "schema": {}}), "('schema' was unexpected)"),
        ("subgoal", json!({"description": "d", "responseSchema": "no"}), "at `/responseSchema`: \"no\" is not of type"),
        ("subgoal", json!({"description": "d", "responseSchema": {"type": 1}}), "`responseSchema`: not a JSON Schema"),
        ("compact", json!({"summary": ["a"]}), "at `/summary`: [\"a\"] is not of type \"string\""),
        ("fail", json!({}), "arguments of `fail` are not valid: \"error\" is a required property"),
        ("complete", json!([1]), "arguments of `complete` are not valid: [1] is not of type \"object\""),
    ] {
        let mut session = Session::tree(&json!({}));
        let decision = session.call(tool, arguments.clone());
        assert_eq!(ended(&decision), None, "{tool} {arguments}");
        let told = session.result(1, 0);
        assert!(told.starts_with("error: ") && told.contains(expected), "{tool} {arguments}: {told}");
        assert_eq!(session.records[0].calls[0].outcome, "bad arguments", "{tool} {arguments}");
    }
    for (tool, arguments, expected) in [
        ("complete_task", json!({}), "arguments of `complete_task` are not valid: \"result\" is a required property"),
        ("fail_task", json!({"error": 7}), "at `/error`: 7 is not of type \"string\""),
        ("fail_task", json!({"reason": "r"}), "'reason' was unexpected"),
    ] {
        let mut session = Session::new(&json!({"loop": "chat", "tools": []}), vec![task(1)]);
        assert_eq!(ended(&session.call(tool, arguments.clone())), None, "{tool} {arguments}");
        assert!(session.result(1, 0).contains(expected), "{tool} {arguments}: {}", session.result(1, 0));
    }
}

#[test]
fn the_transcript_shows_arguments_as_they_were_written() {
    let said = json!({
        "_scopes": [], "operation": "lattice:read", "z": 1,
        "input": {"_instance": null, "path": "w/a", "_x": 1, "a": 1.0}
    });
    let mut session = Session::tree(&json!({}));
    session.call("job_run", said.clone());
    let ChatMessage::Assistant { calls, .. } = &session.records[0].said[0] else { panic!("the reply") };
    assert_eq!(calls[0].arguments.to_value().to_string(), said.to_string(), "in the same order, nothing left out");
    assert_eq!(session.result(1, 0), "fine", "it was a call of that tool");
}
