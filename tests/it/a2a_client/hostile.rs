//! Agents elsewhere that hang, flood, lie or lead elsewhere.

use super::{CallerSite, told};
use crate::support::a2a_server::{A2aReply, A2aTestServer, card, interface};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the caller is told of an agent that answers its messages so.
async fn said_of(more: Value, reply: impl Fn() -> A2aReply + Send + Sync + 'static) -> (String, usize) {
    let server =
        A2aTestServer::start("JSONRPC", 0, move |asked| (asked.operation() == "SendMessage").then(&reply)).await;
    let site = CallerSite::new().await;
    site.agent("clerk", &server, more).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    (told(&job), server.asked("SendMessage").len())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_none_is_an_unknown_outcome() {
    let deep = format!("x\n{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let pages = [deep, "x\n<html>".to_owned(), "x\n{\"result\": 7}".to_owned()];
    for body in pages {
        let (said, sent) = said_of(json!({}), move || A2aReply::Status(200, "x-a", body.clone())).await;
        assert!(said.contains("outcome unknown"), "{said}");
        assert_eq!(sent, 1, "it is not sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_hangs_or_floods_costs_its_time_alone() {
    let began = Instant::now();
    let (said, sent) = said_of(json!({"timeout": 1}), || A2aReply::Hang).await;
    assert!(said.contains("outcome unknown") && said.contains("no whole answer within 1 s"), "{said}");
    let (flooded, _) = said_of(json!({}), || A2aReply::Endless).await;
    assert!(flooded.contains("more than 4194304 bytes"), "{flooded}");
    assert_eq!(sent, 1);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let target = "http://169.254.169.254/latest/meta-data";
    let (said, sent) = said_of(json!({}), move || A2aReply::Status(307, "location", target.to_owned())).await;
    assert!(said.contains("redirects, which is not followed"), "{said}");
    assert_eq!(sent, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_leads_into_a_private_network_is_refused() {
    let server = A2aTestServer::start("JSONRPC", 0, |_| None).await;
    server.change_card(|own| *own = card(&json!([interface("JSONRPC", "http://169.254.169.254/latest")])));
    let site = CallerSite::new().await;
    site.agent("clerk", &server, json!({})).await;
    let said = told(&site.venue.run("clerk", "t1", json!("go")).await);
    assert!(said.contains("is not one that this venue allows"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_agent_gets_the_message_again_under_the_same_id() {
    let calls = AtomicUsize::new(0);
    let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
        let busy = asked.operation() == "SendMessage" && calls.fetch_add(1, Ordering::SeqCst) < 2;
        busy.then(|| A2aReply::Status(503, "retry-after", "1\n{}".into()))
    })
    .await;
    let site = CallerSite::new().await;
    site.agent("clerk", &server, json!({})).await;
    let said = told(&site.venue.run("clerk", "t1", json!("go")).await);
    assert!(said.contains("found it"), "{said}");
    let ids: Vec<_> = server.asked("SendMessage").iter().map(|sent| sent.message()["messageId"].clone()).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeatable_message_is_sent_again_after_no_answer() {
    let calls = AtomicUsize::new(0);
    let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
        let hangs = asked.operation() == "SendMessage" && calls.fetch_add(1, Ordering::SeqCst) == 0;
        hangs.then_some(A2aReply::Hang)
    })
    .await;
    let site = CallerSite::new().await;
    site.agent("clerk", &server, json!({"timeout": 1, "repeatable": true})).await;
    let said = told(&site.venue.run("clerk", "t1", json!("go")).await);
    assert!(said.contains("found it"), "{said}");
    let sent = server.asked("SendMessage");
    assert_eq!((sent.len(), sent[0].message()), (2, sent[1].message()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_too_large_is_cut() {
    let (said, _) = said_of(json!({}), || {
        A2aReply::Result(json!({"message": {"messageId": "a", "parts": [
            {"text": "x".repeat(400_000)}, {"data": {"n": 1}}, {"raw": "AAEC", "mediaType": "image/png"},
        ]}}))
    })
    .await;
    // A result that is too large has its beginning, and says what is missing.
    assert!(said.contains("a result has at most 262144") && said.len() < 262_144 * 2, "{} bytes", said.len());
}
