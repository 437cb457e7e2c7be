//! Who did what: the records of turns and of jobs, and many jobs that are paused at once.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::venue::approvals;
use trellis::venue::operation::OpError;

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "broken" }
then = { fault = "bad_request", text = "never" }

[[rule]]
then = { text = "done" }
"#;

async fn venue(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, Clock::system()).await?;
    let pay = json!({"operation": "v/ops/lattice/write", "name": "pay", "approval": "ask"});
    venue.agent("payer", json!({"tools": [pay], "defaultTools": false})).await;
    venue.agent("broken", json!({})).await;
    venue.agent("plain", json!({})).await;
    Some((venue, dir))
}

async fn run(venue: &TestVenue, path: &str, input: Value) -> Result<Value, OpError> {
    operate(&venue.venue, &boss(&venue.owner), path, input).await
}

on_both! {
    a_turn_names_its_worker_and_who_approved_what_when
    illegal_edits_of_a_call_are_reported
    redriven_and_cancelled_jobs_say_so
    many_jobs_are_paused_and_go_on_by_a_filter
    an_agent_without_tools_ends_with_its_text
}

async fn asked(venue: &TestVenue) -> trellis::domain::approval::Approval {
    for _ in 0..3_000 {
        if let Some(found) = approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items.pop() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody is ever asked");
}

async fn a_turn_names_its_worker_and_who_approved_what_when(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.worker();
    let before = venue.venue.now();
    let job = venue.submit("payer", "t1", json!("go")).await.job.unwrap();
    let approval = asked(&venue).await;
    let verdict = ApprovalVerdict::Approved { arguments: None, scopes: None };
    approvals::decide(&venue.venue, &boss(&venue.owner), &approval.id, verdict, None).await.unwrap();
    let head = venue.ended(&job).await.head;
    let turns = venue.turns("payer", head.session.as_str()).await;
    assert!(turns.iter().all(|turn| turn.worker == "test"), "{turns:?}");
    let call = &turns[0].calls[0];
    let decided = call.decided.as_ref().unwrap();
    assert_eq!((&decided.approval, decided.how.as_str(), decided.by.as_str()), (&approval.id, "approved", "local/me"));
    assert!(call.began.is_some_and(|began| began >= decided.at && decided.at >= before), "{call:?}");
}

async fn illegal_edits_of_a_call_are_reported(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.worker();
    venue.submit("payer", "t1", json!("go")).await;
    let approval = asked(&venue).await;
    let edited = json!({"id": approval.id, "arguments": {"path": 17, "value": 1}});
    let refused = run(&venue, "v/ops/approval/approve", edited).await.unwrap_err().to_string();
    assert!(refused.contains("path") && refused.contains("17"), "{refused}");
    let edited = json!({"id": approval.id, "arguments": {"path": "nowhere/x", "value": 1}});
    let refused = run(&venue, "v/ops/approval/approve", edited).await.unwrap_err().to_string();
    assert!(refused.contains("nowhere"), "{refused}");
}

async fn redriven_and_cancelled_jobs_say_so(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.worker();
    let failed = venue.run("broken", "t1", json!("go")).await.head.id;
    let shown = run(&venue, "v/ops/job/result", json!({"id": failed})).await.unwrap();
    assert_eq!((&shown["status"], shown.get("redrivenAs")), (&json!("FAILED"), None), "{shown}");
    let driven = run(&venue, "v/ops/dead/redrive", json!({"id": failed})).await.unwrap();
    let shown = run(&venue, "v/ops/job/result", json!({"id": failed})).await.unwrap();
    assert_eq!(shown["redrivenAs"], driven["job"], "{shown}");
    let job = venue.submit("payer", "t2", json!("go")).await.job.unwrap();
    asked(&venue).await;
    trellis::venue::jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    let shown = run(&venue, "v/ops/job/result", json!({"id": job})).await.unwrap();
    assert!(shown["advice"].as_str().unwrap().contains("under a new id"), "{shown}");
    let refused = run(&venue, "v/ops/dead/redrive", json!({"id": job})).await.unwrap_err().to_string();
    assert!(refused.contains("it was cancelled and has not FAILED; submit its task again under a new id"), "{refused}");
}

async fn many_jobs_are_paused_and_go_on_by_a_filter(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(venue.submit("plain", &format!("t{n}"), json!("go")).await.job.unwrap());
    }
    let other = venue.submit("payer", "o", json!("go")).await.job.unwrap();
    for (action, before, after) in [("pause", "PENDING", "PAUSED"), ("resume", "PAUSED", "PENDING")] {
        let asked = json!({"action": action, "agent": "plain"});
        let with = |key: &str, value: Value| {
            let mut asked = asked.clone();
            asked[key] = value;
            asked
        };
        assert_eq!(run(&venue, "v/ops/job/bulk", with("dryRun", json!(true))).await.unwrap()["matched"], 3);
        let wrong = with("status", json!([after]));
        assert!(run(&venue, "v/ops/job/bulk", wrong).await.unwrap_err().to_string().contains("`status`"), "{before}");
        let done = run(&venue, "v/ops/job/bulk", with("expected", json!(3))).await.unwrap();
        assert_eq!((&done["done"], &done["failed"]), (&json!(3), &json!(0)), "{done}");
        for job in &jobs {
            let shown = run(&venue, "v/ops/job/result", json!({"id": job})).await.unwrap();
            assert_eq!(shown["status"], after, "{shown}");
        }
    }
    let shown = run(&venue, "v/ops/job/result", json!({"id": other})).await.unwrap();
    assert_eq!(shown["status"], json!(JobStatus::Pending));
}

async fn an_agent_without_tools_ends_with_its_text(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("bare", json!({"tools": [], "defaultTools": false, "systemPrompt": "Be brief."})).await;
    venue.worker();
    let asks = json!({"agentId": "bare", "task": "Say hello"});
    let prompt = run(&venue, "v/ops/agent/context", asks).await.unwrap();
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.starts_with("Be brief.") && prompt.contains("Say hello"), "{prompt}");
    for part in ["Lattice", "complete_task", "context_load", "venue"] {
        assert!(!prompt.contains(part), "`{part}` in {prompt}");
    }
    let ended = venue.run("bare", "t1", json!("Say hello")).await;
    assert_eq!(ended.result.unwrap().output, Some(json!("done")));
    // A type that the request asks for has its tool, as before.
    let typed = json!({"agentId": "bare", "input": "x", "timeout": 60_000, "responseSchema": {"type": "object", "required": ["n"]}});
    let ended = run(&venue, "v/ops/agent/request", typed).await.unwrap();
    assert_eq!(ended["status"], "FAILED", "a text is no such object: {ended}");
}
