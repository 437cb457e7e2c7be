//! `run`, `invoke` and `values`: operations outside turns, through the same dispatcher.

use super::Api;
use super::describe::queries::{self, VALUES};
use super::extract::{Json5Body, JsonBody, QueryParams, RequestCaller, wait};
use super::jobs::{created_response, unknown_job, wait_for};
use super::problem::Problem;
use super::runs::{begin_call, operate, operate_unlisted};
use crate::domain::authority::ResourcePath;
use crate::domain::call::{PublishedVersion, innermost_operation};
use crate::domain::decode;
use crate::domain::ids::{AgentId, EventId, JobId, VenueIdSubject};
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::{Job, JobHead};
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::lattice::layout::Scope;
use crate::domain::limits::{INVOKED_HERE, INVOKED_OPEN};
use crate::ops::agent::task::is_of_task;
use crate::venue::ingress;
use crate::venue::jobs;
use crate::venue::operation::dispatch::{find_operation, hide, permit_call};
use crate::venue::operation::pin::PinReader;
use crate::venue::operation::{Effect, OpError, OpOutput};
use crate::venue::operation_jobs::{self, InvokedAdmission};
use crate::venue::outside_tools;
use crate::venue::request_call::RequestCall;
use crate::venue::workspace::Workspace;
use crate::venue::{agents, declared};
use crate::view::request::StartedRequestView;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The operation that starts a job of an agent.
const REQUEST: &str = "v/ops/agent/request";
/// Seconds after which an owner with too many open operations may try again.
const RETRY_AFTER: u32 = 5;

/// Adds the tools of the server that an operation names to what a request may name: what another process has found of a
/// server of this owner may not be published here yet. It reads the catalogue again, so that it goes before what is added
/// to this request alone.
async fn add_server_tools(api: &Api, who: &mut RequestCaller, operation: &str, input: &Value) -> Result<(), OpError> {
    let tool = innermost_operation(&catalog_path(operation), input);
    if outside_tools::prepare_stored(&api.venue, who.owner(), &tool).await? {
        who.catalog = api.venue.catalog_view(who.owner());
    }
    Ok(())
}

/// Adds the tools that records below `o/` declare to what a request may name, as far as its order names them.
async fn add_declared(api: &Api, who: &mut RequestCaller, operation: &str, input: &Value) -> Result<(), OpError> {
    let view = who.catalog.clone();
    who.catalog = declared::view_for_call(&api.venue, who.owner(), view, operation, input).await?;
    Ok(())
}

/// Adds the tools that an agent declares to what a request may name, if its caller may read the agent.
async fn add_tools_of_agent(api: &Api, who: &mut RequestCaller, id: &AgentId, asked: &Run) -> Result<(), OpError> {
    let permitted = who.caller.authority.permits("crud/read", ResourcePath::agent(id));
    permitted.map_err(|denied| OpError::Denied(denied.model_text("run")))?;
    let found = agents::get(&api.venue, who.owner(), id).await?;
    let (agent, _) = found.ok_or_else(|| OpError::NotFound(format!("no agent `{id}`")))?;
    if outside_tools::is_outside(&innermost_operation(&catalog_path(&asked.operation), &asked.input)) {
        // As in a turn of the agent, the first use of what it declares waits for it.
        Box::pin(outside_tools::prepare_turn(&api.venue, who.owner(), &agent, &[])).await?;
        who.catalog = api.venue.catalog_of_agent(who.owner(), id);
    }
    let view = who.catalog.clone();
    who.catalog = declared::view_for_agent(&api.venue, who.owner(), view, &agent.config).await?;
    Ok(())
}

/// Replaces a pin or a definition by the operation that it stands for, also inside an operation that runs another one.
async fn resolve_pins(
    api: &Api,
    who: &RequestCaller,
    operation: &mut String,
    input: &mut Value,
) -> Result<(), OpError> {
    let workspace = Workspace::new(Arc::clone(&api.venue.store), who.owner().clone(), Scope::default());
    let authority = &who.caller.authority;
    let pins =
        PinReader { venue: &api.venue, catalog: &who.catalog, owner: who.owner(), authority, workspace: &workspace };
    *operation = pins.resolve_pin(operation, input).await?;
    pins.resolve_inner(operation, input).await.map(drop)
}

/// What `run` is asked.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// Catalog path, e.g. `v/ops/lattice/read`, or `lattice:read`.
    operation: String,
    /// The operation's input; its schema is at `GET operations/{name}`.
    #[serde(default)]
    input: Value,
    /// Accepted and without effect while `auth.mode` is `none`.
    #[serde(default, rename = "ucans")]
    _ucans: Vec<String>,
    /// Only `run`, and not for requests to agents.
    #[serde(default)]
    private: bool,
    /// Agent whose declared tools the operation may name, too.
    #[serde(default)]
    agent: Option<AgentId>,
}

/// What `invoke` is asked.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Invoke {
    /// Catalog path, e.g. `v/ops/lattice/read`, or `lattice:read`.
    operation: String,
    /// The operation's input; its schema is at `GET operations/{name}`.
    #[serde(default)]
    input: Value,
    /// Accepted and without effect while `auth.mode` is `none`.
    #[serde(default, rename = "ucans")]
    _ucans: Vec<String>,
    /// Only `run` may be: `false`, or absent.
    #[serde(default)]
    #[schemars(extend("const" = false))]
    private: bool,
    /// `true` (120 s) or milliseconds.
    #[serde(default)]
    #[schemars(schema_with = "queries::wait_body_schema")]
    wait: Option<Value>,
}

/// Decodes the body of `run` or `invoke`.
fn order<T: DeserializeOwned>(body: &Value) -> Result<T, Problem> {
    if !body.is_object() {
        return Err(Problem::bad_request("expected a body `{\"operation\": …, \"input\": …}`"));
    }
    decode::typed_with_hint(body).map_err(Problem::invalid_data)
}

/// `POST run`: runs an operation; its output is the body of the answer.
pub(super) async fn run(
    State(api): State<Api>,
    mut who: RequestCaller,
    Json5Body(body): Json5Body,
) -> Result<Response, Problem> {
    // Proofs (`ucans`) add authority; without authentication there is nothing to add to.
    let mut order: Run = order(&body)?;
    add_server_tools(&api, &mut who, &order.operation, &order.input).await?;
    if let Some(agent) = &order.agent {
        add_tools_of_agent(&api, &mut who, agent, &order).await?;
    }
    add_declared(&api, &mut who, &order.operation, &order.input).await?;
    resolve_pins(&api, &who, &mut order.operation, &mut order.input).await?;
    let found = find_operation(&who.catalog, &order.operation)?;
    if order.private && *found.spec.path == *REQUEST {
        return Err(Problem::bad_request("a request to an agent can't be `private`: its job is always recorded"));
    }
    if let (Some(task), true) = (&who.task, is_of_task(&found.spec.path)) {
        if order.input.is_null() {
            order.input = Map::new().into();
        }
        if let Some(input) = order.input.as_object_mut().filter(|input| !input.contains_key("taskId")) {
            input.insert("taskId".into(), task.as_str().into());
        }
    }
    let output = operate(&api, &who, &found.spec.path, order.input).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `POST invoke`: runs an operation as a job and returns its record. A request to an agent becomes a job of that agent;
/// a worker runs any other operation. Quick reads of the venue, and operations with arguments that must not be stored,
/// run here and are recorded when they have ended.
pub(super) async fn invoke(
    State(api): State<Api>,
    mut who: RequestCaller,
    asked: QueryParams,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let mut order: Invoke = order(&body)?;
    add_server_tools(&api, &mut who, &order.operation, &order.input).await?;
    add_declared(&api, &mut who, &order.operation, &order.input).await?;
    resolve_pins(&api, &who, &mut order.operation, &mut order.input).await?;
    let wait = order.wait.as_ref().map(wait).transpose()?.or(asked.wait()?);
    if order.private {
        return Err(Problem::bad_request("a job can't be `private`: use `run`"));
    }
    let path: &str = &find_operation(&who.catalog, &order.operation)?.spec.path;
    if path == REQUEST {
        return request(&api, &who, order.input, wait.unwrap_or_default()).await;
    }
    // Checked before an earlier run is mentioned: only callers who may run the operation may know of it.
    let (is_quick, published) = {
        let call = permit_call(&api.venue, &who.catalog, &who.caller, path, path, order.input.clone()).await?;
        let is_quick = call.found.spec.effect == Effect::Read && call.parsed.destination().is_none();
        (is_quick, call.found.published_version())
    };
    let mut shown = order.input.clone();
    hide(&who.catalog, path, &mut shown);
    let is_hidden = shown != order.input;
    let hidden = is_hidden.then(|| rules::input_mark(&api.venue.key, who.owner(), path, &order.input));
    let (head, key) = head(&api, &who, path, shown, hidden);
    let id = head.id.clone();
    if let Some(known) = jobs::get(&api.venue, who.owner(), &id).await? {
        check_same_request(known, head)?;
        return answer(&api, &who, &id, wait, true).await;
    }
    ingress::check_room(&api.venue).await.map_err(OpError::from)?;
    if is_hidden || is_quick {
        // The record is written at the end, so its room is checked before the run.
        api.venue.check_room(who.owner(), operation_jobs::least_record(&head)).await?;
    }
    let begun = if is_hidden { begin_call(&api, &who, path, &order.input, Some(&id)).await? } else { None };
    let ran = if is_hidden {
        // The arguments are stored nowhere: no other process could run it.
        Some(operate_unlisted(&api, &who, path, order.input).await)
    } else if is_quick {
        tokio::time::timeout(INVOKED_HERE, operate(&api, &who, path, order.input)).await.ok()
    } else {
        drop(order.input);
        None
    };
    let is_new = match ran.map(|ran| ended_job(&api, head.clone(), ran)) {
        // A run that isn't recorded is listed as unknown, by dropping `begun`.
        Some(Ok(job)) => operation_jobs::record(&api.venue, who.owner(), &job).await?,
        Some(Err(refused)) => {
            end_call(begun).await;
            return Err(refused);
        }
        None => admit_operation(&api, &who, &head, key, published).await?,
    };
    end_call(begun).await;
    if is_new {
        drop(head);
    } else {
        // Another request with the same key was faster.
        let known = jobs::get(&api.venue, who.owner(), &id).await?;
        let gone = || Problem::conflict("this `Idempotency-Key` belongs to a job that was deleted; use a new one");
        check_same_request(known.ok_or_else(gone)?, head)?;
    }
    answer(&api, &who, &id, wait, !is_new).await
}

/// Marks the end of a call as known.
async fn end_call(begun: Option<RequestCall>) {
    if let Some(begun) = begun {
        begun.end().await;
    }
}

/// Waits for the job and returns its record. Nothing of the request's body is kept meanwhile.
async fn answer(
    api: &Api,
    who: &RequestCaller,
    id: &JobId,
    wait: Option<Duration>,
    is_known: bool,
) -> Result<Response, Problem> {
    let job = wait_for(api, who, id, wait.unwrap_or(INVOKED_HERE)).await?.ok_or_else(|| unknown_job(id))?;
    let in_time = wait.is_some() && job.status.is_terminal();
    Ok(created_response(if is_known || in_time { StatusCode::OK } else { StatusCode::CREATED }, &job))
}

async fn request(api: &Api, who: &RequestCaller, mut input: Value, wait: Duration) -> Result<Response, Problem> {
    if let Value::Object(map) = &mut input {
        // The route's own `wait` counts.
        map.shift_remove("wait");
        map.insert("timeout".into(), 0.into());
    }
    let output = operate(api, who, REQUEST, input).await?;
    let started: Option<StartedRequestView> = decode::into_type(output.value).ok();
    let missing = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the accepted request has no job");
    let id = started.ok_or_else(missing)?.job;
    let job = wait_for(api, who, &id, wait).await?.ok_or_else(missing)?;
    let status = if job.status.is_terminal() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(created_response(status, &job))
}

/// Makes the head of an operation's job, and the id under which it runs. The job's id is derived like that of any job,
/// from an event id that no submission can have: a hash of the caller's key, or a fresh one.
fn head(api: &Api, who: &RequestCaller, path: &str, input: Value, hidden: Option<String>) -> (JobHead, EventId) {
    let key = who.key.clone().unwrap_or_else(ingress::fresh_id);
    let event = EventId::of_venue(&api.venue.key, VenueIdSubject::Operation { owner: who.owner(), key: &key });
    let id = JobId::derive(&api.venue.key, who.owner(), &event);
    let head = JobHead {
        caller: Some(who.caller.name.clone()),
        hidden,
        principal: who.caller.principal.mark().map(str::to_owned),
        bound: Some(Box::new(who.caller.request_envelope().bound)),
        under: who.caller.trail(),
        ..rules::job_head(id, event, path, input, api.venue.now())
    };
    (head, key)
}

/// Makes the job of a run that has ended here. A run that was refused makes no job.
fn ended_job(api: &Api, head: JobHead, ran: Result<OpOutput, OpError>) -> Result<Job, Problem> {
    use OpError::{Arguments, Denied, Fenced, Invalid, Store};
    if let Err(error @ (Invalid(_) | Arguments { .. } | Denied(_) | Fenced | Store(_))) = ran {
        return Err(error.into());
    }
    let result = operation_jobs::result_of(ran);
    let (status, updated) = (result.status, api.venue.now());
    Ok(Job {
        status,
        updated,
        result: Some(result),
        waiting: None,
        wait: None,
        outbound: None,
        tally: None,
        tree: None,
        head,
    })
}

/// Creates the job of an operation that a worker runs. Returns `false` if a job of that id exists.
async fn admit_operation(
    api: &Api,
    who: &RequestCaller,
    head: &JobHead,
    key: EventId,
    published: Option<PublishedVersion>,
) -> Result<bool, Problem> {
    let (owner, asker) = (&who.caller.owner, who.caller.asker(who.token_owner.as_ref()));
    let invoked = InvokedOperation { published, ..InvokedOperation::new(head.id.clone(), key, asker, head.created) };
    match operation_jobs::admit(&api.venue, owner, head, &invoked).await? {
        InvokedAdmission::Done => Ok(true),
        InvokedAdmission::Known => Ok(false),
        InvokedAdmission::Full => {
            let text = format!("`{owner}` has {INVOKED_OPEN} operations that have not ended; try again when some have");
            Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER))
        }
    }
}

/// Checks that a job with the same key is of the same request. Nothing is said about another caller's request.
fn check_same_request(known: Job, asked: JobHead) -> Result<(), Problem> {
    // A job of an earlier version has no mark of hidden arguments.
    let fits = known.head.hidden.is_none() || known.head.hidden == asked.hidden;
    let what = |head: JobHead| (head.op, head.input, head.principal);
    if fits && what(known.head) == what(asked) {
        return Ok(());
    }
    Err(Problem::conflict(
        "this `Idempotency-Key` belongs to another request, caller or authority; use a new key for a new request",
    ))
}

/// `GET values/{op}`: reads from the lattice without a job.
pub(super) async fn values(
    State(api): State<Api>,
    who: RequestCaller,
    Path(name): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    if !VALUES.contains(&name.as_str()) {
        return Err(Problem::not_found(format!("no `values/{name}`, expected one of {}", VALUES.join(", "))));
    }
    let found = find_operation(&who.catalog, &format!("v/ops/lattice/{name}"))?;
    let arguments = asked.arguments(&found.spec.input)?;
    let output = operate(&api, &who, &found.spec.path, arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_order_names_its_operation_and_nothing_unknown() {
        let parse = |body: Value| order::<Invoke>(&body);
        let order = parse(json!({"operation": "lattice/read", "input": {"path": "w/x"}, "wait": "20"})).unwrap();
        assert_eq!((order.operation.as_str(), order.wait), ("lattice/read", Some(json!("20"))));
        assert_eq!(parse(json!({"operation": "x"})).unwrap().input, Value::Null);
        for (body, part) in [
            (json!([]), "expected a body"),
            (json!({"input": 1}), "missing field `operation`"),
            (json!({"operation": 1}), "`operation`: expected a string"),
            (json!({"operation": "x", "ucans": [1]}), "`ucans[0]`: expected a string"),
            (json!({"operation": "x", "ucans": "t"}), "`ucans`: expected a list, got a text"),
            (json!({"operation": "x", "private": "yes"}), "`private`: expected a boolean"),
            (json!({"operation": "x", "inptu": 1}), "unknown field `inptu`, did you mean `input`"),
        ] {
            let error = parse(body).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(error.detail.contains(part), "{}", error.detail);
        }
    }
}
