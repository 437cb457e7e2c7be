//! Routes that run one operation: path, query and body give its arguments, its output is the answer.

use super::Api;
use super::extract::{JsonBody, QueryParams, RequestCaller};
use super::problem::Problem;
use super::route::ArgumentNames;
use crate::domain::decode;
use crate::domain::ids::JobId;
use crate::venue::operation::dispatch::{find_operation, permit_call};
use crate::venue::operation::{Effect, OpError, OpOutput};
use crate::venue::operation_jobs;
use crate::venue::request_call::RequestCall;
use axum::extract::{RawPathParams, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Operations, or groups of them, that read or change values named by the caller, and don't wait.
const HEAVY_GROUPS: [&str; 6] =
    ["v/ops/lattice/", "v/ops/json/", "v/ops/schema/", "v/ops/asset/", "v/ops/resource/", "v/ops/agent/context"];

/// Runs an operation outside turns. If it must not be repeated and its end is unknown, it is listed, even if the client
/// is gone.
pub(super) async fn operate(api: &Api, who: &RequestCaller, path: &str, input: Value) -> Result<OpOutput, OpError> {
    let begun = begin_call(api, who, path, &input, None).await?;
    let ran = operate_unlisted(api, who, path, input).await;
    match (begun, &ran) {
        (Some(begun), Err(OpError::OutcomeUnknown(_))) => begun.end_unknown().await,
        (Some(begun), _) => begun.end().await,
        // A call that may be repeated under its key is not recorded before, and may end so, too.
        (None, Err(OpError::OutcomeUnknown(_))) => list_unknown(api, who, path).await,
        (None, _) => {}
    }
    ran
}

/// Lists a call whose end is unknown and whose begin is not recorded. The caller gets the end of the call in any case.
async fn list_unknown(api: &Api, who: &RequestCaller, path: &str) {
    match RequestCall::begin(&api.venue, &who.caller, path, None).await {
        Ok(begun) => begun.end_unknown().await,
        Err(error) => {
            let owner = who.owner();
            tracing::warn!(%owner, operation = path, %error, "a call of unknown outcome is not listed");
        }
    }
}

/// Runs an operation whose end the caller records.
pub(super) async fn operate_unlisted(
    api: &Api,
    who: &RequestCaller,
    path: &str,
    input: Value,
) -> Result<OpOutput, OpError> {
    if !HEAVY_GROUPS.iter().any(|group| path.starts_with(group)) {
        who.release_read_memory();
    }
    operation_jobs::operate(&api.venue, &who.catalog, &who.caller, who.key.clone(), path, input).await
}

/// Reads the output of an operation as its type.
pub(super) fn read_output<T: DeserializeOwned>(output: OpOutput) -> Result<T, Problem> {
    decode::into_type(output.value).map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}

/// Records the begin of an operation that must not be repeated, if the caller may run it; `job` will record its end.
pub(super) async fn begin_call(
    api: &Api,
    who: &RequestCaller,
    path: &str,
    input: &Value,
    job: Option<&JobId>,
) -> Result<Option<RequestCall>, OpError> {
    let is_once = |effect| matches!(effect, Effect::Once);
    if !is_once(find_operation(&who.catalog, path)?.spec.effect) {
        return Ok(None);
    }
    let call = permit_call(&api.venue, &who.catalog, &who.caller, path, path, input.clone()).await?;
    if !is_once(call.found.spec.effect) {
        return Ok(None);
    }
    Ok(Some(RequestCall::begin(&api.venue, &who.caller, &call.found.spec.path, job).await?))
}

/// The operation that a route runs.
#[derive(Clone, Copy)]
pub(super) struct RouteOperation {
    pub(super) operation: &'static str,
    pub(super) given: ArgumentNames,
    pub(super) status: StatusCode,
}

/// Runs the operation of a route.
pub(super) async fn run(
    State(api): State<Api>,
    who: RequestCaller,
    path: RawPathParams,
    asked: QueryParams,
    JsonBody(body): JsonBody,
    RouteOperation { operation, given, status }: RouteOperation,
) -> Result<Response, Problem> {
    let mut arguments = match body {
        Value::Null => Map::new(),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Problem::bad_request("expected a JSON object as the body, or none"));
        }
    };
    let schema = &find_operation(&who.catalog, operation)?.spec.input;
    if let Value::Object(mut asked) = asked.arguments(schema)? {
        // A flag is set if the query or the body sets it; `false` counts as absent.
        asked.retain(|name, value| *value != false || !arguments.contains_key(name));
        arguments.extend(asked);
    }
    let named =
        |name: &str| given.iter().find(|(parameter, _)| *parameter == name).map_or(name, |(_, named)| named).to_owned();
    // The path overrides query and body.
    arguments.extend(path.iter().map(|(name, value)| (named(name), Value::from(value))));
    let output = operate(&api, &who, operation, Value::Object(arguments)).await?;
    Ok((status, axum::Json(output.value)).into_response())
}
