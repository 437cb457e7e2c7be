//! The examples of the page that this is made after, in its spelling.

use super::*;

const RULES: &str = r#"
[[rule]]
when = { agent = "sender", turn = 1 }
then = { calls = [
    { tool = "sendMessage", arguments = { _tool = "sendMessage", _scopes = ["input"], recipientId = "user_B", message = "Welcome, Bob!" } },
    { tool = "logEvent", arguments = { _scopes = ["state"], eventName = "user_login" } },
] }

[[rule]]
when = { agent = "Orchestrator", turn = 1 }
then = { calls = [{ tool = "summarizeArticle", arguments = { _delegate = "SummarizerAgent", _scopes = ["state"] } }] }

[[rule]]
when = { agent = "SummarizerAgent", prompt = "articleText: \"A long and complex article...\"" }
then = { text = "summed up" }

[[rule]]
when = { agent = "Translators", turn = 1 }
then = { calls = [
    { tool = "translate", arguments = { _delegate = "translatorDelegate", _instance = "①", _scopes = ["state"] } },
    { tool = "translate", arguments = { _delegate = "translatorDelegate", _instance = "②", _scopes = ["state"] } },
] }

[[rule]]
when = { agent = "translatorDelegate", prompt = "[Scoped: state]\n{text: \"Hello\"}" }
then = { text = "Ciao" }

[[rule]]
when = { agent = "translatorDelegate", prompt = "[Scoped: state]\n{text: \"Bonjour\"}" }
then = { text = "Buongiorno" }

[[rule]]
then = { text = "done" }
"#;

fn state(path: &str) -> Value {
    json!([{"label": "state", "ref": path}])
}

#[tokio::test]
async fn an_activity_gets_its_disambiguation_and_context() {
    let (venue, _dir) = venue(RULES).await;
    venue.worker();
    write(&venue, "w/state", json!({"currentUser": {"id": "user_A", "name": "Alice"}})).await;
    let enumerated = |names: &[&str]| json!({"type": "array", "items": {"enum": names}});
    let tools = json!([
        {"name": "sendMessage", "description": "Sends a message.", "_scopes": enumerated(&["state", "input"])},
        {"operation": "v/ops/test/scoped", "name": "logEvent", "_scopes": enumerated(&["state"])},
    ]);
    venue.agent("sender", json!({"tools": tools, "context": state("w/state")})).await;
    let input = json!({
        "mentionedUser": {"id": "user_B", "name": "Bob"},
        "instruction": "Send a welcome message to the user mentioned above.",
    });
    let job = venue.run("sender", "t1", input).await;
    let turns = turns(&venue, &job).await;
    let results = results(&turns[0]);
    assert_eq!(results[0], "{\"recipientId\":\"user_B\",\"message\":\"Welcome, Bob!\"}\nFocus on: input.");
    let logged: Value = serde_json::from_str(results[1]).unwrap();
    assert_eq!(logged["arguments"], json!({"eventName": "user_login"}));
    assert_eq!(logged["scoped"]["state"]["currentUser"]["id"], json!("user_A"));
}

#[tokio::test]
async fn a_delegate_gets_the_context_of_the_page() {
    let (venue, _dir) = venue(RULES).await;
    venue.worker();
    write(&venue, "w/state", json!({"articleText": "A long and complex article..."})).await;
    let tool = json!({"name": "summarizeArticle", "_delegate": "SummarizerAgent", "_scopes": {"const": ["state"]}, "wait": 60000});
    venue.agent("Orchestrator", json!({"tools": [tool], "context": state("w/state")})).await;
    venue.agent("SummarizerAgent", json!({"systemPrompt": "You are an expert summarizer."})).await;
    let job = venue.run("Orchestrator", "t1", json!("go")).await;
    let answer: Value = serde_json::from_str(results(&turns(&venue, &job).await[0])[0]).unwrap();
    assert_eq!(answer["output"], json!("summed up"));
}

#[tokio::test]
async fn instances_get_scoped_delegates() {
    let (venue, _dir) = venue(RULES).await;
    venue.worker();
    write(&venue, "w/one", json!({"text": "Hello"})).await;
    write(&venue, "w/two", json!({"text": "Bonjour"})).await;
    let tool = json!({
        "name": "translate", "_delegate": "translatorDelegate", "wait": 60000,
        "_scopes": {"type": "array", "items": {"enum": ["state"]}},
    });
    let context = json!([
        {"label": "state", "ref": "w/one", "_instance": "①"},
        {"label": "state", "ref": "w/two", "_instance": "②"},
    ]);
    venue.agent("Translators", json!({"tools": [tool], "context": context})).await;
    venue.agent("translatorDelegate", json!({"systemPrompt": "You are a translator."})).await;
    let job = venue.run("Translators", "t1", json!("go")).await;
    let turns = turns(&venue, &job).await;
    let output = |text: &&str| serde_json::from_str::<Value>(text).unwrap()["output"].clone();
    assert_eq!(results(&turns[0]).iter().map(output).collect::<Vec<_>>(), [json!("Ciao"), json!("Buongiorno")]);
}
