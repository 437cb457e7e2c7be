//! The table of failures (`agents.md`), row by row: what goes wrong, and what then.

use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::agent::AgentStatus;
use trellis::domain::authority::Authority;
use trellis::domain::authority::trail::Trail;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::rate::RateLimit;
use trellis::venue::agents::lifecycle::{AgentEditor, resume};
use trellis::venue::jobs;
use trellis::venue::rates::RateSettings;

const RULES: &str = r#"
# A provider that is short of something for a while.
[[rule]]
when = { agent = "limited", turn = 1 }
then = { text = "at last", fault = "rate_limit", retry_after_ms = 300, times = 1 }

[[rule]]
when = { agent = "patient", text = "first" }
then = { text = "later", fault = "rate_limit", retry_after_ms = 60000 }

[[rule]]
when = { agent = "brief" }
then = { text = "never", fault = "rate_limit", retry_after_ms = 2000 }

[[rule]]
when = { agent = "down" }
then = { fault = "overloaded", text = "never" }

# One that refuses.
[[rule]]
when = { agent = "refused" }
then = { fault = "bad_request", text = "never" }

[[rule]]
when = { agent = "unpaid", model = "locked" }
then = { fault = "unauthorized", text = "never" }

# Replies that are malformed.
[[rule]]
when = { agent = "garbled", turn = 1 }
then = { fault = "bad_json", calls = [{ tool = "lattice_read", arguments = { path = "w/x" } }] }

[[rule]]
when = { agent = "inventive", turn = 1 }
then = { calls = [{ tool = "no_such_tool", arguments = {} }] }

# Tools that fail.
[[rule]]
when = { agent = "failing", turn = 1 }
then = { calls = [{ tool = "test_error", arguments = { message = "broken" } }] }

[[rule]]
when = { agent = "slow", turn = 1 }
then = { calls = [{ tool = "test_delay", arguments = { delay = 60000 } }] }

[[rule]]
when = { agent = "garbled" }
then = { text = "got: {{tool_result}}" }

[[rule]]
when = { agent = "inventive" }
then = { text = "got: {{tool_result}}" }

[[rule]]
when = { agent = "failing" }
then = { text = "got: {{tool_result}}" }

[[rule]]
when = { agent = "slow" }
then = { text = "got: {{tool_result}}" }

[[rule]]
when = { agent = "sleepy" }
then = { text = "slept", delay_ms = 100 }

[[rule]]
then = { text = "done" }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    (venue, dir)
}

fn tools(names: &[&str]) -> Value {
    json!({"tools": names, "defaultTools": true})
}

/// The job as soon as it is as wanted; fails the test when it never is.
async fn once(venue: &TestVenue, job: &JobId, wanted: impl Fn(&Job) -> bool) -> Job {
    for _ in 0..1_200 {
        let now = jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        if wanted(&now) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("job {job} never became as wanted");
}

#[tokio::test]
async fn a_limited_provider_is_retried_after_the_time_it_names() {
    let (venue, _dir) = venue().await;
    venue.agent("limited", json!({})).await;
    let job = venue.run("limited", "t1", json!("go")).await;
    assert_eq!(job.result.unwrap().output, Some(json!("at last")));
    let waiting = job.waiting.expect("it said what it waited for");
    assert!(waiting.reason.contains("429: too many requests (try 1)"), "{}", waiting.reason);
    let turns = venue.turns("limited", &job.head.session.to_string()).await;
    assert_eq!(turns.len(), 1, "a failed call is no turn");
}

#[tokio::test]
async fn a_waiting_agent_holds_no_slot_and_says_why() {
    let (venue, _dir) = venue().await;
    venue.agent("patient", json!({"concurrency": 1, "retry": {"total": 600}})).await;
    let waiting = venue.submit("patient", "t1", json!("first")).await.job.unwrap();
    let seen = once(&venue, &waiting, |job| job.waiting.is_some()).await;
    assert_eq!(seen.status, JobStatus::Started);
    let shown = job_record(&seen);
    assert!(shown["waiting"]["reason"].as_str().unwrap().contains("429"), "{shown}");
    // The one slot of the agent is free meanwhile.
    let other = venue.run("patient", "t2", json!("second")).await;
    assert_eq!(other.status, JobStatus::Complete);
    // And a cancel doesn't wait for the provider.
    jobs::cancel(&venue.venue, &venue.owner, &waiting, None).await.unwrap();
    once(&venue, &waiting, |job| job.status == JobStatus::Cancelled).await;
}

#[tokio::test]
async fn attempts_and_total_time_are_limited_by_retry() {
    let (venue, _dir) = venue().await;
    venue.agent("down", json!({"retry": {"attempts": 2}})).await;
    let job = venue.run("down", "t1", json!("go")).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::ModelError));
    assert!(job.waiting.unwrap().reason.contains("(try 1)"), "one wait between two tries");
    venue.agent("patient", json!({})).await;
    let job = venue.run("patient", "t0", json!("first")).await;
    let result = job.result.unwrap();
    assert_eq!(result.error_code, Some(ErrorCode::ModelError), "it asks for more time than there is");
    let error = result.error.unwrap();
    assert!(error.contains("; it asks not to be called before 20"), "{error}");
    venue.agent("down", json!({"retry": {"total": 0}})).await;
    let job = venue.run("down", "t2", json!("go")).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::ModelError), "by its total time");
    let started = || venue.model_calls().iter().filter(|call| call["event"] == "started").count();
    let before = started();
    venue.agent("brief", json!({"retry": {"total": 3}})).await;
    let job = venue.run("brief", "t3", json!("go")).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::ModelError));
    assert_eq!(started() - before, 2, "a third call would have begun after the total time");
}

#[tokio::test]
async fn provider_400_is_not_retried_and_fails_the_task() {
    let (venue, _dir) = venue().await;
    venue.agent("refused", json!({})).await;
    let job = venue.run("refused", "t1", json!("go")).await;
    let result = job.result.unwrap();
    assert_eq!((result.error_code, job.waiting), (Some(ErrorCode::ModelError), None));
    assert!(result.error.unwrap().contains("400: bad request"));
    assert_eq!(venue.record("refused").await.status, AgentStatus::Active);
}

#[tokio::test]
async fn provider_401_suspends_the_agent_until_it_is_fixed() {
    let (venue, _dir) = venue().await;
    venue.agent("unpaid", json!({"model": {"provider": "scripted", "name": "locked"}})).await;
    let job = venue.submit("unpaid", "t1", json!("go")).await.job.unwrap();
    for _ in 0..1_200 {
        if venue.record("unpaid").await.status == AgentStatus::Suspended {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let suspended = venue.record("unpaid").await;
    let error = suspended.error.clone().expect("suspended with a reason");
    assert!(error.ends_with("mend it, then `trellis agent resume unpaid`"), "{error}");
    let seen = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    assert!(!seen.status.is_terminal(), "nothing queued is lost: {:?}", seen.status);
    venue.agent("unpaid", json!({})).await;
    let by = AgentEditor { authority: &Authority::without_limits(), trail: &Trail::default(), turn: false };
    resume(&venue.venue, &venue.owner, &"unpaid".parse().unwrap(), by).await.unwrap();
    let job = venue.ended(&job).await;
    assert_eq!(job.status, JobStatus::Complete);
    assert_eq!(venue.record("unpaid").await.error, None);
}

#[tokio::test]
async fn malformed_replies_and_failed_operations_reach_the_model() {
    let (venue, _dir) = venue().await;
    for (agent, config, expected) in [
        ("garbled", json!({}), "got: the arguments of `lattice_read` are not JSON"),
        ("inventive", json!({}), "got: unknown tool `no_such_tool`"),
        ("failing", tools(&["v/ops/test/error"]), "got: error: broken"),
    ] {
        venue.agent(agent, config).await;
        let job = venue.run(agent, &format!("t-{agent}"), json!("go")).await;
        assert_eq!(job.status, JobStatus::Complete, "the run goes on");
        let output = job.result.unwrap().output.unwrap();
        assert!(output.as_str().unwrap().starts_with(expected), "{agent}: {output}");
    }
}

#[tokio::test]
async fn an_operation_that_takes_too_long_is_a_tool_error() {
    let (venue, _dir) = venue().await;
    let mut config = tools(&["v/ops/test/delay"]);
    config["limits"] = json!({"toolTimeout": 1});
    venue.agent("slow", config).await;
    let job = venue.run("slow", "t1", json!("go")).await;
    let output = job.result.unwrap().output.unwrap();
    assert!(output.as_str().unwrap().contains("operation `v/ops/test/delay` took longer than 1 s"), "{output}");
}

#[tokio::test]
async fn rate_limits_span_sessions_and_limited_turns_hold_no_slot() {
    let (mut venue, _dir) = TestVenue::embedded(RULES).await;
    let limits = RateLimit::list("scripted/narrow:concurrency=1, scripted/few:requests=1").unwrap();
    venue.rates = RateSettings { limits, hold: Duration::from_mins(1) };
    venue.sweep = Duration::from_millis(50);
    venue.worker();
    venue.agent("sleepy", json!({"model": {"provider": "scripted", "name": "narrow"}})).await;
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(venue.submit("sleepy", &format!("s{n}"), json!("go")).await.job.unwrap());
    }
    for job in &jobs {
        assert_eq!(venue.ended(job).await.status, JobStatus::Complete);
    }
    let calls = venue.model_calls();
    let most = calls.iter().scan(0_i32, |running, call| {
        *running += if call["event"] == "started" { 1 } else { -1 };
        Some(*running)
    });
    assert_eq!(most.max(), Some(1), "never two calls at once: {calls:?}");
    venue.agent("thrifty", json!({"model": {"provider": "scripted", "name": "few"}})).await;
    assert_eq!(venue.run("thrifty", "f1", json!("go")).await.status, JobStatus::Complete);
    let second = venue.submit("thrifty", "f2", json!("go")).await.job.unwrap();
    let seen = once(&venue, &second, |job| job.waiting.is_some()).await;
    let waiting = seen.waiting.unwrap();
    assert_eq!(waiting.reason, "rate limit of `scripted/few`: 1 requests per minute");
    assert!(waiting.until.unwrap().elapsed_since(venue.venue.now()) > Duration::from_secs(30), "{waiting:?}");
}
