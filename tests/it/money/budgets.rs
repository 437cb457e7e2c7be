//! Budgets in real turns: shared with everything under a request, never passed, and said when they
//! are used up.

use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::budget::Account;
use trellis::domain::event::Submission;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::store::keys;
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::jobs;

const RULES: &str = r#"
# Never comes to an end by itself.
[[rule]]
when = { agent = "endless", text = "this is your last turn" }
then = { text = "I stop here" }

[[rule]]
when = { agent = "endless" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/x" } }] }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "agent_request", arguments = { agentId = "endless", input = "one", wait = 60000 } },
    { tool = "agent_request", arguments = { agentId = "endless", input = "two", wait = 60000, budget = { turns = 2 } } },
] }

[[rule]]
when = { agent = "slow" }
then = { fault = "hang" }

[[rule]]
when = { agent = "parked", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "slow", input = "go", wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (mut venue, dir) = TestVenue::embedded(RULES).await;
    venue.sweep = Duration::from_millis(100);
    venue.worker();
    (venue, dir)
}

fn model() -> Value {
    json!({"provider": "scripted", "name": "rules", "maxTokens": 100, "price": {"input": 3.0, "output": 15.0}})
}

async fn run(venue: &TestVenue, agent: &str, id: &str, budget: Value) -> Job {
    let budget = serde_json::from_value(budget).unwrap();
    let submitted =
        venue.arrive(agent, id, true, Submission { input: json!("go"), budget, ..Submission::default() }).await;
    venue.ended(&submitted.job.unwrap()).await
}

fn failure(job: &Job) -> (Option<ErrorCode>, &str) {
    let result = job.result.as_ref().unwrap();
    (result.error_code, result.error.as_deref().unwrap_or_default())
}

async fn account(venue: &TestVenue, name: &str) -> Account {
    let doc = venue.venue.store.read(&venue.owner, &[keys::account(name)]).await.unwrap().remove(0);
    serde_json::from_slice(&doc.value.expect("the account exists")).unwrap()
}

#[tokio::test]
async fn a_task_ends_when_its_budget_is_used_up_whatever_it_counts() {
    let (venue, _dir) = venue().await;
    venue.agent("endless", json!({"model": model(), "limits": {"turns": 40}})).await;
    for (id, budget, part) in [
        ("turns", json!({"turns": 3}), "3 model calls were made"),
        ("tokens", json!({"tokens": 12_000}), "of 12000 tokens are used"),
        ("cost", json!({"cost": 0.04}), "of $0.04 are used"),
    ] {
        let job = run(&venue, "endless", id, budget).await;
        let (code, error) = failure(&job);
        assert_eq!((job.status, code), (JobStatus::Failed, Some(ErrorCode::BudgetExceeded)), "{id}: {error}");
        assert!(error.contains(part) || error.contains("too little"), "{id}: {error}");
        let account = account(&venue, &format!("{}-request", job.head.id)).await;
        assert!(account.held.is_empty() && account.spent.turns > 0, "{account:?}");
        assert!(account.spent.tokens <= account.limits.tokens.unwrap_or(u64::MAX), "{account:?}");
    }
}

#[tokio::test]
async fn the_limits_of_an_agent_hold_for_each_of_its_tasks() {
    let (venue, _dir) = venue().await;
    venue.agent("endless", json!({"model": model(), "limits": {"turns": 40, "tokens": 9_000}})).await;
    for id in ["one", "two"] {
        let job = run(&venue, "endless", id, json!({})).await;
        let (code, error) = failure(&job);
        assert_eq!(code, Some(ErrorCode::LimitReached), "{error}");
        assert!(error.contains("tokens are used") || error.contains("too little"), "{error}");
    }
}

#[tokio::test]
async fn children_share_one_budget() {
    let (venue, _dir) = venue().await;
    venue.agent("endless", json!({"model": model(), "limits": {"turns": 40}})).await;
    venue.agent("boss", json!({"model": model()})).await;
    let job = run(&venue, "boss", "b1", json!({"turns": 9})).await;
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    let mut spent = 0;
    for child in all.iter().filter(|job| job.head.agent.as_str() == "endless") {
        let child = venue.ended(&child.head.id).await;
        assert_eq!(failure(&child).0, Some(ErrorCode::BudgetExceeded));
        spent += 1;
    }
    assert_eq!(spent, 2);
    // All of them together, the one above included.
    let account = account(&venue, &format!("{}-request", job.head.id)).await;
    assert_eq!((account.spent.turns, account.held.len()), (9, 0), "{account:?}");
    assert_eq!(failure(&job).0, Some(ErrorCode::BudgetExceeded), "nothing is left for its own answer");
}

#[tokio::test]
async fn a_task_that_winds_down_gets_one_turn_with_only_completion() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let venue = venue.foreseen();
    venue.worker();
    for (id, limits, budget) in [
        ("turns", json!({"turns": 3, "windDown": true}), json!({})),
        ("tokens", json!({"turns": 40, "windDown": true}), json!({"tokens": 12_000})),
        ("calls", json!({"turns": 40, "windDown": true}), json!({"turns": 2})),
    ] {
        venue.agent("endless", json!({"model": model(), "limits": limits})).await;
        let job = run(&venue, "endless", id, budget).await;
        let output = job.result.as_ref().unwrap().output.clone();
        assert_eq!((job.status, output), (JobStatus::Complete, Some(json!("I stop here"))), "{id}");
    }
}

#[tokio::test]
async fn time_limits_end_hanging_calls_and_waiting_sessions() {
    let (venue, _dir) = venue().await;
    venue.agent("slow", json!({"model": model()})).await;
    venue.agent("parked", json!({"model": model()})).await;
    for agent in ["slow", "parked"] {
        let job = run(&venue, agent, agent, json!({"wallClock": 1})).await;
        let (code, error) = failure(&job);
        assert_eq!(code, Some(ErrorCode::BudgetExceeded), "{agent}: {error}");
        assert!(error.contains("its time was over at "), "{agent}: {error}");
    }
    // The deadline went on to the child.
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    for child in all.iter().filter(|job| job.head.parent.is_some()) {
        assert_eq!(failure(&venue.ended(&child.head.id).await).0, Some(ErrorCode::BudgetExceeded));
    }
    venue.agent("slow", json!({"model": model(), "limits": {"wallClock": 1}})).await;
    assert_eq!(failure(&run(&venue, "slow", "own", json!({})).await).0, Some(ErrorCode::LimitReached));
}

#[tokio::test]
async fn a_budget_that_can_t_be_kept_is_refused() {
    let (venue, _dir) = venue().await;
    venue.agent("endless", json!({})).await;
    let arrival = |task: bool, budget: Value| Arrival {
        owner: venue.owner.clone(),
        agent: "endless".parse().unwrap(),
        task,
        id: ingress::fresh_id(),
        submission: Submission { budget: serde_json::from_value(budget).unwrap(), ..Submission::default() },
        received: venue.venue.now(),
        sequence: 0,
        by: trellis::domain::principal::Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    for (task, budget, part) in [
        (true, json!({"tokens": 0}), "`budget`: `tokens`: expected more than 0, got 0"),
        (true, json!({"cost": -1.0}), "`cost`: expected more than 0"),
        (false, json!({"tokens": 5}), "a message has none"),
    ] {
        let error = ingress::submit(&venue.venue, &arrival(task, budget)).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    // A model without a price can't keep to a cost.
    let job = run(&venue, "endless", "free", json!({"cost": 1.0})).await;
    assert!(failure(&job).1.contains("the model has no `price`"), "{:?}", failure(&job));
    assert!(!failure(&job).1.contains("used up"), "nothing is used: {:?}", failure(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_inherited_budget_does_not_mean_no_limit() {
    let (venue, _dir) = venue().await;
    venue.agent("plain", json!({"model": model()})).await;
    let gone = "0123456789abcdef0123456789abcdef-request";
    let envelope = Envelope { accounts: vec![gone.to_owned()], ..Envelope::default() };
    let submission = Submission { input: json!("go"), envelope, ..Submission::default() };
    let job = venue.arrive("plain", "late", true, submission).await.job.unwrap();
    let job = venue.ended(&job).await;
    let (code, error) = failure(&job);
    assert_eq!(code, Some(ErrorCode::BudgetExceeded));
    assert!(error.contains("the budget of the request above is gone"), "{error}");
}
