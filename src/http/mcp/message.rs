//! The message in a request's body: a request, a notification, or a response to a request of the server.

use super::refusal::{INVALID_REQUEST, PARSE_ERROR, RpcRefusal};
use crate::domain::decode;
use crate::http::json_rpc::{ID_BYTES, is_id};
use serde_json::{Map, Value};

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum RpcMessage {
    /// A request, which gets an answer.
    Request(RpcRequest),
    /// A message without an answer.
    Notification,
    /// An answer to a request of the server.
    Response(Value),
}

/// A request of a client.
#[derive(Debug, PartialEq)]
pub(super) struct RpcRequest {
    /// A number or a text.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// A message that can't be handled, with the id of its request where it has one.
#[derive(Debug, PartialEq)]
pub(super) struct MessageError {
    pub(super) id: Option<Value>,
    pub(super) refusal: RpcRefusal,
}

/// Reads a message. Several in one list were given up by the revision 2025-06-18.
pub(super) fn read(body: &[u8]) -> Result<RpcMessage, Box<MessageError>> {
    let wrong =
        |code, text: String| Box::new(MessageError { id: None, refusal: RpcRefusal::malformed_message(code, text) });
    let value = decode::json(body).map_err(|error| wrong(PARSE_ERROR, format!("malformed JSON: {error}")))?;
    let Value::Object(mut map) = value else {
        return Err(wrong(
            INVALID_REQUEST,
            "expected one message as a map; lists of messages are not taken".to_owned(),
        ));
    };
    if map.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Err(wrong(INVALID_REQUEST, "expected `\"jsonrpc\": \"2.0\"`".to_owned()));
    }
    let id = map.get("id").cloned();
    if let Some(id) = &id
        && !is_id(id)
    {
        return Err(wrong(
            INVALID_REQUEST,
            format!("`id`: expected a whole number or a text of at most {ID_BYTES} bytes"),
        ));
    }
    let Some(method) = map.shift_remove("method") else {
        let is_response = id.is_some() && (map.contains_key("result") != map.contains_key("error"));
        return if is_response {
            Ok(RpcMessage::Response(map.into()))
        } else {
            Err(wrong(INVALID_REQUEST, "expected a `method`, or an `id` with a `result` or an `error`".to_owned()))
        };
    };
    let invalid = |text: &str| {
        let refusal = RpcRefusal::malformed_message(INVALID_REQUEST, text);
        Box::new(MessageError { id: id.clone(), refusal })
    };
    let Value::String(method) = method else { return Err(invalid("`method`: expected a text")) };
    let params = match map.shift_remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("`params`: expected a map")),
    };
    Ok(match id {
        None => RpcMessage::Notification,
        Some(id) => RpcMessage::Request(RpcRequest { id, method, params }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_one_message() {
        let request = |id: Value, params: Value| {
            let Value::Object(params) = params else { panic!("expected a map") };
            Ok(RpcMessage::Request(RpcRequest { id, method: "ping".to_owned(), params }))
        };
        let code = |body: &str| read(body.as_bytes()).map_err(|error| (error.id, error.refusal.fault.code));
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, request(json!(1), json!({}))),
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":1}}"#, request(json!("a"), json!({"x": 1}))),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Ok(RpcMessage::Notification)),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                Ok(RpcMessage::Response(json!({"jsonrpc": "2.0", "id": 1, "result": {}}))),
            ),
            ("{", Err((None, PARSE_ERROR))),
            ("", Err((None, PARSE_ERROR))),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Err((None, INVALID_REQUEST))),
            (r#"{"id":1,"method":"ping"}"#, Err((None, INVALID_REQUEST))),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Err((None, INVALID_REQUEST))),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Err((None, INVALID_REQUEST))),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, Err((Some(json!(1)), INVALID_REQUEST))),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, Err((Some(json!(1)), INVALID_REQUEST))),
            (r#"{"jsonrpc":"2.0","id":1}"#, Err((None, INVALID_REQUEST))),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}1{}}}"#,
            "{\"a\":".repeat(99),
            "}".repeat(99)
        );
        assert_eq!(code(&deep), Err((None, PARSE_ERROR)));
    }
}
