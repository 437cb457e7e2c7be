//! Replies without an end, of a real server through the real provider code: they end where a limit is, as an error.

use crate::support::cli::Up;
use crate::support::model_calls::{plain_request, user};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::{Framing, Piece, RawReply};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trellis::model::endpoint::{Keys, ModelEndpoint, ProviderOptions};
use trellis::model::models::{ModelOptions, Models};
use trellis::model::{LiveText, Model, ModelError};

const MIB: u64 = 1024 * 1024;
const SSE: &str = "text/event-stream";

/// A reply of this type that begins so and goes on with `piece` for ever.
fn endless(content_type: &str, begin: &str, piece: &str, pause: Duration) -> RawReply {
    let begin = RawReply::new(content_type, begin).framing(Framing::Close);
    begin.then(Piece::Repeat(piece.as_bytes().to_vec(), pause))
}

/// The error of a call that is answered without an end, and how many bytes of it were taken.
async fn ask(provider: &str, max_tokens: Option<u32>, reply: RawReply) -> (ModelError, u64) {
    let server = ModelServer::scripted(vec![reply]);
    let start = Instant::now();
    let outcome = call(&server, provider, max_tokens, Duration::from_mins(2)).await;
    let error = outcome.unwrap_err();
    assert!(start.elapsed() < Duration::from_mins(1), "{:?} for {error}", start.elapsed());
    (error, server.body_bytes_sent())
}

async fn call(
    server: &ModelServer,
    provider: &str,
    max_tokens: Option<u32>,
    timeout: Duration,
) -> Result<trellis::domain::chat::Reply, ModelError> {
    let endpoint = ModelEndpoint { base_url: server.url("/v1/"), api_key_env: None };
    let endpoints = BTreeMap::from([(provider.to_owned(), endpoint)]);
    let providers = ProviderOptions { endpoints, keys: Keys::new([]), ..ProviderOptions::default() };
    let models = Models::new(ModelOptions { providers, timeout, ..ModelOptions::default() }).unwrap();
    let mut request = plain_request(provider, vec![user("hello")]);
    request.model.max_tokens = max_tokens;
    let (live, _pieces) = LiveText::channel();
    models.complete(&request, &[], &live).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_reply_is_a_permanent_error() {
    let word = "x".repeat(1_000);
    let event = |json: String| format!("data: {json}\n\n");
    let openai = |delta: &str| event(format!("{{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}"));
    let text = openai(&format!("\"content\":\"{word}\""));
    let thought = openai(&format!("\"reasoning_content\":\"{word}\""));
    let call = |index: u32, more: &str| {
        openai(&format!(
            "\"tool_calls\":[{{\"index\":{index},\"id\":\"c{index}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{more}\"}}}}]"
        ))
    };
    let claude = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{word}\"}}}}\n\n"
    );
    let gemini = event(format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{word}\"}}]}}}}]}}"));
    let json = "application/json";
    let table: [(&str, &str, &str, &str, &str); 11] = [
        ("openai", SSE, "", &text, "says more than"),
        ("openai", SSE, "", &thought, "says more than"),
        ("openai", SSE, &call(0, ""), &call(0, &word), "says more than"),
        ("openai", SSE, "", &call(4_294_967_295, ""), "says more than"),
        ("openai", SSE, "data: ", &word, "one piece of its reply has more than"),
        ("openai", SSE, "", ": still here\n\n", "goes on after"),
        ("anthropic", SSE, "", &claude, "says more than"),
        ("gemini", SSE, "", &gemini, "says more than"),
        ("ollama", SSE, "", &text, "says more than"),
        ("cohere", json, "{\"text\": \"", &word, "one piece of its reply has more than"),
        ("zai", SSE, "", &text, "says more than"),
    ];
    for (provider, content_type, begin, piece, expected) in table {
        let (error, sent) = ask(provider, Some(100), endless(content_type, begin, piece, Duration::ZERO)).await;
        let ModelError::Unbounded { reason, .. } = &error else { panic!("{provider} {expected}: {error:?}") };
        assert!(reason.contains(expected), "{provider}: {reason}");
        assert!(sent < 64 * MIB, "{provider} {expected}: {} MiB were read", sent / MIB);
    }
    let (error, sent) = ask("openai", None, endless(SSE, "", &text, Duration::ZERO)).await;
    assert!(error.to_string().contains("says more than 2097152 bytes"), "without `maxTokens`: {error}");
    assert!(sent < 64 * MIB, "{} MiB were read", sent / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_without_an_end_is_read_at_its_beginning() {
    for (status, transient) in [(500, true), (400, false)] {
        for provider in ["openai", "cohere"] {
            let (error, sent) =
                ask(provider, None, endless("text/plain", "", "no, no, ", Duration::ZERO).status(status)).await;
            assert_eq!(matches!(error, ModelError::Transient { .. }), transient, "{error:?}");
            assert!(error.to_string().contains(&format!("{status}: no, no, no")), "{error}");
            assert!(error.to_string().len() < 2_000 && sent < 16 * MIB, "{} MiB were read", sent / MIB);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_drips_ends_with_the_time_of_a_call() {
    for (begin, piece) in
        [("data: ", "x"), ("", ": \n\n"), ("", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n")]
    {
        let server = ModelServer::scripted(vec![endless(SSE, begin, piece, Duration::from_millis(50))]);
        match call(&server, "openai", None, Duration::from_millis(700)).await {
            Err(ModelError::Transient { reason, .. }) => assert_eq!(reason, "no complete reply within 0.7 s"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn endless_replies_do_not_exhaust_a_workers_memory() {
    let word = "x".repeat(1_000);
    let text = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n");
    let kinds = [("talker", "", text.as_str()), ("liner", "data: ", word.as_str())];
    let servers = kinds
        .map(|(name, begin, piece)| (name, ModelServer::scripted(vec![endless(SSE, begin, piece, Duration::ZERO)])));
    let settings: Vec<String> = servers
        .iter()
        .map(|(name, server)| format!("models.endpoints.{name}.base_url={}", server.url("/v1/")))
        .collect();
    let up = Up::start_with(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut jobs = Vec::new();
    for (name, _) in &servers {
        up.file(&format!("{name}.toml"), &format!("model = {{ provider = \"{name}\", name = \"m\" }}"));
        up.run(&["agent", "apply", &format!("{name}.toml")]).ok();
        jobs.extend((0..6).map(|n| up.run(&["submit", name, &n.to_string(), "--session", &format!("s{n}")]).ok()));
    }
    for job in jobs {
        let ended = up.run(&["job", "wait", &job, "--timeout", "60s"]);
        assert!(ended.err.contains("gave no usable reply") || ended.out.contains("gave no usable reply"), "{ended:#?}");
    }
    let peak = up.process.peak_mib();
    assert!(peak < 400, "{peak} MiB");
    for (name, server) in &servers {
        assert!(
            server.body_bytes_sent() < 6 * 32 * MIB,
            "{name}: each call was made once, {} MiB",
            server.body_bytes_sent() / MIB
        );
    }
}
