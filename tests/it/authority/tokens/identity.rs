//! Who somebody is, is said by the token alone; which entities a request is about, by the request.

use super::{issuer, token};
use crate::support::http::{Answer, Server};
use crate::support::nats;
use crate::support::venue::{TestVenue, job_record};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::domain::ids::JobId;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::auth::signing::SigningKey;

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "save", arguments = {} }] }

[[rule]]
when = { agent = "shop", turn = 1 }
then = { calls = [{ tool = "one", arguments = { path = "w/one", value = 1 } }, { tool = "two", arguments = { path = "w/two", value = 2 } }] }

[[rule]]
then = { text = "done {{tool_result}}" }
"#;

struct Site {
    server: Server,
    venue: TestVenue,
    issuer: SigningKey,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let (mut venue, dir) = TestVenue::embedded(RULES).await;
        let (issuer, auth) = issuer(dir.path());
        (venue.owner, venue.auth) = ("acme/ann".parse().unwrap(), Arc::clone(&auth));
        venue.worker();
        let server = Server::with(Arc::clone(&venue.venue), auth).await;
        Self { server, venue, issuer, _dir: dir }
    }

    async fn post(&self, path: &str, claims: &Value, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", token(&self.issuer, "acme/ann", claims));
        let headers = [("Authorization", bearer.as_str())];
        self.server.send(Method::POST, &format!("/api/v1/{path}"), &headers, body.to_string()).await
    }

    async fn run(&self, operation: &str, claims: &Value, input: Value) -> Answer {
        self.post("run", claims, &json!({"operation": operation, "input": input})).await
    }
}

fn eve() -> Value {
    json!({
        "user_email": "eve@x", "user": {"name": "Eve", "nick": "e", "id": "eve", "user_id": "eve", "Email": "eve@x"},
        "user_id": "eve", "note": 1, "userId": "eve", "uid": "eve", "user.id": "eve", "USER-NAME": "Eve",
    })
}

/// What of it is its sender's identity, in the order of the text.
const IGNORED: [&str; 10] = [
    "user_email",
    "user.name",
    "user.id",
    "user.user_id",
    "user.Email",
    "user_id",
    "userId",
    "uid",
    "user.id",
    "USER-NAME",
];

#[tokio::test(flavor = "multi_thread")]
async fn sender_claims_in_a_request_are_removed_and_reported() {
    let site = Site::new().await;
    let ada = json!({"name": "Ada", "email": "ada@x"});
    for (key, claims, expected) in [
        ("user_email", ada.clone(), Some(json!("ada@x"))),
        ("user_name", ada.clone(), Some(json!("Ada"))),
        ("user.name", ada.clone(), Some(json!("Ada"))),
        ("user_id", ada.clone(), Some(json!("ann"))),
        ("user_id", json!({}), Some(json!("ann"))),
        ("user.id", json!({}), Some(json!("ann"))),
        ("session.user.id", json!({}), Some(json!("ann"))),
        ("userId", json!({}), None),
        ("uid", json!({}), None),
        ("user.Email", json!({}), None),
        ("user.user_id", json!({}), Some(json!("ann"))),
        ("USER-NAME", json!({}), None),
        ("note", json!({}), Some(json!(1))),
        ("session.user.nick", json!({}), Some(json!("e"))),
        // The token has no such claim: nobody says it.
        ("user_email", json!({}), None),
        ("user.name", json!({}), None),
        ("user_name", json!({}), None),
    ] {
        let bound = json!({"save": {"path": "CONSTANT:w/seen", "value": key}});
        let tools = json!([{"operation": "v/ops/lattice/write", "name": "save"}]);
        site.venue.agent("clerk", json!({"tools": tools, "toolArgInjection": bound})).await;
        site.venue.write("w/seen", Value::Null).await;
        let body = json!({"input": "go", "sessionContext": eve()});
        let receipt = site.post("agents/clerk/tasks", &claims, &body).await.body(202);
        let ignored = json!({"sessionContext": IGNORED});
        assert_eq!(receipt["ignored"], ignored, "{receipt}");
        let job = JobId::new(receipt["job"].as_str().unwrap()).unwrap();
        let job = site.venue.ended(&job).await;
        assert_eq!(job_record(&job)["ignored"], ignored);
        assert_eq!(site.venue.read("w/seen").await, Some(expected.clone().unwrap_or(Value::Null)), "{key} {claims}");
        if expected.is_none() {
            let record = job_record(&job);
            assert!(record.to_string().contains("INJECT_UNRESOLVED"), "{record}");
        }
    }
    // By operations, too.
    let input = json!({"agentId": "clerk", "input": "go", "sessionContext": eve()});
    let answer = site.run("agent/request", &json!({}), input).await.body(200);
    assert!(answer["ignored"].is_object(), "{answer}");
    for operation in ["agent/message", "agent/chat"] {
        let input = json!({"agentId": "clerk", "message": "go", "sessionContext": eve()});
        let answer = site.run(operation, &json!({}), input).await.body(200);
        assert_eq!(answer["ignored"]["sessionContext"], json!(IGNORED), "{answer}");
    }
    // Whose tenant it is can't be asked for, and is no mistake to make in passing.
    let input = json!({"agentId": "clerk", "input": "go", "sessionContext": {"tenant_id": "other"}});
    site.run("agent/request", &ada, input).await.is_problem(400, "CONTEXT_OVERRIDE_DENIED");
    // Who may override says what he likes.
    let may = json!({"att": [{"with": "", "can": "*"}, {"with": "", "can": "context/override"}]});
    let body = json!({"input": "go", "sessionContext": eve()});
    let receipt = site.post("agents/clerk/tasks", &may, &body).await.body(202);
    assert!(receipt["ignored"].is_null(), "{receipt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_are_required_by_messages_and_pick_their_tools() {
    let site = Site::new().await;
    let tool =
        |name: &str| json!({"operation": "v/ops/lattice/write", "name": name, "entities": [format!("e-{name}")]});
    let config = json!({"entityIdsRequired": true, "tools": [tool("one"), tool("two")], "defaultTools": false});
    site.venue.agent("shop", config).await;
    let none = json!({});
    for context in [json!(null), json!({}), json!({"entity_ids": []}), json!({"entity_ids": "e-one"})] {
        let body = json!({"input": "hi", "sessionContext": context});
        site.post("agents/shop/messages", &none, &body).await.is_problem(400, "ENTITY_IDS_REQUIRED");
        for operation in ["agent/message", "agent/chat"] {
            let mut input = json!({"agentId": "shop", "message": "hi"});
            if context.is_object() {
                input["sessionContext"] = context.clone();
            }
            site.run(operation, &none, input).await.is_problem(400, "ENTITY_IDS_REQUIRED");
        }
    }
    let venue = &site.venue.venue;
    assert!(venue.store.sessions(&site.venue.owner, None, None, 10).await.unwrap().is_empty(), "nothing was written");
    let about = json!({"entity_ids": ["e-two", "e-three"]});
    let input = json!({"agentId": "shop", "message": "hi", "sessionContext": about});
    let answer = site.run("agent/chat", &none, input).await.body(200);
    assert!(answer["response"].as_str().is_some_and(|text| text.starts_with("done")), "{answer}");
    assert_eq!((site.venue.read("w/one").await, site.venue.read("w/two").await), (None, Some(json!(2))));
    let first = &site.venue.turns("shop", answer["sessionId"].as_str().unwrap()).await[0];
    assert!(json!(first.said).to_string().contains("unknown tool `one`"), "{:?}", first.said);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_the_queue_need_entities_too() {
    let Some(url) = nats::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = NatsBus::open(&nats::options(&url)).await.unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await;
    venue.worker();
    venue.agent("asks", json!({"entityIdsRequired": true})).await;
    let send = async |id: &str, context: Value| {
        let to = MessageAddress::In {
            owner: venue.owner.clone(),
            agent: "asks".parse().unwrap(),
            kind: InboundKind::Message,
        };
        let body = json!({"input": id, "sessionId": "s", "sessionContext": context});
        venue.venue.bus.publish(&BusMessage { to, id: Some(id.into()), body, trace: None }).await.unwrap();
    };
    send("m1", json!({"other": 1})).await;
    send("m2", json!({"entity_ids": ["e"]})).await;
    let mut turns = Vec::new();
    for _ in 0..1_000 {
        turns = venue.turns("asks", "s").await;
        if !turns.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let heard: Vec<_> = venue.turns("asks", "s").await.iter().flat_map(|turn| turn.events.clone()).collect();
    assert_eq!(heard.iter().map(ToString::to_string).collect::<Vec<_>>(), ["m2"], "{turns:?}");
}
