//! What others answer in a turn, too deep: assets, servers that are called, resources, models. It is refused or a text, and
//! the session goes on or ends; nothing retries for ever, and what is kept of it can be read.

use super::nested;
use crate::support::cli::{Done, Up};
use crate::support::model_server::ModelServer;
use crate::support::provider::{ProviderServer, answer};
use crate::support::raw_reply::RawReply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use trellis::domain::limits::VALUE_DEPTH;

/// Deeper than this venue takes, and deeper than any decoder goes.
const DEPTHS: [usize; 2] = [VALUE_DEPTH + 20, 300];

const RULES: &str = r#"
[[rule]]
when = { agent = "caller", turn = 1 }
then = { calls = [{ tool = "http_get", arguments = { url = "URL/x" } }] }

[[rule]]
when = { agent = "searcher", turn = 1 }
then = { calls = [{ tool = "docs_search", arguments = { query = "84" } }, { tool = "docs_search", arguments = { query = "300" } }] }

[[rule]]
when = { agent = "reader", turn = 1 }
then = { calls = [{ tool = "asset_content", arguments = { id = "ASSET" } }, { tool = "asset_get", arguments = { id = "ASSET" } }] }

[[rule]]
then = { text = "went on: {{tool_result}}" }
"#;

/// Submits a task and waits for its end.
fn run(up: &Up, agent: &str) -> Done {
    up.run(&["submit", agent, "go", "--grant", "app/user/u1", "--wait=60s"])
}

/// Whatever was said in its turns can be read.
async fn is_readable(up: &Up, agent: &str) {
    for path in [
        "jobs?details=true".to_owned(),
        format!("agents/{agent}/turns"),
        format!("values/read?path=g/{agent}/timeline"),
        format!("agents/{agent}/sessions"),
    ] {
        let answered = reqwest::get(format!("{}/api/v1/{path}", up.url)).await.unwrap();
        assert_eq!(answered.status(), StatusCode::OK, "{path}: {}", answered.text().await.unwrap());
    }
    let turns: Value = serde_json::from_str(&up.run(&["turn", "list", agent, "--output", "json"]).ok()).unwrap();
    for turn in turns["turns"].as_array().unwrap() {
        up.run(&["turn", "show", turn["name"].as_str().unwrap(), "--prompt"]).ok();
    }
}

fn apply(up: &Up, agent: &str, config: &Value) {
    up.file(&format!("{agent}.json"), &config.to_string());
    up.run(&["agent", "apply", &format!("{agent}.json")]).ok();
}

fn scripted(up: &Up, agent: &str, rules: &str, mut config: Value) {
    up.file("deep.rules", rules);
    config["model"] = json!({"provider": "scripted", "name": "deep.rules"});
    apply(up, agent, &config);
}

/// A server whose values are as deep as the query says, else a little deeper than this venue takes.
async fn deep() -> ProviderServer {
    ProviderServer::start(|message| {
        let depth = message["arguments"]["query"].as_str().and_then(|depth| depth.parse().ok()).unwrap_or(DEPTHS[0]);
        answer(&json!({"items": [{"namespace": "app/user/u1", "id": "a", "content": nested(depth)}]}))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_server_that_is_too_deep_is_a_text() {
    let server = deep().await;
    let host = format!("127.0.0.1:{}", server.port);
    let up = Up::start_with(&[&format!("http_client.allow_hosts={host}"), "http_client.allow_private=true"]);
    scripted(&up, "caller", &RULES.replace("URL", &format!("http://{host}")), json!({"tools": ["v/ops/http/get"]}));
    let output = run(&up, "caller").ok();
    assert!(output.starts_with("went on: ") && output.contains("200") && output.contains("core"), "{output}");
    is_readable(&up, "caller").await;
    // 84 levels, and 300.
    let post = json!({"url": format!("http://{host}/x"), "body": {"arguments": {"query": "300"}}});
    for (verb, input) in [("get", json!({"url": format!("http://{host}/x")})), ("post", post)] {
        let run = json!({"operation": format!("v/ops/http/{verb}"), "input": input});
        let got = reqwest::Client::new().post(format!("{}/api/v1/run", up.url)).json(&run).send().await.unwrap();
        let (status, got) = (got.status(), got.json::<Value>().await.unwrap());
        assert_eq!(status, StatusCode::OK, "{got}");
        assert!(got["body"].as_str().is_some_and(|text| text.contains("core")), "{verb}: {got}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_resource_that_is_too_deep_is_refused() {
    let server = deep().await;
    let kind = |key: &str, value: &str| format!("resources.kinds.rag.{key}={value}");
    let settings = [kind("url", &server.url()), kind("allow_private", "true"), kind("mode", "read")];
    let up = Up::start_with(&settings.each_ref().map(String::as_str));
    scripted(&up, "searcher", RULES, json!({"resources": {"docs": {"kind": "rag"}}}));
    let output = run(&up, "searcher").ok();
    assert!(output.starts_with("went on: error: "), "{output}");
    let turns: Value = serde_json::from_str(&up.run(&["turn", "list", "searcher", "--output", "json"]).ok()).unwrap();
    let prompt = up.run(&["turn", "show", turns["turns"][0]["name"].as_str().unwrap(), "--prompt"]).ok();
    assert!(
        prompt.matches("=== result of docs_search ===\nerror: ").count() == 2 && !prompt.contains("core"),
        "{prompt}"
    );
    assert_eq!(server.asked("search").len(), 2, "each call once");
    is_readable(&up, "searcher").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_an_asset_that_is_too_deep_is_refused_or_a_text() {
    let up = Up::start();
    let client = reqwest::Client::new();
    let store = async |asset: &Value| {
        let stored = client.post(format!("{}/api/v1/assets", up.url)).json(asset).send().await.unwrap();
        (stored.status(), stored.json::<Value>().await.unwrap())
    };
    let (status, said) = store(&json!({"content": nested(VALUE_DEPTH)})).await;
    assert!(said["error"].as_str().is_some_and(|text| text.contains("nested deeper than 64 levels")), "{said}");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for depth in DEPTHS {
        let text = nested(depth).to_string();
        let (status, stored) = store(&json!({"content": text, "contentType": "application/json"})).await;
        assert!(status.is_success(), "as bytes it is what it is: {stored}");
        let id = stored.as_str().unwrap().to_owned();
        let context = json!({"context": [{"ref": format!("a/{id}"), "label": "asset", "budget": 4000}]});
        scripted(&up, "reader", &RULES.replace("ASSET", &id), context);
        let output = run(&up, "reader").ok();
        assert!(output.starts_with("went on: "), "{output}");
        is_readable(&up, "reader").await;
        for path in [format!("assets/{id}"), format!("values/read?path=a/{id}")] {
            let got = client.get(format!("{}/api/v1/{path}", up.url)).send().await.unwrap();
            let (status, got) = (got.status(), got.json::<Value>().await.unwrap());
            assert_eq!(status, StatusCode::OK, "{path}: {got}");
        }
        let run = async |operation: &str, input: Value| {
            let run = json!({"operation": operation, "input": input});
            let got = client.post(format!("{}/api/v1/run", up.url)).json(&run).send().await.unwrap();
            (got.status(), got.json::<Value>().await.unwrap())
        };
        let (status, got) = run("v/ops/asset/content", json!({"id": id})).await;
        assert_eq!((status, &got["content"]), (StatusCode::OK, &json!(text)), "{got}");
        let (status, got) = run("v/ops/lattice/read", json!({"path": format!("a/{id}/content")})).await;
        assert_eq!((status, &got["value"]), (StatusCode::OK, &json!(text)), "too deep to be a value: {got}");
        let (status, got) = run("v/ops/agent/create", json!({"agentId": "made", "config": id})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "no configuration: {got}");
    }
}

/// One piece of an answer as `OpenAI` streams it.
fn streamed(delta: &Value, more: &Value) -> RawReply {
    let piece = json!({"id": "x", "object": "chat.completion.chunk", "model": "m", "more": more,
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let end = json!({"id": "x", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 5}});
    RawReply::events(&[piece.to_string(), end.to_string(), "[DONE]".to_owned()])
}

/// Models that say too much, each until it sees the result of a tool.
fn said(message: &Value) -> RawReply {
    let model = message["model"].as_str().unwrap_or_default();
    let (what, depth) = model.split_once('-').unwrap_or((model, "0"));
    let deep = nested(depth.parse().unwrap_or(0));
    let seen = message["messages"].as_array().into_iter().flatten().any(|message| message["role"] == "tool");
    match what {
        _ if seen => streamed(&json!({"role": "assistant", "content": "went on"}), &json!(0)),
        "arguments" => {
            let arguments = json!({"path": "w/x", "value": deep}).to_string();
            let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "lattice_write", "arguments": arguments}});
            streamed(&json!({"role": "assistant", "tool_calls": [call]}), &json!(0))
        }
        "text" => streamed(&json!({"role": "assistant", "content": json!({"a": deep}).to_string()}), &json!(0)),
        _ => streamed(&json!({"role": "assistant", "content": "whole"}), &deep),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_of_a_model_that_is_too_deep_is_refused_or_a_text() {
    let server = ModelServer::start(|call| said(&call.body));
    let base = format!("models.endpoints.openai.base_url={}", server.url("/v1/"));
    let up = Up::start_with(&[&base, "retry.total=2s"]);
    for depth in DEPTHS {
        let agent = |what: &str, mut config: Value| {
            let name = format!("{what}-{depth}");
            config["model"] = json!({"provider": "openai", "name": name});
            apply(&up, &name, &config);
            name
        };
        let arguments = agent("arguments", json!({}));
        assert_eq!(run(&up, &arguments).ok(), "went on");
        up.run(&["lattice", "read", "w/x"]).expect(5, "nothing at `w/x`");
        let text = agent("text", json!({}));
        assert!(run(&up, &text).ok().contains("core"), "a text is a text");
        is_readable(&up, &arguments).await;
        is_readable(&up, &text).await;
        // As a value of a type it is none, and asked for again no more often than any other.
        apply(
            &up,
            &text,
            &json!({"model": {"provider": "openai", "name": text}, "outputs": {"complete": {"schema": {"type": "object"}}}}),
        );
        run(&up, &text).expect(3, "OUTPUT_INVALID");
        // What surrounds it is nobody's value: it is read over, or the call fails as any that makes no sense.
        let whole = agent("whole", json!({}));
        let done = run(&up, &whole);
        assert!(done.code == 0 || done.err.contains("MODEL_ERROR"), "{done:?}");
        is_readable(&up, &whole).await;
    }
    let count = server.calls().len();
    assert!(count < 40, "nothing is asked again and again: {count}");
}
