//! Each kind on an embedded store, signed, once, and with what is needed to answer.

use super::{HookServer, RULES, SECRET, definition};
use crate::support::api_calls::closing_site;
use crate::support::cli::Up;
use serde_json::{Value, json};

/// A venue with these agents and a webhook `phone`; it may call both hosts.
pub(super) fn up(hook: &HookServer, agents: &[&str], settings: &[&str]) -> Up {
    let site = closing_site();
    let own = format!("http_client.allow_hosts=127.0.0.1:{}, 127.0.0.1:{site}", hook.port);
    let has_hosts = settings.iter().any(|setting| setting.starts_with("http_client.allow_hosts"));
    let mut all = vec!["http_client.allow_private=true"];
    all.extend_from_slice(settings);
    all.extend((!has_hosts).then_some(own.as_str()));
    let up = Up::start_with(&all);
    up.file("all.rules", &RULES.replace("SITE", &site.to_string()));
    up.file("secret.txt", SECRET);
    up.run(&["secret", "set", "HOOK", "@secret.txt"]).ok();
    for agent in agents {
        up.file(&format!("{agent}.toml"), &definition(agent));
        up.run(&["agent", "apply", &format!("{agent}.toml")]).ok();
    }
    up.run(&["webhook", "set", "phone", &hook.url(), "--secret", "s/HOOK"]).ok();
    up
}

/// A request as a notification says that it is answered.
pub(super) async fn answer(up: &Up, http: &Value, body: &str) -> u16 {
    let url = format!("{}{}", up.url, http["path"].as_str().unwrap());
    let method = http["method"].as_str().unwrap().parse().unwrap();
    let request = reqwest::Client::new().request(method, url).json(&http["bodies"][body]);
    request.send().await.unwrap().status().as_u16()
}

/// The list of webhooks, once a count of the first one is so much.
pub(super) async fn listed(up: &Up, count: &str, expected: u64) -> Value {
    for _ in 0..500 {
        let listed: Value = serde_json::from_str(&up.run(&["webhook", "list", "--output", "json"]).ok()).unwrap();
        if listed["items"][0][count] == json!(expected) {
            return listed;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("`{count}` is never {expected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_answered_with_what_its_event_has() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["payer"], &[]);
    let job = up.run(&["submit", "payer", "pay 40"]).ok();
    let asked = hook.wait("approval-asked", 1).await.remove(0);
    asked.verify();
    let data = asked.json()["data"].clone();
    assert_eq!((&data["owner"], &data["agent"], &data["job"]), (&json!("local/me"), &json!("payer"), &json!(job)));
    let approval = &data["approval"];
    assert_eq!(approval["call"]["arguments"], json!({"path": "w/paid", "value": 40}), "{approval}");
    assert_eq!(data["answer"]["nats"], Value::Null, "there is no NATS");
    assert_eq!(answer(&up, &data["answer"]["http"], "approve").await, 200);
    up.run(&["job", "wait", &job]).ok();
    let decided = hook.wait("approval-decided", 1).await.remove(0);
    decided.verify();
    let data = decided.json()["data"].clone();
    assert_eq!(data["approval"]["answer"]["verdict"], "approved", "{data}");
    assert_eq!(data["approval"]["id"], approval["id"]);
    assert_eq!(hook.all().len(), 2, "each comes once: {:?}", hook.all());
    let listed = listed(&up, "delivered", 2).await;
    assert_eq!(listed["items"][0]["failed"], json!(0), "{listed}");
    let shown = listed.to_string();
    assert!(!shown.contains("s3cret") && !shown.contains(SECRET), "no query and no secret is shown: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_expires_is_told_of() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["asker"], &[]);
    up.run(&["submit", "asker", "a coffee"]).ok();
    let asked = hook.wait("approval-asked", 1).await.remove(0).json()["data"].clone();
    assert_eq!(asked["answer"]["http"]["bodies"]["answers"]["answers"], json!({"size": null}), "{asked}");
    let expired = hook.wait("approval-expired", 1).await.remove(0);
    expired.verify();
    assert_eq!(expired.json()["data"]["approval"]["answer"]["verdict"], "expired");
    assert!(hook.of_kind("approval-decided").is_empty(), "nobody has decided");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_told_of_and_settled() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["poster"], &[]);
    up.run(&["submit", "poster", "post"]).ok();
    let told = hook.wait("outcome-unknown", 1).await.remove(0);
    told.verify();
    let data = told.json()["data"].clone();
    assert_eq!((&data["operation"], &data["agent"]), (&json!("v/ops/http/post"), &json!("poster")), "{data}");
    assert_eq!(answer(&up, &data["answer"]["http"], "not done").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_agent_is_told_of_each_time() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["payer"], &[]);
    for count in 1..=2 {
        up.run(&["agent", "suspend", "payer", "--reason", "for now"]).ok();
        let told = hook.wait("agent-suspended", count).await.remove(count - 1);
        told.verify();
        let data = told.json()["data"].clone();
        assert_eq!((&data["agent"], &data["reason"]), (&json!("payer"), &json!("for now")));
        assert_eq!(answer(&up, &data["answer"]["http"], "resume").await, 200);
    }
    let ids: Vec<Value> = hook.all().iter().map(|post| post.json()["id"].clone()).collect();
    assert_ne!(ids[0], ids[1], "they are two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reached_cap_is_told_of_once_a_day() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["talker"], &["spend.owner=tokens=10"]);
    for text in ["one", "two", "three"] {
        up.run(&["submit", "talker", text]).ok();
    }
    let told = hook.wait("cap-reached", 1).await.remove(0);
    told.verify();
    let reason = told.json()["data"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("`local/me` for a day is reached"), "{reason}");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(hook.all().len(), 1, "{:?}", hook.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_job_is_told_of_and_its_webhook_survives() {
    let hook = HookServer::willing().await;
    let mut up = up(&hook, &[], &["worker.crash_limit=1", "worker.lease=500ms"]);
    up.agent("killer", "never");
    let job = up.run(&["submit", "killer", "x"]).ok();
    while up.run(&["job", "get", &job, "--output", "ndjson"]).ok().contains("\"PENDING\"") {}
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let told = hook.wait("job-dead", 1).await.remove(0);
    told.verify();
    let data = told.json()["data"].clone();
    assert_eq!((&data["job"], &data["agent"]), (&json!(job), &json!("killer")));
    assert_eq!(data["answer"]["http"]["path"], format!("/api/v1/jobs/{job}/redrive"));
}
