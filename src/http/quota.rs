//! `quota`: what an owner keeps and may keep; the operations `v/ops/quota/*`.

use super::Api;
use super::extract::{Json, Who};
use super::operate::operate;
use super::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// `GET quota`.
pub(super) async fn show(State(api): State<Api>, who: Who) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/quota/show", json!({})).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `PUT quota` with `{documents?, bytes?, sessions?, jobs?}`.
pub(super) async fn set(State(api): State<Api>, who: Who, Json(body): Json) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/quota/set", body).await?;
    Ok(axum::Json(output.value).into_response())
}
