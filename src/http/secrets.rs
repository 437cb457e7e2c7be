//! `secrets`: lists names and stores values, by the operations `v/ops/secret/*` under Covia's routes.

use super::Api;
use super::extract::{JsonBody, RequestCaller};
use super::problem::Problem;
use super::runs::operate;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// `GET secrets`: returns `{items: [name]}`.
pub(super) async fn list(State(api): State<Api>, who: RequestCaller) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/secret/list", json!({})).await?;
    let names: Vec<&Value> = output.value["secrets"].as_array().into_iter().flatten().map(|s| &s["name"]).collect();
    Ok(axum::Json(json!({"items": names})).into_response())
}

/// `PUT secrets/{name}` with `{value, hosts?}`: stores a secret; it replaces one that exists, unless `overwrite` is
/// false.
pub(super) async fn store(
    State(api): State<Api>,
    who: RequestCaller,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let Value::Object(mut map) = body else {
        return Err(Problem::bad_request("expected a body `{\"value\": …, \"hosts\": […]}`"));
    };
    map.insert("name".into(), name.into());
    map.entry("overwrite").or_insert(true.into());
    let output = operate(&api, &who, "v/ops/secret/set", Value::Object(map)).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `DELETE secrets/{name}`: deletes a secret.
pub(super) async fn delete(
    State(api): State<Api>,
    who: RequestCaller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/secret/delete", json!({"name": name})).await?;
    if output.value["deleted"] != true {
        return Err(Problem::not_found(format!("no secret `{name}`")));
    }
    Ok(axum::Json(output.value).into_response())
}
