//! Calls that wait for a person: approved, edited, rejected, expired, and what gets in between.

use crate::support::operate::{boss, on, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::approval::{Approval, ApprovalVerdict};
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::chat::ChatMessage;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::session::TurnRecord;
use trellis::process::shutdown::Shutdown;
use trellis::venue::approvals;
use trellis::venue::jobs;
use trellis::venue::operation::{Caller, OpError};
use trellis::venue::policy;

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [
    { tool = "pay", arguments = { path = "w/paid", value = 100 } },
    { tool = "lattice_read", arguments = { path = "w/paid" } },
] }

[[rule]]
when = { agent = "twice", turn = 1 }
then = { calls = [
    { tool = "pay", arguments = { path = "w/paid", value = "first" } },
    { tool = "pay", arguments = { path = "w/paid", value = "second" } },
] }

[[rule]]
when = { agent = "sly", turn = 1 }
then = { calls = [
    { tool = "job_run", arguments = { operation = "v/ops/covia/append", input = { path = "w/paid", value = 1 } } },
    { tool = "approval_list", arguments = {} },
    { tool = "agent_create", arguments = { agentId = "sly", overwrite = true, config = { model = { provider = "scripted", name = "rules" } } } },
    { tool = "job_run", arguments = { operation = "approval:approve", input = { id = "0123456789abcdef0123456789abcdef" } } },
] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [
    { id = "size", type = "choice", prompt = "Which size?", choices = ["S", "L"] },
    { id = "sure", type = "approval", prompt = "Are you sure?" },
] } }] }

[[rule]]
when = { agent = "hasty", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Quick", expires = 1, asks = [{ id = "a", type = "text", prompt = "?" }] } }] }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "ask_expert", arguments = { question = "why", _scopes = ["input", "context/secret plan"] } }] }

[[rule]]
when = { agent = "expert", text = "PLAN-9" }
then = { text = "I saw the plan" }

[[rule]]
when = { agent = "expert", text = "THE-INPUT" }
then = { text = "I saw the input alone" }

[[rule]]
when = { agent = "other" }
then = { text = "done" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

fn pay() -> Value {
    json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]})
}

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (mut venue, dir) = TestVenue::embedded(RULES).await;
    venue.sweep = Duration::from_millis(100);
    (venue, dir)
}

fn person(venue: &TestVenue) -> Caller {
    Caller::new(venue.owner.clone(), "a person".into(), Authority::without_limits())
}

/// The approvals that wait, once there are so many.
async fn waiting(venue: &TestVenue, expected: usize) -> Vec<Approval> {
    for _ in 0..3000 {
        let mut found = approvals::list(&venue.venue, &venue.owner, false, 0, 1_000).await.unwrap().items;
        if found.len() == expected {
            found.sort_by_key(|approval| approval.index);
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("there are never {expected} approvals");
}

async fn decide(venue: &TestVenue, approval: &Approval, verdict: ApprovalVerdict) -> Result<Approval, OpError> {
    approvals::decide(&venue.venue, &person(venue), &approval.id, verdict, None).await
}

fn approved() -> ApprovalVerdict {
    ApprovalVerdict::Approved { arguments: None, scopes: None }
}

async fn status(venue: &TestVenue, job: &JobId) -> JobStatus {
    jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap().status
}

async fn paid(venue: &TestVenue) -> Option<Value> {
    venue.read("w/paid").await
}

/// Texts of the results of a turn's calls.
fn results(record: &TurnRecord) -> Vec<&str> {
    fn text(message: &ChatMessage) -> Option<&str> {
        match message {
            ChatMessage::Tool { text, .. } => Some(text),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        }
    }
    record.said.iter().filter_map(text).collect()
}

/// How often the model was asked for an agent.
fn asked_models(venue: &TestVenue, agent: &str) -> usize {
    let of = |call: &&Value| call["turn"].as_str().is_some_and(|turn| turn.split('/').nth(2) == Some(agent));
    venue.model_calls().iter().filter(|call| call["event"] == "started").filter(of).count()
}

async fn submit(venue: &TestVenue, agent: &str, session: &str) -> JobId {
    let submission =
        Submission { input: json!("go"), session_id: Some(session.parse().unwrap()), ..Submission::default() };
    venue.arrive(agent, &format!("{agent}-{session}"), true, submission).await.job.unwrap()
}

#[tokio::test]
async fn a_call_waits_for_approval_without_model_calls() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("payer", pay()).await;
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    assert_eq!(status(&venue, &job).await, JobStatus::InputRequired);
    let record = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    let shown = trellis::venue::job_view::record_for(&venue.venue, &boss(&venue.owner), &record).await.unwrap();
    let shown = trellis::view::to_json(&shown);
    assert_eq!(shown["approvals"][0]["call"]["operation"], "v/ops/lattice/append");
    assert_eq!(shown["approvals"][0]["call"]["arguments"], json!({"path": "w/paid", "value": 100}));
    assert_eq!(shown["approvals"][0]["digest"], asked.digest);
    assert_eq!(paid(&venue).await, None);
    // A message for the session waits, too, and other sessions go on.
    let hello = Submission { input: json!("hello"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    venue.arrive("payer", "hello", false, hello).await;
    venue.agent("other", json!({})).await;
    venue.run("other", "o1", json!("go")).await;
    assert_eq!(asked_models(&venue, "payer"), 1);
    decide(&venue, &asked, approved()).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(paid(&venue).await, Some(json!([100])));
    let turns = venue.turns("payer", "s").await;
    assert_eq!(turns[0].calls.iter().map(|call| call.outcome.as_str()).collect::<Vec<_>>(), ["ok", "ok"]);
    assert!(results(&turns[0])[0].contains("\"appended\":true"), "{:?}", results(&turns[0]));
    assert_eq!((turns[1].settles, turns[1].said.len()), (Some(1), 0));
    assert!(turns[2].heard.iter().any(|heard| heard.text.contains("hello")));
    let answer = approvals::get(&*venue.venue.store, &venue.owner, &asked.id).await.unwrap().unwrap().0.answer.unwrap();
    assert_eq!((answer.by.as_str(), answer.verdict), ("a person", approved()));
}

#[tokio::test]
async fn an_answer_counts_once_and_only_for_what_was_shown() {
    let (venue, _dir) = venue().await;
    venue.agent("payer", pay()).await;
    venue.worker();
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    let other = approvals::decide(&venue.venue, &person(&venue), &asked.id, approved(), Some("00")).await.unwrap_err();
    assert!(matches!(other, OpError::Conflict(_)) && other.to_string().contains("what was shown is something else"));
    let limited = Caller::new(
        venue.owner.clone(),
        "a clerk".into(),
        Authority::new(Some(vec![Capability { with: "j".into(), can: "crud/read".into() }])),
    );
    let denied = approvals::decide(&venue.venue, &limited, &asked.id, approved(), None).await.unwrap_err();
    assert!(matches!(denied, OpError::Denied(_)) && denied.to_string().contains("job/approve"), "{denied}");
    let unknown = approvals::decide(&venue.venue, &person(&venue), &job, approved(), None).await.unwrap_err();
    assert!(unknown.to_string().starts_with(&format!("no approval `{job}`")), "{unknown}");
    let rejected = || ApprovalVerdict::Rejected { reason: Some("too much".into()) };
    decide(&venue, &asked, rejected()).await.unwrap();
    decide(&venue, &asked, rejected()).await.expect("the same again changes nothing");
    let second = decide(&venue, &asked, approved()).await.unwrap_err();
    assert!(matches!(second, OpError::Conflict(_)) && second.to_string().contains("was rejected before, by a person"));
    venue.ended(&job).await;
    assert_eq!(paid(&venue).await, None);
    let turns = venue.turns("payer", "s").await;
    assert_eq!(turns[0].calls[0].outcome, "rejected");
    assert!(results(&turns[0])[0].starts_with("rejected by a person: too much"), "{:?}", results(&turns[0]));
}

#[tokio::test]
async fn an_approval_may_change_the_arguments_within_the_schema() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("payer", pay()).await;
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    let edited = |arguments: Value| ApprovalVerdict::Approved { arguments: Some(arguments), scopes: None };
    let wrong = decide(&venue, &asked, edited(json!({"paht": "w/paid"}))).await.unwrap_err();
    assert!(matches!(wrong, OpError::Arguments { .. }), "{wrong}");
    let wider = ApprovalVerdict::Approved { arguments: None, scopes: Some(vec!["state".into()]) };
    assert!(decide(&venue, &asked, wider).await.unwrap_err().to_string().contains("can only narrow"));
    decide(&venue, &asked, edited(json!({"path": "w/paid", "value": 5}))).await.unwrap();
    venue.ended(&job).await;
    assert_eq!(paid(&venue).await, Some(json!([5])));
    let turns = venue.turns("payer", "s").await;
    let note = turns[0].calls[0].note.as_deref().unwrap_or_default();
    assert!(note.starts_with("approved by a person with other arguments"), "{note}");
}

#[tokio::test]
async fn two_calls_of_a_reply_are_decided_one_by_one() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("twice", pay()).await;
    let job = submit(&venue, "twice", "s").await;
    let asked = waiting(&venue, 2).await;
    decide(&venue, &asked[1], approved()).await.unwrap();
    waiting(&venue, 1).await;
    for _ in 0..3000 {
        if paid(&venue).await.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((paid(&venue).await, status(&venue, &job).await), (Some(json!(["second"])), JobStatus::InputRequired));
    decide(&venue, &asked[0], approved()).await.unwrap();
    venue.ended(&job).await;
    assert_eq!(paid(&venue).await, Some(json!(["second", "first"])));
    assert_eq!(asked_models(&venue, "twice"), 2);
    let told = venue.turns("twice", "s").await;
    assert_eq!(told.iter().map(|turn| turn.settles).collect::<Vec<_>>(), [None, Some(1), Some(1), None]);
}

#[tokio::test]
async fn waiting_approvals_survive_a_restart() {
    let (venue, dir) = venue().await;
    venue.agent("payer", pay()).await;
    venue.worker();
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    venue.shutdown.trigger();
    venue.shutdown.cancel_token().cancel();
    venue.shutdown.end_token().cancel();
    // Answered while no worker runs.
    decide(&venue, &asked, approved()).await.unwrap();
    let mut second = TestVenue {
        shutdown: Shutdown::new(Arc::clone(&venue.venue.metrics)),
        venue: Arc::clone(&venue.venue),
        owner: venue.owner.clone(),
        dir: dir.path().to_owned(),
        lease: venue.lease,
        sweep: venue.sweep,
        auth: Arc::clone(&venue.auth),
        providers: venue.providers.clone(),
        rates: venue.rates.clone(),
        model_timeout: venue.model_timeout,
        owner_cap: 0,
        owner_share: venue.owner_share,
        clock_limit: venue.clock_limit,
        approval_time: venue.approval_time,
        turns_per_origin: 1_000,
        audit: venue.audit,
        foresight: None,
        retry: venue.retry,
        retention: venue.retention,
    };
    second.sweep = Duration::from_millis(100);
    second.worker();
    assert_eq!(second.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(paid(&second).await, Some(json!([100])));
}

#[tokio::test]
async fn the_venue_says_how_long_a_person_has() {
    let (mut venue, _dir) = venue().await;
    venue.approval_time = Duration::from_mins(7);
    venue.worker();
    venue.agent("payer", pay()).await;
    submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    assert_eq!(asked.expires.elapsed_since(asked.asked), venue.approval_time);
}

#[tokio::test]
async fn a_call_revoked_before_its_approval_is_denied() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("payer", pay()).await;
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    venue.revoke("w/paid").await;
    decide(&venue, &asked, approved()).await.unwrap();
    venue.ended(&job).await;
    assert_eq!(paid(&venue).await, None);
    let turns = venue.turns("payer", "s").await;
    assert_eq!(turns[0].calls[0].outcome, "denied");
    assert!(results(&turns[0])[0].contains("which was revoked"), "{:?}", results(&turns[0]));
}

#[tokio::test]
async fn questions_of_a_cancelled_task_are_withdrawn() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("payer", pay()).await;
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    waiting(&venue, 0).await;
    let late = decide(&venue, &asked, approved()).await.unwrap_err();
    assert!(matches!(late, OpError::Conflict(_)), "{late}");
    // The next task of the session finds a conversation in which nothing is open.
    let next = Submission { input: json!("next"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let next = venue.arrive("payer", "next", true, next).await.job.unwrap();
    assert_eq!(venue.ended(&next).await.status, JobStatus::Complete);
    assert_eq!(paid(&venue).await, None);
    let turns = venue.turns("payer", "s").await;
    assert!(results(&turns[0])[0].starts_with("cancelled"), "{:?}", results(&turns[0]));
}

#[tokio::test]
async fn no_name_and_no_turn_gets_round_an_approval() {
    let (venue, _dir) = venue().await;
    venue.worker();
    let mut config = pay();
    config["tools"].as_array_mut().unwrap().push(json!("v/ops/approval/list"));
    venue.agent("sly", config).await;
    let job = submit(&venue, "sly", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    decide(&venue, &asked, ApprovalVerdict::Rejected { reason: None }).await.unwrap();
    venue.ended(&job).await;
    let turns = venue.turns("sly", "s").await;
    let outcomes: Vec<_> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["rejected", "denied", "denied", "denied"], "{:?}", results(&turns[0]));
    assert_eq!(paid(&venue).await, None);
    // Nor does a turn hold the ability, whatever it holds else.
    let home =
        Scope { session: Some(SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() }), job: None };
    assert!(Authority::without_limits().bind_home(&home).permits("job/approve", on("j/x")).is_err());
    assert!(Authority::without_limits().permits("job/approve", on("j/x")).is_ok());
}

#[tokio::test]
async fn a_policy_asks_about_what_it_names_whoever_calls() {
    let (venue, _dir) = venue().await;
    venue.worker();
    let config = json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay"}]});
    venue.agent("payer", config).await;
    let rule = vec![Capability { with: "w/paid".into(), can: "crud/write".into() }];
    policy::set_approvals(&venue.venue, &venue.owner, rule).await.unwrap();
    let job = submit(&venue, "payer", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    decide(&venue, &asked, approved()).await.unwrap();
    venue.ended(&job).await;
    assert_eq!(paid(&venue).await, Some(json!([100])));
}

#[tokio::test]
async fn a_message_s_calls_wait_as_a_task_s_do() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("payer", pay()).await;
    venue.arrive("payer", "m1", false, Submission { input: json!("go"), ..Submission::default() }).await;
    let asked = waiting(&venue, 1).await.remove(0);
    assert_eq!(asked.job, None);
    decide(&venue, &asked, approved()).await.unwrap();
    for _ in 0..3000 {
        if venue.turns("payer", "main").await.len() >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(paid(&venue).await, Some(json!([100])));
    assert_eq!(asked_models(&venue, "payer"), 2, "the model saw the result");
}

#[tokio::test]
async fn a_person_s_answers_are_the_result_of_asking() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    let job = submit(&venue, "asker", "s").await;
    let asked = waiting(&venue, 1).await.remove(0);
    assert!(decide(&venue, &asked, approved()).await.unwrap_err().to_string().contains("answer or reject it"));
    let answers = json!({"size": "L", "sure": true});
    // By the queue, as any client may.
    let to =
        MessageAddress::In { owner: venue.owner.clone(), agent: "asker".parse().unwrap(), kind: InboundKind::Decide };
    let body = json!({"approval": asked.id, "digest": asked.digest, "answer": {"answers": answers}});
    venue.venue.bus.publish(&BusMessage { to, id: Some("a1".into()), body }).await.unwrap();
    let done = venue.ended(&job).await;
    let said = done.result.unwrap().output.unwrap();
    assert!(said.as_str().unwrap().contains(r#"{"size":"L","sure":true}"#), "{said}");
}

#[tokio::test]
async fn an_unanswered_question_is_denied_after_its_time() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("hasty", json!({"tools": ["v/ops/human/ask"]})).await;
    let job = submit(&venue, "hasty", "s").await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    let turns = venue.turns("hasty", "s").await;
    assert_eq!(turns[0].calls[0].outcome, "rejected");
    assert!(results(&turns[0])[0].contains("nobody approved it in time"), "{:?}", results(&turns[0]));
    let all = approvals::list(&venue.venue, &venue.owner, true, 0, 1_000).await.unwrap().items;
    assert_eq!(all[0].answer.as_ref().map(|answer| answer.verdict.clone()), Some(ApprovalVerdict::Expired));
    let late = decide(
        &venue,
        &all[0],
        ApprovalVerdict::Answered { answers: serde_json::Map::from_iter([("a".into(), json!("x"))]) },
    );
    assert!(late.await.unwrap_err().to_string().contains("closed as expired"));
}

#[tokio::test]
async fn questions_are_refused_outside_turns() {
    let (venue, _dir) = venue().await;
    let caller = person(&venue);
    let asks = json!({"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "?"}]});
    let error = operate(&venue.venue, &caller, "v/ops/human/ask", asks).await.unwrap_err();
    assert!(error.to_string().contains("is for agents"), "{error}");
}

#[tokio::test]
async fn a_delegate_that_asks_for_sections_waits_and_may_get_fewer() {
    let (venue, _dir) = venue().await;
    venue.worker();
    venue.agent("expert", json!({})).await;
    let tool = json!({"delegate": "expert", "name": "ask_expert", "wait": 60000,
        "scopes": {"enum": ["input", "context/secret plan"], "approval": "ask"}});
    let context = json!([{"label": "secret plan", "text": "PLAN-9"}]);
    venue.agent("boss", json!({"tools": [tool], "context": context})).await;
    for (id, keep, seen) in
        [("all", None, "I saw the plan"), ("fewer", Some(vec!["input".to_owned()]), "the input alone")]
    {
        let submission =
            Submission { input: json!("THE-INPUT"), session_id: Some(id.parse().unwrap()), ..Submission::default() };
        let job = venue.arrive("boss", id, true, submission).await.job.unwrap();
        let asked = waiting(&venue, 1).await.remove(0);
        let shown = json!(asked);
        let keys: Vec<_> = shown["call"]["scopes"].as_array().unwrap().iter().map(|s| s["key"].clone()).collect();
        assert_eq!((shown["call"]["operation"].as_str(), keys.len()), (Some("g/expert"), 2), "{shown}");
        decide(&venue, &asked, ApprovalVerdict::Approved { arguments: None, scopes: keep }).await.unwrap();
        let said = venue.ended(&job).await.result.unwrap().output.unwrap();
        assert!(said.as_str().unwrap().contains(seen), "{said}");
    }
}

#[tokio::test]
async fn an_edit_repeats_injected_arguments_or_leaves_them_out() {
    for arguments in [json!({"path": "w/paid", "value": 7}), json!({"value": 7})] {
        edit_with_injection(arguments).await;
    }
}

/// Approves a call with a bound and required `path` under these arguments.
async fn edit_with_injection(given: Value) {
    let (venue, _dir) = venue().await;
    venue.worker();
    let mut config = pay();
    config["toolArgInjection"] = json!({"pay": {"path": "target"}});
    venue.agent("payer", config).await;
    let session_context = serde_json::from_value(json!({"target": "w/paid"})).unwrap();
    let submission = Submission { input: json!("go"), session_context, ..Submission::default() };
    let job = venue.arrive("payer", "p-1", true, submission).await.job.unwrap();
    let asked = waiting(&venue, 1).await.remove(0);
    assert!(json!(asked)["call"]["fixed"] == json!(["path"]), "{asked:?}");
    let edited = |arguments: Value| ApprovalVerdict::Approved { arguments: Some(arguments), scopes: None };
    for arguments in [json!({"path": "w/evil", "value": 7}), json!({"path": null, "value": 7})] {
        let refused = decide(&venue, &asked, edited(arguments)).await.unwrap_err().to_string();
        assert!(refused.contains("argument `path` is filled in by the venue"), "{refused}");
    }
    decide(&venue, &asked, edited(given)).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!((paid(&venue).await, venue.read("w/evil").await), (Some(json!([7])), None));
    let head = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap().head;
    let turns = venue.turns("payer", head.session.as_str()).await;
    let told = turns[0].calls[0].note.clone().unwrap_or_default();
    assert!(told.contains("with other arguments: {\"value\":7}") && !told.contains("w/paid"), "{told}");
}
