//! The real provider code over real HTTP, against rules served on loopback.

use crate::support::model_calls::{call, models_at, plain_request, user};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::{Framing, Piece, RawReply};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trellis::domain::chat::{Arguments, ChatMessage, ModelRequest, Reply, TokenUsage, ToolCall, ToolSpec};
use trellis::model::rules::ScriptRules;
use trellis::model::scripted::Script;
use trellis::model::{LiveText, Model, ModelError, mock_server};

const PROVIDERS: [&str; 4] = ["openai", "anthropic", "gemini", "ollama"];

/// The mock of the product behind a strict judge.
struct Server {
    url: String,
    _judge: ModelServer,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(rules: &str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let judge = ModelServer::in_front_of(listener.local_addr().unwrap());
        let script = Arc::new(Script::from_rules("test rules", ScriptRules::parse(rules).unwrap()));
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(mock_server::serve(listener, script, shutdown));
        Server { url: judge.url(""), _judge: judge, stop: Some(stop), task }
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(2), self.task).await.expect("stops in time").unwrap().unwrap();
    }
}

fn request(provider: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    let mut request = plain_request(provider, messages);
    request.model.temperature = Some(0.5);
    request.tools = vec![ToolSpec {
        name: "get_invoice".into(),
        description: "Looks an invoice up.".into(),
        schema: json!({"type": "object", "properties": {"id": {"type": "integer"}}}),
    }]
    .into();
    request
}

/// One call of `provider` under `rules`: the outcome and what was streamed.
async fn ask(rules: &str, provider: &str, messages: Vec<ChatMessage>) -> (Result<Reply, ModelError>, String) {
    let server = Server::start(rules).await;
    let called = call(&server.url, &request(provider, messages)).await;
    server.stop().await;
    called
}

#[tokio::test]
async fn text_and_usage_arrive() {
    let rules = "[[rule]]\nwhen = { model = 'small', last_role = 'user' }
        then = { text = 'Grüße, {{input}}: one two three four', usage = { input = 11, output = 7 } }";
    for provider in PROVIDERS {
        let (outcome, streamed) = ask(rules, provider, vec![user("Ann")]).await;
        let text = "Grüße, Ann: one two three four";
        let expected = Reply { text: text.into(), usage: TokenUsage::new(11, 7), ..Reply::default() };
        assert_eq!(outcome, Ok(expected), "{provider}");
        assert_eq!(streamed, text, "{provider}");
    }
}

#[tokio::test]
async fn calls_and_results_go_round() {
    let rules = r#"
        [[rule]]
        when = { turn = 1 }
        then = { text = "Looking.", calls = [{ tool = "get_invoice", arguments = { id = 7 } }, { tool = "now" }] }
        [[rule]]
        when = { turn = 2, tool = "now", tool_result = "noon", text = "noon" }
        then = { text = "It is {{tool_result}}." }
    "#;
    for provider in PROVIDERS {
        let (outcome, _) = ask(rules, provider, vec![user("invoice 7")]).await;
        let reply = outcome.unwrap();
        assert_eq!(reply.text, "Looking.", "{provider}");
        let called: Vec<(&str, &Arguments)> =
            reply.calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
        let (id, none) = (Arguments::Json(json!({"id": 7})), Arguments::Json(json!({})));
        assert_eq!(called, [("get_invoice", &id), ("now", &none)], "{provider}");
        assert_ne!(reply.calls[0].id, reply.calls[1].id, "{provider}");

        let result = |at: usize, text: &str| {
            let ToolCall { id, name, .. } = &reply.calls[at];
            ChatMessage::Tool { call: id.clone(), name: name.clone(), text: text.into() }
        };
        let messages = vec![
            user("invoice 7"),
            ChatMessage::assistant(reply.text.clone(), reply.calls.clone()),
            result(0, "{total: 5}"),
            result(1, "noon"),
        ];
        let (outcome, _) = ask(rules, provider, messages).await;
        assert_eq!(outcome.unwrap().text, "It is noon.", "{provider}");
    }
}

#[tokio::test]
async fn pieces_arrive_before_the_end() {
    let rules = "[[rule]]\nthen = { text = 'a long text in a good many pieces', stream_chunk_ms = 40 }";
    for provider in PROVIDERS {
        let server = Server::start(rules).await;
        let models = models_at(&server.url, Duration::from_mins(1)).await;
        let (live, mut pieces) = LiveText::channel();
        let request = request(provider, vec![user("x")]);
        let call = tokio::spawn(async move { models.complete(&request, &[], &live).await });
        assert_eq!(pieces.recv().await.unwrap(), "a long text ", "{provider}");
        assert!(!call.is_finished(), "{provider}");
        assert!(call.await.unwrap().is_ok(), "{provider}");
        server.stop().await;
    }
}

#[tokio::test]
async fn refusals_say_whether_and_when_to_ask_again() {
    let after = |millis: u64| Some(Duration::from_millis(millis));
    let table = [
        ("fault = 'rate_limit', retry_after_ms = 250", Some(after(250)), "429: too many requests"),
        ("fault = 'rate_limit'", Some(None), "429: too many requests"),
        ("fault = 'overloaded', retry_after_ms = 1500", Some(after(1_500)), "overloaded"),
        ("fault = 'bad_request'", None, "400: bad request"),
    ];
    for provider in PROVIDERS {
        for (fault, transient, said) in table {
            let (outcome, streamed) = ask(&format!("[[rule]]\nthen = {{ {fault} }}"), provider, vec![user("x")]).await;
            assert_eq!(streamed, "");
            match (outcome, transient) {
                (Err(ModelError::Transient { model, reason, retry_after }), Some(expected)) => {
                    assert_eq!((model, retry_after), (format!("{provider}/small"), expected), "{fault}");
                    assert!(reason.contains(said), "{provider} {fault}: {reason}");
                }
                (Err(ModelError::Permanent { reason, .. }), None) => assert!(reason.contains(said), "{reason}"),
                (outcome, _) => panic!("{provider} {fault}: {outcome:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_cut_stream_is_transient_and_shows_what_came() {
    let rules = "[[rule]]\nthen = { text = 'a long text in a good many pieces, cut', fault = 'cut_stream' }";
    for provider in PROVIDERS {
        let (outcome, streamed) = ask(rules, provider, vec![user("x")]).await;
        assert!(matches!(outcome, Err(ModelError::Transient { .. })), "{provider}: {outcome:?}");
        assert!(streamed.starts_with("a long text"), "{provider}: {streamed}");
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_come_as_they_are() {
    let rules =
        "[[rule]]\nthen = { calls = [{ tool = 'pay', arguments = { id = 7, to = 'Ann' } }], fault = 'bad_json' }";
    for provider in PROVIDERS {
        let (outcome, _) = ask(rules, provider, vec![user("x")]).await;
        let reply = outcome.unwrap();
        assert_eq!(reply.calls[0].arguments, Arguments::Malformed(r#"{"id":7,"to":"Ann""#.into()), "{provider}");
        // The model is told; the next request carries what it wrote.
        let call = reply.calls[0].clone();
        let told = ChatMessage::Tool { call: call.id.clone(), name: call.name.clone(), text: "not JSON".into() };
        let messages = vec![user("x"), ChatMessage::assistant(String::new(), vec![call]), told];
        let rules = "[[rule]]\nwhen = { tool = 'pay', tool_result = 'not JSON' }\nthen = { text = 'sorry' }";
        assert_eq!(ask(rules, provider, messages).await.0.unwrap().text, "sorry", "{provider}");
    }
}

#[tokio::test]
async fn a_request_without_a_rule_is_permanent() {
    let (outcome, _) = ask("[[rule]]\nwhen = { turn = 9 }\nthen = { text = 'x' }", "openai", vec![user("hello")]).await;
    match outcome {
        Err(ModelError::Permanent { reason, .. }) => {
            assert!(reason.starts_with("400: no rule of `test rules` answers turn 1"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_or_finds_nobody_is_transient() {
    let server = Server::start("[[rule]]\nthen = { fault = 'hang' }").await;
    let (live, _pieces) = LiveText::channel();
    let slow = models_at(&server.url, Duration::from_millis(150)).await;
    let nobody = models_at("http://127.0.0.1:1", Duration::from_mins(1)).await;
    for (models, said) in [(slow, "no complete reply within 0.15 s"), (nobody, "onnection refused")] {
        match models.complete(&request("openai", vec![user("x")]), &[], &live).await {
            Err(ModelError::Transient { reason, .. }) => assert!(reason.contains(said), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    // Before any answer, and in the middle of a stream.
    for (reply, body_bytes) in [(RawReply::silence(), 0), (RawReply::sse(": opened\n\n").then(Piece::Hold), 10)] {
        let server = ModelServer::scripted(vec![reply]);
        let models = models_at(&server.url(""), Duration::from_mins(1)).await;
        let (live, _pieces) = LiveText::channel();
        let request = request("openai", vec![user("x")]);
        let is_open = |server: &ModelServer| server.calls().len() == 1 && server.body_bytes_sent() == body_bytes;
        tokio::select! {
            outcome = models.complete(&request, &[], &live) => panic!("{outcome:?}"),
            () = server.wait_until("it has been called", is_open) => {}
        }
        server.wait_until("the connection is closed", |server| server.connections_ended() == 1).await;
    }
}

#[tokio::test]
async fn a_stream_that_ends_too_early_is_no_reply() {
    let sse = "text/event-stream";
    let table = [
        ("openai", sse, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\n"),
        (
            "anthropic",
            sse,
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"half\"}}\n\n",
        ),
        ("gemini", sse, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"half\"}]}}]}\n\n"),
        ("ollama", sse, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\n"),
        ("openai", "text/html", "<html>not a model</html>"),
    ];
    for (provider, kind, body) in table {
        let server = ModelServer::scripted(vec![RawReply::new(kind, body).framing(Framing::Length)]);
        let (outcome, streamed) = call(&server.url(""), &request(provider, vec![user("x")])).await;
        match outcome {
            Err(ModelError::Transient { reason, .. }) => {
                let no_stream = "its answer is no stream of events (200, content-type `text/html`, it begins \
                                 `<html>not a model</html>`): is the URL of the endpoint right?";
                let expected = if kind == "text/html" { no_stream } else { "the reply ended in the middle" };
                assert_eq!(reason, expected, "{provider}");
            }
            other => panic!("{provider}: {other:?}"),
        }
        assert_eq!(streamed, if body.contains("half") { "half" } else { "" }, "{provider}");
    }
}

/// What a stream of these events comes to.
async fn streamed(events: &[&str]) -> Result<Reply, ModelError> {
    let server = ModelServer::scripted(vec![RawReply::events(events)]);
    call(&server.url(""), &request("openai", vec![user("x")])).await.0
}

#[tokio::test]
async fn a_refusal_and_a_reply_that_is_cut_off_say_so() {
    const DONE: &str = "[DONE]";
    let refused = [
        r#"{"choices":[{"index":0,"delta":{"refusal":"I will"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"refusal":" not"},"finish_reason":"stop"}]}"#,
        DONE,
    ];
    let error = streamed(&refused).await.unwrap_err().to_string();
    assert_eq!(error, "model `openai/small` refused the request: it says: I will not");
    for (finish, expected) in [
        ("stop", Ok(false)),
        ("length", Ok(true)),
        (
            "content_filter",
            Err("the provider's content filter (`content_filter`) cut its reply off after 4 characters"),
        ),
    ] {
        let event = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"half"}},"finish_reason":"{finish}"}}]}}"#);
        match (streamed(&[event.as_str(), DONE]).await, expected) {
            (Ok(reply), Ok(truncated)) => assert_eq!((reply.text.as_str(), reply.truncated), ("half", truncated)),
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            other => panic!("{finish}: {other:?}"),
        }
    }
    for silent in [&[DONE][..], &[r#"{"choices":[{"index":0}]}"#, DONE], &[r#"{"id":"x"}"#, DONE]] {
        assert_eq!(streamed(silent).await.unwrap(), Reply::default(), "whoever asks decides what nothing means");
    }
}

#[tokio::test]
async fn a_key_goes_to_its_endpoint_only() {
    for (provider, base_url, header, sent) in [
        ("openai", None, "authorization", "Bearer sk-test-key"),
        ("openai", Some("/elsewhere"), "authorization", "Bearer none"),
        ("anthropic", Some("/other"), "x-api-key", "none"),
    ] {
        let refusal = RawReply::new("text/plain", "bad sk-test-key!").status(401);
        let server = ModelServer::scripted(vec![refusal]);
        let mut request = request(provider, vec![user("x")]);
        request.model.base_url = base_url.map(|path| server.url(path));
        let (outcome, _) = call(&server.url(""), &request).await;
        assert_eq!(server.calls()[0].headers[header], sent);
        match outcome {
            Err(ModelError::Unusable { reason, .. }) => {
                let expected =
                    if sent.contains("sk-test-key") { "401: bad [secret model-key]!" } else { "401: bad sk-test-key!" };
                assert_eq!(reason, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A server's answer that says this text, in every way in which an error shows it.
fn answers_with(text: &str) -> Vec<RawReply> {
    let report = json!({"error": {"message": text, "type": "server_error"}});
    let chunk =
        |delta: Value, finish: &str| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    vec![
        RawReply::new("text/plain", text).status(401),
        RawReply::json(&report).status(500),
        RawReply::json(&report),
        RawReply::events(&[report.to_string()]),
        RawReply::events(&[chunk(json!({"refusal": text}), "stop").to_string()]),
        RawReply::events(&[chunk(json!({"content": ""}), text).to_string()]),
        RawReply::new("text/html", text),
        RawReply::new(text, "<html>"),
    ]
}

#[tokio::test]
async fn no_error_shows_a_part_of_the_key_wherever_it_is_cut() {
    const KEY: &str = "sk-test-key";
    // Where texts are cut: headers, beginnings of what is no reply, words of providers, bodies.
    for cut in [80, 200, 1_000, 64 * 1024] {
        for before in cut - KEY.len() - 9..=cut + 1 {
            let text = "é".repeat(usize::from(cut == 200)) + &"x".repeat(before) + KEY + &"y".repeat(200);
            for (way, answer) in answers_with(&text).into_iter().enumerate() {
                let server = ModelServer::scripted(vec![answer]);
                let (outcome, _) = call(&server.url(""), &request("openai", vec![user("x")])).await;
                let error = outcome.unwrap_err().to_string();
                assert!(!error.contains(&KEY[..4]), "way {way}, {before} before the key: {error}");
                assert!(error.len() < 2_000, "way {way}: {} bytes", error.len());
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ModelServer::scripted(vec![RawReply::sse("")]);
    let moved = RawReply::new("text/plain", "").status(307).header("location", &elsewhere.url("/"));
    let server = ModelServer::scripted(vec![moved]);
    let (outcome, _) = call(&server.url(""), &request("anthropic", vec![user("x")])).await;
    assert!(matches!(outcome, Err(ModelError::Transient { .. })), "{outcome:?}");
    assert_eq!((server.calls().len(), elsewhere.calls().len()), (1, 0));
}

#[tokio::test]
async fn an_unknown_provider_lists_the_known() {
    let (outcome, _) = ask("[[rule]]\nthen = { text = 'x' }", "opneai", vec![user("x")]).await;
    match outcome {
        Err(ModelError::Unusable { reason, .. }) => {
            assert!(reason.contains("`openai`") && reason.contains("`scripted`"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whole_replies_and_models_are_served_too() {
    let server = Server::start(
        "[[rule]]\nwhen = { model = 'm' }\nthen = { text = 'hi', calls = [{ tool = 'pay' }], usage = { input = 3, output = 2 } }",
    )
    .await;
    let http = reqwest::Client::new();
    let post = async |path: &str| -> Value {
        let body =
            json!({"model": "m", "stream": false, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]});
        let response = http.post(format!("{}{path}", server.url)).json(&body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        response.json().await.unwrap()
    };
    let openai = post("/v1/chat/completions").await;
    assert_eq!(openai["choices"][0]["message"]["content"], "hi");
    assert_eq!(openai["choices"][0]["message"]["tool_calls"][0]["function"], json!({"name": "pay", "arguments": "{}"}));
    assert_eq!(openai["usage"]["total_tokens"], 5);
    let anthropic = post("/v1/messages").await;
    assert_eq!(anthropic["content"][1]["name"], "pay");
    let ollama = post("/api/chat").await;
    assert_eq!(ollama["message"]["content"], "hi");
    let models: Value = http.get(format!("{}/v1/models", server.url)).send().await.unwrap().json().await.unwrap();
    assert_eq!(models["data"][1]["id"], "m");
    drop(http);
    server.stop().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_hanging_call() {
    let server = Server::start("[[rule]]\nthen = { fault = 'hang' }").await;
    let models = models_at(&server.url, Duration::from_mins(1)).await;
    let (live, _pieces) = LiveText::channel();
    let call = tokio::spawn(async move { models.complete(&request("openai", vec![user("x")]), &[], &live).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop().await;
    assert!(matches!(call.await.unwrap(), Err(ModelError::Transient { .. })));
}
