//! `approvals`: answers of people, by the operations `v/ops/approval/*`.

use super::Api;
use super::extract::{JsonBody, RequestCaller};
use super::problem::Problem;
use super::runs::operate;
use crate::domain::decode;
use crate::view::request::{AnswerRequest, ApproveRequest, RejectRequest};
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// `POST approvals/{id}` with `{"approve": {…}}`, `{"reject": {…}}` or `{"answers": {…}}`, and optionally the `digest`
/// of what was shown: answers an approval.
pub(super) async fn answer(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let (verb, arguments) = parse_answer(&id, &body)?;
    let output = operate(&api, &who, &format!("v/ops/approval/{verb}"), arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

/// An answer to an approval: exactly one of `approve`, `reject` and `answers`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("oneOf" = [{"required": ["approve"]}, {"required": ["reject"]}, {"required": ["answers"]}]))]
pub(super) struct Answer {
    #[schemars(with = "Approve")]
    approve: Option<Approve>,
    #[schemars(with = "Reject")]
    reject: Option<Reject>,
    /// Answers by the ids of their questions.
    #[schemars(with = "Map<String, Value>")]
    answers: Option<Map<String, Value>>,
    /// `digest` of the approval as the person saw it: SHA-256 in hexadecimal digits. If it is another one by now, the
    /// answer is refused.
    digest: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Approve {
    /// All arguments of the call, in place of those of the model; absent keeps those.
    arguments: Option<Map<String, Value>>,
    /// Keys of those sections of the caller's context that still go with the call, out of its `scopes`; absent are all.
    scopes: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reject {
    /// Reason of the rejection, which the model gets.
    reason: Option<String>,
}

/// Returns the last segment of the operation `v/ops/approval/…` that gives the answer in `body`, and the arguments of
/// that operation. Fails if the body is not exactly one answer.
fn parse_answer(id: &str, body: &Value) -> Result<(&'static str, Value), Problem> {
    let expected = "expected a body `{\"approve\": {}}`, `{\"reject\": {}}` or `{\"answers\": {…}}`";
    let given: Answer = decode::typed_with_hint(body)
        .map_err(|error| Problem::bad_request(format!("{expected}, perhaps with a `digest`: {error}")))?;
    let digest = given.digest;
    match (given.approve, given.reject, given.answers) {
        (Some(Approve { arguments, scopes }), None, None) => {
            let arguments = arguments.map(Value::Object);
            Ok(("approve", to_json(&ApproveRequest { id, arguments, scopes, digest })))
        }
        (None, Some(Reject { reason }), None) => Ok(("reject", to_json(&RejectRequest { id, reason, digest }))),
        (None, None, Some(answers)) => Ok(("answer", to_json(&AnswerRequest { id, answers, digest }))),
        _ => Err(Problem::bad_request(expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_one_answer_and_perhaps_a_digest() {
        for (body, expected) in [
            (json!({"approve": {}}), Ok(("approve", json!({"id": "i"})))),
            (
                json!({"approve": {"arguments": {"n": 1}}, "digest": "d"}),
                Ok(("approve", json!({"id": "i", "arguments": {"n": 1}, "digest": "d"}))),
            ),
            (json!({"reject": {"reason": "no"}}), Ok(("reject", json!({"id": "i", "reason": "no"})))),
            (json!({"answers": {"a": true}}), Ok(("answer", json!({"id": "i", "answers": {"a": true}})))),
            (json!({"approve": {}, "reject": {}}), Err(())),
            (json!({"aprove": {}}), Err(())),
            (json!({"approve": {"argments": {}}}), Err(())),
            (json!([]), Err(())),
            (json!({}), Err(())),
        ] {
            let found = parse_answer("i", &body).map_err(|problem| assert!(problem.detail.contains("expected a body")));
            assert_eq!(found, expected, "{body}");
        }
    }
}
