//! Tasks that others complete or fail, and what a request says of its session and its output.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "too late", delay_ms = 1500 }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "deaf", input = "go", wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

on_both! {
    the_first_completion_of_a_task_wins_over_a_running_turn
    children_of_a_task_learn_how_it_ended
    a_completed_task_is_what_was_asked_for
    an_output_is_written_with_the_commit_that_completes_its_task
    a_session_shows_what_a_request_loads
}

async fn site(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, Clock::system()).await?;
    for agent in ["a", "slow"] {
        venue.agent(agent, json!({})).await;
    }
    venue.agent("deaf", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    venue.agent("narrow", json!({"caps": [{"with": "w/own", "can": "crud"}]})).await;
    venue.worker();
    Some((venue, dir))
}

async fn run(venue: &TestVenue, operation: &str, input: Value) -> Result<Value, String> {
    let done = operate(&venue.venue, &boss(&venue.owner), &format!("v/ops/agent/{operation}"), input).await;
    done.map_err(|error| error.to_string())
}

async fn ask(venue: &TestVenue, agent: &str, more: Value) -> JobId {
    let mut input = json!({"agentId": agent, "input": "go", "timeout": 0});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    JobId::new(run(venue, "request", input).await.unwrap()["job"].as_str().unwrap()).unwrap()
}

async fn the_first_completion_of_a_task_wins_over_a_running_turn(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    let job = ask(&venue, "slow", json!({"sessionId": "s"})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let done = run(&venue, "complete-task", json!({"taskId": job, "result": {"n": 7}})).await.unwrap();
    assert_eq!(done, json!({"agentId": "slow", "taskId": job, "status": "COMPLETE"}));
    let ended = venue.ended(&job).await;
    assert_eq!((ended.status, ended.result.unwrap().output), (JobStatus::Complete, Some(json!({"n": 7}))));
    let again = run(&venue, "complete-task", json!({"taskId": job, "result": 8})).await.unwrap_err();
    assert!(again.contains("has ended before: it is COMPLETE"), "{again}");
    // The turn's own answer comes, and changes nothing; the session goes on.
    let next = ask(&venue, "slow", json!({"sessionId": "s"})).await;
    assert_eq!(venue.ended(&next).await.result.unwrap().output, Some(json!("too late")));
    let first = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    assert_eq!(first.result.unwrap().output, Some(json!({"n": 7})));
    let failed = ask(&venue, "deaf", json!({})).await;
    let done = run(&venue, "fail-task", json!({"taskId": failed, "error": "nobody there"})).await.unwrap();
    assert_eq!(done["status"], "FAILED");
    let result = venue.ended(&failed).await.result.unwrap();
    assert_eq!((result.error.as_deref(), result.error_code), (Some("nobody there"), Some(ErrorCode::TaskFailed)));
    for (input, part) in [
        (json!({"result": 1}), "no task is in scope"),
        (json!({"taskId": "0".repeat(32), "result": 1}), "no task"),
        (json!({"taskId": failed, "agentId": "a", "result": 1}), "no task"),
    ] {
        let error = run(&venue, "complete-task", input).await.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

async fn children_of_a_task_learn_how_it_ended(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.agent("boss", json!({"tools": ["v/ops/agent/request"], "defaultTools": false})).await;
    for (operation, more, how) in [
        ("complete-task", json!({"result": 1}), "was completed without it"),
        ("fail-task", json!({"error": "enough"}), "has failed"),
        ("cancel-task", json!({"agentId": "boss"}), "was cancelled"),
    ] {
        let job = ask(&venue, "boss", json!({})).await;
        let mut children = Vec::new();
        for _ in 0..600 {
            children = venue.venue.store.scan(&venue.owner, &keys::job_children(&job), None, false, 10).await.unwrap();
            if !children.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let child = children[0].0.rsplit('/').next().unwrap();
        let mut input = json!({"taskId": job});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        run(&venue, operation, input).await.unwrap();
        let result = venue.ended(&JobId::new(child).unwrap()).await.result.unwrap();
        assert_eq!(result.status, JobStatus::Cancelled);
        let told = result.error.unwrap_or_default();
        assert!(told.contains(&format!("job {job} {how}")), "{operation}: {told}");
    }
}

async fn a_completed_task_is_what_was_asked_for(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    let schema = json!({"type": "object", "required": ["n"]});
    let job = ask(&venue, "deaf", json!({"responseSchema": schema, "strict": true})).await;
    let error = run(&venue, "complete-task", json!({"taskId": job, "result": "text"})).await.unwrap_err();
    assert!(error.contains("`result` is not what was asked for"), "{error}");
    let reader = Capability { with: String::new(), can: "job/cancel".into() };
    let caller = Caller::new(venue.owner.clone(), "local/ann".into(), Authority::new(Some(vec![reader])));
    let input = json!({"taskId": job, "result": {"n": 1}});
    let denied = operate(&venue.venue, &caller, "v/ops/agent/complete-task", input.clone()).await.unwrap_err();
    assert!(denied.to_string().contains("requires job/complete"), "{denied}");
    run(&venue, "complete-task", input).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    for (more, part) in [
        (json!({"strict": true}), "expected `responseSchema` with it"),
        (json!({"strict": false, "responseSchema": schema}), "leave it out"),
    ] {
        let mut input = json!({"agentId": "a", "input": 1});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = run(&venue, "request", input).await.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

async fn an_output_is_written_with_the_commit_that_completes_its_task(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    let job = ask(&venue, "a", json!({"outputPath": "w/out/first"})).await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(venue.read("w/out/first").await, Some(json!("done")));
    let job = ask(&venue, "narrow", json!({"outputPath": "w/own/x"})).await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(venue.read("w/own/x").await, Some(json!("done")));
    // What the agent may not write isn't written for it, and nothing says that it was.
    let job = ask(&venue, "narrow", json!({"outputPath": "w/owned"})).await;
    let ended = venue.ended(&job).await;
    assert_eq!((ended.status, ended.result.unwrap().error_code), (JobStatus::Failed, Some(ErrorCode::CapDenied)));
    assert_eq!(venue.read("w/owned").await, None);
    let job = ask(&venue, "deaf", json!({"outputPath": "w/out/second"})).await;
    let error = run(&venue, "complete-task", json!({"taskId": job, "result": 1})).await.unwrap_err();
    assert!(error.contains("`outputPath`"), "{error}");
    for path in ["g/a", "c/x", "q/x", "w"] {
        let input = json!({"agentId": "a", "input": 1, "outputPath": path});
        assert!(run(&venue, "request", input).await.unwrap_err().contains("`outputPath`"), "{path}");
    }
    let asks = Capability { with: "g/a".into(), can: "agent".into() };
    let caller = Caller::new(venue.owner.clone(), "local/ann".into(), Authority::new(Some(vec![asks])));
    let input = json!({"agentId": "a", "input": 1, "outputPath": "w/out/third"});
    let denied = operate(&venue.venue, &caller, "v/ops/agent/request", input).await.unwrap_err().to_string();
    assert!(denied.contains("requires crud/write on w/out/third"), "{denied}");
}

/// What the context of a turn of session `s` was made of.
async fn seen(venue: &TestVenue, turn: u64) -> String {
    let key = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key, turn).await.unwrap().unwrap();
    format!("{:?}", past.seen.unwrap().inputs.unwrap().items)
}

async fn a_session_shows_what_a_request_loads(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.write("w/facts/one", json!("the first fact")).await;
    venue.write("w/facts/two", json!("the second fact")).await;
    let loads = json!({"sessionId": "s", "loads": {"w/facts/one": {"label": "Known"}}});
    let job = ask(&venue, "a", loads).await;
    venue.ended(&job).await;
    let first = seen(&venue, 1).await;
    assert!(first.contains("the first fact") && first.contains("Known"), "{first}");
    let chat = json!({"agentId": "a", "message": "and?", "sessionId": "s", "loads": {"w/facts/two": null}});
    run(&venue, "chat", chat).await.unwrap();
    let last = seen(&venue, 2).await;
    assert!(last.contains("the first fact") && last.contains("the second fact"), "{last}");
    let bad = json!({"agentId": "a", "input": 1, "loads": {"q/x": null}});
    assert!(run(&venue, "request", bad).await.unwrap_err().contains("`/loads`"));
}
