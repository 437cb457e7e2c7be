//! `approvals`: what agents wait for, and the answers of people; the operations `v/ops/approval/*`.

use super::Api;
use super::extract::{Asked, Json, Who};
use super::operate::operate;
use super::problem::Problem;
use crate::domain::approval::Given;
use crate::domain::decode;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// `GET approvals`: those that wait; with `all=true` those that are answered, too.
pub(super) async fn list(State(api): State<Api>, who: Who, asked: Asked) -> Result<Response, Problem> {
    let mut page = asked.page()?;
    page["all"] = asked.flag("all")?.into();
    let output = operate(&api, &who, "v/ops/approval/list", page).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `POST approvals/{id}` with `{"approve": {…}}`, `{"reject": {…}}` or `{"answers": {…}}`, and perhaps
/// the `digest` of what was shown.
pub(super) async fn answer(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    Json(body): Json,
) -> Result<Response, Problem> {
    let (verb, mut arguments) = arguments(body)?;
    arguments["id"] = id.into();
    let output = operate(&api, &who, &format!("v/ops/approval/{verb}"), arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

fn arguments(body: Value) -> Result<(&'static str, Value), Problem> {
    let expected = "expected a body `{\"approve\": {}}`, `{\"reject\": {}}` or `{\"answers\": {…}}`";
    let Value::Object(mut map) = body else { return Err(Problem::bad_request(expected)) };
    let digest = map.shift_remove("digest");
    let given: Given = decode::typed(map.into())
        .map_err(|error| Problem::bad_request(format!("{expected}, perhaps with a `digest`: {error}")))?;
    let (verb, mut arguments) = match given {
        Given::Approve { arguments, scopes } => ("approve", json!({"arguments": arguments, "scopes": scopes})),
        Given::Reject { reason } => ("reject", json!({"reason": reason})),
        Given::Answers(answers) => ("answer", json!({"answers": answers})),
    };
    if let Some(map) = arguments.as_object_mut() {
        map.extend(digest.map(|digest| ("digest".to_owned(), digest)));
        map.retain(|_, value| !value.is_null());
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
            let found = arguments(body.clone()).map_err(|problem| assert!(problem.detail.contains("expected a body")));
            assert_eq!(found, expected, "{body}");
        }
    }
}
