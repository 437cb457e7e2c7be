//! Resources: what their routes show, under the same capabilities.

use super::Site;
use serde_json::{Value, json};

async fn read(site: &Site, uri: &str) -> Value {
    let result = site.client().result("resources/read", json!({"uri": uri})).await;
    let content = &result["contents"][0];
    assert_eq!((&content["uri"], &content["mimeType"]), (&json!(uri), &json!("application/json")));
    serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_timelines_prompts_and_values_are_resources() {
    let site = Site::new().await;
    site.venue.write("w/notes", json!({"a b": 1})).await;
    let called = site.client().call("ask_echo", json!({"input": "hi", "session": "s 1".replace(' ', "-")})).await;
    let job = called["structuredContent"]["job"].as_str().unwrap().to_owned();
    assert_eq!(read(&site, &format!("trellis://jobs/{job}")).await["output"], "hi");
    let turns = read(&site, "trellis://agents/echo/timeline").await;
    assert_eq!(turns["turns"][0]["session"], "s-1", "{turns}");
    let turn = read(&site, "trellis://agents/echo/turns/s-1/1").await;
    assert!(turn["request"].is_object() && turn["ledger"].is_object(), "{turn}");
    let transcript = read(&site, "trellis://agents/echo/sessions/s-1").await;
    assert!(transcript.to_string().contains("hi"), "{transcript}");
    assert_eq!(read(&site, "trellis://lattice/w/notes").await["value"], json!({"a b": 1}));
    let listed = site.client().result("resources/list", json!({})).await;
    let uris: Vec<_> = listed["resources"].as_array().unwrap().iter().map(|one| one["uri"].clone()).collect();
    assert!(uris.contains(&json!(format!("trellis://jobs/{job}"))), "{uris:?}");
    for uri in [
        "trellis://agents/nobody/timeline",
        "trellis://agents/echo/turns/s-1/99",
        "trellis://agents/echo/sessions/none",
        "trellis://lattice/w/nothing",
        "trellis://jobs/x",
        "trellis://",
        "file:///etc/passwd",
        "https://169.254.169.254/",
    ] {
        let refused = site.client().ask("resources/read", json!({"uri": uri})).await;
        assert_eq!((&refused["error"]["code"], refused.get("result")), (&json!(-32602), None), "{uri}: {refused}");
    }
}
