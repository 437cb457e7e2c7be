//! `asset/*`, the paths under `a/`, and the routes of assets.

use super::{agent, refused};
use crate::support::http::Server;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use trellis::domain::ids::AssetId;
use trellis::store::{DocEffect, DocWrite, Expect, keys};

/// SHA-256 of `hello`.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[tokio::test(flavor = "multi_thread")]
async fn an_asset_is_named_by_its_content_and_never_changes() {
    let server = Server::start().await;
    let stored = server.run("asset/store", json!({"content": "hello", "name": "Greeting", "description": "d"})).await;
    assert_eq!((&stored["hash"], &stored["existed"]), (&json!(HELLO), &json!(false)));
    assert_eq!(stored["path"], format!("a/{HELLO}"));
    let again = server.run("asset/store", json!({"contentBase64": "aGVsbG8=", "name": "Other"})).await;
    assert_eq!((&again["hash"], &again["existed"], &again["name"]), (&json!(HELLO), &json!(true), &json!("Greeting")));
    let slashes = [format!("/a/{HELLO}"), format!("a/{HELLO}/")];
    for id in
        [HELLO.to_owned(), format!("a/{HELLO}"), format!("0x{HELLO}"), HELLO.to_uppercase()].into_iter().chain(slashes)
    {
        let known = server.run("asset/get", json!({"id": id})).await;
        assert_eq!(
            (&known["exists"], &known["contentType"], &known["size"]),
            (&json!(true), &json!("text/plain"), &json!(5))
        );
        assert_eq!(server.run("asset/content", json!({"id": id})).await["content"], "hello");
    }
    let absent = AssetId::of_content(b"none");
    assert_eq!(server.run("asset/get", json!({"id": absent.as_str()})).await, json!({"exists": false}));
    assert_eq!(server.run("asset/content", json!({"id": absent.as_str()})).await, json!({"exists": false}));
    refused(&server, "asset/get", json!({"id": "hello"}), 400, "64 hexadecimal digits").await;
    refused(&server, "asset/store", json!({}), 400, "exactly one of `content`").await;
    refused(&server, "asset/store", json!({"contentBase64": "?"}), 400, "not Base64").await;
    refused(&server, "asset/store", json!({"content": "x", "contentType": "x"}), 400, "media type").await;
    refused(&server, "lattice/write", json!({"path": format!("a/{HELLO}"), "value": 1}), 400, "kept by the venue")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_content_lies_in_chunks_and_comes_back_whole() {
    let server = Server::start().await;
    let bytes: Vec<u8> = (0..900_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let asked = json!({"contentBase64": BASE64_STANDARD.encode(&bytes)});
    let caller = agent("*", "");
    let stored = super::call(&server, &caller, "asset/store", asked).await.unwrap();
    let id = AssetId::of_content(&bytes);
    assert_eq!(stored["hash"], id.as_str());
    let asset = trellis::venue::assets::read_content(&server.venue, &caller.owner, &id).await.unwrap().unwrap();
    assert_eq!(asset.bytes, bytes);
    let short =
        super::call(&server, &caller, "asset/content", json!({"id": id.as_str(), "maxSize": 10})).await.unwrap();
    assert_eq!((&short["truncated"], &short["size"]), (&json!(true), &json!(900_000)));
    let list = super::call(&server, &caller, "asset/list", json!({})).await.unwrap();
    assert_eq!(list["total"], 1, "chunks are not listed: {list}");
    // Content that is not what its name says is never given out.
    let damaged = DocWrite {
        key: keys::asset_chunk(&id, 1),
        expect: Expect::Any,
        change: DocEffect::Put(bytes::Bytes::from_static(b"damaged")),
    };
    server.venue.store.write(server.venue.now(), &caller.owner, &[damaged]).await.unwrap();
    let error = trellis::venue::assets::read_content(&server.venue, &caller.owner, &id).await.unwrap_err();
    assert!(error.to_string().contains("is not what its name says"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_reported_and_never_mangled() {
    let server = Server::start().await;
    let stored = server.run("asset/store", json!({"contentBase64": "YWL/", "contentType": "text/plain"})).await;
    let id = stored["hash"].as_str().unwrap();
    let content = server.run("asset/content", json!({"id": id})).await;
    assert_eq!((&content["contentBase64"], content.get("content")), (&json!("YWL/"), None));
    assert_eq!(content["note"], "the content is not UTF-8 from byte 2 on");
    let text = json!({"id": id, "encoding": "utf-8"});
    refused(&server, "asset/content", text, 400, "not UTF-8 from byte 2 on; ask for `encoding` `base64`").await;
    refused(&server, "lattice/read", json!({"path": format!("a/{id}/content")}), 400, "not UTF-8").await;
    let hello = server.run("asset/store", json!({"content": "hello"})).await;
    let base64 = server.run("asset/content", json!({"id": hello["hash"], "encoding": "base64"})).await;
    assert_eq!(base64["contentBase64"], "aGVsbG8=");
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_are_paths_of_the_tree() {
    let server = Server::start().await;
    let read = async |path: String| server.run("lattice/read", json!({"path": path})).await;
    let stored = server.run("asset/store", json!({"content": {"lines": [{"price": 9}]}, "name": "order"})).await;
    let id = stored["hash"].as_str().unwrap();
    assert_eq!(read(format!("a/{id}")).await["value"]["name"], "order");
    assert_eq!(read(format!("a/{id}/contentType")).await["value"], "application/json");
    assert_eq!(read(format!("a/{id}/content/lines/0/price")).await["value"], 9);
    assert_eq!(read("a/none".to_owned()).await, json!({"exists": false}));
    assert_eq!(server.run("lattice/list", json!({"path": "a"})).await["keys"], json!([id]));
    let copied = server.run("lattice/copy", json!({"from": format!("a/{id}/content"), "to": "w/orders/1"})).await;
    assert_eq!((&copied["copied"], &copied["existed"]), (&json!(true), &json!(false)));
    assert_eq!(read("w/orders/1/lines/0/price".to_owned()).await["value"], 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_keeps_a_value_as_it_was() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "w/docs/policy", "value": {"v": 1}})).await;
    let pinned = server.run("asset/pin", json!({"path": "w/docs/policy"})).await;
    assert_eq!(pinned["path"], "o/policy");
    server.run("lattice/write", json!({"path": "w/docs/policy", "value": {"v": 2}})).await;
    assert_eq!(server.run("asset/content", json!({"id": "o/policy"})).await["content"], r#"{"v":1}"#);
    assert_eq!(server.run("asset/get", json!({"id": "o/policy"})).await["hash"], pinned["hash"]);
    let pin = server.run("lattice/read", json!({"path": "o/policy"})).await["value"].clone();
    assert_eq!(pin, json!({"asset": format!("a/{}", pinned["hash"].as_str().unwrap()), "from": "w/docs/policy"}));
    let again = server.run("asset/pin", json!({"path": pin["asset"], "name": "first"})).await;
    assert_eq!((&again["path"], &again["hash"]), (&json!("o/first"), &pinned["hash"]));
    let operation = server.run("asset/pin", json!({"path": "v/ops/covia/read", "name": "look"})).await;
    assert_eq!(operation["path"], "o/look");
    let look = server.run("lattice/read", json!({"path": "o/look"})).await;
    assert_eq!(look["value"]["operation"], "v/ops/lattice/read");
    assert_eq!(server.run("asset/content", json!({"id": "o/none"})).await, json!({"exists": false}));
    refused(&server, "asset/pin", json!({"path": "w/none/x"}), 404, "nothing is at `w/none/x`").await;
    refused(&server, "asset/pin", json!({"path": "w/docs/policy", "name": "a/../b"}), 400, "without `/`").await;
    refused(&server, "asset/content", json!({"id": "o/../x"}), 400, "illegal path").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_gives_no_right_to_what_it_names() {
    let server = Server::start().await;
    let all = agent("*", "");
    let pinned = super::call(&server, &all, "asset/store", json!({"content": "secret"})).await.unwrap();
    super::call(&server, &all, "asset/pin", json!({"path": pinned["path"], "name": "x"})).await.unwrap();
    let reader = agent("crud/read", "o");
    let error = super::call(&server, &reader, "asset/content", json!({"id": "o/x"})).await.unwrap_err();
    assert!(error.contains("asset/content requires crud/read on a/"), "{error}");
    let writer = agent("crud", "w");
    for (operation, input, part) in [
        ("asset/store", json!({"content": "x"}), "requires asset/store on a"),
        ("asset/list", json!({}), "requires crud/read on a"),
        ("asset/get", json!({"id": pinned["hash"]}), "requires crud/read on a/"),
        ("asset/pin", json!({"path": "w/x/y"}), "requires crud/write on o/y"),
        ("lattice/read", json!({"path": pinned["path"]}), "requires crud/read on a/"),
    ] {
        let error = super::call(&server, &writer, operation, input).await.unwrap_err();
        assert!(error.contains(part), "expected `{part}` in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_are_listed_page_by_page_and_served_as_data() {
    let server = Server::start().await;
    for n in 0..5 {
        server.post("/api/v1/assets", json!({"content": format!("n{n}")})).await.body(201);
    }
    let page = server.get("/api/v1/assets?offset=3&limit=3&details=true").await.body(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["total"]), (2, &json!(5)));
    let id = server.post("/api/v1/assets", json!({"content": "hello", "contentType": "text/html"})).await.body(201);
    assert_eq!(id, HELLO);
    let known = server.get(&format!("/api/v1/assets/{HELLO}")).await;
    assert_eq!(known.header("etag"), format!("\"0x{HELLO}\""));
    assert_eq!(known.body(200)["contentType"], "text/html");
    let content = server.get(&format!("/api/v1/assets/0x{HELLO}/content")).await;
    assert_eq!((content.header("content-type"), content.header("content-disposition")), ("text/html", "attachment"));
    assert_eq!(content.header("x-content-type-options"), "nosniff");
    assert_eq!(content.body(200), "hello");
    let put = |id: String, body: &'static str| {
        let path = format!("/api/v1/assets/{id}/content");
        let server = &server;
        async move { server.send(Method::PUT, &path, &[("content-type", "text/csv")], body).await }
    };
    let csv = AssetId::of_content(b"a,b");
    assert_eq!(put(csv.to_string(), "a,b").await.body(201), csv.as_str());
    put(csv.to_string(), "a,b").await.body(200);
    put(csv.to_string(), "a,c").await.is_problem(400, "expected content with the SHA-256");
    assert_eq!(server.run("asset/get", json!({"id": csv.as_str()})).await["contentType"], "text/csv");
    server.put("/api/v1/assets/x", Value::Null).await.is_problem(404, "/content");
    server.get("/api/v1/assets/w/x").await.is_problem(400, "64 hexadecimal digits");
    server.get(&format!("/api/v1/assets/{}", AssetId::of_content(b"none"))).await.is_problem(404, "no asset");
    server.post("/api/v1/assets", json!({})).await.is_problem(400, "exactly one of");
}

/// One slash at either end of a path changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_asset_is_shown_by_its_text_under_every_name() {
    let server = Server::start().await;
    server.run("asset/store", json!({"content": "hello", "name": "Greeting"})).await;
    let stored = json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": "FROM ASSET"}).to_string();
    let config = server.run("asset/store", json!({"content": stored, "contentType": "application/json"})).await;
    for (at, name) in ["", "a/", "/a/"].into_iter().enumerate() {
        let hash = config["hash"].as_str().unwrap();
        let made = json!({"agentId": format!("a{at}"), "config": [format!("{name}{hash}"), {"context": [format!("{name}{HELLO}")]}]});
        server.run("agent/create", made).await;
        let info = server.run("agent/info", json!({"agentId": format!("a{at}")})).await;
        assert!(info.to_string().contains("FROM ASSET"), "{name}: {info}");
        let seen = server.run("agent/context", json!({"agentId": format!("a{at}"), "task": "x"})).await.to_string();
        assert!(seen.contains(&format!(r"[Context: a/{HELLO}]\nhello")), "{name}: {seen}");
    }
}
