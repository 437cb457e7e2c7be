//! `approvals`: answers of people, by the operations `v/ops/approval/*`.

use super::Api;
use super::extract::{JsonBody, RequestCaller};
use super::problem::Problem;
use super::runs::operate;
use crate::domain::decode;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// `POST approvals/{id}` with `{"approve": {…}}`, `{"reject": {…}}` or `{"answers": {…}}`, and optionally the `digest`
/// of
/// what was shown: answers an approval.
pub(super) async fn answer(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let (verb, mut arguments) = arguments(&body)?;
    arguments["id"] = id.into();
    let output = operate(&api, &who, &format!("v/ops/approval/{verb}"), arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

/// An answer: exactly one of three, and perhaps what it is about.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("oneOf" = [{"required": ["approve"]}, {"required": ["reject"]}, {"required": ["answers"]}]))]
pub(super) struct Answer {
    #[schemars(with = "Approve")]
    approve: Option<Approve>,
    #[schemars(with = "Reject")]
    reject: Option<Reject>,
    /// An answer for each question, by its id.
    #[schemars(with = "Map<String, Value>")]
    answers: Option<Map<String, Value>>,
    /// What the answer is about; refused when it is something else by now.
    digest: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Approve {
    /// In the place of those that are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Map<String, Value>>,
    /// Only these of its sections.
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reject {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn arguments(body: &Value) -> Result<(&'static str, Value), Problem> {
    let expected = "expected a body `{\"approve\": {}}`, `{\"reject\": {}}` or `{\"answers\": {…}}`";
    let given: Answer = decode::typed_with_hint(body)
        .map_err(|error| Problem::bad_request(format!("{expected}, perhaps with a `digest`: {error}")))?;
    let (verb, mut arguments) = match (given.approve, given.reject, given.answers) {
        (Some(approve), None, None) => ("approve", json!(approve)),
        (None, Some(reject), None) => ("reject", json!(reject)),
        (None, None, Some(answers)) => ("answer", json!({"answers": answers})),
        _ => return Err(Problem::bad_request(expected)),
    };
    if let Some(digest) = given.digest {
        arguments["digest"] = digest.into();
    }
    Ok((verb, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_answer_and_perhaps_a_digest() {
        for (body, expected) in [
            (json!({"approve": {}}), Ok(("approve", json!({})))),
            (
                json!({"approve": {"arguments": {"n": 1}}, "digest": "d"}),
                Ok(("approve", json!({"arguments": {"n": 1}, "digest": "d"}))),
            ),
            (json!({"reject": {"reason": "no"}}), Ok(("reject", json!({"reason": "no"})))),
            (json!({"answers": {"a": true}}), Ok(("answer", json!({"answers": {"a": true}})))),
            (json!({"approve": {}, "reject": {}}), Err(())),
            (json!({"aprove": {}}), Err(())),
            (json!({"approve": {"argments": {}}}), Err(())),
            (json!([]), Err(())),
            (json!({}), Err(())),
        ] {
            let found = arguments(&body).map_err(|problem| assert!(problem.detail.contains("expected a body")));
            assert_eq!(found, expected, "{body}");
        }
    }
}
