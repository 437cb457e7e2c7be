//! Files: names under namespaces, ranges, and what may not be seen.

use super::{Backend, Site, writable};
use serde_json::{Value, json};

const A: &str = "app/user/a";

async fn files_are_written_listed_and_read_in_ranges(backend: Backend) {
    let Some(site) = Site::over(backend).await else { return };
    let site = site.clerk(writable()).await;
    let text = "0123456789é";
    let wrote = site.ok("w", json!([A]), "files_write", json!({"path": "notes/a.md", "content": text})).await;
    assert_eq!((wrote["path"].as_str(), wrote["bytes"].as_u64()), (Some("app/user/a/notes/a.md"), Some(12)));
    let hash = wrote["hash"].as_str().unwrap();
    let listed = site.ok("l", json!([A]), "files_list", json!({})).await;
    assert_eq!(listed["files"][0]["hash"].as_str(), Some(hash));
    let part = site.ok("r", json!([A]), "files_read", json!({"path": "notes/a.md", "offset": 8, "length": 3})).await;
    assert_eq!((part["text"].as_str(), part["next"].as_u64()), (Some("89"), Some(10)), "whole characters");
    let args = json!({"path": "notes/a.md", "content": "new", "expect": "other"});
    let (outcome, text) = site.call("e", json!([A]), "files_write", args).await;
    assert_eq!((outcome.as_str(), text.contains("has changed: expected `other`")), ("bad arguments", true), "{text}");
    let args = json!({"path": "app/user/a/notes/a.md", "content": "new", "expect": hash});
    assert_eq!(site.ok("e2", json!([A]), "files_write", args).await["existed"], true);
    let docs = site.venue.venue.store.scan(&site.venue.owner, "r/files/c/", None, false, 10).await.unwrap();
    assert_eq!(docs.len(), 1, "the content that was replaced is gone");
    for (id, grants, args) in [
        ("o1", json!(["app/user/b"]), json!({"path": "app/user/a/notes/a.md"})),
        ("o2", json!(["app/user/b"]), json!({"path": "../a/notes/a.md"})),
        ("o3", json!(["app/user/a/notes/b"]), json!({"path": "app/user/a/notes/a.md"})),
    ] {
        let (outcome, text) = site.call(id, grants, "files_read", args).await;
        assert_ne!(outcome, "ok", "{id}: {text}");
        assert!(!text.contains("new"), "{id}: {text}");
    }
    let listed: Value = site.ok("o4", json!(["app/user/b"]), "files_list", json!({})).await;
    assert_eq!(listed["files"], json!([]));
    let above = site.ok("o5", json!(["app"]), "files_read", json!({"path": "app/user/a/notes/a.md"})).await;
    assert_eq!(above["text"], "new", "a grant covers what lies below");
}

#[tokio::test]
async fn files_are_written_listed_and_read_in_ranges_embedded() {
    files_are_written_listed_and_read_in_ranges(Backend::Embedded).await;
}

#[tokio::test]
async fn files_are_written_listed_and_read_in_ranges_redis() {
    files_are_written_listed_and_read_in_ranges(Backend::Redis).await;
}
