//! Runs of pipelines in a venue of the test's own process: State, order, failures, limits, cancellation.

use crate::support::operate::{boss, operate};
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::venue::{jobs, ledger};

pub(super) const RULES: &str = r#"
[[rule]]
when = { prompt = "SLOW" }
then = { text = "slow", delay_ms = 1000 }

[[rule]]
when = { prompt = "HANG" }
then = { fault = "hang" }

[[rule]]
when = { prompt = "BROKEN" }
then = { fault = "bad_request" }

[[rule]]
when = { prompt = "FIRST" }
then = { text = "one" }

[[rule]]
when = { prompt = "SECOND" }
then = { text = "two" }

[[rule]]
then = { text = "done" }
"#;

/// An agent that is written inside of a step.
pub(super) fn inline(prompt: &str) -> Value {
    let model = json!({"provider": "scripted", "name": "rules"});
    json!({"model": model, "systemPrompt": prompt, "defaultTools": false})
}

pub(super) async fn venue(steps: Value, kind: &str) -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.agent("flow", json!({"pipeline": {"kind": kind, "steps": steps}})).await;
    venue.worker();
    (venue, dir)
}

pub(super) async fn read(venue: &TestVenue, path: &str) -> Value {
    operate(&venue.venue, &boss(&venue.owner), "v/ops/lattice/read", json!({"path": path})).await.unwrap()
}

pub(super) fn error(job: &Job) -> (Option<ErrorCode>, String) {
    let result = job.result.clone().unwrap();
    (result.error_code, result.error.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_keeps_its_state_and_asks_no_model_itself() {
    let steps = json!([
        {"stateKey": "first", "agent": inline("FIRST")},
        {"stateKey": "second", "agent": inline("SECOND {{userQuery.text}}"), "input": {"text": "<{{first}}>"}}
    ]);
    let (venue, _dir) = venue(steps, "sequential").await;
    let job = venue.run("flow", "t1", json!("go")).await;
    assert_eq!(job.result.as_ref().unwrap().output, Some(json!("two")));
    let asked: BTreeSet<String> = venue.model_calls().iter().map(|call| call["turn"].to_string()).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let session = job.head.session.to_string();
    let shown = read(&venue, &format!("g/flow/state/runs/{session}")).await;
    assert_eq!(shown["value"]["state"], json!({"userQuery": "go", "first": "one", "second": "two"}), "{shown}");
    assert_eq!(shown["value"]["begun"], 2);
    let turns = venue.turns("flow", &session).await;
    assert!(turns.iter().all(|turn| turn.model == "pipeline/sequential" && turn.prompt.is_empty()), "{turns:?}");
    let children: Vec<_> =
        all_jobs(&venue.venue, &venue.owner).await.into_iter().filter(|job| job.head.parent.is_some()).collect();
    assert_eq!(children.len(), 2, "a child job for each step");
    assert!(children.iter().all(|child| child.head.agent.as_str() == "flow"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_branches_begin_before_one_ends() {
    let branch = |n: usize| json!({"stateKey": format!("b{n}"), "agent": inline("SLOW")});
    let (venue, _dir) = venue((0..12).map(branch).collect(), "parallel").await;
    let job = venue.run("flow", "t1", json!("go")).await;
    let output = job.result.unwrap().output.unwrap();
    assert_eq!((output.as_object().unwrap().len(), &output["b11"]), (12, &json!("slow")));
    let children: Vec<_> =
        all_jobs(&venue.venue, &venue.owner).await.into_iter().filter(|job| job.head.parent.is_some()).collect();
    let last_begun = children.iter().map(|job| job.head.created).max().unwrap();
    let first_ended = children.iter().map(|job| job.updated).min().unwrap();
    assert!(children.len() == 12 && last_begun <= first_ended, "{last_begun:?} {first_ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_is_named_and_ends_the_run() {
    let steps = json!([
        {"stateKey": "first", "agent": inline("FIRST")},
        {"stateKey": "broken", "agent": inline("BROKEN")},
        {"stateKey": "never", "agent": inline("SECOND")}
    ]);
    let (venue, _dir) = venue(steps, "sequential").await;
    let (code, text) = error(&venue.run("flow", "t1", json!("go")).await);
    assert_eq!(code, Some(ErrorCode::ModelError), "{text}");
    assert!(text.starts_with("step `broken` (2 of 3): "), "{text}");
    assert_eq!(all_jobs(&venue.venue, &venue.owner).await.len(), 3, "the third step never begins");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_branch_cancels_the_others() {
    let steps = json!([{"stateKey": "a", "agent": inline("BROKEN")}, {"stateKey": "b", "agent": inline("HANG")}]);
    let (venue, _dir) = venue(steps, "parallel").await;
    let (_, text) = error(&venue.run("flow", "t1", json!("go")).await);
    assert!(text.starts_with("step `a` (1 of 2): "), "{text}");
    let mut ended = Vec::new();
    for job in all_jobs(&venue.venue, &venue.owner).await {
        ended.push(venue.ended(&job.head.id).await.status);
    }
    ended.sort();
    assert_eq!(ended, [JobStatus::Failed, JobStatus::Failed, JobStatus::Cancelled]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_calls_itself_ends() {
    let (venue, _dir) = venue(json!([{"stateKey": "again", "ref": "flow"}]), "sequential").await;
    let (code, text) = error(&venue.run("flow", "t1", json!("go")).await);
    assert_eq!(code, Some(ErrorCode::LimitReached), "{text}");
    assert!(text.contains("step `again` (1 of 1)") && text.contains("already part of this chain"), "{text}");
    assert_eq!(all_jobs(&venue.venue, &venue.owner).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_cancels_its_steps() {
    let steps = json!([{"stateKey": "a", "agent": inline("HANG")}, {"stateKey": "b", "agent": inline("HANG")}]);
    let (venue, _dir) = venue(steps, "parallel").await;
    let job = venue.submit("flow", "t1", json!("go")).await.job.unwrap();
    while all_jobs(&venue.venue, &venue.owner).await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    for job in all_jobs(&venue.venue, &venue.owner).await {
        assert_eq!(venue.ended(&job.head.id).await.status, JobStatus::Cancelled, "{}", job.head.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_and_its_result_is_the_output() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let input = json!({"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]});
    venue
        .agent(
            "keep",
            json!({
                "inputSchema": input, "tools": [{"operation": "v/ops/lattice/write", "name": "keep"}],
                "pipeline": {
                    "kind": "tool", "tool": "keep", "params": {"path": "w/kept", "value": "{{value}}"},
                    "output": {"kept": "{{value}}"}
                }
            }),
        )
        .await;
    venue.worker();
    let job = venue.run("keep", "t1", json!({"value": 7})).await;
    assert_eq!(job.result.unwrap().output, Some(json!({"kept": 7})));
    assert_eq!(venue.read("w/kept").await, Some(json!(7)), "the number stays a number");
    let (code, text) = error(&venue.run("keep", "t2", json!({"value": "seven"})).await);
    assert_eq!(code, Some(ErrorCode::Refused), "{text}");
    assert!(text.contains("`inputSchema`: at `/value`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_manifest_ends_a_run_that_began_before() {
    let steps = |second: &str| json!([{"stateKey": "slow", "agent": inline("HANG")}, {"stateKey": second, "agent": inline("SECOND")}]);
    let (venue, _dir) = venue(steps("b"), "sequential").await;
    let job = venue.submit("flow", "t1", json!("go")).await.job.unwrap();
    let child = loop {
        let child = all_jobs(&venue.venue, &venue.owner).await.into_iter().find(|job| job.head.parent.is_some());
        match child {
            Some(child) => break child,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    venue.agent("flow", json!({"pipeline": {"kind": "sequential", "steps": steps("c")}})).await;
    jobs::cancel(&venue.venue, &venue.owner, &child.head.id, None).await.unwrap();
    let (code, text) = error(&venue.ended(&job).await);
    assert_eq!(code, Some(ErrorCode::Conflict), "{text}");
    assert!(text.contains("the pipeline was changed while this task ran (step `slow` (1 of 2))"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_pipeline_is_answered_with_a_note() {
    let (venue, _dir) = venue(json!([{"stateKey": "a", "agent": inline("FIRST")}]), "sequential").await;
    venue.arrive("flow", "m1", false, Submission { input: json!("hi"), ..Submission::default() }).await;
    for _ in 0..3_000 {
        if let Some(turn) = venue.turns("flow", "main").await.pop() {
            assert_eq!(turn.failed, Some(ErrorCode::Refused), "{turn:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the message is never read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_input_takes_what_it_names() {
    let mut typed = inline("FIRST {{text}}");
    typed["inputSchema"] = json!({"type": "object", "properties": {"text": {}}, "additionalProperties": false});
    let steps = json!([{"stateKey": "own", "agent": typed}, {"stateKey": "other", "ref": "typed"}]);
    let (venue, _dir) = venue(steps, "parallel").await;
    venue.agent("typed", typed).await;
    let job = venue.run("flow", "t1", json!({"text": "x", "more": 1})).await;
    assert_eq!(job.result.unwrap().output, Some(json!({"own": "one", "other": "one"})));
    let (code, text) = error(&venue.run("typed", "t2", json!({"text": "x", "txet": 1})).await);
    assert_eq!(code, Some(ErrorCode::Refused));
    assert!(text.contains("no input is named `txet`, did you mean `text`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_of_the_task_without_a_value_is_listed() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let writer = |strict: bool| {
        let mut config = inline("FIRST");
        config["taskPrompt"] = json!("do {{topc}} {{userQuery}}");
        config["strictPlaceholders"] = json!(strict);
        config
    };
    venue.agent("lenient", writer(false)).await;
    venue.agent("strict", writer(true)).await;
    venue.worker();
    let job = venue.run("lenient", "t1", json!("go")).await;
    assert_eq!(job.status, JobStatus::Complete);
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let shown = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let inputs = shown.seen.unwrap().inputs.unwrap();
    assert_eq!(assemble(&inputs).unwrap().ledger.unresolved, ["topc"]);
    let (_, text) = error(&venue.run("strict", "t2", json!("go")).await);
    assert!(text.contains("no value for the placeholders `topc` in `taskPrompt`"), "{text}");
}
