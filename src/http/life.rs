//! `agents/{id}/…`: the life of an agent and its sessions, each through its operation.

use super::Api;
use super::extract::{Asked, Json, Who};
use super::operate::operate;
use super::problem::Problem;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// Runs `v/ops/agent/<verb>` with the keys of the body and those of the path, which count.
async fn run(api: &Api, who: &Who, verb: &str, body: Value, path: Value) -> Result<axum::Json<Value>, Problem> {
    let mut input = match body {
        Value::Null => Map::new(),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Problem::bad_request("expected a JSON object as the body, or none"));
        }
    };
    if let Value::Object(path) = path {
        input.extend(path);
    }
    let output = operate(api, who, &format!("v/ops/agent/{verb}"), Value::Object(input)).await?;
    Ok(axum::Json(output.value))
}

/// `PATCH agents/{id}`: keys of its configuration.
pub(super) async fn update(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    asked: Asked,
    Json(body): Json,
) -> Result<Response, Problem> {
    let mut path = json!({"agentId": id});
    if asked.flag("strict")? {
        path["strict"] = true.into();
    }
    Ok(run(&api, &who, "update", body, path).await?.into_response())
}

/// `PUT agents/{id}/suspend`, with `{"reason": …}` or nothing.
pub(super) async fn suspend(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    Json(body): Json,
) -> Result<Response, Problem> {
    Ok(run(&api, &who, "suspend", body, json!({"agentId": id})).await?.into_response())
}

/// `PUT agents/{id}/resume`.
pub(super) async fn resume(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    Json(body): Json,
) -> Result<Response, Problem> {
    Ok(run(&api, &who, "resume", body, json!({"agentId": id})).await?.into_response())
}

/// `DELETE agents/{id}`; with `remove=true` the name is free after it.
pub(super) async fn delete(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    let path = json!({"agentId": id, "remove": asked.flag("remove")?});
    Ok(run(&api, &who, "delete", Value::Null, path).await?.into_response())
}

/// `POST agents/{id}/fork`, with `{"to": …}`.
pub(super) async fn fork(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    Json(body): Json,
) -> Result<Response, Problem> {
    let forked = run(&api, &who, "fork", body, json!({"agentId": id})).await?;
    Ok((StatusCode::CREATED, forked).into_response())
}

/// `GET agents/{id}/sessions`.
pub(super) async fn sessions(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    let mut path = json!({"agentId": id});
    if let Some(after) = asked.text("after") {
        path["after"] = after.into();
    }
    if let Some(limit) = asked.number("limit")? {
        path["limit"] = limit.into();
    }
    Ok(run(&api, &who, "sessions", Value::Null, path).await?.into_response())
}

/// `GET agents/{id}/sessions/{session}`: the transcript.
pub(super) async fn session(
    State(api): State<Api>,
    who: Who,
    Path((id, session)): Path<(String, String)>,
    asked: Asked,
) -> Result<Response, Problem> {
    let mut path = json!({"agentId": id, "sessionId": session});
    path["after"] = asked.number("after")?.unwrap_or(0).into();
    if let Some(limit) = asked.number("limit")? {
        path["limit"] = limit.into();
    }
    Ok(run(&api, &who, "session-read", Value::Null, path).await?.into_response())
}

/// `POST agents/{id}/sessions/{session}/fork`, with `{"at": …}`.
pub(super) async fn fork_session(
    State(api): State<Api>,
    who: Who,
    Path((id, session)): Path<(String, String)>,
    Json(body): Json,
) -> Result<Response, Problem> {
    let forked = run(&api, &who, "session-fork", body, json!({"agentId": id, "sessionId": session})).await?;
    Ok((StatusCode::CREATED, forked).into_response())
}
