//! A real OpenAPI document of some size, that of this venue, becomes declarations that each provider takes.

use crate::support::cli::Up;
use serde_json::{Value, json};
use trellis::domain::declared::ToolDeclaration;
use trellis::domain::wire::dialect::DIALECTS;
use trellis::domain::wire::schema::project;

#[tokio::test(flavor = "multi_thread")]
async fn an_openapi_document_becomes_tools_for_every_dialect() {
    let up = Up::start();
    let document = reqwest::get(format!("{}/api/v1/openapi.json", up.url)).await.unwrap().text().await.unwrap();
    assert!(document.len() > 50_000, "{} bytes", document.len());
    up.file("openapi.json", &document);
    let imported = up.run(&["tool", "import", "openapi.json", "--base-url", &up.url]);
    let left_out = imported.err.clone();
    let imported: Value = serde_json::from_str(&imported.ok()).unwrap();
    let tools = imported["tools"].as_array().unwrap();
    assert!(tools.len() > 30, "{} tools; {left_out}", tools.len());
    for tool in tools {
        let tool: ToolDeclaration = serde_json::from_value(tool.clone()).unwrap();
        tool.check().unwrap_or_else(|error| panic!("{}: {error}", tool.name));
        for dialect in DIALECTS {
            project(&tool.input(), dialect.schema).unwrap_or_else(|error| panic!("{}: {error}", tool.name));
        }
    }
    // What was imported can be called: the venue calls itself.
    let status = tools.iter().find(|tool| tool["http"]["url"].as_str().is_some_and(|url| url.ends_with("/status")));
    let (status, name) = (status.unwrap(), status.unwrap()["name"].as_str().unwrap());
    let port = up.url.rsplit(':').next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("itself.json"), json!({"tools": [status]}).to_string()).unwrap();
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{port}");
    let other = Up::start_in(dir, &[&hosts, "http_client.allow_private=true", "catalog.tools=itself.json"]);
    let status: Value = serde_json::from_str(&other.run(&["tool", "try", &format!("itself:{name}")]).ok()).unwrap();
    assert!(status.is_object(), "{status}");
}
