//! Errors of 1.0.1 in both bindings.

use super::client::{A2aClient, BINDINGS, Binding};
use super::{Desk, at_once, text};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_codes_and_statuses_of_1_0_1() {
    let desk = Desk::open().await;
    let unknown = "0f".repeat(16);
    let unread = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [
        {"raw": "dGNr", "mediaType": "application/x-unsupported-tck-type"},
    ]}});
    let mut pictures = text("m", "hi");
    pictures["configuration"] = json!({"acceptedOutputModes": ["image/png"]});
    let agents = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "a"}]}});
    let done = desk.client("clerk", Binding::Rpc).ok("SendMessage", text("m", "hi")).await["task"]["id"].clone();
    for (operation, arguments, code, status, reason) in [
        ("GetTask", json!({"id": unknown}), -32001, 404, "TASK_NOT_FOUND"),
        ("GetTask", json!({"id": "no such id"}), -32001, 404, "TASK_NOT_FOUND"),
        ("CancelTask", json!({"id": unknown}), -32001, 404, "TASK_NOT_FOUND"),
        ("SubscribeToTask", json!({"id": unknown}), -32001, 404, "TASK_NOT_FOUND"),
        ("SendMessage", super::answer("m", &json!(unknown), "hi"), -32001, 404, "TASK_NOT_FOUND"),
        ("CancelTask", json!({"id": done}), -32002, 400, "TASK_NOT_CANCELABLE"),
        (
            "CreateTaskPushNotificationConfig",
            json!({"taskId": done, "url": "https://x"}),
            -32003,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        ("ListTaskPushNotificationConfigs", json!({"taskId": done}), -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("SubscribeToTask", json!({"id": done}), -32004, 400, "UNSUPPORTED_OPERATION"),
        ("SendMessage", super::answer("m", &done, "hi"), -32004, 400, "UNSUPPORTED_OPERATION"),
        ("SendMessage", unread, -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"),
        ("SendMessage", pictures, -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"),
        ("SendMessage", agents, -32602, 400, "INVALID_PARAMS"),
        ("SendMessage", json!({}), -32602, 400, "INVALID_PARAMS"),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}),
            -32602,
            400,
            "INVALID_PARAMS",
        ),
        ("ListTasks", json!({"pageSize": 0}), -32602, 400, "INVALID_PARAMS"),
        ("ListTasks", json!({"pageSize": 101}), -32602, 400, "INVALID_PARAMS"),
        ("ListTasks", json!({"pageToken": "nonsense"}), -32602, 400, "INVALID_PARAMS"),
        ("ListTasks", json!({"historyLength": -1}), -32602, 400, "INVALID_PARAMS"),
        ("ListTasks", json!({"statusTimestampAfter": "yesterday"}), -32602, 400, "INVALID_PARAMS"),
        ("ListTasks", json!({"status": "TASK_STATE_BUSY"}), -32602, 400, "INVALID_PARAMS"),
    ] {
        for binding in BINDINGS {
            let refused = desk.client("clerk", binding).refused(operation, arguments.clone()).await;
            let expected = if binding == Binding::Rpc { (200, code) } else { (status, i64::from(status)) };
            let found = (refused.http, refused.code);
            assert_eq!((found, refused.reason.as_str()), (expected, reason), "{operation} {arguments}: {refused:?}");
            assert_eq!(refused.domain == "a2a-protocol.org", (-32_009..=-32_001).contains(&code), "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_refused_and_none_is_0_3() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        for version in ["0.3", "99.0", "", "x"] {
            let other = client.clone().with_header("A2A-Version", version);
            for (operation, arguments) in [("SendMessage", text("m", "hi")), ("ListTasks", json!({}))] {
                let refused = other.refused(operation, arguments).await;
                assert_eq!(refused.reason, "VERSION_NOT_SUPPORTED", "{version}: {refused:?}");
            }
        }
        client.with_header("A2A-Version", "1.0.1").ok("ListTasks", json!({})).await;
    }
    let by_query = desk.server.get("/a2a/local/me/clerk/tasks?A2A-Version=1.0").await.body(200);
    assert_eq!(by_query["totalSize"], 0, "no refused message made a task: {by_query}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_by_its_form() {
    let desk = Desk::idle().await;
    let json_headers = [("content-type", "application/json"), ("A2A-Version", "1.0")];
    let plain_headers = [("content-type", "text/plain"), ("A2A-Version", "1.0")];
    let agent = "/a2a/local/me/clerk";
    let long_id = format!(r#"{{"jsonrpc": "2.0", "id": "{}", "method": "GetTask"}}"#, "x".repeat(257));
    for (headers, body, code) in [
        (&json_headers, "{", -32700),
        (&json_headers, "[]", -32600),
        (&json_headers, r#"{"jsonrpc": "2.0", "method": "GetTask"}"#, -32600),
        (&json_headers, r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, -32600),
        (&json_headers, long_id.as_str(), -32600),
        (&json_headers, r#"{"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}"#, -32601),
        (&plain_headers, r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}"#, -32005),
    ] {
        for path in [agent.to_owned(), format!("{agent}/")] {
            let answer = desk.server.send(Method::POST, &path, headers, body).await;
            assert_eq!(answer.body["error"]["code"], code, "{body}: {}", answer.body);
        }
    }
    let sent = desk.server.send(Method::POST, &format!("{agent}/message:send"), &plain_headers, "{}").await.body(400);
    assert_eq!(sent["error"]["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED");
    // What the API itself refuses has the form of the protocol, too.
    let long = format!("{{\"message\": \"{}\"}}", "x".repeat(200_000));
    let sent = desk.server.send(Method::POST, &format!("{agent}/message:send"), &json_headers, long).await.body(413);
    assert_eq!(sent["error"]["status"], "RESOURCE_EXHAUSTED");
    let nowhere = desk.server.send(Method::GET, &format!("{agent}/nowhere"), &json_headers, "").await.body(404);
    assert_eq!(nowhere["error"]["code"], 404, "{nowhere}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_another_owner_or_agent_is_not_there() {
    let mut desk = Desk::idle().await;
    let mine = desk.client("clerk", Binding::Rpc).ok("SendMessage", at_once(text("m", "hi"))).await["task"].clone();
    let id: Value = mine["id"].clone();
    desk.venue.owner = "local/other".parse().unwrap();
    desk.venue.agent("clerk", json!({"a2a": {}})).await;
    for binding in BINDINGS {
        for agent in ["local/other/clerk", "local/me/slow"] {
            let client = A2aClient::new(&desk.server.url, agent, binding);
            for (operation, arguments) in [
                ("GetTask", json!({"id": id})),
                ("CancelTask", json!({"id": id})),
                ("SubscribeToTask", json!({"id": id})),
                ("SendMessage", super::answer("m", &id, "hi")),
            ] {
                let refused = client.refused(operation, arguments).await;
                assert_eq!(refused.reason, "TASK_NOT_FOUND", "{agent} {operation}: {refused:?}");
            }
            assert_eq!(client.ok("ListTasks", json!({})).await["totalSize"], 0);
        }
        let still = desk.client("clerk", binding).ok("GetTask", json!({"id": id})).await;
        assert_eq!(still["status"]["state"], "TASK_STATE_SUBMITTED", "nobody has cancelled it: {still}");
    }
}
