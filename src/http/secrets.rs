//! `secrets`: lists names and stores values, by the operations `v/ops/secret/*` under Covia's routes.

use super::Api;
use super::extract::{JsonBody, RequestCaller};
use super::problem::Problem;
use super::runs::{operate, read_output};
use crate::view::secret::{SecretDeletedView, SecretNamesView, SecretsView};
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

/// `GET secrets`: returns `{items: [name]}`.
pub(super) async fn list(State(api): State<Api>, who: RequestCaller) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/secret/list", Map::new().into()).await?;
    let SecretsView { secrets } = read_output(output)?;
    let items = secrets.into_iter().map(|secret| secret.name).collect();
    Ok(axum::Json(SecretNamesView { items }).into_response())
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

/// Arguments of `v/ops/secret/delete`.
#[derive(Serialize)]
struct DeleteSecretRequest<'a> {
    name: &'a str,
}

/// `DELETE secrets/{name}`: deletes a secret.
pub(super) async fn delete(
    State(api): State<Api>,
    who: RequestCaller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/secret/delete", to_json(&DeleteSecretRequest { name: &name })).await?;
    let answer: SecretDeletedView = read_output(output)?;
    if !answer.deleted {
        return Err(Problem::not_found(format!("no secret `{name}`")));
    }
    Ok(axum::Json(answer).into_response())
}
