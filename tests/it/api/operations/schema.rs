//! `schema/validate` and `schema/infer`.

use super::refused;
use crate::support::http::Server;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn misfits_are_listed_with_their_places() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "required": ["id"], "properties": {"n": {"type": "array", "items": {"type": "integer"}}}});
    let validate = async |input: Value| server.run("v/ops/schema/validate", input).await;
    let fits = validate(json!({"schema": schema, "value": {"id": 1, "n": [1]}})).await;
    assert_eq!(fits, json!({"valid": true, "errors": []}));
    let value = json!({"n": [1, "x", 2.5]});
    server.run("lattice/write", json!({"path": "w/r/1", "value": value})).await;
    let misfits = validate(json!({"schema": schema, "path": "w/r/1"})).await;
    assert_eq!(misfits["valid"], false);
    let errors = misfits["errors"].as_array().unwrap();
    let mut places: Vec<_> = errors.iter().map(|error| error["path"].as_str().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, ["", "/n/1", "/n/2"], "{misfits}");
    assert!(errors.iter().any(|error| error["message"] == "\"id\" is a required property"), "{misfits}");
    let first = validate(json!({"schema": schema, "value": value, "maxErrors": 1})).await;
    assert_eq!((first["errors"].as_array().unwrap().len(), &first["truncated"]), (1, &json!(true)));
    assert_eq!(validate(json!({"schema": false, "value": 1})).await["valid"], false);
    assert_eq!(validate(json!({"schema": {"type": "null"}, "value": null})).await["valid"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_can_not_be_used_is_refused() {
    let server = Server::start().await;
    for (schema, part) in [
        (json!({"type": "text"}), "not a JSON Schema: at `/type`"),
        (json!({"$ref": "http://127.0.0.1:1/schema.json"}), "into the same schema"),
        (json!({"allOf": [{"$ref": "#"}]}), "leads back to itself"),
        (json!({"pattern": "("}), "not a JSON Schema: at `/pattern`"),
    ] {
        refused(&server, "schema/validate", json!({"schema": schema, "value": "x"}), 400, part).await;
    }
    refused(&server, "schema/validate", json!({"schema": {}}), 400, "exactly one of").await;
    refused(&server, "schema/validate", json!({"schema": {}, "path": "w/none/x"}), 404, "nothing is at").await;
    refused(&server, "schema/validate", json!({"schema": {}, "value": 1, "maxErrors": 0}), 400, "`/maxErrors`").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inferred_schema_fits_its_samples() {
    let server = Server::start().await;
    let entries = json!({"a": {"id": 1, "tags": ["x"]}, "b": {"id": 2.5, "note": null}});
    server.run("lattice/write", json!({"path": "w/things", "value": entries})).await;
    let infer = async |input: Value| server.run("v/ops/schema/infer", input).await["schema"].clone();
    let each = infer(json!({"path": "w/things", "each": true})).await;
    let expected = json!({
        "type": "object",
        "properties": {
            "id": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": "null"}
        },
        "required": ["id"]
    });
    assert_eq!(each, expected);
    for (input, each) in [(json!([1, 2]), false), (json!({"x": [{}, {"y": true}]}), false)] {
        let schema = infer(json!({"value": input, "each": each})).await;
        let checked = server.run("schema/validate", json!({"schema": schema, "value": input})).await;
        assert_eq!(checked["valid"], true, "{schema}");
    }
    refused(&server, "schema/infer", json!({"value": 7, "each": true}), 400, "`each` expected").await;
}

/// Models often write JSON as a text.
#[tokio::test(flavor = "multi_thread")]
async fn json_in_a_text_is_read() {
    let server = Server::start().await;
    let map = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let text = json!({"n": "5"}).to_string();
    for schema in [map.clone(), map.to_string().into()] {
        let validate =
            async |value: Value| server.run("schema/validate", json!({"schema": schema, "value": value})).await;
        assert_eq!(validate(json!(json!({"n": 1}).to_string())).await["valid"], true);
        let wrong = validate(json!(text)).await;
        assert_eq!((&wrong["valid"], &wrong["errors"].as_array().unwrap().len()), (&json!(false), &1), "{wrong}");
        let coerced = server.run("schema/coerce", json!({"schema": schema, "value": text})).await;
        assert_eq!(coerced["value"], json!({"n": 5}));
        assert_eq!(server.run("schema/check", json!({"schema": schema})).await["valid"], true);
    }
    assert_eq!(server.run("schema/infer", json!({"value": text})).await["schema"]["type"], "object");
    // A text stays one where a text is meant.
    let texts = json!({"type": "string"});
    let kept = server.run("schema/validate", json!({"schema": texts, "value": text})).await;
    assert_eq!(kept["valid"], true);
    assert_eq!(server.run("schema/coerce", json!({"schema": texts, "value": text})).await["value"], json!(text));
    refused(&server, "schema/validate", json!({"schema": "no JSON", "value": 1}), 400, "not a JSON Schema").await;
}
