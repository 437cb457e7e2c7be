//! Who reads jobs: who asked for one, all of it; others what they could have read, with what is left out marked.

use super::{issuer, token};
use crate::support::both_stores::{On, on_both};
use crate::support::http::{Answer, Server};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::process::clock::Clock;
use trellis::venue::auth::signing::SigningKey;

const RULES: &str = r#"
[[rule]]
when = { agent = "spy", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "{{input}}" } }] }

[[rule]]
when = { agent = "spy" }
then = { text = "seen" }

[[rule]]
then = { text = "paid pin4711 for {{input}}" }
"#;

const MARK: &str = "[not shown: it ran under authority that you do not hold]";

struct Site {
    venue: TestVenue,
    server: Server,
    issuer: SigningKey,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn open(on: On) -> Option<Self> {
        let (mut venue, dir) = on.venue(RULES, Clock::system()).await?;
        let (issuer, auth) = issuer(dir.path());
        venue.owner = "acme/ann".parse().unwrap();
        venue.worker();
        venue.agent("clerk", json!({})).await;
        let server = Server::with(Arc::clone(&venue.venue), auth).await;
        Some(Self { venue, server, issuer, _dir: dir })
    }

    /// A token of the owner's with these rights, each time another one.
    fn may(&self, att: &[(&str, &str)]) -> String {
        let att: Vec<_> = att.iter().map(|(with, can)| json!({"with": with, "can": can})).collect();
        token(&self.issuer, "acme/ann", &json!({"att": att, "jti": uuid::Uuid::new_v4().to_string()}))
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Authorization", bearer.as_str()), ("X-Trellis-Owner", "acme/ann")];
        self.server.send(method, &format!("/api/v1/{path}"), &headers, body).await
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, token, &Value::Null).await
    }

    async fn run(&self, operation: &str, input: Value, token: &str) -> Answer {
        self.send(Method::POST, "run", token, &json!({"operation": operation, "input": input})).await
    }
}

const ASKS: (&str, &str) = ("g/clerk", "agent/request");
const READS: (&str, &str) = ("j", "crud/read");

async fn who_asked_for_a_job_reads_it(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let asks = site.may(&[ASKS]);
    let job = site.send(Method::POST, "agents/clerk/tasks", &asks, &json!({"input": "the secret"})).await.body(202);
    let id = job["job"].as_str().unwrap().to_owned();
    let path = format!("jobs/{id}");
    for token in [asks, site.may(&[ASKS])] {
        let done = site.get(&format!("{path}?wait=true"), &token).await.body(200);
        assert_eq!((&done["input"], &done["output"]), (&json!("the secret"), &json!("paid pin4711 for the secret")));
        assert_eq!(site.get("jobs", &token).await.body(200)["items"], json!([id]));
        let listed = site.get("jobs?details=true&limit=5", &token).await.body(200);
        assert_eq!((&listed["items"], &listed["total"], &listed["next"]), (&json!([done]), &json!(1), &Value::Null));
        assert_eq!(site.get("jobs?q=pin4711", &token).await.body(200)["items"], json!([id]));
        assert!(site.get(&format!("{path}/sse"), &token).await.body.to_string().contains("pin4711"));
        let result = site.run("v/ops/job/result", json!({"id": id}), &token).await.body(200);
        assert_eq!(result["output"], done["output"]);
        let order = json!({"operation": "v/ops/job/result", "input": {"id": id}, "wait": true});
        let result = site.send(Method::POST, "invoke", &token, &order).await.body(200);
        assert_eq!(result["output"]["output"], done["output"]);
        site.send(Method::PUT, &format!("{path}/delete"), &token, &Value::Null).await.is_problem(403, "job/delete");
        // What it has just asked for is its own as well.
        let own = format!("jobs/{}", result["id"].as_str().unwrap());
        assert_eq!(site.get(&own, &token).await.body(200), result);
        site.send(Method::PUT, &format!("{own}/delete"), &site.may(&[("j", "job/delete")]), &Value::Null)
            .await
            .body(200);
    }
}

async fn others_see_what_they_could_have_read(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let asks = site.may(&[ASKS]);
    let job = site.send(Method::POST, "agents/clerk/tasks", &asks, &json!({"input": "the secret"})).await.body(202);
    let id = job["job"].as_str().unwrap().to_owned();
    let path = format!("jobs/{id}");
    site.get(&format!("{path}?wait=true"), &asks).await.body(200);
    // Who may read no jobs isn't told whether there is one.
    let (stranger, unknown) = (site.may(&[ASKS, ("w/x", "crud")]), "0f".repeat(16));
    for (id, token) in [(&id, &stranger), (&unknown, &stranger), (&unknown, &asks)] {
        for path in [format!("jobs/{id}"), format!("jobs/{id}?wait=true"), format!("jobs/{id}/sse")] {
            let refused = site.get(&path, token).await;
            refused.is_problem(403, &format!("requires crud/read on j/{id}"));
        }
        site.run("v/ops/job/result", json!({"id": id}), token).await.is_problem(403, "requires crud/read");
    }
    let none = site.get("jobs?details=true", &stranger).await.body(200);
    assert_eq!((&none["items"], &none["total"]), (&json!([]), &json!(0)));
    assert_eq!(site.get("jobs?q=secret", &stranger).await.body(200)["items"], json!([]));
    // Who may read jobs sees how it stands.
    let reader = site.may(&[READS]);
    for (way, path) in [
        ("the record", path.clone()),
        ("the record", format!("{path}?wait=true")),
        ("the list", "jobs?details=true".into()),
        ("the filtered list", "jobs?details=true&status=COMPLETE".into()),
        ("the stream", format!("{path}/sse")),
        ("the tree", format!("values/read?path=j/{id}")),
        ("the tree", format!("values/read?path=j/{id}/output")),
        ("the tree", format!("values/inspect?path=j/{id}&budget=9000")),
    ] {
        let seen = site.get(&path, &reader).await.body(200).to_string();
        assert!(!seen.contains("secret") && !seen.contains("pin4711"), "{way}: {seen}");
        assert!(seen.contains(MARK), "{way}: {seen}");
    }
    let seen = site.run("v/ops/job/result", json!({"id": id}), &reader).await.body(200);
    assert_eq!((&seen["status"], &seen["hidden"], seen.get("output")), (&json!("COMPLETE"), &json!(MARK), None));
    for asked in ["secret", "pin4711"] {
        let found = site.get(&format!("jobs?q={asked}"), &reader).await.body(200);
        assert_eq!(found["items"], json!([]), "a list tells nothing of what is hidden");
    }
    assert_eq!(site.get("jobs", &reader).await.body(200)["items"], json!([id]));
    // Who could have read all that it might reach sees all of it.
    let wide = site.may(&[READS, ("g", "crud/read")]);
    let owner = token(&site.issuer, "acme/ann", &json!({}));
    let operator = token(&site.issuer, "acme/root", &json!({}));
    for token in [&wide, &owner, &operator] {
        let seen = site.get(&path, token).await.body(200);
        assert_eq!((&seen["output"], seen.get("hidden")), (&json!("paid pin4711 for the secret"), None));
        assert_eq!(site.get("jobs?q=pin4711", token).await.body(200)["items"], json!([id]));
    }
}

async fn agents_and_operations_see_only_readable_jobs(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let writer = site.may(&[("w/pay", "crud")]);
    let order =
        json!({"operation": "lattice/append", "input": {"path": "w/pay/log", "value": "pin4711"}, "wait": true});
    let job = site.send(Method::POST, "invoke", &writer, &order).await.body(200);
    let id = job["id"].as_str().unwrap().to_owned();
    assert_eq!(site.get(&format!("jobs/{id}"), &writer).await.body(200), job);
    assert_eq!(site.get("jobs", &writer).await.body(200)["items"], json!([id]));
    site.get(&format!("jobs/{id}"), &site.may(&[("w", "crud")])).await.is_problem(403, "requires crud/read");
    let narrow = site.get(&format!("jobs/{id}"), &site.may(&[READS])).await.body(200);
    assert!(narrow["hidden"] == MARK && !narrow.to_string().contains("pin4711"), "{narrow}");
    let wide = site.get(&format!("jobs/{id}"), &site.may(&[READS, ("w", "crud/read")])).await.body(200);
    assert_eq!(wide["input"]["value"], "pin4711");
    // An agent reads as its turn may.
    for (agent, caps, sees) in [
        ("spy", json!([{"with": "j", "can": "crud/read"}]), false),
        ("auditor", json!([{"with": "j", "can": "crud/read"}, {"with": "w", "can": "crud/read"}]), true),
    ] {
        let rule = RULES.replace("\"spy\"", &format!("\"{agent}\""));
        std::fs::write(site.venue.dir.join("rules.toml"), rule).unwrap();
        site.venue.agent(agent, json!({"caps": caps})).await;
        site.venue.run(agent, agent, json!(format!("j/{id}"))).await;
        let session = site.venue.venue.store.sessions(&site.venue.owner, Some(&agent.parse().unwrap()), None, 1).await;
        let session = session.unwrap()[0].key.session.to_string();
        let turns = json!(site.venue.turns(agent, &session).await).to_string();
        assert_eq!((turns.contains("pin4711"), turns.contains("[not shown")), (sees, !sees), "{agent}: {turns}");
    }
}

on_both! {
    who_asked_for_a_job_reads_it
    others_see_what_they_could_have_read
    agents_and_operations_see_only_readable_jobs
}
