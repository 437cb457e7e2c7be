//! Answers that name a secret: it must have been set, by whatever way the answer comes.

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::job::JobStatus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::secret::KeyRing;
use trellis::process::clock::Clock;
use trellis::venue::secrets::Vault;

const RULES: &str = r#"
[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The shop", asks = [
    { id = "key", type = "token", prompt = "Which secret?" },
    { id = "other", type = "token", prompt = "Another?", required = false },
] } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

/// What an answer is told that names a secret which isn't there.
const MISSING: &str = "no secret `SHOP`: set it first (`trellis secret set SHOP`)";

on_both! {
    an_answer_names_a_secret_that_was_set
}

async fn asked(api: &Server) -> Value {
    for _ in 0..3000 {
        let found = api.get("/api/v1/approvals").await.body(200)["items"][0].clone();
        if found.is_object() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing is asked");
}

/// Publishes an answer, as any client may.
async fn answer_in_queue(venue: &TestVenue, approval: &Value, id: &str, answers: Value) {
    let to =
        MessageAddress::In { owner: venue.owner.clone(), agent: "asker".parse().unwrap(), kind: InboundKind::Decide };
    let body = json!({"approval": approval, "answer": {"answers": answers}});
    venue.venue.bus.publish(&BusMessage { to, id: Some(id.into()), body, trace: None }).await.unwrap();
}

async fn an_answer_names_a_secret_that_was_set(on: On) {
    let Some((mut venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.sweep = Duration::from_millis(100);
    Arc::get_mut(&mut venue.venue).unwrap().secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
    venue.worker();
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    let job = venue.submit("asker", "t1", json!("go")).await.job.unwrap();
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let id = asked(&api).await["id"].clone();
    let place = format!("/api/v1/approvals/{}", id.as_str().unwrap());
    api.put("/api/v1/secrets/OTHER", json!({"value": "hunter2hunter2"})).await.body(200);
    for answers in [json!({"key": "s/SHOP"}), json!({"key": "s/OTHER", "other": "s/SHOP"})] {
        api.post(&place, json!({"answers": answers})).await.is_problem(400, MISSING);
        for (operation, more) in [("approval/answer", json!({})), ("hitl/respond", json!({"outcome": "answer"}))] {
            let mut input = json!({"id": id, "answers": answers});
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let body = json!({"operation": format!("v/ops/{operation}"), "input": input});
            api.post("/api/v1/run", body).await.is_problem(400, MISSING);
        }
    }
    answer_in_queue(&venue, &id, "a1", json!({"key": "s/NONE"})).await;
    assert!(asked(&api).await["answer"].is_null(), "it still waits");
    api.put("/api/v1/secrets/SHOP", json!({"value": "hunter2hunter2"})).await.body(200);
    answer_in_queue(&venue, &id, "a2", json!({"key": "s/SHOP"})).await;
    let done = venue.ended(&job).await;
    assert_eq!(done.status, JobStatus::Complete);
    let told = json!(done.result.unwrap().output).to_string();
    assert!(told.contains("s/SHOP") && !told.contains("s/NONE"), "{told}");
    api.send(reqwest::Method::DELETE, "/api/v1/secrets/SHOP", &[], "").await.body(200);
    // An answer that counted is the same whatever became of its secret.
    api.post(&place, json!({"answers": {"key": "s/SHOP"}})).await.body(200);
}
