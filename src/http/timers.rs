//! `timers`: set, list and cancel; the operations `v/ops/agent/trigger` and `v/ops/timer/*`.

use super::Api;
use super::extract::{Asked, Json, Who};
use super::operate::operate;
use super::problem::Problem;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// `POST agents/{id}/timers`: 201 with its id and its first time.
pub(super) async fn set(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    Json(body): Json,
) -> Result<Response, Problem> {
    let Value::Object(mut arguments) = body else {
        return Err(Problem::bad_request("expected a body such as `{\"input\": …, \"every\": \"1h\"}`"));
    };
    arguments.insert("agentId".into(), id.into());
    let output = operate(&api, &who, "v/ops/agent/trigger", arguments.into()).await?;
    Ok((StatusCode::CREATED, axum::Json(output.value)).into_response())
}

/// `GET timers`: those that fire; of one agent with `agentId`, with `all=true` those that fire no
/// more, too.
pub(super) async fn list(State(api): State<Api>, who: Who, asked: Asked) -> Result<Response, Problem> {
    let mut arguments = asked.page()?;
    arguments["all"] = asked.flag("all")?.into();
    if let Some(agent) = asked.text("agentId") {
        arguments["agentId"] = agent.into();
    }
    let output = operate(&api, &who, "v/ops/timer/list", arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `DELETE timers/{id}`: the timer, cancelled.
pub(super) async fn cancel(State(api): State<Api>, who: Who, Path(id): Path<String>) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/timer/cancel", json!({"timer": id})).await?;
    Ok(axum::Json(output.value).into_response())
}
