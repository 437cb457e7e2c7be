//! The JSON-RPC binding: every operation by one route.

use super::caller::{AgentPlace, PlaceNames};
use super::error::{A2aError, A2aErrorKind, JSON, JSON_RPC};
use super::media::{answer, check_content_type, check_version};
use super::operations::{A2aOperation, A2aReply, A2aRequest};
use crate::domain::decode::{self, Code};
use crate::domain::visible::quote_foreign;
use crate::http::Api;
use crate::http::extract::RawBody;
use crate::http::json_rpc::{ID_BYTES, is_id};
use crate::view::a2a::A2aRpcResult;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::Value;

/// A request of JSON-RPC.
struct A2aRpcRequest {
    id: Value,
    method: String,
    params: Value,
}

/// `POST /a2a/{tenant}/{user}/{agent}`: answers a request of JSON-RPC.
pub(in crate::http) async fn call(
    State(api): State<Api>,
    Path(names): Path<PlaceNames>,
    parts: Parts,
    RawBody(body): RawBody,
) -> Response {
    // Before the body is looked at: what isn't said to be JSON isn't read as such.
    if let Err(error) = check_content_type(&parts.headers) {
        return error.rpc_response(Value::Null);
    }
    let request = match parse(&body) {
        Ok(request) => request,
        Err(bad) => return bad.error.rpc_response(bad.id),
    };
    let id = request.id.clone();
    match run(&api, &names, &parts, request).await {
        Ok(A2aReply::Stream(stream)) => stream.into_response(Some(id)),
        Ok(A2aReply::Value(result)) => answer(JSON, &A2aRpcResult { jsonrpc: JSON_RPC.to_owned(), id, result }),
        Err(error) => error.rpc_response(id),
    }
}

async fn run(api: &Api, names: &PlaceNames, parts: &Parts, request: A2aRpcRequest) -> Result<A2aReply, A2aError> {
    check_version(parts)?;
    let unknown = || {
        let text = format!("method `{}` isn't one of the protocol", quote_foreign(&request.method));
        A2aError::new(A2aErrorKind::MethodNotFound, text)
    };
    let operation = A2aOperation::parse(&request.method).ok_or_else(unknown)?;
    let place = AgentPlace::parse(names)?;
    let asked = A2aRequest { api, place: &place, parts };
    Box::pin(asked.run(operation, request.params)).await
}

/// A body that is no request, with the id of the request as far as it is known.
struct BadRpcRequest {
    id: Value,
    error: A2aError,
}

/// Reads a request.
fn parse(body: &[u8]) -> Result<A2aRpcRequest, Box<BadRpcRequest>> {
    let value = decode::json(body).map_err(|wrong| {
        let kind = if wrong.fact.code == Code::Syntax { A2aErrorKind::Parse } else { A2aErrorKind::InvalidRequest };
        let error = A2aError::new(kind, format!("the body can't be read: {wrong}"));
        Box::new(BadRpcRequest { id: Value::Null, error })
    })?;
    let refuse = |id: Value, text: &str| {
        let error = A2aError::new(A2aErrorKind::InvalidRequest, text);
        Err(Box::new(BadRpcRequest { id, error }))
    };
    let Value::Object(mut map) = value else {
        return refuse(Value::Null, "expected one request as a map; batches aren't part of the protocol");
    };
    let id = map.shift_remove("id").unwrap_or_default();
    if !is_id(&id) {
        return refuse(Value::Null, &format!("`id`: expected a whole number or a text of at most {ID_BYTES} bytes"));
    }
    if map.get("jsonrpc").and_then(Value::as_str) != Some(JSON_RPC) {
        return refuse(id, "`jsonrpc`: expected `2.0`");
    }
    let Some(Value::String(method)) = map.shift_remove("method") else {
        return refuse(id, "`method`: expected the name of an operation");
    };
    match map.shift_remove("params").unwrap_or_default() {
        params @ (Value::Null | Value::Object(_)) => Ok(A2aRpcRequest { id, method, params }),
        _ => refuse(id, "`params`: expected a map"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_or_refused_with_its_id() {
        for (body, id, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#, "1", None),
            (r#"{"jsonrpc":"2.0","id":"a","method":"GetTask"}"#, "\"a\"", None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}"#, "1", Some(A2aErrorKind::InvalidRequest)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, "1", Some(A2aErrorKind::InvalidRequest)),
            (r#"{"jsonrpc":"2.0","id":1}"#, "1", Some(A2aErrorKind::InvalidRequest)),
            (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, "null", Some(A2aErrorKind::InvalidRequest)),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}"#, "null", Some(A2aErrorKind::InvalidRequest)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, "null", Some(A2aErrorKind::InvalidRequest)),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, "null", Some(A2aErrorKind::InvalidRequest)),
            ("{'jsonrpc': '2.0'}", "null", Some(A2aErrorKind::Parse)),
            ("", "null", Some(A2aErrorKind::Parse)),
        ] {
            let (found, error) = match parse(body.as_bytes()) {
                Ok(request) => (request.id, None),
                Err(bad) => (bad.id, Some(bad.error.kind)),
            };
            assert_eq!((found.to_string().as_str(), error), (id, kind), "{body}");
        }
    }
}
