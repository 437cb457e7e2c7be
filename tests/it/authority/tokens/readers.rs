//! Who reads what was said and done under grants of others: by every way in, with the gap marked.

use super::{issuer, token};
use crate::support::http::{Answer, Server};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::event::Submission;
use trellis::process::clock::Clock;
use trellis::venue::auth::signing::SigningKey;

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = "pin4711" } }] }

[[rule]]
when = { agent = "spy", turn = 1, text = "look" }
then = { calls = [{ tool = "agent_session-read", arguments = { agentId = "clerk", sessionId = "s" } }, { tool = "agent_session-read", arguments = { agentId = "clerk", sessionId = "before" } }, { tool = "agent_context", arguments = { agentId = "clerk", sessionId = "s" } }] }

[[rule]]
then = { text = "noted: {{input}}" }
"#;

struct Site {
    venue: TestVenue,
    server: Server,
    issuer: SigningKey,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn embedded() -> Self {
        let (venue, dir) = TestVenue::embedded(RULES).await;
        Self::of(venue, dir).await
    }

    async fn redis() -> Option<Self> {
        let (venue, dir, _) = TestVenue::redis_at(RedisServer::shared()?, RULES, Clock::system()).await;
        Some(Self::of(venue, dir).await)
    }

    async fn of(mut venue: TestVenue, dir: tempfile::TempDir) -> Self {
        let (issuer, auth) = issuer(dir.path());
        venue.owner = "acme/ann".parse().unwrap();
        venue.worker();
        let server = Server::with(Arc::clone(&venue.venue), auth).await;
        Self { venue, server, issuer, _dir: dir }
    }

    /// A token of the owner's that may do this and nothing else; `null`: everything.
    fn token(&self, att: &Value) -> String {
        let claims = if att.is_null() { json!({}) } else { json!({"att": att}) };
        token(&self.issuer, "acme/ann", &claims)
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Authorization", bearer.as_str()), ("X-Trellis-Owner", "acme/ann")];
        self.server.send(method, &format!("/api/v1/{path}"), &headers, body).await
    }

    /// A finished task in the session `s`, under these grants.
    async fn task(&self, agent: &str, id: &str, input: &str, grants: Value) {
        let context = grants.as_array().cloned();
        let session_id = Some("s".parse().unwrap());
        let submission = Submission { input: json!(input), session_id, context, ..Submission::default() };
        let job = self.venue.arrive(agent, id, true, submission).await.job.unwrap();
        self.venue.ended(&job).await;
    }
}

async fn every_way_in(site: Site) {
    site.venue.agent("clerk", json!({})).await;
    site.task("clerk", "t1", "the salary is gold5000", Value::Null).await;
    site.task("clerk", "t2", "public talk", json!([{"with": "w/pub", "can": "crud/read"}])).await;
    let reads = |with: &str| json!({"with": with, "can": "crud/read"});
    let reader = site.token(&json!([reads("g"), reads("w/pub"), {"with": "w/pub", "can": "crud/write"}]));
    let owner = site.token(&Value::Null);
    let operator = token(&site.issuer, "acme/root", &json!({}));
    for (path, marked) in [
        ("agents/clerk/turns", true),
        ("agents/clerk/turns?session=s", true),
        ("agents/clerk/sessions/s", true),
        ("values/read?path=g/clerk/timeline", true),
        ("values/slice?path=g/clerk/timeline", true),
        ("values/inspect?path=g/clerk/timeline&budget=9000", true),
        ("values/read?path=g/clerk/timeline/0", true),
        ("agents/clerk/turns/s/1", true),
        ("agents/clerk/turns/s/1?prompt=true", true),
        ("agents/clerk/turns/s/2?prompt=true", false),
        ("agents/clerk/turns?q=gold5000", false),
    ] {
        let seen = site.send(Method::GET, path, &reader, &Value::Null).await.body(200).to_string();
        assert!(!seen.contains("gold5000"), "{path}: {seen}");
        assert_eq!(seen.contains("ran under authority that you do not hold"), marked, "{path}: {seen}");
        for all in [&owner, &operator] {
            let seen = site.send(Method::GET, path, all, &Value::Null).await.body(200).to_string();
            let other = path.contains("s/2");
            assert!(other || seen.contains("gold5000"), "{path}: {seen}");
            assert!(!seen.contains("you do not hold"), "{path}: {seen}");
        }
    }
    let list = site.send(Method::GET, "agents/clerk/turns", &reader, &Value::Null).await.body(200);
    assert_eq!((&list["turns"][1]["hidden"], &list["turns"][1]["turn"]), (&json!(true), &json!(1)), "{list}");
    assert!(list["turns"][0].to_string().contains("public talk"), "{list}");
    let replay = site.send(Method::POST, "agents/clerk/turns/s/1/replay", &reader, &json!({})).await;
    replay.is_problem(403, "what was said in it ran under authority that you do not hold");
    let replay = site.send(Method::POST, "agents/clerk/turns/s/2/replay", &reader, &json!({})).await.body(200);
    assert!(replay["same"] == true && !replay.to_string().contains("gold5000"), "{replay}");
    let preview = site.send(Method::POST, "agents/clerk/context", &reader, &json!({"session": "s", "task": "x"})).await;
    let preview = preview.body(200).to_string();
    assert!(!preview.contains("gold5000") && preview.contains("Turn 1 is not shown here"), "{preview}");
    let copied = json!({"operation": "lattice/copy", "input": {"from": "g/clerk/timeline", "to": "w/pub/x"}});
    site.send(Method::POST, "run", &reader, &copied).await.body(200);
    assert!(!site.venue.read("w/pub/x").await.unwrap().to_string().contains("gold5000"));
    // An agent reads another's history as a turn of its own would.
    site.venue.agent("spy", json!({"context": ["g/clerk/timeline"], "caps": [reads("g")]})).await;
    site.task("spy", "t3", "look", Value::Null).await;
    let seen = site.send(Method::GET, "agents/spy/turns/s/1?prompt=true", &owner, &Value::Null).await.body(200);
    let seen = seen["request"].to_string();
    assert!(seen.contains("ran under authority") && !seen.contains("gold5000"), "{seen}");
}

/// A session of which a part is summed up, and its branches and copies.
async fn what_is_summed_up_and_copied(site: Site) {
    let reads = |with: &str| json!({"with": with, "can": "crud/read"});
    site.venue.agent("clerk", json!({})).await;
    site.task("clerk", "t1", "the salary is a fortune", Value::Null).await;
    site.task("clerk", "t2", "public talk", json!([reads("w/pub")])).await;
    let owner = site.token(&Value::Null);
    let run = async |token: &str, operation: &str, input: Value| {
        let run = json!({"operation": format!("v/ops/agent/{operation}"), "input": input});
        site.send(Method::POST, "run", token, &run).await.body(200)
    };
    run(&owner, "session-fork", json!({"agentId": "clerk", "sessionId": "s", "at": 2, "to": "before"})).await;
    let summary = json!({"agentId": "clerk", "sessionId": "s", "summary": "they spoke of a fortune"});
    assert_eq!(run(&owner, "compact-session", summary).await["compacted"], true);
    site.task("clerk", "t3", "public again", json!([reads("w/pub")])).await;
    // A branch and a copy are what they were made of, whoever makes them.
    let forker = site.token(&json!([reads("g"), reads("w/pub"), {"with": "g", "can": "agent"}]));
    run(&forker, "session-fork", json!({"agentId": "clerk", "sessionId": "s", "at": 3, "to": "branch"})).await;
    run(&owner, "fork", json!({"agentId": "clerk", "to": "copy", "timeline": true})).await;
    let reader = site.token(&json!([reads("g"), reads("w/pub")]));
    for (agent, session) in
        [("clerk", "s"), ("clerk", "before"), ("clerk", "branch"), ("copy", "s"), ("copy", "branch")]
    {
        let of = json!({"agentId": agent, "sessionId": session});
        let with = |more: Value| {
            let mut of = of.clone();
            of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of
        };
        for (operation, input) in [
            ("session-read", of.clone()),
            ("session-read", with(json!({"archiveDepth": 1}))),
            ("session-read", with(json!({"after": 0, "limit": 10}))),
            ("context", with(json!({"task": "x"}))),
        ] {
            for token in [&reader, &forker] {
                let seen = run(token, operation, input.clone()).await.to_string();
                assert!(!seen.contains("a fortune"), "{agent} {operation} {input}: {seen}");
                let marked =
                    seen.contains("ran under authority that you do not hold") || seen.contains("not shown here");
                assert!(marked, "{agent} {operation} {input}: {seen}");
            }
            let seen = run(&owner, operation, input.clone()).await.to_string();
            assert!(
                seen.contains("a fortune") && !seen.contains("you do not hold"),
                "{agent} {operation} {input}: {seen}"
            );
        }
        for path in [
            format!("agents/{agent}/sessions"),
            format!("agents/{agent}/sessions/{session}"),
            format!("agents/{agent}/turns?session={session}"),
            format!("agents/{agent}/turns/{session}/1?prompt=true"),
            format!("values/read?path=g/{agent}/timeline"),
            format!("values/read?path=g/{agent}"),
        ] {
            let seen = site.send(Method::GET, &path, &reader, &Value::Null).await.body(200).to_string();
            assert!(!seen.contains("a fortune"), "{path}: {seen}");
        }
    }
    // So does an agent in its turn, whose request holds no more.
    let spy =
        json!({"tools": ["v/ops/agent/session-read", "v/ops/agent/context"], "caps": [reads("g"), reads("w/pub")]});
    site.venue.agent("spy", spy).await;
    site.task("spy", "t4", "look", json!([reads("g"), reads("w/pub")])).await;
    let seen = site.send(Method::GET, "agents/spy/sessions/s", &owner, &Value::Null).await.body(200).to_string();
    assert!(seen.contains("public again"), "it reads what it may: {seen}");
    assert!(!seen.contains("a fortune") && seen.contains("you do not hold"), "{seen}");
}

async fn what_is_asked(site: Site) {
    let pay = json!([{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]);
    site.venue.agent("payer", json!({"tools": pay})).await;
    let job = site.venue.submit("payer", "p1", json!("go")).await.job.unwrap();
    let reads = json!({"with": "j", "can": "crud/read"});
    let reader = site.token(&json!([reads]));
    let approver = site.token(&json!([reads, {"with": "j", "can": "job/approve"}]));
    let mut items = json!(0);
    for _ in 0..1200 {
        items = site.send(Method::GET, "approvals", &reader, &Value::Null).await.body(200);
        if items["total"] == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(items["total"] == 1 && !items.to_string().contains("pin4711"), "{items}");
    assert_eq!(items["items"][0]["hidden"], "[not shown: it ran under authority that you do not hold]");
    let job = format!("jobs/{job}");
    let shown = site.send(Method::GET, &job, &reader, &Value::Null).await.body(200).to_string();
    assert!(shown.contains("INPUT_REQUIRED") && !shown.contains("pin4711"), "{shown}");
    for path in ["approvals", job.as_str()] {
        let shown = site.send(Method::GET, path, &approver, &Value::Null).await.body(200).to_string();
        assert!(shown.contains("pin4711"), "who decides on it sees it: {shown}");
    }
    // Who may not list approvals is not told that there is this one.
    let stranger = site.token(&json!([{"with": "w", "can": "crud"}]));
    let (id, unknown) = (items["items"][0]["id"].as_str().unwrap(), "0".repeat(32));
    for body in [json!({"approve": {}}), json!({"reject": {}}), json!({"answers": {"a": 1}})] {
        let post =
            async |id: &str, token: &str| site.send(Method::POST, &format!("approvals/{id}"), token, &body).await;
        let [answer, other] =
            [post(id, &stranger).await, post(&unknown, &stranger).await].map(|answer| answer.body(404));
        assert_eq!(answer.to_string().replace(id, &unknown), other.to_string(), "{body}");
        post(id, &reader).await.is_problem(403, "job/approve");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_filtered_by_what_its_reader_may_read() {
    every_way_in(Site::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_filtered_by_what_its_reader_may_read_on_redis() {
    let Some(site) = Site::redis().await else { return };
    every_way_in(site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_forks_and_copies_are_filtered_as_their_source() {
    what_is_summed_up_and_copied(Site::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_filters_summaries_forks_and_copies_as_their_source() {
    let Some(site) = Site::redis().await else { return };
    what_is_summed_up_and_copied(site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_to_a_person_are_seen_by_who_may_answer() {
    what_is_asked(Site::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_seen_by_who_may_answer_on_redis() {
    let Some(site) = Site::redis().await else { return };
    what_is_asked(site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_goes_to_its_submitters_own_inbox() {
    let site = Site::embedded().await;
    site.venue.agent("clerk", json!({})).await;
    let owner = site.token(&Value::Null);
    let operator = token(&site.issuer, "acme/root", &json!({}));
    let body = |subject: &str| json!({"input": "x", "replyTo": subject});
    for subject in ["_INBOX.words.1", "trellis.reply.acme.bob.1", "trellis.in.acme.bob.a.task"] {
        let refused = site.send(Method::POST, "agents/clerk/tasks", &owner, &body(subject)).await;
        refused.is_problem(400, "expected `trellis.reply.acme.ann.>`");
    }
    site.send(Method::POST, "agents/clerk/tasks", &owner, &body("trellis.reply.acme.ann.1")).await.body(202);
    site.send(Method::POST, "agents/clerk/tasks", &operator, &body("_INBOX.ops.1")).await.body(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_a_job_needs_a_right_to_that_job_by_every_way() {
    let site = Site::embedded().await;
    site.venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let job = site.venue.submit("idle", "t1", json!("x")).await.job.unwrap();
    let to_agent = json!({"with": "g/idle", "can": "agent/message"});
    let to_job = json!({"with": format!("j/{job}"), "can": "job/message"});
    let message = json!({"input": "pay twice", "job": job});
    let narrow = site.token(&json!([to_agent]));
    site.send(Method::POST, "agents/idle/messages", &narrow, &message).await.is_problem(403, "job/message");
    site.send(Method::POST, &format!("jobs/{job}"), &narrow, &json!({"message": "x"}))
        .await
        .is_problem(403, "job/message");
    site.send(Method::POST, "agents/idle/messages", &narrow, &json!({"input": "hello"})).await.body(202);
    let wider = site.token(&json!([to_agent, to_job]));
    site.send(Method::POST, "agents/idle/messages", &wider, &message).await.body(202);
}
