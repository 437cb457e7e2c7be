//! `spend`: what was spent today; the operation `v/ops/spend/today`.

use super::Api;
use super::extract::{Asked, Who};
use super::operate::operate;
use super::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// `GET spend`: by model and session, and the caps; of a session with `agentId` and `sessionId`.
pub(super) async fn today(State(api): State<Api>, who: Who, asked: Asked) -> Result<Response, Problem> {
    let mut arguments = json!({});
    for key in ["agentId", "sessionId"] {
        if let Some(text) = asked.text(key) {
            arguments[key] = text.into();
        }
    }
    if let Some(limit) = asked.number("limit")? {
        arguments["limit"] = limit.into();
    }
    let output = operate(&api, &who, "v/ops/spend/today", arguments).await?;
    Ok(axum::Json(output.value).into_response())
}
