//! Operations and tools that run nothing.

use super::*;
use crate::support::watched_store::Watched;
use trellis::venue::context::preview::{self, Preview};

const CALLER: &str = r#"
[[rule]]
when = { agent = "caller", turn = 1 }
then = { calls = [
    { tool = "fixed", arguments = { a = 1 } },
    { tool = "asked", arguments = { b = 2, _scopes = ["input", "context/plan", "input"] } },
    { tool = "asked", arguments = { b = 2 } },
    { tool = "asked", arguments = { _scopes = ["transcript"] } },
    { tool = "fixed", arguments = { _scopes = ["transcript"] } },
    { tool = "test_scoped", arguments = { _scopes = ["input"] } },
    { tool = "test_scoped", arguments = { _delegate = "caller", _x = 1, x = { _y = 1 } } },
    { tool = "runs", arguments = { operation = "test/scoped", input = { c = 3, _scopes = ["input"] }, _scopes = ["state"] } },
    { tool = "lattice_read", arguments = { path = "w/plan", _scopes = [] } },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn an_operation_gets_what_its_tool_allows_beside_its_arguments() {
    let (venue, _dir) = venue(CALLER).await;
    venue.worker();
    write(&venue, "w/plan", json!({"step": 1})).await;
    let tools = json!([
        fixed("fixed", &["input", "context/plan", "pending"]),
        asked("asked", &["state", "input", "context/plan"]),
        {"operation": "v/ops/job/run", "name": "runs", "scopes": {"enum": ["state", "input"]}},
        "v/ops/test/scoped",
    ]);
    let context = json!([{"ref": "w/plan", "label": "plan"}, {"text": "a ${who} b", "label": "state"}]);
    let mapping = json!({"who": "CONSTANT:ada"});
    venue.agent("caller", json!({"tools": tools, "context": context, "contextMapping": mapping})).await;
    let job = venue.run("caller", "t1", json!({"amount": 7})).await;
    let turns = turns(&venue, &job).await;
    let results: Vec<Value> =
        results(&turns[0]).iter().map(|text| serde_json::from_str(text).unwrap_or(json!(text))).collect();
    let given = json!({"context/plan": {"step": 1}, "input": {"amount": 7}});
    assert_eq!(results[0], json!({"arguments": {"a": 1}, "scoped": given}));
    assert_eq!(results[1], json!({"arguments": {"b": 2}, "scoped": given}), "in the order of the context, each once");
    assert_eq!(results[2], json!({"arguments": {"b": 2}, "scoped": {}}));
    for (at, expected) in [
        (
            3,
            "`_scopes` of `asked`: `transcript` can't be handed on by this call, expected some of `state`, `input`, `context/plan`",
        ),
        (4, "`_scopes` of `fixed`: `transcript` can't be handed on by this call, leave it out"),
        (5, "`_scopes` of `test_scoped`: `input` can't be handed on by this call, leave it out"),
    ] {
        assert_eq!(results[at], json!(expected));
        assert_eq!(turns[0].calls[at].outcome, "refused scope");
    }
    assert_eq!(results[6], json!({"arguments": {"x": {"_y": 1}}, "scoped": {}}));
    assert_eq!(results[7], json!({"arguments": {"c": 3}, "scoped": {"state": "a ada b"}}), "as it was shown");
    assert_eq!(turns[0].calls[8].outcome, "ok");
    let notes: Vec<_> =
        turns[0].calls[0].scoped.iter().map(|note| (note.key.as_str(), note.source.as_deref())).collect();
    assert_eq!(notes, [("context/plan", Some("w/plan")), ("input", None), ("pending", None)]);
    let why = turns[0].calls[0].scoped[2].missing.as_deref();
    assert_eq!(why, Some("no result has arrived and no job is running"));
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &"caller".parse().unwrap(), look).await.unwrap();
    let property = |tool: &str| {
        let spec = inputs.tools.specs.iter().find(|spec| spec.name == tool).unwrap();
        spec.schema["properties"]["_scopes"]["items"]["enum"].clone()
    };
    assert_eq!((property("fixed"), property("asked")), (Value::Null, json!(["state", "input", "context/plan"])));
}

const BETWEEN: &str = r#"
[[rule]]
when = { agent = "caller", prompt = "secret plan" }
then = { calls = [
    { tool = "paid", arguments = {} },
    { tool = "free", arguments = {} },
    { tool = "listed", arguments = {} },
    { tool = "help", arguments = {} },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn a_section_revoked_after_it_was_shown_is_not_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let watch = Between::new(false);
    let (replied, go_on) = (Arc::clone(&watch.reached), Arc::clone(&watch.go_on));
    let venue = TestVenue::new(Arc::new(Watched { inner: store, watch }), Arc::new(bus), dir.path(), BETWEEN).await;
    venue.worker();
    write(&venue, "w/pay/x", json!("secret plan")).await;
    write(&venue, "w/free/x", json!("free")).await;
    let tools = json!([
        fixed("paid", &["context/w/pay/x"]),
        fixed("free", &["context/w/free/x"]),
        fixed("listed", &["context/list"]),
        {"delegate": "helper", "name": "help", "scopes": {"const": ["context/w/pay/x"]}, "wait": 60000},
    ]);
    let list = json!({"op": "lattice/list", "input": {"path": "w/pay"}, "label": "list"});
    venue.agent("helper", json!({})).await;
    venue.agent("caller", json!({"tools": tools, "context": ["w/pay/x", "w/free/x", list]})).await;
    let job = venue.submit("caller", "t1", json!("go")).await.job.unwrap();
    soon(&replied).await;
    venue.revoke("w/pay").await;
    go_on.notify_one();
    let job = venue.ended(&job).await;
    let turns = turns(&venue, &job).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["denied", "ok", "denied", "denied"]);
    let handed: Vec<usize> = turns[0].calls.iter().map(|call| call.scoped.len()).collect();
    assert_eq!(handed, [0, 1, 0, 0]);
    let results = results(&turns[0]);
    assert!(
        results[0].starts_with(
            "Capability denied: section `context/w/pay/x` requires crud/read on w/pay/x, which was revoked"
        ),
        "{results:?}"
    );
    assert!(
        results[2].contains("section `context/list` requires crud/read on w/pay, which was revoked"),
        "{results:?}"
    );
    assert_eq!(jobs_of(&venue, "helper").await.len(), 0, "no job was started for it");
}

const LATENT: &str = r#"
[[rule]]
when = { agent = "thinker", turn = 1 }
then = { calls = [
    { tool = "note", arguments = { to = "bob", text = "hi" } },
    { tool = "weigh", arguments = { reason = "r", _scopes = ["state", "input"], _x = 1 } },
    { tool = "weigh", arguments = {} },
    { tool = "note", arguments = { text = 7 } },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn a_tool_without_an_operation_returns_the_models_input() {
    let (venue, _dir) = venue(LATENT).await;
    venue.worker();
    let input = json!({
        "type": "object", "required": ["to", "text"], "additionalProperties": false,
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}, "from": {"type": "string"}},
    });
    let tools = json!([
        {"name": "note", "description": "A note.", "input": input, "scopes": {"const": ["input"]}},
        {"name": "weigh", "description": "Think.", "scopes": {"enum": ["input", "state"]}},
    ]);
    let injection = json!({"note": {"from": "CONSTANT:ada"}});
    venue.agent("thinker", json!({"tools": tools, "toolArgInjection": injection})).await;
    let job = venue.run("thinker", "t1", json!("go")).await;
    let turns = turns(&venue, &job).await;
    let results = results(&turns[0]);
    assert_eq!(serde_json::from_str::<Value>(results[0]).unwrap(), json!({"to": "bob", "text": "hi", "from": "ada"}));
    assert_eq!(results[1], "{\"reason\":\"r\"}\nFocus on: input, state.");
    assert_eq!(results[2], "{}");
    assert!(results[3].starts_with("arguments of `note` are not valid: "), "{results:?}");
    assert!(turns[0].calls.iter().all(|call| call.scoped.is_empty()));
    let (request, _) = prompt(&venue, &job, 1).await;
    let note = request.tools.iter().find(|tool| tool.name == "note").unwrap();
    assert_eq!(note.description, "A note. Focus on: input.");
    assert_eq!(note.schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), ["to", "text"]);
}
