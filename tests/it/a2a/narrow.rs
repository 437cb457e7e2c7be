//! Callers whose tokens permit less than all: what they see of tasks, agents and push notifications of others.

use super::client::{A2aClient, BINDINGS, Binding};
use super::{Desk, answer, at_once, text};
use crate::authority::tokens::{issuer, token};
use crate::support::cli::{Up, run};
use crate::support::http::Server;
use crate::support::provider::{self, ProviderServer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::venue::auth::signing::SigningKey;

const AGENT: &str =
    "model = { provider = \"scripted\", name = \"asker.rules\" }\ntools = [\"v/ops/human/ask\"]\na2a = {}\n";
const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Size?", asks = [{ id = "size", type = "text", prompt = "Size?" }] } }] }

[[rule]]
then = { text = "ordered" }
"#;

/// A venue with agents of `acme/ann`, where callers need tokens.
struct TokenDesk {
    server: Server,
    issuer: SigningKey,
    _desk: Desk,
    _keys: tempfile::TempDir,
}

impl TokenDesk {
    async fn open() -> Self {
        let mut desk = Desk::idle().await;
        desk.venue.owner = "acme/ann".parse().unwrap();
        for (id, config) in super::agents() {
            desk.venue.agent(id, config).await;
        }
        desk.venue.worker();
        let keys = tempfile::tempdir().unwrap();
        let (issuer, auth) = issuer(keys.path());
        let server = Server::with(Arc::clone(&desk.venue.venue), auth).await;
        Self { server, issuer, _desk: desk, _keys: keys }
    }

    /// A client with a token for this and nothing else; null: for everything.
    fn client(&self, agent: &str, binding: Binding, att: &Value) -> A2aClient {
        let claims = if att.is_null() { json!({}) } else { json!({"att": att}) };
        let bearer = format!("Bearer {}", token(&self.issuer, "acme/ann", &claims));
        A2aClient::new(&self.server.url, &format!("acme/ann/{agent}"), binding).with_header("Authorization", &bearer)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_something_else_gets_no_extended_card() {
    let desk = TokenDesk::open().await;
    for binding in BINDINGS {
        for (att, is_shown) in [
            (Value::Null, true),
            (json!([{"with": "g/clerk", "can": "agent/request"}]), true),
            (json!([{"with": "g", "can": "crud/read"}]), true),
            (json!([{"with": "g/slow", "can": "agent/request"}]), false),
            (json!([{"with": "w/x", "can": "crud/read"}]), false),
        ] {
            let shown = desk.client("clerk", binding, &att).ask("GetExtendedAgentCard", json!({})).await;
            assert_eq!(
                shown.as_ref().map_err(|error| error.http).err(),
                (!is_shown).then_some(403),
                "{att}: {shown:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_states_learns_and_changes_nothing_else() {
    let desk = TokenDesk::open().await;
    for binding in BINDINGS {
        let all = desk.client("asker", binding, &Value::Null);
        let task = all.ok("SendMessage", text("m1", "a coffee")).await["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
        let id = task["id"].clone();
        let reader = desk.client("asker", binding, &json!([{"with": "j", "can": "crud/read"}]));
        let seen = reader.ok("GetTask", json!({"id": id})).await;
        assert_eq!(seen["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        for hidden in ["coffee", "size", "question"] {
            assert!(!seen.to_string().contains(hidden), "{seen}");
        }
        let mut wrong = answer("m2", &id, "");
        wrong["message"]["parts"] = json!([{"data": {"other": 1}}]);
        for (operation, arguments) in [
            ("SendMessage", wrong),
            ("SendMessage", answer("m2", &id, "L")),
            ("SendMessage", at_once(text("m3", "another"))),
            ("CancelTask", json!({"id": id})),
        ] {
            let refused = reader.refused(operation, arguments.clone()).await;
            assert_eq!((refused.http, refused.reason.as_str()), (403, "PERMISSION_DENIED"), "{arguments}: {refused:?}");
            assert!(!refused.text.contains("`size`"), "{refused:?}");
        }
        let mut events = reader.open("SubscribeToTask", json!({"id": id})).await.unwrap();
        assert!(!events.next().await.unwrap().value.to_string().contains("coffee"));
        let unseen = desk.client("asker", binding, &json!([{"with": "g/asker", "can": "agent/request"}]));
        for operation in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = unseen.refused(operation, json!({"id": id})).await;
            assert_eq!(refused.reason, "TASK_NOT_FOUND", "{operation}: {refused:?}");
        }
        assert_eq!(unseen.ok("ListTasks", json!({})).await["totalSize"], 0);
        assert_eq!(all.ok("GetTask", json!({"id": id})).await, task, "it still waits");
    }
}

/// A process with the agent of `acme/ann`, where callers need tokens, and which may call this host.
fn up_with_tokens(host: &str) -> Up {
    let dir = tempfile::tempdir().unwrap();
    let keygen = ["token", "keygen", "issuer.jwk", "--jwks", "keys.json", "--kid", "k1", "--speaks-for", "acme"];
    run(dir.path(), &keygen).ok();
    let hosts = format!("http_client.allow_hosts={host}");
    let settings = ["auth.mode=jwt", "auth.jwks=keys.json", hosts.as_str(), "http_client.allow_private=true"];
    let up = Up::start_in(dir, &settings);
    up.file("asker.rules", RULES);
    up.file("asker.toml", AGENT);
    up.file("token.txt", &issue_token(&up, &[]));
    up.run(&["agent", "apply", "asker.toml", "--token-file", "token.txt"]).ok();
    up
}

/// A token of `acme/ann` for this, or for everything.
fn issue_token(up: &Up, att: &[&str]) -> String {
    let mut args = vec!["token", "issue", "--key", "issuer.jwk", "--sub", "acme/ann", "--url", &up.url];
    for one in att {
        args.extend(["--att", one]);
    }
    run(up.dir.path(), &args).ok().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_notification_is_its_callers_own() {
    let hook = ProviderServer::start(|_| provider::answer(&json!({}))).await;
    let up = up_with_tokens(&format!("127.0.0.1:{}", hook.port));
    let all = issue_token(&up, &[]);
    let narrow = issue_token(&up, &["j:crud/read", "g/asker:agent/request"]);
    for binding in BINDINGS {
        let client = |token: &str| {
            let client = A2aClient::new(&up.url, "acme/ann/asker", binding);
            client.with_header("Authorization", &format!("Bearer {token}"))
        };
        let (client, other) = (client(&all), client(&narrow));
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
        let url = format!("http://127.0.0.1:{}/?key=s3cret", hook.port);
        let set = json!({"taskId": task, "url": url, "id": "mine"});
        client.ok("CreateTaskPushNotificationConfig", set.clone()).await;
        let one = json!({"taskId": task, "id": "mine"});
        let listed = other.ok("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
        assert_eq!(listed["configs"], json!([]), "an address may hold a secret");
        let refused = other.refused("GetTaskPushNotificationConfig", one.clone()).await;
        assert_eq!(refused.reason, "TASK_NOT_FOUND", "{refused:?}");
        for (operation, arguments) in
            [("DeleteTaskPushNotificationConfig", one.clone()), ("CreateTaskPushNotificationConfig", set)]
        {
            let refused = other.refused(operation, arguments).await;
            assert_eq!((refused.http, refused.reason.as_str()), (403, "PERMISSION_DENIED"), "{operation}: {refused:?}");
        }
        let before = hook.count();
        client.ok("SendMessage", answer("m2", &task, "L")).await;
        for _ in 0..1_500 {
            if hook.count() >= before + 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(hook.count() >= before + 2, "nobody has taken it: {}", hook.count());
        client.ok("DeleteTaskPushNotificationConfig", one).await;
    }
}
