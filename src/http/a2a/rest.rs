//! The HTTP+JSON binding: a route for each operation.

use super::caller::{AgentPlace, PlaceNames};
use super::error::{A2aError, A2aErrorKind};
use super::media::{answer, answer_type, check_content_type, check_version, query};
use super::operations::{A2aOperation, A2aReply, A2aRequest};
use crate::domain::decode;
use crate::http::Api;
use crate::http::extract::RawBody;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::{Map, Value};

/// Path of a task: tenant, user, agent, task.
type TaskNames = (String, String, String, String);

/// Path of a push notification: tenant, user, agent, task, notification.
type NotificationNames = (String, String, String, String, String);

/// Query parameters that are numbers, and those that are true or false.
const NUMBERS: [&str; 2] = ["historyLength", "pageSize"];
const FLAGS: [&str; 1] = ["includeArtifacts"];

/// Beginning of the names of states.
const STATE: &str = "TASK_STATE_";

/// `POST …/message:send`: sends a message.
pub(in crate::http) async fn send(
    State(api): State<Api>,
    Path(names): Path<PlaceNames>,
    parts: Parts,
    body: RawBody,
) -> Response {
    with_body(&api, &names, &parts, &body, A2aOperation::SendMessage).await
}

/// `POST …/message:stream`: sends a message and follows its task.
pub(in crate::http) async fn stream(
    State(api): State<Api>,
    Path(names): Path<PlaceNames>,
    parts: Parts,
    body: RawBody,
) -> Response {
    with_body(&api, &names, &parts, &body, A2aOperation::SendStreamingMessage).await
}

/// `GET …/tasks`: lists tasks.
pub(in crate::http) async fn list(State(api): State<Api>, Path(names): Path<PlaceNames>, parts: Parts) -> Response {
    let arguments = query_arguments(&parts);
    respond(&api, &names, &parts, A2aOperation::ListTasks, arguments).await
}

/// `GET …/extendedAgentCard`: returns the card for a caller with a token.
pub(in crate::http) async fn extended_card(
    State(api): State<Api>,
    Path(names): Path<PlaceNames>,
    parts: Parts,
) -> Response {
    respond(&api, &names, &parts, A2aOperation::GetExtendedCard, Ok(Map::new())).await
}

/// `GET …/tasks/{id}`: returns a task; `GET …/tasks/{id}:subscribe` follows it.
pub(in crate::http) async fn get(State(api): State<Api>, Path(names): Path<TaskNames>, parts: Parts) -> Response {
    let (tenant, user, agent, task) = names;
    let (operation, id) = match task.strip_suffix(":subscribe") {
        Some(id) => (A2aOperation::SubscribeToTask, id),
        None => (A2aOperation::GetTask, task.as_str()),
    };
    let arguments = query_arguments(&parts).map(|arguments| with_argument(arguments, "id", id));
    respond(&api, &(tenant, user, agent), &parts, operation, arguments).await
}

/// `POST …/tasks/{id}:cancel` cancels a task, `POST …/tasks/{id}:subscribe` follows it.
pub(in crate::http) async fn act(
    State(api): State<Api>,
    Path(names): Path<TaskNames>,
    parts: Parts,
    RawBody(body): RawBody,
) -> Response {
    let (tenant, user, agent, task) = names;
    let requested = task.rsplit_once(':').and_then(|(id, verb)| match verb {
        "cancel" => Some((A2aOperation::CancelTask, id)),
        "subscribe" => Some((A2aOperation::SubscribeToTask, id)),
        _ => None,
    });
    let Some((operation, id)) = requested else {
        let text = "expected `…/tasks/{id}:cancel` or `…/tasks/{id}:subscribe`";
        let error = A2aError::new(A2aErrorKind::Http(StatusCode::NOT_FOUND), text);
        return error.rest_response(answer_type(&parts.headers));
    };
    let arguments = body_arguments(&parts, &body).map(|arguments| with_argument(arguments, "id", id));
    respond(&api, &(tenant, user, agent), &parts, operation, arguments).await
}

/// `POST …/tasks/{id}/pushNotificationConfigs`: sets a push notification.
pub(in crate::http) async fn create_notification(
    State(api): State<Api>,
    Path(names): Path<TaskNames>,
    parts: Parts,
    RawBody(body): RawBody,
) -> Response {
    let (tenant, user, agent, task) = names;
    let arguments = body_arguments(&parts, &body).map(|mut arguments| {
        arguments.shift_remove("task_id");
        with_argument(arguments, "taskId", &task)
    });
    respond(&api, &(tenant, user, agent), &parts, A2aOperation::CreateNotification, arguments).await
}

/// `GET …/tasks/{id}/pushNotificationConfigs`: lists the push notifications of a task.
pub(in crate::http) async fn list_notifications(
    State(api): State<Api>,
    Path(names): Path<TaskNames>,
    parts: Parts,
) -> Response {
    let (tenant, user, agent, task) = names;
    let arguments = query_arguments(&parts).map(|arguments| with_argument(arguments, "taskId", &task));
    respond(&api, &(tenant, user, agent), &parts, A2aOperation::ListNotifications, arguments).await
}

/// `GET …/pushNotificationConfigs/{config}`: returns a push notification.
pub(in crate::http) async fn get_notification(
    State(api): State<Api>,
    Path(names): Path<NotificationNames>,
    parts: Parts,
) -> Response {
    one_notification(&api, names, &parts, A2aOperation::GetNotification).await
}

/// `DELETE …/pushNotificationConfigs/{config}`: deletes a push notification.
pub(in crate::http) async fn delete_notification(
    State(api): State<Api>,
    Path(names): Path<NotificationNames>,
    parts: Parts,
) -> Response {
    one_notification(&api, names, &parts, A2aOperation::DeleteNotification).await
}

async fn one_notification(api: &Api, names: NotificationNames, parts: &Parts, operation: A2aOperation) -> Response {
    let (tenant, user, agent, task, id) = names;
    let arguments = with_argument(with_argument(Map::new(), "taskId", &task), "id", &id);
    respond(api, &(tenant, user, agent), parts, operation, Ok(arguments)).await
}

fn with_argument(mut arguments: Map<String, Value>, key: &str, value: &str) -> Map<String, Value> {
    arguments.insert(key.to_owned(), value.into());
    arguments
}

async fn with_body(
    api: &Api,
    names: &PlaceNames,
    parts: &Parts,
    RawBody(body): &RawBody,
    operation: A2aOperation,
) -> Response {
    respond(api, names, parts, operation, body_arguments(parts, body)).await
}

/// Runs an operation and returns its answer.
async fn respond(
    api: &Api,
    names: &PlaceNames,
    parts: &Parts,
    operation: A2aOperation,
    arguments: Result<Map<String, Value>, A2aError>,
) -> Response {
    let media = answer_type(&parts.headers);
    match run(api, names, parts, operation, arguments).await {
        Ok(A2aReply::Stream(stream)) => stream.into_response(None),
        Ok(A2aReply::Value(value)) => answer(media, &value),
        Err(error) => error.rest_response(media),
    }
}

async fn run(
    api: &Api,
    names: &PlaceNames,
    parts: &Parts,
    operation: A2aOperation,
    arguments: Result<Map<String, Value>, A2aError>,
) -> Result<A2aReply, A2aError> {
    check_version(parts)?;
    let place = AgentPlace::parse(names)?;
    let request = A2aRequest { api, place: &place, parts };
    Box::pin(request.run(operation, arguments?.into())).await
}

/// Reads arguments from a body; an empty one has none.
fn body_arguments(parts: &Parts, body: &[u8]) -> Result<Map<String, Value>, A2aError> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    check_content_type(&parts.headers)?;
    let value = decode::json(body).map_err(|wrong| A2aError::invalid(format!("the body can't be read: {wrong}")))?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(A2aError::invalid("expected a JSON object as the body"))
        }
    }
}

/// Reads arguments from a query, each as its type. Unknown ones are skipped, as the protocol wants it.
fn query_arguments(parts: &Parts) -> Result<Map<String, Value>, A2aError> {
    let mut arguments = Map::new();
    for (name, text) in query(parts)? {
        let value: Value = match name.as_str() {
            "status" if !text.starts_with(STATE) => {
                format!("{STATE}{}", text.replace('-', "_").to_ascii_uppercase()).into()
            }
            number if NUMBERS.contains(&number) => {
                let bad =
                    |_| A2aError::invalid(format!("query `{name}`: expected a number of at least 0, got `{text}`"));
                text.parse::<u32>().map_err(bad)?.into()
            }
            flag if FLAGS.contains(&flag) => {
                let bad = |_| A2aError::invalid(format!("query `{name}`: expected `true` or `false`, got `{text}`"));
                text.parse::<bool>().map_err(bad)?.into()
            }
            _ => text.into(),
        };
        arguments.insert(name, value);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use serde_json::json;

    #[test]
    fn a_query_gives_arguments_of_their_types() {
        let read = |query: &str| {
            let (parts, ()) = Request::builder().uri(format!("/tasks?{query}")).body(()).unwrap().into_parts();
            query_arguments(&parts).map(Value::Object).map_err(|error| error.text)
        };
        let all = read("contextId=c&pageSize=5&includeArtifacts=true&status=working&other=1");
        let expected = json!({
            "contextId": "c", "pageSize": 5, "includeArtifacts": true, "status": "TASK_STATE_WORKING", "other": "1",
        });
        assert_eq!(all, Ok(expected));
        assert_eq!(read("status=TASK_STATE_FAILED"), Ok(json!({"status": "TASK_STATE_FAILED"})));
        for (query, part) in [("historyLength=-5", "`historyLength`"), ("includeArtifacts=yes", "`includeArtifacts`")] {
            assert!(read(query).unwrap_err().contains(part), "{query}");
        }
    }
}
