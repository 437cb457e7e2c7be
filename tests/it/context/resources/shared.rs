//! Declarations are checked wherever an agent is applied, and writes wait where a policy says so.

use super::{Site, task, writable};
use crate::support::http::Server;
use crate::support::operate;
use serde_json::json;
use std::time::Duration;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::context::ledger::RowStatus;
use trellis::domain::event::Submission;
use trellis::venue::approvals;
use trellis::venue::operation::Caller;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_an_unprovided_kind_is_refused() {
    let server = Server::start().await;
    let model = json!({"provider": "scripted", "name": "echo"});
    for (resources, expected) in [
        (json!({"memroy": {}}), "nothing provides the kind `memroy`, did you mean `memory`"),
        (json!({"memory": {"preload": 7}}), "`resources.memory`"),
        (json!({"lattice": {"kind": "files"}}), "the tool `lattice_"),
        (json!({"memory": {"mode": "write"}}), "unknown variant `write`, expected `read` or `read-write`"),
    ] {
        let config = json!({"model": model, "resources": resources});
        server.put("/api/v1/agents/clerk", config.clone()).await.is_problem(400, expected);
        let input = json!({"operation": "v/ops/agent/create", "input": {"agentId": "clerk", "config": config}});
        let mut text = server.post("/api/v1/invoke?wait=0", input).await.body.to_string();
        operate::as_worker(&server.venue, &"local/me".parse().unwrap()).await;
        text += &server.get("/api/v1/jobs?details=true").await.body(200).to_string();
        assert!(text.contains(&expected.replace('"', "\\\"")), "{text}");
    }
    let config = json!({"model": model, "resources": {"memory": {"mode": "read-write", "autoScan": true}}});
    server.put("/api/v1/agents/clerk", config).await.body(201);
}

#[tokio::test]
async fn a_write_under_policy_waits_for_a_persons_approval() {
    let site = Site::new().await.clerk(writable()).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let asks = vec![Capability { with: "r/app/user/a".into(), can: "write".into() }];
    trellis::venue::policy::set_approvals(venue, owner, asks).await.unwrap().unwrap();
    let submission = Submission {
        input: task("do", "memory_write", &json!({"content": "approved"})),
        session_id: Some("s".parse().unwrap()),
        context: json!(["app/user/a"]).as_array().cloned(),
        ..Submission::default()
    };
    let job = site.venue.arrive("clerk", "s", true, submission).await.job.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3000 {
        waiting = approvals::list(venue, owner, false, 0, 1_000).await.unwrap().items;
        if !waiting.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = &waiting[0];
    assert_eq!(asked.tool, "memory_write");
    let kept = || async { venue.store.scan(owner, "r/memory/", None, false, 10).await.unwrap().len() };
    assert_eq!(kept().await, 0, "not before");
    let person = Caller::new(owner.clone(), "a person".into(), Authority::without_limits());
    let approved = ApprovalVerdict::Approved { arguments: None, scopes: None };
    approvals::decide(venue, &person, &asked.id, approved, None).await.unwrap();
    site.venue.ended(&job).await;
    assert_eq!(kept().await, 1);
    site.ok("other", json!(["app/user/b"]), "memory_write", json!({"content": "not asked about"})).await;
}

#[tokio::test]
async fn a_kind_without_a_provider_is_named_in_the_prompt() {
    // As a venue of another version has applied it.
    let site = Site::new().await.clerk(json!({"crm": {}, "memory": {}})).await;
    site.ok("s", json!(["app/user/a"]), "memory_read", json!({})).await;
    let (prompt, row) = site.saw("clerk", "s", "resource/crm").await;
    assert_eq!(row.unwrap().status, RowStatus::Failed);
    assert!(prompt.contains("[Context: crm — unavailable: `resources.crm`: nothing provides the kind"), "{prompt}");
    let (prompt, row) = site.saw("clerk", "s", "resource/memory").await;
    assert!(row.unwrap().status == RowStatus::Full && prompt.contains("## Resource: memory\nMemory topics: none."));
}
