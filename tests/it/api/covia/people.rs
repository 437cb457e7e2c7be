//! Questions to people in Covia's words, on both stores.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::operate;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::secret::KeyRing;
use trellis::process::clock::Clock;
use trellis::venue::operation::Caller;
use trellis::venue::secrets::Vault;

on_both! { a_person_answers_with_boxes_and_the_name_of_a_secret a_question_to_somebody_else_is_refused }

const RULES: &str = r#"
[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "hitl_request", arguments = { title = "The order", description = "of today", timeout = 3600, asks = [
    { id = "extras", type = "checkboxes", prompt = "Which?", choices = ["lid", "bag"] },
    { id = "key", type = "token", prompt = "With which key?", required = true },
    { id = "note", type = "text", prompt = "Anything?", required = false },
] } }] }

[[rule]]
when = { agent = "other", turn = 1 }
then = { calls = [{ tool = "hitl_request", arguments = { title = "T", user = "acme/boss", asks = [{ id = "a", type = "text", prompt = "?" }] } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

async fn a_person_answers_with_boxes_and_the_name_of_a_secret(on: On) {
    let Some((mut venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.sweep = Duration::from_millis(100);
    std::sync::Arc::get_mut(&mut venue.venue).unwrap().secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
    venue.worker();
    venue.agent("asker", json!({"tools": ["v/ops/hitl/request"], "defaultTools": false})).await;
    let submitted = venue.submit("asker", "t1", json!("go")).await;
    let person = Caller::new(venue.owner.clone(), "a person".into(), Authority::without_limits());
    let run = async |operation: &str, input: Value| operate(&venue.venue, &person, operation, input).await;
    run("v/ops/secret/set", json!({"name": "SHOP", "value": "tok-98765"})).await.unwrap();
    let mut asked = json!([]);
    for _ in 0..3000 {
        asked = run("v/ops/hitl/list", json!({})).await.unwrap()["items"].clone();
        if asked != json!([]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(asked[0]["questions"]["title"], "The order: of today", "{asked}");
    assert_eq!(asked[0]["questions"]["asks"][0]["choices"], json!(["lid", "bag"]));
    let id = asked[0]["id"].clone();
    let respond = |more: Value| {
        let mut input = json!({"id": id, "outcome": "answer"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    for (more, part) in [
        (json!({}), "`answers`: missing; a call is approved by"),
        (json!({"answers": {"extras": ["lid"], "key": "tok-12345"}}), "question `key`: expected `s/NAME`"),
        (
            json!({"answers": {"extras": ["cup"], "key": "s/SHOP"}}),
            "question `extras`: expected a list of any of lid, bag",
        ),
        (json!({"answers": {"extras": [], "key": "s/SHOP"}, "comment": "c"}), "`comment`: an answer has none"),
        (json!({"outcome": "reject", "answers": {}}), "`answers`: a rejection has none"),
    ] {
        let error = run("v/ops/hitl/respond", respond(more.clone())).await.unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("tok-12345"), "{more}: {error}");
    }
    let answers = json!({"extras": ["lid", "bag"], "key": "s/SHOP"});
    run("v/ops/hitl/respond", respond(json!({"answers": answers}))).await.unwrap();
    let job = venue.ended(&submitted.job.unwrap()).await;
    let output = job.result.unwrap().output.unwrap().to_string();
    assert!(output.contains("s/SHOP") && output.contains("bag"), "{output}");
}

async fn a_question_to_somebody_else_is_refused(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.worker();
    venue.agent("other", json!({"tools": ["v/ops/hitl/request"], "defaultTools": false})).await;
    let job = venue.run("other", "t1", json!("go")).await;
    let output = job.result.unwrap().output.unwrap().to_string();
    assert!(output.contains("answer, and no one else; leave it out"), "{output}");
}
