//! The judging server: what it refuses, records, sends and passes on.

use crate::support::model_server::ModelServer;
use crate::support::raw_reply::{Framing, Piece, RawReply};
use crate::support::redis_cluster::until;
use crate::support::strict::Judge;
use serde_json::{Value, json};
use std::time::Duration;

fn good() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

async fn post(url: &str, body: &Value) -> (u16, String) {
    let reply = reqwest::Client::new().post(url).json(body).send().await.unwrap();
    (reply.status().as_u16(), reply.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_api_refuses_in_its_own_words() {
    let server = ModelServer::scripted(vec![RawReply::json(&json!({"ok": true}))]);
    for (path, place) in [
        ("/v1/chat/completions", "/error/message"),
        ("/v1/responses", "/error/message"),
        ("/v1/messages", "/error/message"),
        ("/v1beta/models/m:generateContent", "/error/message"),
        ("/api/chat", "/error"),
    ] {
        let (status, said) = post(&server.url(path), &json!({})).await;
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(status, 400, "{path}");
        assert!(said.pointer(place).is_some_and(Value::is_string), "{path}: {said}");
    }
    assert_eq!(server.take_refusals().len(), 5);
    assert_eq!(post(&server.url("/v1/chat/completions"), &good()).await, (200, "{\"ok\":true}".to_owned()));
    let last = server.calls().pop().unwrap();
    assert_eq!((last.path.as_str(), &last.body), ("/v1/chat/completions", &good()));
    assert_eq!(last.headers["content-type"], "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_dialect_replace_those_of_the_path() {
    let server = ModelServer::start_as(Judge::Mistral, |_| RawReply::json(&json!({})));
    let mut body = good();
    body["store"] = false.into();
    assert_eq!(post(&server.url("/v1/chat/completions"), &body).await.0, 400);
    assert_eq!(server.take_refusals(), ["Mistral: Extra inputs are not permitted, loc: ['body', 'store']"]);
}

#[test]
fn an_unexpected_refusal_fails_the_test() {
    let server = ModelServer::scripted(vec![RawReply::json(&json!({}))]);
    let url = server.url("/v1/chat/completions");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(post(&url, &json!({}))).0, 400);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)));
    assert!(dropped.is_err(), "dropped without a word");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_sent_as_told() {
    let text = "data: ä\n\n";
    let whole = |framing| RawReply::sse(text).split_at(&[1, 7]).framing(framing);
    let server = ModelServer::scripted(vec![
        whole(Framing::Chunked),
        whole(Framing::Length),
        whole(Framing::Close).then(Piece::Wait(Duration::from_millis(1))),
        RawReply::sse(text).cut_after(3),
        RawReply::new("text/plain", "no").status(429).header("retry-after", "7"),
    ]);
    let url = server.url("/v1/chat/completions");
    for _ in 0..3 {
        assert_eq!(post(&url, &good()).await, (200, text.to_owned()));
    }
    let cut = reqwest::Client::new().post(&url).json(&good()).send().await.unwrap().text().await;
    assert!(cut.is_err(), "{cut:?}");
    let late = reqwest::Client::new().post(&url).json(&good()).send().await.unwrap();
    assert_eq!((late.status().as_u16(), late.headers()["retry-after"].to_str().unwrap()), (429, "7"));
    // It counts when a piece is written, which may be read before.
    until("all is counted", async || server.body_bytes_sent() == 3 * 10 + 3 + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_is_passed_on() {
    let behind = ModelServer::scripted(vec![RawReply::sse("data: x\n\n").split_at(&[3])]);
    let front = ModelServer::in_front_of(behind.address());
    let url = front.url("/v1/chat/completions");
    assert_eq!(post(&url, &good()).await, (200, "data: x\n\n".to_owned()));
    assert_eq!(post(&url, &json!({})).await.0, 400);
    assert_eq!((front.calls().len(), behind.calls().len()), (2, 1));
    assert_eq!(front.take_refusals().len(), 1);
    front.wait_until("both connections have ended", |front| front.connections_ended() == 2).await;
}
