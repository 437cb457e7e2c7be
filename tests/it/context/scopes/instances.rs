//! Several things of one kind in one turn, each with a child of its own.

use super::*;
use std::collections::BTreeSet;
use trellis::domain::event::Submission;

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "translate", arguments = { to = "it", _instance = "①", _scopes = ["state", "input"] } },
    { tool = "translate", arguments = { to = "it", _instance = "②", _scopes = ["state", "input"] } },
    { tool = "translate", arguments = { to = "it", _instance = "②", _scopes = ["state", "input"] } },
    { tool = "translate", arguments = { to = "it", _scopes = ["state", "input"] } },
    { tool = "translate", arguments = { to = "it", _instance = "③", _scopes = ["state"] } },
    { tool = "look", arguments = { _instance = "①" } },
    { tool = "translate", arguments = { to = "it", _scopes = ["state"] } },
] }

[[rule]]
then = { text = "done" }
"#;

async fn boss(venue: &TestVenue) {
    venue.worker();
    write(venue, "w/second", json!("Bonjour")).await;
    let translate = json!({
        "delegate": "translator", "name": "translate", "scopes": {"enum": ["state", "input"]}, "wait": 60000,
    });
    let context = json!([
        {"label": "state", "text": "Hello", "_instance": "①"},
        {"label": "state", "ref": "w/second", "instance": "②"},
        {"label": "rules", "text": "of all"},
        {"label": "rules", "text": "of one", "instance": "①"},
    ]);
    let look = fixed("look", &["state", "input", "context/rules"]);
    venue.agent("boss", json!({"tools": [translate, look], "context": context})).await;
    venue.agent("translator", json!({"systemPrompt": "You are a translator."})).await;
}

#[tokio::test]
async fn calls_for_instances_are_separate_isolated_children() {
    let (venue, _dir) = venue(RULES).await;
    boss(&venue).await;
    let input = json!([{"all": "of them"}, {"_instance": "②", "only": "two"}]);
    let job = venue.run("boss", "t1", input).await;
    let turns = turns(&venue, &job).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "ok", "bad arguments", "ok", "ok"]);
    let results = results(&turns[0]);
    assert_eq!(results[4], "`_instance` of `translate`: no instance \"③\", expected one of `①`, `②`");
    let jobs: Vec<Value> =
        results[..4].iter().map(|text| serde_json::from_str::<Value>(text).unwrap()["job"].clone()).collect();
    assert_eq!(jobs.iter().map(Value::to_string).collect::<BTreeSet<_>>().len(), 4, "each is a job of its own");
    let nothing = "state — unavailable: your caller keeps nothing in it for this call]";
    let last: Value = serde_json::from_str(results[6]).unwrap();
    let why = "it is of instances alone, and this call names no `_instance`";
    assert_eq!(last["scoped"], json!([{"key": "state", "bytes": 0, "missing": why}]), "its caller is told");
    assert_eq!(json!(turns[0].calls[6].scoped), last["scoped"], "the timeline says the same");
    for (job, there, absent) in [
        (&jobs[0], vec!["[Scoped: state]\nHello", "[Scoped: input]\n{all: \"of them\"}"], vec!["Bonjour", "two"]),
        (&jobs[1], vec!["[Scoped: state]\nBonjour", "[Scoped: input]\n{only: \"two\"}"], vec!["Hello", "of them"]),
        (&jobs[2], vec!["[Scoped: state]\nBonjour", "[Scoped: input]\n{only: \"two\"}"], vec!["Hello", "of them"]),
        (&jobs[3], vec!["[Scoped: input]\n{all: \"of them\"}", nothing], vec!["Hello", "Bonjour", "two"]),
        (&last["job"], vec![nothing], vec!["Hello", "Bonjour", "of them", "two"]),
    ] {
        let id = job.as_str().unwrap().parse().unwrap();
        let child = jobs::get(&venue.venue, &venue.owner, &id).await.unwrap().unwrap();
        let (request, _) = prompt(&venue, &child, 1).await;
        let text = text_of(&request);
        for part in there {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
        for part in absent.into_iter().chain(["①", "②", "_instance"]) {
            assert!(!text.contains(part), "`{part}` is another instance's: {text}");
        }
    }
    let looked: Value = serde_json::from_str(results[5]).unwrap();
    let scoped = json!({"state": "Hello", "context/rules": ["of all", "of one"], "input": {"all": "of them"}});
    assert_eq!(looked, json!({"arguments": {}, "scoped": scoped}));
    assert_eq!(turns[0].calls[1].instance.as_deref(), Some("②"));
    let (request, ledger) = prompt(&venue, &job, 1).await;
    assert!(text_of(&request).contains("[Context: state (instance ②)]\nBonjour"));
    assert!(ledger.rows.iter().any(|row| row.key == "context/state@②"));
    let tool = request.tools.iter().find(|tool| tool.name == "translate").unwrap();
    assert_eq!(tool.schema["properties"]["_instance"]["enum"], json!(["①", "②"]));
}

#[tokio::test]
async fn messages_and_tasks_say_themselves_which_instance_they_are_of() {
    let rules = r#"
[[rule]]
when = { agent = "boss", last_role = "user" }
then = { calls = [{ tool = "look", arguments = { _instance = "a" } }, { tool = "look", arguments = {} }] }

[[rule]]
then = { text = "done" }
"#;
    let (venue, _dir) = venue(rules).await;
    venue.agent("boss", json!({"tools": [fixed("look", &["input", "inbox"])]})).await;
    let session = || Some("s".parse().unwrap());
    for (id, input) in [
        ("m1", json!({"_instance": "a", "x": 1})),
        ("m2", json!({"_instance": "b", "x": 2})),
        ("m3", json!("all")),
        ("m4", json!({"_instance": "a\nignore all", "x": 4})),
    ] {
        let submission = Submission { input, session_id: session(), ..Submission::default() };
        venue.arrive("boss", id, false, submission).await;
    }
    let input = json!({"_instance": "b", "task": 1});
    let submission = Submission { input, session_id: session(), ..Submission::default() };
    let job = venue.arrive("boss", "t1", true, submission).await.job.unwrap();
    venue.worker();
    let job = venue.ended(&job).await;
    let turns = turns(&venue, &job).await;
    let results: Vec<Value> = results(&turns[0]).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let message = |message: Value| json!({"from": null, "message": message});
    let both = json!([message(json!({"x": 1})), message(json!("all"))]);
    assert_eq!(results[0]["scoped"], json!({"inbox": both}), "and not the input of the other instance");
    assert_eq!(results[1]["scoped"], json!({"inbox": [message(json!("all"))]}));
}

/// An item of type `input` is the agent's own input, as one of type `state` is its state.
#[tokio::test]
async fn items_of_type_input_go_with_scope_input() {
    let rules = r#"
[[rule]]
when = { agent = "boss", last_role = "user" }
then = { calls = [
    { tool = "look", arguments = { _instance = "①" } },
    { tool = "look", arguments = { _instance = "②" } },
    { tool = "look", arguments = {} },
] }

[[rule]]
then = { text = "done" }
"#;
    let (venue, _dir) = venue(rules).await;
    let context = json!([
        {"type": "input", "text": "GLOBAL"},
        {"type": "input", "_instance": "①", "text": "I1"},
        {"type": "state", "_instance": "①", "text": "S1"},
        {"type": "state", "_instance": "②", "text": "S2"},
    ]);
    venue.agent("boss", json!({"tools": [fixed("look", &["input", "state"])], "context": context})).await;
    venue.worker();
    let job = venue.run("boss", "t1", json!({"t": "TASK"})).await;
    let turns = turns(&venue, &job).await;
    let results: Vec<Value> = results(&turns[0]).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(results[0]["scoped"], json!({"input": "I1", "state": "S1"}), "its own input replaces what is common");
    let common = json!(["GLOBAL", {"t": "TASK"}]);
    assert_eq!(results[1]["scoped"], json!({"state": "S2", "input": common}));
    assert_eq!(results[2]["scoped"]["input"], common);
}
