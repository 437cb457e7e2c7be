//! `POST /mcp`: reads the message and hands a request on to its method.

use super::call::McpCall;
use super::message::{MessageError, RpcMessage, RpcRequest};
use super::refusal::{INVALID_REQUEST, RpcRefusal};
use super::{client, listen, message, methods, reply, site};
use crate::http::Api;
use crate::http::extract::{RawBody, RequestCaller};
use crate::http::problem::Problem;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use serde_json::Value;
use tokio::sync::mpsc;

/// Messages that wait for a client which reads slowly.
const MESSAGES: usize = 64;

/// Answers one message of a client.
pub(in crate::http) async fn post(
    State(api): State<Api>,
    who: RequestCaller,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    site::check(&api.options, &headers)?;
    check_media_type(&headers)?;
    match message::read(&body) {
        Err(error) => {
            let MessageError { id, refusal } = *error;
            Ok(refusal.into_response(id))
        }
        Ok(RpcMessage::Notification) => Ok(StatusCode::ACCEPTED.into_response()),
        Ok(RpcMessage::Response(response)) => Ok(accept_response(&api, &who, &response).await),
        Ok(RpcMessage::Request(request)) => {
            drop(body);
            Ok(answer(api, who, headers, request).await)
        }
    }
}

async fn answer(api: Api, who: RequestCaller, headers: HeaderMap, request: RpcRequest) -> Response {
    let id = request.id.clone();
    let client = match client::read(&headers, &request) {
        Ok(client) => client,
        Err(refusal) => return refusal.into_response(Some(id)),
    };
    let (messages, sent) = mpsc::channel(MESSAGES);
    let call = McpCall { api: api.clone(), who, client, request, messages };
    if call.client.is_stateless && call.request.method == "subscriptions/listen" {
        return match listen::open(&call, headers).boxed().await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(Some(id)),
        };
    }
    // Only calls of tools wait. What else takes its time reads much, and its memory is charged until the whole answer is
    // there.
    let may_stream = call.request.method == "tools/call" && reads_streams(&headers);
    reply::respond(&api, methods::answer(call).boxed(), sent, may_stream).await
}

/// Takes an answer to a request that an extension has sent; the venue itself asks clients nothing outside of results.
async fn accept_response(api: &Api, who: &RequestCaller, response: &Value) -> Response {
    let is_known = match &api.options.mcp_extension {
        Some(extension) => extension.accept_response(who.owner(), response).await,
        None => false,
    };
    if is_known {
        return StatusCode::ACCEPTED.into_response();
    }
    RpcRefusal::malformed_message(INVALID_REQUEST, "a response to no request of this server").into_response(None)
}

/// A page of another site can send other types without asking first.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let media = given.to_str().unwrap_or("?");
    if media.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("expected `application/json`, got `{media}`")))
}

fn reads_streams(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}
