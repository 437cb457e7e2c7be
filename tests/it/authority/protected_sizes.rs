//! What protects an owner is as large as the queue can keep at most: refused before it is written, with what to do.
//! What was written before these bounds is read, made smaller and stopped all the same.

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::agent::AgentStatus;
use trellis::domain::authority::policy::{Policy, Revocation};
use trellis::domain::bounds::{AGENT_BYTES, POLICY_BYTES, REASON_BYTES};
use trellis::http::HttpOptions;
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::policy;

on_both! {
    an_agent_that_fits_no_message_of_the_queue_is_refused
    a_policy_that_grows_too_large_is_refused_and_is_made_smaller
    a_reason_is_cut_and_what_it_explains_holds
    a_large_agent_from_before_is_stopped_and_made_smaller
    a_large_policy_from_before_takes_another_revocation
    a_timer_needs_a_readable_name_and_keeps_its_zone
}

async fn site(on: On) -> Option<(TestVenue, tempfile::TempDir, Server)> {
    let (venue, dir) = on.venue("", Clock::system()).await?;
    venue.agent("a", json!({})).await;
    let limits = |options| HttpOptions { body_limit: 2_000_000, ..options };
    let api = Server::changed(Arc::clone(&venue.venue), Arc::default(), limits).await;
    Some((venue, dir, api))
}

async fn try_run(api: &Server, operation: &str, input: Value) -> crate::support::http::Answer {
    api.post("/api/v1/run", json!({"operation": operation, "input": input})).await
}

/// Each of these characters takes two bytes as JSON, and four in a message that holds the document.
fn quotes(bytes: usize) -> String {
    "\"".repeat(bytes / 2)
}

async fn an_agent_that_fits_no_message_of_the_queue_is_refused(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let model = json!({"provider": "scripted", "name": "echo"});
    let with = |prompt: String| json!({"model": model, "systemPrompt": prompt});
    let fits = AGENT_BYTES - 4_096;
    for prompt in ["p".repeat(fits), quotes(fits)] {
        let made = api.put("/api/v1/agents/fits", with(prompt)).await;
        assert!(made.status.is_success(), "{}", made.body["error"]);
    }
    for prompt in ["p".repeat(850_000), quotes(AGENT_BYTES + 4_096)] {
        let large = || with(prompt.clone());
        api.put("/api/v1/agents/large", large()).await.is_problem(413, "agent `large` takes");
        let create = json!({"agentId": "large", "config": large()});
        try_run(&api, "v/ops/agent/create", create).await.is_problem(413, &AGENT_BYTES.to_string());
        let patch = json!({"config": {"systemPrompt": prompt}}).to_string();
        let patched = api.send(reqwest::Method::PATCH, "/api/v1/agents/a", &[], patch).await;
        patched.is_problem(413, "a value under `w/`");
        let fork = json!({"agentId": "a", "to": "large", "config": {"systemPrompt": prompt}});
        try_run(&api, "v/ops/agent/fork", fork).await.is_problem(413, "agent `large`");
    }
    api.get("/api/v1/agents/large").await.is_problem(404, "large");
    assert_eq!(venue.record("a").await.config_version, 1);
}

async fn a_policy_that_grows_too_large_is_refused_and_is_made_smaller(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let caps = |n: usize| (0..n).map(|n| json!({"with": format!("w/{n:0>1800}"), "can": "*"})).collect::<Vec<_>>();
    let most = POLICY_BYTES / 1_830;
    try_run(&api, "v/ops/policy/approvals", json!({"caps": caps(most + 20)})).await.is_problem(413, "the policy of");
    assert_eq!(policy::load(&*venue.venue.store, &venue.owner).await.unwrap().0, Policy::default());
    api.run("v/ops/policy/approvals", json!({"caps": caps(most - 4)})).await;
    let mut taken = 0;
    let refused = loop {
        let path = format!("w/{taken:0>200}");
        let answer = try_run(&api, "v/ops/policy/revoke", json!({"path": path})).await;
        if !answer.status.is_success() {
            break answer;
        }
        taken += 1;
        assert!(taken < 100, "it is never refused");
    };
    refused.is_problem(413, "restore revocations that aren't needed");
    let (kept, _) = policy::load(&*venue.venue.store, &venue.owner).await.unwrap();
    assert_eq!(kept.revocations.len(), taken);
    let long = "h".repeat(2_000);
    for named in ["holder", "grant"] {
        try_run(&api, "v/ops/policy/revoke", json!({named: long})).await.is_problem(400, named);
    }
    api.run("v/ops/policy/approvals", json!({"caps": []})).await;
    api.run("v/ops/policy/revoke", json!({"path": "w/late"})).await;
}

async fn a_reason_is_cut_and_what_it_explains_holds(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let long = "ü".repeat(REASON_BYTES);
    api.run("v/ops/policy/revoke", json!({"path": "w/a", "reason": long})).await;
    api.put("/api/v1/agents/a/suspend", json!({"reason": long})).await.body(200);
    let (policy, _) = policy::load(&*venue.venue.store, &venue.owner).await.unwrap();
    let record = venue.record("a").await;
    assert_eq!(record.status, AgentStatus::Suspended);
    for reason in [policy.revocations[0].reason.as_ref(), record.error.as_ref()] {
        let reason = reason.unwrap();
        assert!(reason.len() <= REASON_BYTES && reason.starts_with('ü') && reason.ends_with('…'), "{}", reason.len());
    }
}

async fn a_large_agent_from_before_is_stopped_and_made_smaller(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let mut record = venue.record("a").await;
    record.config.system_prompt = "p".repeat(850_000);
    let write = DocWrite::json(keys::agent(&record.id), &record);
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
    api.put("/api/v1/agents/a/suspend", json!({})).await.body(200);
    assert_eq!(venue.record("a").await.status, AgentStatus::Suspended);
    let patch = async |config: Value| {
        let body = json!({"config": config}).to_string();
        api.send(reqwest::Method::PATCH, "/api/v1/agents/a", &[], body).await
    };
    // What narrows it could not be kept against a loss: it is said so, and how.
    patch(json!({"caps": []})).await.is_problem(413, "agent `a` takes");
    patch(json!({"caps": [], "systemPrompt": "short"})).await.body(200);
    assert_eq!(venue.record("a").await.config.caps.as_deref(), Some(&[][..]));
    api.put("/api/v1/agents/a/resume", json!({})).await.body(200);
}

async fn a_large_policy_from_before_takes_another_revocation(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let revocation = |n: usize| Revocation {
        id: format!("r{n}"),
        path: Some(crate::support::operate::on(&format!("w/pad{n}"))),
        holder: None,
        grant: None,
        reason: Some("x".repeat(450_000)),
        by: "acme/ada".into(),
        at: venue.venue.now(),
    };
    let old = Policy { revocations: (0..3).map(revocation).collect(), ..Policy::default() };
    let writes = [keys::POLICY, keys::POLICY_COPY].map(|key| DocWrite::json(key, &old));
    venue.venue.store.write(venue.venue.now(), &venue.owner, &writes).await.unwrap();
    api.run("v/ops/policy/revoke", json!({"path": "w/late"})).await;
    let (policy, _) = policy::load(&*venue.venue.store, &venue.owner).await.unwrap();
    assert_eq!(policy.revocations.len(), 4);
    assert!(serde_json::to_string(&policy).unwrap().len() < POLICY_BYTES, "old reasons are cut");
}

async fn a_timer_needs_a_readable_name_and_keeps_its_zone(on: On) {
    let Some((_venue, _dir, api)) = site(on).await else { return };
    let set = async |timer: Value| {
        let mut body = json!({"input": 1, "after": "5m"});
        for (key, value) in timer.as_object().unwrap() {
            body[key] = value.clone();
        }
        if timer.get("at").is_some() {
            body.as_object_mut().unwrap().remove("after");
        }
        api.post("/api/v1/agents/a/timers", body).await
    };
    for name in ["", "a\u{0}b", "a\nb", "a\u{200b}b", "a\u{2028}b", "\u{202e}a", "a\u{9b}b"] {
        set(json!({"name": name})).await.is_problem(400, "`name`");
    }
    set(json!({"name": "Jeden Tag 🏳️‍🌈"})).await.body(201);
    set(json!({"at": "2027-06-01T12:00:00+01:00[Europe/Berlin]"})).await.is_problem(400, "its time zone");
    let timer = set(json!({"at": "2027-06-01T12:00:00[Europe/Berlin]"})).await.body(201);
    assert_eq!(timer["next"], "2027-06-01T10:00:00.000Z");
}
