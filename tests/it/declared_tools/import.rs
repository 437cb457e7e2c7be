//! Real OpenAPI documents, that of this venue and that of GitHub, become declarations that each provider takes.

use crate::support::api_tools::package_file;
use crate::support::cli::{Up, run};
use serde_json::{Map, Value, json};
use trellis::domain::declared::ToolDeclaration;
use trellis::domain::declared::openapi::{ImportChoice, ImportedTools, import};
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

/// GitHub's description of its API (MIT licence): 1,223 operations in 13 MB.
const GITHUB: &str = "@octokit/openapi/generated/api.github.com.json";

/// Paths of one part of a document: with five operations each, no more than one import takes.
const PATHS: usize = 50;

#[test]
fn the_api_of_github_becomes_tools_for_every_dialect() {
    let Some(file) = package_file(GITHUB) else { return };
    let (name, dir) = (file.display().to_string(), tempfile::tempdir().unwrap());
    run(dir.path(), &["tool", "import", &name]).expect(2, "1223 operations, expected at most 256: name some");
    let some = run(dir.path(), &["tool", "import", &name, "--only", "issues/create,issues/get", "--secret", "GITHUB"]);
    let some: Value = serde_json::from_str(&some.ok()).unwrap();
    let urls: Vec<&str> =
        some["tools"].as_array().unwrap().iter().filter_map(|tool| tool["http"]["url"].as_str()).collect();
    let issues = "https://api.github.com/repos/{owner}/{repo}/issues";
    assert_eq!(urls, [issues, &format!("{issues}/{{issue_number}}")]);
    let mut document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let paths: Vec<(String, Value)> =
        document["paths"].as_object_mut().map(std::mem::take).unwrap().into_iter().collect();
    let (mut count, mut left_out) = (0, Vec::new());
    for part in paths.chunks(PATHS) {
        document["paths"] = part.iter().cloned().collect::<Map<_, _>>().into();
        let ImportedTools { tools, skipped } = import(&document, &ImportChoice::default()).unwrap();
        count += tools.len();
        left_out.extend(skipped.into_iter().map(|(id, reason)| format!("{id}: {reason}")));
        for tool in tools {
            for dialect in DIALECTS {
                project(&tool.input(), dialect.schema).unwrap_or_else(|error| panic!("{}: {error}", tool.name));
            }
        }
    }
    // Schemas of more than 16 KiB, and a body of bytes.
    assert!(left_out.len() <= 6, "{left_out:#?}");
    assert_eq!(count + left_out.len(), 1_223, "{left_out:#?}");
}
