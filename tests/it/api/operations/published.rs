//! Operations that are published while the process runs: agents call them, each owner its own, in one version alone.

use super::{agent, call_at};
use crate::support::http::{Answer, Server};
use crate::support::operate;
use crate::support::venue::TestVenue;
use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trellis::domain::approval::{Approval, ApprovalVerdict};
use trellis::domain::authority::Authority;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::domain::lattice::catalog::SourceName;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::venue::Venue;
use trellis::venue::approvals;
use trellis::venue::jobs;
use trellis::venue::operation::{
    Caller, Effect, Invocation, OpError, OpOutput, Publication, RuntimeCall, RuntimeOperation,
};
use trellis::venue::operation_jobs::{self, RunTerms};

/// Counts its runs, and withdraws its source if it `closes`.
struct Shop {
    runs: Arc<AtomicUsize>,
    closes: bool,
}

#[async_trait]
impl RuntimeCall for Shop {
    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        if self.closes {
            call.venue.catalog.withdraw(Some(&call.caller.owner), &source());
        }
        Ok(json!({"found": arguments["q"]}).into())
    }
}

fn source() -> SourceName {
    SourceName::new("shop").unwrap()
}

/// Publishes the operations of a shop for `local/me`, which count their runs.
fn publish(venue: &Venue, version: &str, runs: &Arc<AtomicUsize>) {
    let input = json!({"type": "object", "properties": {"q": {"type": "string"}}, "additionalProperties": false});
    let operation = |(name, effect): (&str, Effect)| RuntimeOperation {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input: input.clone(),
        effect,
        run: Arc::new(Shop { runs: Arc::clone(runs), closes: name == "close" }),
    };
    let operations =
        [("search", Effect::Read), ("rate", Effect::Idempotent), ("order", Effect::Once), ("close", Effect::Read)];
    let publication = Publication {
        source: source(),
        owner: Some("local/me".parse().unwrap()),
        agent: None,
        version: version.to_owned(),
        expires: None,
        operations: operations.map(operation).into(),
    };
    venue.catalog.publish(publication, venue.now()).unwrap();
}

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [
    { tool = "shop_search", arguments = { q = "tea" } },
    { tool = "shop_rate", arguments = { q = "tea" } },
    { tool = "shop_search", arguments = { query = "tea" } },
    { tool = "job_run", arguments = { operation = "shop:search", input = { q = "tea" } } },
] }

[[rule]]
when = { agent = "clerk", turn = 2 }
then = { calls = [{ tool = "shop_close", arguments = {} }] }

[[rule]]
when = { agent = "clerk", turn = 3 }
then = { calls = [
    { tool = "shop_search", arguments = { q = "tea" } },
    { tool = "job_run", arguments = { operation = "shop:search", input = { q = "tea" } } },
] }

[[rule]]
when = { agent = "pinner", turn = 1 }
then = { calls = [
    { tool = "job_run", arguments = { operation = "o/rate", input = { q = "tea" } } },
    { tool = "job_run", arguments = { operation = "o/close" } },
    { tool = "job_run", arguments = { operation = "o/search", input = { q = "tea" } } },
] }

[[rule]]
when = { agent = "buyer", turn = 1 }
then = { calls = [{ tool = "shop_order", arguments = { q = "tea" } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

#[tokio::test]
async fn an_agent_calls_an_operation_until_it_is_withdrawn() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let runs = Arc::default();
    publish(&venue.venue, "v1", &runs);
    venue.worker();
    venue.agent("clerk", json!({"tools": ["v/ops/shop/search", "v/ops/shop/rate", "v/ops/shop/close"]})).await;
    let job = venue.run("clerk", "t1", json!("go")).await;
    let turns = venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes = |at: usize| turns[at].calls.iter().map(|call| call.outcome.as_str()).collect::<Vec<_>>();
    assert_eq!(outcomes(0), ["ok", "ok", "bad arguments", "ok"]);
    assert_eq!(outcomes(1), ["ok"]);
    assert_eq!(outcomes(2), ["unknown tool", "unknown tool"]);
    assert_eq!(runs.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_pin_of_an_operation_runs_until_it_is_withdrawn() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let runs = Arc::default();
    publish(&venue.venue, "v1", &runs);
    for name in ["rate", "close", "search"] {
        venue.write(&format!("o/{name}"), json!({"operation": format!("v/ops/shop/{name}")})).await;
    }
    venue.worker();
    venue.agent("pinner", json!({"tools": ["v/ops/job/run"], "defaultTools": false})).await;
    let job = venue.run("pinner", "t1", json!("go")).await;
    let turns = venue.turns("pinner", job.head.session.as_str()).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok", "unknown tool"], "what a turn was offered is asked for again");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoked_operation_runs_in_the_version_of_its_caller() {
    for (operation, dies, published, part, made) in [
        ("shop:order", false, "v1", None, 1),
        ("shop:order", false, "v2", Some("`v/ops/shop/order` has changed since it was shown"), 0),
        ("shop:rate", true, "v1", None, 1),
        ("shop:rate", true, "v2", Some("outcome unknown"), 0),
    ] {
        let clock = Clock::manual(Millis(1_700_000_000_000));
        let (venue, _dir) = TestVenue::embedded_at("", clock.clone()).await;
        let server = Server::of(Arc::clone(&venue.venue)).await;
        let runs = Arc::default();
        publish(&venue.venue, "v1", &runs);
        let order = json!({"operation": operation, "input": {"q": "tea"}, "wait": 0});
        let job = server.post("/api/v1/invoke", order).await.body(201);
        let id = JobId::new(job["id"].as_str().unwrap()).unwrap();
        if dies {
            let gone = RunTerms { worker: "gone", lease: Duration::from_secs(1), crash_limit: 5 };
            assert!(operation_jobs::acquire(&venue.venue, &venue.owner, &id, gone).await.unwrap().is_some());
            clock.advance(Duration::from_mins(1));
        }
        publish(&venue.venue, published, &runs);
        operate::as_worker(&venue.venue, &venue.owner).await;
        let job = jobs::get(&venue.venue, &venue.owner, &id).await.unwrap().unwrap();
        assert_eq!(job.status == JobStatus::Complete, part.is_none(), "{operation} {published}: {:?}", job.result);
        let error = job.result.unwrap().error.unwrap_or_default();
        assert!(error.contains(part.unwrap_or_default()), "{operation} {published}: {error}");
        assert_eq!(runs.load(Ordering::SeqCst), made, "{operation} {published}");
    }
}

/// The approval that waits, once there is one.
async fn waiting(venue: &TestVenue) -> Approval {
    for _ in 0..3000 {
        let mut found = approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items;
        if let Some(asked) = found.pop() {
            return asked;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing waits for approval");
}

#[tokio::test]
async fn an_approved_call_is_made_in_the_version_that_was_shown() {
    for (published, part, outcome, made) in [
        (Some("v1"), "tea", "ok", 1),
        (Some("v2"), "`v/ops/shop/order` has changed since it was shown", "unknown tool", 0),
        (None, "`v/ops/shop/order` is not offered any more", "unknown tool", 0),
    ] {
        let (venue, _dir) = TestVenue::embedded(RULES).await;
        let runs = Arc::default();
        publish(&venue.venue, "v1", &runs);
        venue.worker();
        venue.agent("buyer", json!({"tools": [{"operation": "v/ops/shop/order", "approval": "ask"}]})).await;
        let submitted = venue.submit("buyer", "t1", json!("go")).await;
        let asked = waiting(&venue).await;
        let person = Caller::new(venue.owner.clone(), "a person".into(), Authority::without_limits());
        let decide = async |arguments: Option<Value>| {
            let verdict = ApprovalVerdict::Approved { arguments, scopes: None };
            approvals::decide(&venue.venue, &person, &asked.id, verdict, None).await
        };
        if let Some(version) = published {
            publish(&venue.venue, version, &runs);
        } else {
            assert!(venue.venue.catalog.withdraw(Some(&venue.owner), &source()));
            let edited = decide(Some(json!({"q": "coffee"}))).await.unwrap_err();
            assert!(matches!(&edited, OpError::Conflict(text) if text.contains("not offered any more")), "{edited}");
        }
        decide(None).await.unwrap();
        let job = venue.ended(&submitted.job.unwrap()).await;
        let output = job.result.unwrap().output.unwrap();
        assert!(output.as_str().unwrap().contains(part), "expected `{part}`: {output}");
        let turns = venue.turns("buyer", job.head.session.as_str()).await;
        assert_eq!(turns[0].calls[0].outcome, outcome, "{published:?}");
        assert_eq!(runs.load(Ordering::SeqCst), made, "{published:?}");
    }
}

async fn send(server: &Server, owner: &str, path: &str, body: Option<Value>) -> Answer {
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    server.send(method, &format!("/api/v1/{path}"), &[("X-Trellis-Owner", owner)], body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_finds_no_trace_of_an_owners_operations() {
    let server = Server::start().await;
    publish(&server.venue, "v1", &Arc::default());
    let order = |operation: &str, input: Value| Some(json!({"operation": operation, "input": input}));
    for (owner, is_shown) in [("local/me", true), ("local/you", false)] {
        let status = if is_shown { 200 } else { 404 };
        let all = send(&server, owner, "operations", None).await.body(200).to_string();
        assert_eq!(all.contains("v/ops/shop/"), is_shown, "{owner}");
        let tree = order("lattice/read", json!({"path": "v/ops"}));
        let tree = send(&server, owner, "run", tree).await.body(200).to_string();
        assert_eq!(tree.contains("shop:search"), is_shown, "{owner}");
        for path in ["operations/v/ops/shop/search", "operations/shop:search", "adapters/shop/operations"] {
            send(&server, owner, path, None).await.body(status);
        }
        for path in ["run", "invoke"] {
            let answer = send(&server, owner, path, order("shop:search", json!({"q": "tea"}))).await;
            assert_eq!(answer.status.as_u16() == 404, !is_shown, "{owner} {path}: {}", answer.body);
        }
        let misspelt = send(&server, owner, "operations/v/ops/shop/serch", None).await;
        misspelt.is_problem(404, "no operation `v/ops/shop/serch`");
        assert_eq!(misspelt.body["error"].as_str().unwrap().contains("shop/search"), is_shown, "{owner}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_needs_the_ability_to_invoke_an_operation() {
    let server = Server::start().await;
    publish(&server.venue, "v1", &Arc::default());
    let search = async |caller: Caller| call_at(&server.venue, &caller, "shop/search", json!({"q": "tea"})).await;
    for with in ["", "v/ops/shop", "v/ops/shop/search"] {
        assert_eq!(search(agent("invoke", with)).await, Ok(json!({"found": "tea"})), "{with}");
    }
    for (can, with) in [("invoke", "v/ops/shop/order"), ("crud", "v/ops/shop/search"), ("invoke", "w")] {
        let denied = search(agent(can, with)).await.unwrap_err();
        let expected = "Capability denied: shop/search requires invoke on v/ops/shop/search";
        assert!(denied.starts_with(expected), "{can} on {with}: {denied}");
    }
}
