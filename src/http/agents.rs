//! `agents`: list, read, apply; tasks and messages to an agent.

use super::Api;
use super::extract::{JsonBody, QueryParams, RawBody, RequestCaller};
use super::jobs::{wait_for, with_location};
use super::problem::Problem;
use super::runs::{operate, read_output};
use crate::domain::agent::{AgentConfig, addresses, schema};
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, EventId, JobId};
use crate::domain::job::{Job, JobResult};
use crate::domain::message::InboundKind;
use crate::domain::seal::SubmissionAddress;
use crate::domain::visible::quote_foreign;
use crate::venue::agents::keys_needed;
use crate::venue::agents::{self, ApplyOutcome};
use crate::venue::ingress::{self, Arrival, SubmitReceipt};
use crate::view::agent::{AgentActivity, AppliedAgentView, CreatedAgentView, ReceiptView};
use crate::view::job::{IgnoredView, error_code_name};
use crate::view::request::AgentListRequest;
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

fn agent_id(text: &str) -> Result<AgentId, Problem> {
    AgentId::new(text).map_err(Problem::bad_request)
}

/// `GET agents`: lists agents; terminated ones only with `includeTerminated=true`.
pub(super) async fn list(State(api): State<Api>, who: RequestCaller, asked: QueryParams) -> Result<Response, Problem> {
    let request = AgentListRequest {
        include_terminated: Some(asked.flag("includeTerminated")?),
        limit: asked.number("limit")?.map(|limit| limit.max(1)),
        after: asked.text("after"),
    };
    let output = operate(&api, &who, "v/ops/agent/list", to_json(&request)).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `GET agent-schema`: returns the JSON Schema of agent files.
pub(super) async fn agent_schema() -> Response {
    ([(header::CONTENT_TYPE, "application/schema+json")], schema::TEXT).into_response()
}

/// Arguments of `v/ops/agent/session-read`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadSessionRequest {
    agent_id: String,
    session_id: String,
    /// Number of the turn before the first one of the page.
    after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// `GET agents/{id}/sessions/{session}`: returns the transcript, turn by turn.
pub(super) async fn session(
    State(api): State<Api>,
    who: RequestCaller,
    Path((id, session)): Path<(String, String)>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let request = ReadSessionRequest {
        agent_id: id,
        session_id: session,
        after: asked.number("after")?.unwrap_or(0),
        limit: asked.number("limit")?,
    };
    let output = operate(&api, &who, "v/ops/agent/session-read", to_json(&request)).await?;
    Ok(axum::Json(output.value).into_response())
}

/// Keys of a body that names stored configurations, as arguments of `v/ops/agent/create`.
const LAYER_KEYS: [&str; 3] = ["config", "definition", "state"];

/// Arguments of `v/ops/agent/create` for an agent that is replaced if it exists.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplaceAgentRequest<'a> {
    agent_id: &'a AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Value>,
    overwrite: bool,
    strict: bool,
}

/// Whether a body is no configuration, but the name of a stored one, a list of layers, or a map with one of these.
fn names_layers(body: &Value) -> bool {
    match body {
        Value::String(_) | Value::Array(_) => true,
        Value::Object(map) => map.contains_key("config") || map.contains_key("definition"),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Applies the layers of a body by the operation that reads stored ones.
async fn apply_layers(
    api: &Api,
    who: &RequestCaller,
    agent_id: AgentId,
    body: Value,
    strict: bool,
) -> Result<Response, Problem> {
    let mut given = match body {
        Value::Object(map) => map,
        layers => Map::from_iter([("config".to_owned(), layers)]),
    };
    if let Some(key) = given.keys().find(|key| !LAYER_KEYS.contains(&key.as_str())) {
        let key = quote_foreign(key);
        let text =
            format!("`{key}`: beside `config` and `definition` only `state` counts; put other keys into `config`");
        return Err(Problem::bad_request(text));
    }
    let [config, definition, state] = LAYER_KEYS.map(|key| given.shift_remove(key));
    let request = ReplaceAgentRequest { agent_id: &agent_id, config, definition, state, overwrite: true, strict };
    let output = operate(api, who, "v/ops/agent/create", to_json(&request)).await?;
    let made: CreatedAgentView = read_output(output)?;
    let outcome = match (made.created, made.updated) {
        (true, _) => ApplyOutcome::Created,
        (false, true) => ApplyOutcome::Updated,
        (false, false) => ApplyOutcome::Unchanged,
    };
    Ok(applied_response(outcome, agent_id, made.status, made.config_version, made.warnings))
}

/// Returns the answer about an agent whose configuration was applied; 201 if the agent is new.
fn applied_response(
    outcome: ApplyOutcome,
    agent_id: AgentId,
    status: AgentActivity,
    config_version: u64,
    warnings: Vec<String>,
) -> Response {
    let (code, result) = match outcome {
        ApplyOutcome::Created => (StatusCode::CREATED, "created"),
        ApplyOutcome::Updated => (StatusCode::OK, "updated"),
        ApplyOutcome::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let applied = AppliedAgentView { agent_id, result: result.to_owned(), status, config_version, warnings };
    (code, axum::Json(applied)).into_response()
}

/// `PUT agents/{id}`: replaces the configuration of an agent, or creates it. The body is a configuration, or names stored
/// ones as `v/ops/agent/create` does. `strict`, in the query or beside the configuration's keys, refuses names that the
/// venue doesn't know.
pub(super) async fn apply(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
    JsonBody(mut body): JsonBody,
) -> Result<Response, Problem> {
    let id = agent_id(&id)?;
    let strict = asked.flag("strict")? | take_strict(&mut body)?;
    if names_layers(&body) {
        return apply_layers(&api, &who, id, body, strict).await;
    }
    addresses::localise(Some(who.owner()), &mut body).map_err(|error| Problem::forbidden(error.to_string()))?;
    let config = AgentConfig::parse(&body).map_err(Problem::invalid_data)?;
    api.venue.catalog.resources.check(&config).map_err(Problem::bad_request)?;
    let warnings = agents::config_warnings::check(&api.venue, who.owner(), &config, strict);
    let mut warnings = warnings.map_err(Problem::bad_request)?;
    warnings.extend(agents::config_warnings::missing_keys(&api.venue, who.owner(), &config).await?);
    for need in keys_needed(&to_json(&config)) {
        let permitted = who.caller.authority.permits(need.ability, &need.resource);
        permitted
            .map_err(|denied| Problem::forbidden(denied.model_text("applying an agent with this configuration")))?;
    }
    let (record, outcome) = agents::apply(&api.venue, who.owner(), &id, &config, true, &who.caller).await?;
    let activity = agents::current_status(&api.venue, who.owner(), &id, record.status).await?;
    Ok(applied_response(outcome, id, activity, record.config_version, warnings))
}

fn take_strict(body: &mut Value) -> Result<bool, Problem> {
    match body.as_object_mut().and_then(|map| map.shift_remove("strict")) {
        None => Ok(false),
        Some(Value::Bool(strict)) => Ok(strict),
        Some(other) => Err(Problem::bad_request(format!("`strict`: expected `true` or `false`, got {other}"))),
    }
}

/// `POST agents/{id}/tasks`: submits a task; 202 with the job, 200 and `duplicate` for a repeated submission.
pub(super) async fn task(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let wait = asked.wait()?;
    let submitted = submit(&api, &who, &id, true, &body).await?;
    let Some(job) = &submitted.job else {
        return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the accepted task has no job"));
    };
    let now = wait_for(&api, &who, job, wait.unwrap_or_default()).await?;
    let mut answer = receipt(&submitted);
    if let Some(now) = now {
        add_result(&mut answer, now);
    }
    Ok(with_location(status(&submitted), job, &answer))
}

/// Adds the status of a task's job to its receipt, and its result once it has ended.
fn add_result(receipt: &mut ReceiptView, job: Job) {
    receipt.status = Some(job.status);
    if let Some(JobResult { output, truncated, error, error_code, .. }) = job.result {
        (receipt.output, receipt.error) = (output, error);
        receipt.truncated = truncated.then_some(true);
        receipt.error_code = error_code.and_then(error_code_name);
    }
}

/// `POST agents/{id}/messages`: sends a message; 202, or 200 and `duplicate` for a repeated submission.
pub(super) async fn message(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let submitted = submit(&api, &who, &id, false, &body).await?;
    Ok((status(&submitted), axum::Json(receipt(&submitted))).into_response())
}

const fn status(submitted: &SubmitReceipt) -> StatusCode {
    if submitted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED }
}

fn receipt(submitted: &SubmitReceipt) -> ReceiptView {
    // The id of a task's receipt is that of its job, as in other answers.
    let id = submitted.job.as_ref().map_or_else(|| submitted.id.as_str(), JobId::as_str);
    ReceiptView {
        id: id.to_owned(),
        event: submitted.id.as_str().to_owned(),
        agent: submitted.session.agent.clone(),
        session: submitted.session.session.clone(),
        duplicate: submitted.duplicate,
        job: submitted.job.clone(),
        ignored: IgnoredView::of_keys(&submitted.ignored),
        warnings: submitted.warnings.clone(),
        status: None,
        output: None,
        truncated: None,
        error: None,
        error_code: None,
    }
}

/// Submits a task or a message of a caller, as it was sent.
pub(super) async fn submit(
    api: &Api,
    who: &RequestCaller,
    agent: &str,
    task: bool,
    body: &[u8],
) -> Result<SubmitReceipt, Problem> {
    // Parsed as it was sent, so that the store sees the same submission sent over the queue as a duplicate.
    let submission = ingress::parse(body)?;
    let agent = agent_id(agent)?;
    let named = who.key.as_ref().map(EventId::as_str);
    let kind = if task { InboundKind::Task } else { InboundKind::Message };
    let to = SubmissionAddress { owner: who.owner(), agent: &agent, kind };
    let (id, submission) = ingress::open_seal(&api.venue, to, named, ingress::fresh_id, submission)?;
    if api.options.auth.is_required() && !who.caller.operator {
        ingress::check_reply(who.owner(), &submission)?;
    }
    if let Some(job) = &submission.job {
        // The message is read with the authority of that job's request, so the caller needs a capability on the job.
        let permitted = who.caller.authority.permits("job/message", ResourcePath::job(job));
        permitted.map_err(|denied| Problem::forbidden(denied.model_text("this message")))?;
    }
    let caller = Some(who.caller.name.clone());
    let submission = Submission { envelope: who.caller.request_envelope(), caller, ..submission };
    let arrival = Arrival {
        owner: who.owner().clone(),
        agent,
        task,
        id,
        submission,
        received: api.venue.now(),
        sequence: 0,
        by: who.caller.principal.clone(),
        may_override: who.may_override,
        trace: who.trace,
    };
    Ok(ingress::submit(&api.venue, &arrival).await?)
}
