//! What operators and people do to a run: pause, redrive, a budget, an approval, erasure; and what a step may use.

use super::runs::{RULES, error, inline, read, venue};
use crate::support::operate::{boss, operate};
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::venue::erase::{self, Erasure};
use trellis::venue::operation::Caller;
use trellis::venue::{approvals, jobs, ledger};

const LOOK: Duration = Duration::from_millis(10);

fn two_steps(first: &str) -> Value {
    json!([{"stateKey": "first", "agent": inline(first)}, {"stateKey": "second", "agent": inline("SECOND")}])
}

async fn on_job(venue: &TestVenue, operation: &str, id: &JobId) -> Value {
    operate(&venue.venue, &boss(&venue.owner), operation, json!({"id": id})).await.unwrap()
}

/// The steps' jobs, once there are so many.
async fn children(venue: &TestVenue, expected: usize) -> Vec<Job> {
    for _ in 0..3_000 {
        let all = all_jobs(&venue.venue, &venue.owner).await;
        let found: Vec<_> = all.into_iter().filter(|job| job.head.parent.is_some()).collect();
        if found.len() >= expected {
            return found;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("there are never {expected} steps");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_begins_no_step_until_it_is_resumed() {
    let (venue, _dir) = venue(two_steps("SLOW"), "sequential").await;
    venue.agent("other", json!({})).await;
    let job = venue.submit("flow", "t1", json!("go")).await.job.unwrap();
    let step = children(&venue, 1).await.remove(0);
    assert_eq!(on_job(&venue, "v/ops/job/pause", &job).await["status"], "PAUSED");
    assert_eq!(venue.ended(&step.head.id).await.status, JobStatus::Complete, "the running step goes on");
    venue.run("other", "o1", json!("go")).await;
    assert_eq!(children(&venue, 1).await.len(), 1, "no step begins while others work");
    on_job(&venue, "v/ops/job/resume", &job).await;
    assert_eq!(venue.ended(&job).await.result.unwrap().output, Some(json!("two")));
    assert_eq!(children(&venue, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redriven_run_begins_anew() {
    let (venue, _dir) = venue(two_steps("BROKEN"), "sequential").await;
    let failed = venue.run("flow", "t1", json!("go")).await;
    assert_eq!(failed.status, JobStatus::Failed);
    venue.agent("flow", json!({"pipeline": {"kind": "sequential", "steps": two_steps("FIRST")}})).await;
    let driven = on_job(&venue, "v/ops/dead/redrive", &failed.head.id).await;
    let driven = JobId::new(driven["job"].as_str().unwrap()).unwrap();
    let ended = venue.ended(&driven).await;
    assert_eq!(ended.result.unwrap().output, Some(json!("two")), "under the manifest of now");
    let shown = read(&venue, &format!("g/flow/state/runs/{}", ended.head.session)).await;
    assert_eq!(shown["value"]["state"]["first"], "one", "{shown}");
    assert_eq!((&shown["value"]["job"], &shown["value"]["begun"]), (&json!(driven), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_run_counts_what_its_steps_use() {
    let (venue, _dir) = venue(two_steps("FIRST"), "sequential").await;
    let budget = serde_json::from_value(json!({"turns": 1})).unwrap();
    let asked = Submission { input: json!("go"), budget, ..Submission::default() };
    let job = venue.arrive("flow", "t1", true, asked).await.job.unwrap();
    let (code, text) = error(&venue.ended(&job).await);
    assert_eq!(code, Some(ErrorCode::BudgetExceeded), "{text}");
    assert!(text.starts_with("step `second` (2 of 2): "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_a_person_and_the_run_follows_the_answer() {
    let keep = json!({
        "pipeline": {"kind": "tool", "tool": "keep", "params": {"path": "w/kept", "value": 7}},
        "tools": [{"operation": "v/ops/lattice/write", "name": "keep", "approval": "ask"}]
    });
    let steps = json!([{"stateKey": "kept", "agent": keep}, {"stateKey": "second", "agent": inline("SECOND")}]);
    let (venue, _dir) = venue(steps, "sequential").await;
    let person = Caller::new(venue.owner.clone(), "a person".into(), Authority::without_limits());
    for (id, verdict, is_approved) in [
        ("t1", ApprovalVerdict::Rejected { reason: Some("no".into()) }, false),
        ("t2", ApprovalVerdict::Approved { arguments: None, scopes: None }, true),
    ] {
        let job = venue.submit("flow", id, json!("go")).await.job.unwrap();
        let asked = loop {
            match approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items.pop() {
                Some(asked) => break asked,
                None => tokio::time::sleep(LOOK).await,
            }
        };
        assert_eq!(venue.read("w/kept").await, None);
        approvals::decide(&venue.venue, &person, &asked.id, verdict, None).await.unwrap();
        let ended = venue.ended(&job).await;
        assert_eq!(venue.read("w/kept").await, is_approved.then(|| json!(7)));
        if is_approved {
            assert_eq!(ended.result.unwrap().output, Some(json!("two")));
        } else {
            let (code, text) = error(&ended);
            assert_eq!(code, Some(ErrorCode::CapDenied), "{text}");
            assert!(text.starts_with("step `kept` (1 of 2): tool `keep`: rejected by a person"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_namespace_leaves_no_value_in_a_state() {
    let (venue, _dir) = venue(two_steps("FIRST"), "sequential").await;
    let hangs =
        json!([{"stateKey": "first", "agent": inline("FIRST")}, {"stateKey": "hangs", "agent": inline("HANG")}]);
    venue.agent("open", json!({"pipeline": {"kind": "sequential", "steps": hangs}})).await;
    let ask = |agent: &'static str| {
        let context = Some(vec![json!("app/user/ann")]);
        let asked = Submission { input: json!("of ann"), context, ..Submission::default() };
        let venue = &venue;
        async move { venue.arrive(agent, agent, true, asked).await.job.unwrap() }
    };
    let done = venue.ended(&ask("flow").await).await;
    let open = ask("open").await;
    let step = loop {
        let running = children(&venue, 4).await.into_iter().find(|job| !job.status.is_terminal());
        match running {
            Some(step) => break step,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    let erasure = Erasure { namespace: "app/user/ann", recursive: true };
    erase::erase(&venue.venue, &venue.owner, erasure).await.unwrap();
    let shown = read(&venue, &format!("g/flow/state/runs/{}", done.head.session)).await;
    assert_eq!(shown["value"]["state"], json!({}), "{shown}");
    jobs::cancel(&venue.venue, &venue.owner, &step.head.id, None).await.unwrap();
    let ended = venue.ended(&open).await;
    let (code, text) = error(&ended);
    assert_eq!((code, text.contains("was erased while it ran")), (Some(ErrorCode::Conflict), true), "{text}");
    let shown = read(&venue, &format!("g/open/state/runs/{}", ended.head.session)).await;
    assert_eq!(shown["value"]["state"], json!({}), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_each_step_has_its_own_prompt() {
    let (venue, _dir) = venue(two_steps("FIRST"), "sequential").await;
    venue.run("flow", "t1", json!("go")).await;
    let mut systems = BTreeSet::new();
    for step in children(&venue, 2).await {
        let session = SessionKey { agent: step.head.agent, session: step.head.session };
        let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
        systems.insert(past.seen.unwrap().inputs.unwrap().system);
    }
    assert_eq!(systems, BTreeSet::from(["FIRST".to_owned(), "SECOND".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_uses_no_secret_that_its_author_may_not() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let mut keyed = inline("FIRST");
    keyed["model"]["key"] = "s/KEY".into();
    let deeper = json!({"pipeline": {"kind": "parallel", "steps": [{"stateKey": "a", "agent": keyed}]}});
    let config = json!({"pipeline": {"kind": "sequential", "steps": [{"stateKey": "a", "agent": deeper}]}});
    let caller = |caps: &[(&str, &str)]| {
        let caps = caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect();
        Caller::new(venue.owner.clone(), "local/clerk".into(), Authority::new(Some(caps)))
    };
    let create = json!({"agentId": "flow", "config": config});
    let by = caller(&[("g/flow", "agent")]);
    let denied = operate(&venue.venue, &by, "v/ops/agent/create", create.clone()).await.unwrap_err().to_string();
    assert!(denied.contains("requires secret/use on s/KEY"), "{denied}");
    let by = caller(&[("g/flow", "agent"), ("s/KEY", "secret/use")]);
    operate(&venue.venue, &by, "v/ops/agent/create", create).await.unwrap();
}
