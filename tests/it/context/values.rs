//! Values from the request, the user and the project: into prompts and tool calls, and nowhere else.

use crate::support::cli::{Done, Up};
use crate::support::nats;
use crate::support::operate::operate;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::nats::NatsBus;
use trellis::domain::authority::Authority;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::process::clock::Clock;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::ingress::{Arrival, submit as submit_to};
use trellis::venue::ledger;
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "save", arguments = { path = "w/evil", value = "{{input}}" } }] }

[[rule]]
when = { agent = "runner", turn = 1 }
then = { calls = [{ tool = "job_run", arguments = { operation = "lattice:write", input = { path = "w/evil", value = "{{input}}" } } }] }

[[rule]]
when = { agent = "deep", turn = 1 }
then = { calls = [{ tool = "grid_run", arguments = { operation = "job/run", input = { operation = "v/ops/covia/write", input = { path = "w/evil", value = "{{input}}" } } } }] }

[[rule]]
when = { agent = "runner", turn = 2 }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "deep", turn = 2 }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "sly", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "v/context/project", value = { company = "Mine" } } }] }

[[rule]]
when = { agent = "sly", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "v/context/users/other" } }] }

[[rule]]
when = { agent = "clerk", turn = 2 }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "sly", turn = 3 }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "checker", turn = 1 }
then = { calls = [{ tool = "schema_validate", arguments = { schema = { type = "string", minLength = 3 } } }] }

[[rule]]
when = { agent = "checker", turn = 2 }
then = { text = "{{tool_result}}" }

[[rule]]
then = { text = "done" }
"#;

const CLERK: &str = r#"
systemPrompt = "You work for ${user.name} of {{company}}."
strictPlaceholders = true
defaultTools = false
tools = [{ operation = "v/ops/lattice/write", name = "save" }]

[contextMapping]
company = "project.company"

[toolArgInjection.save]
path = "target"
"#;

/// Its operation is bound under the name of a tool.
const RUNNER: &str = r#"
defaultTools = false
tools = [{ operation = "v/ops/lattice/write", name = "save" }, "v/ops/job/run"]
toolArgInjection.save.path = "target"
"#;

/// Its operation is bound and no tool.
const DEEP: &str = r#"
defaultTools = false
tools = ["v/ops/grid/run"]
toolArgInjection."v/ops/lattice/write".path = "target"
"#;

/// The binary, with agents that all follow [`RULES`].
fn site() -> Up {
    let up = Up::start();
    up.file("all.rules", RULES);
    let scoped = "entityIdsRequired = true\n";
    let agents = [("clerk", CLERK), ("runner", RUNNER), ("deep", DEEP), ("sly", ""), ("scoped", scoped)];
    for (name, text) in agents {
        up.file(
            &format!("{name}.toml"),
            &format!("model = {{ provider = \"scripted\", name = \"all.rules\" }}\n{text}"),
        );
        up.run(&["agent", "apply", &format!("{name}.toml")]).ok();
    }
    up
}

fn submit(up: &Up, agent: &str, context: &[&str]) -> Done {
    let mut args = vec!["submit", agent, "hello", "--wait"];
    args.extend(context.iter().flat_map(|pair| ["--context", pair]));
    up.run(&args)
}

#[track_caller]
fn says(done: &Done, words: &str) {
    assert!(done.err.contains(words) || done.out.contains(words), "expected `{words}`, got {done:#?}");
}

#[test]
fn values_reach_prompts_and_tools_whatever_the_model_says() {
    let up = site();
    up.run(&["lattice", "write", "v/context/project", r#"{"company": "Acme"}"#]).ok();
    let failed = submit(&up, "clerk", &["target=w/good"]);
    assert_ne!(failed.code, 0);
    says(&failed, "no value for the placeholder");
    says(&failed, "`user.name`");

    up.run(&["lattice", "write", "v/context/users/me", r#"{"user": {"name": "Ada"}}"#]).ok();
    says(&submit(&up, "clerk", &[]), "INJECT_UNRESOLVED: argument `path` is bound to `target`");
    says(&submit(&up, "clerk", &["target=w/good"]), "written");
    assert_eq!(up.run(&["lattice", "read", "w/good"]).ok(), "hello");
    assert_ne!(up.run(&["lattice", "read", "w/evil"]).code, 0, "what the model sent counts for nothing");
    says(&submit(&up, "clerk", &["target=42", "note=[1]"]), "at `/path`");
    let timeline = up.run(&["lattice", "read", "g/clerk/timeline"]).ok();
    for hidden in ["w/good", "w/evil", "target\":"] {
        assert!(!timeline.contains(hidden), "`{hidden}` is in the transcript: {timeline}");
    }
    // Another user of the tenant has no name.
    up.run(&["agent", "apply", "clerk.toml", "--owner", "local/other"]).ok();
    let other = up.run(&["submit", "clerk", "hello", "--wait", "--context", "target=w/x", "--owner", "local/other"]);
    says(&other, "`user.name`");
}

#[test]
fn a_binding_holds_for_what_job_run_runs() {
    let up = site();
    for agent in ["runner", "deep"] {
        let path = format!("w/good/{agent}");
        says(&submit(&up, agent, &[&format!("target={path}")]), "written");
        assert_eq!(up.run(&["lattice", "read", &path]).ok(), "hello");
        says(&submit(&up, agent, &[]), "INJECT_UNRESOLVED: argument `path` is bound to `target`");
        let timeline = up.run(&["lattice", "read", &format!("g/{agent}/timeline")]).ok();
        assert!(!timeline.contains("w/evil"), "it is in the transcript: {timeline}");
    }
    assert_ne!(up.run(&["lattice", "read", "w/evil"]).code, 0, "what the model sent counts for nothing");
}

#[test]
fn operators_write_shared_values_and_agents_can_t() {
    let up = site();
    up.run(&["lattice", "write", "v/context/project", r#"{"company": "Acme"}"#]).ok();
    up.run(&["lattice", "write", "v/context/users/other", r#"{"salary": 7}"#]).ok();
    up.run(&["lattice", "write", "v/context/project/rates/eu", "20"]).ok();
    let answer = submit(&up, "sly", &[]).ok();
    assert!(answer.contains("is another user's"), "{answer}");
    let project: Value = serde_json::from_str(&up.run(&["lattice", "read", "v/context/project"]).ok()).unwrap();
    assert_eq!(project, json!({"company": "Acme", "rates": {"eu": 20}}));
    says(&up.run(&["lattice", "write", "v/context/project", "[1]"]), "expected a map of values");
    says(&up.run(&["lattice", "write", "v/context/else", "1"]), "expected `v/context/project`");
    says(&up.run(&["lattice", "read", "w/x", "--owner", "local/_venue"]), "is the venue's own");
    up.run(&["lattice", "delete", "v/context/project/rates"]).ok();
    let project: Value = serde_json::from_str(&up.run(&["lattice", "read", "v/context/project"]).ok()).unwrap();
    assert_eq!(project, json!({"company": "Acme"}));
}

#[test]
fn mandate_and_protected_keys_are_checked_before_any_run() {
    let up = site();
    for context in [&[][..], &["entity_ids=e1"], &["entity_ids=[]"], &["entity_ids=[\"\"]"]] {
        says(&submit(&up, "scoped", context), "ENTITY_IDS_REQUIRED");
    }
    assert_eq!(submit(&up, "scoped", &["entity_ids=[\"e1\"]"]).ok(), "done");
    let denied = submit(&up, "scoped", &["tenant_id=x", "entity_ids=[\"e1\"]"]);
    assert_ne!(denied.code, 0);
    says(&denied, "CONTEXT_OVERRIDE_DENIED");
    says(&denied, "`tenant_id`");
    let large = format!("k={}", "x".repeat(65_000));
    says(&submit(&up, "scoped", &[&large, &large.replace('k', "l")]), "`sessionContext` has");
}

/// Two users of one project, over any backend: what is shared is shared, what is a user's is his.
async fn two_users(store: Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(&dir.path().join("bus")).unwrap();
    let bus = EmbeddedBus::new(embedded, Duration::from_secs(2), Clock::system()).unwrap();
    let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await.foreseen();
    venue.worker();
    let users = [("local/me", "Ada"), ("local/other", "Bob")];
    for (owner, name) in users {
        venue.owner = owner.parse().unwrap();
        let user = format!("v/context/users/{}", owner.split_once('/').unwrap().1);
        write(&venue, "v/context/project", json!({"company": "Acme"})).await;
        write(&venue, &user, json!({"user": {"name": name}})).await;
        let context = json!([{"text": "Ask {{user.name}} first.", "label": "For ${user.name}"}]);
        venue
            .agent("teller", json!({"systemPrompt": "You work for ${user.name} of {{company}}.", "context": context}))
            .await;
    }
    for (owner, name) in users {
        venue.owner = owner.parse().unwrap();
        let job = venue.submit("teller", "t1", json!("go")).await.job.unwrap();
        venue.ended(&job).await;
        let session = job_session(&venue, &job).await;
        let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
        let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
        assert!(request.system.starts_with(&format!("You work for {name} of Acme.")), "{}", request.system);
        let shown = serde_json::to_string(&request.messages).unwrap();
        assert!(shown.contains(&format!("[Context: For {name}]\\nAsk {name} first.")), "{shown}");
    }
}

/// Writes as the owner of the venue's agents does over the API.
async fn write(venue: &TestVenue, path: &str, value: Value) {
    let caller = Caller::new(venue.owner.clone(), venue.owner.to_string(), Authority::without_limits());
    let caller = Caller { operator: true, ..caller };
    operate(&venue.venue, &caller, "v/ops/lattice/write", json!({"path": path, "value": value})).await.unwrap();
}

#[tokio::test]
async fn every_user_has_a_prompt_of_his_own_on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    two_users(EmbeddedStore::open(dir.path()).unwrap()).await;
}

#[tokio::test]
async fn every_user_has_a_prompt_of_his_own_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    two_users(RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap()).await;
}

/// "kept with its event, deleted when it ends": what no prompt showed is in no document afterwards.
#[tokio::test]
async fn session_values_end_with_their_request_except_in_prompts() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await.foreseen();
    venue.worker();
    let config = json!({
        "systemPrompt": "You work for ${name}.",
        "toolArgInjection": {"schema_validate": {"value": "token"}},
        "contextMapping": {"spare": "session.spare"},
    });
    venue.agent("checker", config).await;
    let values = json!({"name": "SHOWN-VALUE", "token": "INJECTED-VALUE", "spare": "UNUSED-VALUE"});
    let Value::Object(session_context) = values else { unreachable!() };
    let submission = Submission { input: json!("go"), session_context, ..Submission::default() };
    let job = venue.arrive("checker", "t1", true, submission).await.job.unwrap();
    let result = venue.ended(&job).await.result.unwrap().output.unwrap();
    assert!(result.to_string().contains("true"), "the value was filled in: {result}");
    let docs = venue.venue.store.scan(&venue.owner, "", None, false, 10_000).await.unwrap();
    let holds = |value: &str| -> Vec<&str> {
        let has = |bytes: &[u8]| bytes.windows(value.len()).any(|part| part == value.as_bytes());
        docs.iter()
            .filter(|(_, doc)| doc.value.as_ref().is_some_and(|bytes| has(bytes)))
            .map(|(key, _)| &**key)
            .collect()
    };
    for value in ["INJECTED-VALUE", "UNUSED-VALUE"] {
        assert_eq!(holds(value), Vec::<&str>::new(), "{value}");
    }
    assert!(!holds("SHOWN-VALUE").is_empty(), "a replay shows again what the prompt showed");
    let session = job_session(&venue, &job).await;
    for turn in [1, 2] {
        let past = ledger::load(&*venue.venue.store, &venue.owner, &session, turn).await.unwrap().unwrap();
        let seen = past.seen.unwrap();
        let again = assemble(&seen.inputs.unwrap()).unwrap();
        assert!(again.request.system.starts_with("You work for SHOWN-VALUE."));
        assert_eq!(again.ledger, seen.ledger);
    }
}

/// A schema says of an id no more than that it is a text: what else is wrong with it, its operation finds.
#[tokio::test]
async fn no_error_shows_an_illegal_injected_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let rules = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "agent_message", arguments = { message = "hello" } }] }

[[rule]]
when = { turn = 2 }
then = { text = "{{tool_result}}" }
"#;
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), rules).await;
    venue.worker();
    venue.agent("teller", json!({"toolArgInjection": {"agent_message": {"agentId": "account"}}})).await;
    let Value::Object(session_context) = json!({"account": "acct/77 private"}) else { unreachable!() };
    let submission = Submission { input: json!("go"), session_context, ..Submission::default() };
    let job = venue.arrive("teller", "t1", true, submission).await.job.unwrap();
    let said = venue.ended(&job).await.result.unwrap().output.unwrap().to_string();
    assert!(said.contains("/agentId") && said.contains("not a legal value"), "{said}");
    assert!(!said.contains("77"), "{said}");
}

#[tokio::test]
async fn only_context_override_sets_protected_keys() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await.foreseen();
    venue.worker();
    venue.agent("teller", json!({"systemPrompt": "You work for ${tenant_id}."})).await;
    let Value::Object(session_context) = json!({"tenant_id": "another"}) else { unreachable!() };
    let arrival = |may_override| Arrival {
        owner: venue.owner.clone(),
        agent: "teller".parse().unwrap(),
        task: true,
        id: "t1".parse().unwrap(),
        submission: Submission { session_context: session_context.clone(), ..Submission::default() },
        received: venue.venue.now(),
        sequence: 0,
        by: trellis::domain::principal::Principal::ANYBODY,
        may_override,
        trace: None,
    };
    let denied = submit_to(&venue.venue, &arrival(false)).await.unwrap_err().to_string();
    assert!(denied.contains("CONTEXT_OVERRIDE_DENIED") && denied.contains("`tenant_id`"), "{denied}");
    let job = submit_to(&venue.venue, &arrival(true)).await.unwrap().job.unwrap();
    venue.ended(&job).await;
    let session = job_session(&venue, &job).await;
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
    assert!(request.system.starts_with("You work for another."), "{}", request.system);
}

async fn job_session(venue: &TestVenue, job: &JobId) -> SessionKey {
    let head = trellis::venue::jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap().head;
    SessionKey { agent: head.agent, session: head.session }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_queue_requests_reach_prompts_and_tools() {
    let Some(url) = nats::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = NatsBus::open(&nats::options(&url)).await.unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await.foreseen();
    venue.worker();
    venue.agent("scoped", json!({"entityIdsRequired": true})).await;
    let client = async_nats::connect(&url).await.unwrap();
    for (n, (context, status, code)) in [
        (json!({"tenant_id": "x"}), "REJECTED", "CONTEXT_OVERRIDE_DENIED"),
        (json!({"other": "x"}), "FAILED", "ENTITY_IDS_REQUIRED"),
        (json!({"entity_ids": ["e1"]}), "COMPLETE", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let inbox = format!("_INBOX.values-{}.{n}", std::process::id());
        let mut answers = client.subscribe(inbox.clone()).await.unwrap();
        client.flush().await.unwrap();
        let to = MessageAddress::In {
            owner: venue.owner.clone(),
            agent: "scoped".parse().unwrap(),
            kind: InboundKind::Task,
        };
        let body = json!({"input": "hi", "sessionContext": context, "replyTo": inbox});
        venue.venue.bus.publish(&BusMessage { to, id: Some(format!("v{n}")), body, trace: None }).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!((&answer["status"], answer["errorCode"].as_str().unwrap_or_default()), (&json!(status), code));
    }
    let calls = venue.model_calls();
    assert_eq!(calls.iter().filter(|call| call["event"] == "replied").count(), 1, "one model call: {calls:?}");
}
