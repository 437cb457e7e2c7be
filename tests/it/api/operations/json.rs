//! `json/merge` and `json/select`.

use super::refused;
use crate::support::http::Server;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn values_are_merged_in_their_order() {
    let server = Server::start().await;
    for (values, expected) in [
        (json!([{"a": 1, "b": {"x": 1}}, {"b": {"y": 2}}, {"a": null, "b": {"x": 3}}]), json!({"b": {"x": 3, "y": 2}})),
        (json!([[1], {"a": 1}, "text"]), json!("text")),
    ] {
        let merged = server.run("v/ops/json/merge", json!({"values": values})).await;
        assert_eq!(merged, json!({"value": expected}), "{values}");
    }
    refused(&server, "json:merge", json!({"values": {}}), 400, "at `/values`").await;
    refused(&server, "json:merge", json!({}), 400, "\"values\" is a required property").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_picked_out_of_a_value_or_a_path() {
    let server = Server::start().await;
    let order = json!({"lines": [{"price": 9, "note": null}], "a/b": 1});
    server.run("lattice/write", json!({"path": "w/orders/1", "value": order})).await;
    for (select, expected) in [
        (json!("/lines/0/price"), json!({"exists": true, "value": 9})),
        (json!("lines/0/note"), json!({"exists": true, "value": null})),
        (json!("/a~1b"), json!({"exists": true, "value": 1})),
        (json!(["lines", 0, "price"]), json!({"exists": true, "value": 9})),
        (json!("lines/1"), json!({"exists": false})),
    ] {
        let given = server.run("json/select", json!({"value": order, "select": select})).await;
        assert_eq!(given, expected, "{select}");
        let read = server.run("json/select", json!({"path": "w/orders/1", "select": select})).await;
        assert_eq!(read, expected, "{select}");
    }
    let nothing = server.run("json/select", json!({"path": "w/none/1", "select": ""})).await;
    assert_eq!(nothing, json!({"exists": false}));
    let both = json!({"path": "w/orders/1", "value": 1, "select": ""});
    refused(&server, "json/select", both, 400, "exactly one of `value` and `path`").await;
    refused(&server, "json/select", json!({"select": ""}), 400, "exactly one of `value` and `path`").await;
    refused(&server, "json/select", json!({"value": 1, "select": "/~"}), 400, "after `~`").await;
    refused(&server, "json/select", json!({"path": "x/1", "select": ""}), 400, "unknown namespace").await;
}

/// RFC 7396 from nothing: a null removes its key, also in the first value.
#[tokio::test(flavor = "multi_thread")]
async fn no_null_is_left_in_merged_values() {
    let server = Server::start().await;
    for (values, expected) in [
        (json!([{"a": {"x": null, "y": [null]}}]), json!({"a": {"y": [null]}})),
        (json!([{"a": null}, {"b": 1}]), json!({"b": 1})),
        (json!([{"a": 1}, {"b": {"c": null, "d": 2}}]), json!({"a": 1, "b": {"d": 2}})),
        (json!([]), json!({})),
        (json!([7]), json!(7)),
    ] {
        assert_eq!(server.run("json/merge", json!({"values": values})).await, json!({"value": expected}), "{values}");
    }
}
