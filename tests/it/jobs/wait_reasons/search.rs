//! A search says how far it has looked, and the command line looks on by itself.

use crate::support::cli::Up;
use crate::support::http::Server;
use futures::{StreamExt, stream};
use reqwest::Client;
use serde_json::{Value, json};

/// Jobs that one answer of a filtered list looks at, and some more.
const JOBS: usize = 1_050;

#[tokio::test]
async fn a_filtered_list_says_how_far_it_was_looked_through() {
    let server = Server::start().await;
    let config = json!({"model": {"provider": "scripted", "name": "never"}});
    server.put("/api/v1/agents/a", config).await.body(201);
    for n in 0..2 {
        server.post("/api/v1/agents/a/tasks", json!({"input": n})).await.body(202);
    }
    let page = server.get("/api/v1/jobs?agent=a&limit=1&details=true").await.body(200);
    // The list is in the order of admission, which is a moment after the job's creation.
    let (looked, created) = (page["lookedBackTo"].as_u64().unwrap(), page["items"][0]["created"].as_u64().unwrap());
    assert!((created..created + 1_000).contains(&looked), "{page}");
    assert!(page["next"].as_str().unwrap().starts_with(&format!("{looked:016}-")), "{page}");
    let page = server.get("/api/v1/jobs?agent=a&limit=9").await.body(200);
    assert_eq!((&page["lookedBackTo"], &page["next"]), (&Value::Null, &Value::Null), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_searches_until_a_match_or_the_end() {
    let up = Up::start();
    up.agent("a", "never");
    let (client, url) = (Client::new(), format!("{}/api/v1/agents/a/tasks", up.url));
    let submit = async |input: Value| {
        let sent = client.post(&url).json(&json!({"input": input})).send().await.unwrap();
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    };
    submit(json!("the needle")).await;
    let others = (0..JOBS).map(|n| submit(json!(n)));
    stream::iter(others).buffer_unordered(32).collect::<Vec<_>>().await;
    let found = up.run(&["job", "list", "--text", "needle", "--output", "json"]).ok();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["items"][0]["input"], "the needle", "{found}");
    assert_eq!((found["items"].as_array().unwrap().len(), &found["next"]), (1, &Value::Null));
}
