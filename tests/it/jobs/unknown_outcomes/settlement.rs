//! Unknown outcomes of turns and of invoked operations: recorded, told, listed, counted and settled.

use super::{Site, venue};
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, SessionKey, VenueIdSubject, sha256_hex};
use trellis::domain::retention::RetentionRules;
use trellis::venue::operation::Caller;
use trellis::venue::upkeep::retention::Janitor;

fn rules(site: &Site) -> String {
    let call = |path: &str| {
        format!(
            "{{ tool = \"http_post\", arguments = {{ url = \"{}\", body = \"10 EUR\", timeout = 20000 }} }}",
            site.url(path)
        )
    };
    format!(
        "[[rule]]\nwhen = {{ agent = \"payer\", text = \"whose outcome was unknown\" }}\nthen = {{ text = \"noted\" }}\n\n\
         [[rule]]\nwhen = {{ agent = \"payer\", turn = 1 }}\nthen = {{ calls = [{}, {}] }}\n\n\
         [[rule]]\nwhen = {{ agent = \"payer\", turn = 2 }}\nthen = {{ text = \"I look before I pay again\" }}\n\n\
         [[rule]]\nthen = {{ text = \"heard\" }}\n",
        call("/half-body"),
        call("/ok")
    )
}

/// A venue with a worker whose agent has paid twice: one payment's answer broke off.
async fn paid(on: On) -> Option<(Site, TestVenue, TempDir, String)> {
    let site = Site::start().await;
    let (venue, dir) = venue(on, &site, &rules(&site)).await?;
    venue.worker();
    venue.agent("payer", json!({"tools": ["v/ops/http/post"]})).await;
    let job = venue.run("payer", "t1", json!("pay")).await;
    assert_eq!(job.result.unwrap().output, Some(json!("I look before I pay again")));
    let session = job.head.session.as_str().to_owned();
    Some((site, venue, dir, session))
}

/// Somebody with these capabilities, as `ability path`.
fn limited(venue: &TestVenue, held: &[(&str, &str)]) -> Caller {
    let capability = |(can, with): &(&str, &str)| Capability { with: (*with).to_owned(), can: (*can).to_owned() };
    let authority = Authority::new(Some(held.iter().map(capability).collect()));
    Caller::new(venue.owner.clone(), "local/other".to_owned(), authority)
}

async fn listed(venue: &TestVenue, all: bool) -> Value {
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/outcomes", json!({"all": all})).await.unwrap()
}

async fn a_call_with_a_broken_answer_is_unknown_and_not_repeated(on: On) {
    let Some((site, venue, _dir, session)) = paid(on).await else { return };
    assert_eq!(site.posts(), 2, "each is sent once");
    let turns = venue.turns("payer", &session).await;
    assert_eq!(turns[0].calls.iter().map(|call| call.outcome.as_str()).collect::<Vec<_>>(), ["outcome unknown", "ok"]);
    let said = json!(turns[0].said).to_string();
    assert!(
        said.contains("the answer broke off after 5 bytes") && said.contains("check before doing it again"),
        "{said}"
    );
    let page = listed(&venue, false).await;
    let item = &page["items"][0];
    assert_eq!((&page["total"], &item["operation"]), (&json!(1), &json!("v/ops/http/post")), "{page}");
    let call = json!({"agent": "payer", "session": session, "turn": 1, "index": 0, "tool": "http_post"});
    assert_eq!((&item["call"], &item["job"]), (&call, &json!(turns[0].job)), "{page}");
    assert!(!page.to_string().contains("10 EUR"), "no argument is in it: {page}");
    let metrics = venue.venue.metrics.encode();
    assert!(metrics.contains("trellis_outcomes_unknown_total{of=\"call\"} 1"), "{metrics}");
    // The key is a function of the call's place and of when the task came in, and each call has its own.
    let job = turns[0].job.as_ref().unwrap();
    let received = trellis::venue::jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap().head.created;
    let key = SessionKey { agent: "payer".parse().unwrap(), session: session.parse().unwrap() };
    for index in 0..2 {
        let (owner, start) = (&venue.owner, Some(received));
        let place = VenueIdSubject::Call { owner, session: &key, turn: 1, call: index, instance: None, start };
        let id = EventId::of_venue(&venue.venue.key, place);
        let expected =
            format!("idempotency-key: {}\r\n", &sha256_hex(format!("idempotency-key {id}").as_bytes())[..32]);
        let sent = site.requests().iter().filter(|request| request.contains(&expected)).count();
        assert_eq!(sent, 1, "{index}: {expected} {:?}", site.requests());
    }
}

async fn an_outcome_is_settled_once_by_who_may_and_the_agent_is_told(on: On) {
    let Some((site, venue, _dir, session)) = paid(on).await else { return };
    let id = listed(&venue, false).await["items"][0]["id"].clone();
    let done = json!({"id": id, "done": true, "result": {"refund": "re_1"}, "note": "seen in the bank"});
    let settle = async |caller: &Caller, input: &Value| {
        let settled = operate(&venue.venue, caller, "v/ops/job/settle", input.clone()).await;
        settled.map_err(|error| error.to_string())
    };
    for (caller, part) in [
        (limited(&venue, &[("crud/read", "j/")]), "job/settle"),
        // Who may not list outcomes is not told that there is this one.
        (limited(&venue, &[("job/settle", "g/payer")]), "no unknown outcome"),
        (limited(&venue, &[("job/cancel", "j/")]), "no unknown outcome"),
        (Caller { name: "agent:payer".into(), ..boss(&venue.owner) }, "no agent may call it"),
    ] {
        let refused = settle(&caller, &done).await.unwrap_err();
        assert!(refused.contains(part), "expected `{part}` in {refused}");
    }
    for (input, part) in [
        (json!({"id": id, "done": false, "result": 1}), "what was not done has no result"),
        (json!({"id": id, "done": true, "note": "x".repeat(2_001)}), "more than 2000 characters"),
        (json!({"id": "0f".repeat(16), "done": true}), "no unknown outcome"),
    ] {
        let refused = settle(&boss(&venue.owner), &input).await.unwrap_err();
        assert!(refused.contains(part), "expected `{part}` in {refused}");
    }
    let clerk = limited(&venue, &[("job/settle", "j/")]);
    let settled = settle(&clerk, &done).await.unwrap();
    assert_eq!((&settled["settled"]["by"], &settled["settled"]["done"]), (&json!("local/other"), &json!(true)));
    assert_eq!(settle(&boss(&venue.owner), &done).await.unwrap(), settled, "the same again changes nothing");
    let other = settle(&boss(&venue.owner), &json!({"id": id, "done": false})).await.unwrap_err();
    assert!(other.contains("was settled as done by `local/other`"), "{other}");
    assert_eq!(listed(&venue, false).await["total"], 0);
    assert_eq!(listed(&venue, true).await["items"], json!([settled]));
    // The agent hears of it when somebody says so, once.
    let told = json!({"id": id, "done": true, "result": {"refund": "re_1"}, "note": "seen in the bank", "tell": true});
    let refused = settle(&clerk, &told).await.unwrap_err();
    assert!(refused.contains("agent/message"), "{refused}");
    for _ in 0..2 {
        settle(&boss(&venue.owner), &told).await.unwrap();
    }
    let heard = loop {
        let turns = venue.turns("payer", &session).await;
        if let Some(turn) = turns.get(2) {
            break json!(turn.heard).to_string();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(heard.contains("re_1") && heard.contains("of turn 1, whose outcome was unknown"), "{heard}");
    assert_eq!(site.posts(), 2);
}

async fn an_operation_of_unknown_outcome_can_be_settled_over_http(on: On) {
    let site = Site::start().await;
    let Some((venue, _dir)) = venue(on, &site, &rules(&site)).await else { return };
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let input = json!({"url": site.url("/reset"), "body": "10 EUR", "timeout": 500});
    let order = json!({"operation": "v/ops/http/post", "input": input});
    let job = server.post_once("order-7", "/api/v1/invoke?wait=true", order.clone()).await.body(200);
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("OUTCOME_UNKNOWN")), "{job}");
    assert_eq!(server.post_once("order-7", "/api/v1/invoke?wait=true", order).await.body(200)["id"], job["id"]);
    assert_eq!(site.posts(), 1, "the same request again is the same job");
    // Who held the request is told so, and not to try again.
    server
        .post("/api/v1/run", json!({"operation": "v/ops/http/post", "input": input}))
        .await
        .is_problem(500, "outcome unknown");
    let page = server.get("/api/v1/outcomes").await.body(200);
    assert_eq!((&page["total"], &page["items"][1]["id"]), (&json!(2), &job["id"]), "the newest first: {page}");
    let of_run = page["items"][0]["id"].as_str().unwrap();
    server.put(&format!("/api/v1/outcomes/{of_run}"), json!({"done": false})).await.body(200);
    let (path, record) =
        (format!("/api/v1/outcomes/{}", job["id"].as_str().unwrap()), json!({"done": false, "note": "n"}));
    let settled = server.put(&path, record.clone()).await.body(200);
    assert_eq!(settled["settled"]["done"], false, "{settled}");
    server.put(&path, record).await.body(200);
    server.put(&path, json!({"done": true})).await.is_problem(409, "was settled as not done");
    server.put(&path, json!({})).await.is_problem(400, "done");
    let after = server.get(&format!("/api/v1/jobs/{}", job["id"].as_str().unwrap())).await.body(200);
    assert_eq!((&after["status"], &after["settled"]), (&json!("FAILED"), &settled["settled"]), "{after}");
    assert_eq!(server.get("/api/v1/outcomes").await.body(200)["total"], 0);
    let metrics = venue.venue.metrics.encode();
    assert!(metrics.contains("trellis_outcomes_unknown_total{of=\"operation\"} 2"), "{metrics}");
}

async fn an_operation_cancelled_after_sending_is_listed(on: On) {
    let site = Site::start().await;
    let Some((venue, _dir)) = venue(on, &site, &rules(&site)).await else { return };
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let order = json!({"operation": "v/ops/http/post", "input": {"url": site.url("/hang")}, "wait": 0});
    let job = server.post("/api/v1/invoke", order).await.body(201);
    while site.posts() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(server.put(&format!("{path}/cancel"), Value::Null).await.body(200)["status"], "CANCELLED");
    let item = loop {
        let page = server.get("/api/v1/outcomes").await.body(200);
        if page["total"] == 1 {
            break page["items"][0].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(item["id"], job["id"], "{item}");
    assert_eq!(site.posts(), 1);
}

async fn a_session_that_begins_anew_has_entries_of_its_own(on: On) {
    let site = Site::start().await;
    let Some((venue, _dir)) = venue(on, &site, &rules(&site)).await else { return };
    venue.worker();
    let boss = boss(&venue.owner);
    for count in [1, 2] {
        venue.agent("payer", json!({"tools": ["v/ops/http/post"]})).await;
        let session_id = Some("s1".parse().unwrap());
        let submission = Submission { input: json!("pay"), session_id, ..Submission::default() };
        let job = venue.arrive("payer", &format!("t{count}"), true, submission).await.job.unwrap();
        venue.ended(&job).await;
        let page = listed(&venue, false).await;
        assert_eq!((&page["total"], &page["items"][0]["job"]), (&json!(count), &json!(job)), "{page}");
        let remove = json!({"agentId": "payer", "remove": true});
        operate(&venue.venue, &boss, "v/ops/agent/delete", remove).await.unwrap();
    }
}

async fn listed_outcomes_expire_with_their_jobs(on: On) {
    let Some((_site, venue, _dir, _session)) = paid(on).await else { return };
    let step = async |keep: Duration| {
        let rules = RetentionRules { jobs: Some(keep), ..RetentionRules::NEVER };
        Janitor::new(rules).tidy_step(&venue.venue, &venue.owner).await.unwrap().outcomes
    };
    assert_eq!(step(Duration::from_hours(1)).await, 0);
    assert_eq!(listed(&venue, true).await["total"], 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(step(Duration::from_millis(1)).await, 1);
    assert_eq!(listed(&venue, true).await["total"], 0);
}

on_both! {
    a_call_with_a_broken_answer_is_unknown_and_not_repeated
    an_outcome_is_settled_once_by_who_may_and_the_agent_is_told
    an_operation_of_unknown_outcome_can_be_settled_over_http
    an_operation_cancelled_after_sending_is_listed
    a_session_that_begins_anew_has_entries_of_its_own
    listed_outcomes_expire_with_their_jobs
}
