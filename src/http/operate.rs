//! `run`, `invoke` and `values`: operations from outside turns, through the one dispatcher.

use super::Api;
use super::extract::{Asked, Json, Who, wait};
use super::jobs::{created, wait_for};
use super::problem::Problem;
use crate::domain::ids::{AgentId, EventId, IdOf, JobId, Owner, SessionId};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult};
use crate::domain::lattice::layout::Scope;
use crate::domain::nearest::nearest;
use crate::domain::priority::Priority;
use crate::domain::time::Millis;
use crate::ops::agent::task::is_of_task;
use crate::ops::dispatch::{hide, invoke as dispatch, permitted, resolve};
use crate::ops::{Invocation, OpError, Output, Reads, Site, pin};
use crate::store::{Change, DocWrite, Expect, Written, keys};
use crate::workspace::Workspace;
use crate::{ingress, jobs};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The operation whose jobs are durable from the start.
const REQUEST: &str = "v/ops/agent/request";
/// Agent and session in the head of a job that no agent serves.
const NO_AGENT: &str = "_venue";
/// Operations, or all of a group, that read or change what their caller names, and wait for nobody.
const HEAVY: [&str; 6] =
    ["v/ops/lattice/", "v/ops/json/", "v/ops/schema/", "v/ops/asset/", "v/ops/resource/", "v/ops/agent/context"];
/// Operations that `values/…` offers.
const VALUES: [&str; 6] = ["read", "list", "slice", "inspect", "count", "aggregate"];

/// Runs an operation for a caller outside turns.
pub(super) async fn operate(api: &Api, who: &Who, path: &str, input: Value) -> Result<Output, OpError> {
    if !HEAVY.iter().any(|group| path.starts_with(group)) {
        who.reads_nothing();
    }
    let workspace = Workspace::new(Arc::clone(&api.venue.store), who.owner().clone(), Scope::default());
    let call = Invocation {
        named: path,
        venue: &api.venue,
        caller: &who.caller,
        workspace: &workspace,
        scoped: &crate::ops::NOTHING,
        site: Site::Api { key: who.key.clone() },
        reads: &Reads::default(),
    };
    dispatch(&call, path, input).await
}

/// The operation that a caller means: a pin, `o/<name>`, stands for one.
async fn meant(api: &Api, who: &Who, path: &str) -> Result<String, OpError> {
    let workspace = Workspace::new(Arc::clone(&api.venue.store), who.owner().clone(), Scope::default());
    pin::meant(who.owner(), &who.caller.authority, &workspace, path).await
}

/// What `run` and `invoke` are asked.
#[derive(Debug, PartialEq)]
struct Order {
    operation: String,
    input: Value,
    private: bool,
    wait: Option<Duration>,
}

impl Order {
    fn parse(body: Value, known: &[&str]) -> Result<Self, Problem> {
        let Value::Object(mut map) = body else {
            return Err(Problem::bad_request("expected a body `{\"operation\": …, \"input\": …}`"));
        };
        for key in map.keys() {
            if !known.contains(&key.as_str()) {
                let hint = nearest(key, known).map(|n| format!(", did you mean `{n}`")).unwrap_or_default();
                return Err(Problem::bad_request(format!("unknown key `{key}`{hint}")));
            }
        }
        let Some(Value::String(operation)) = map.remove("operation") else {
            return Err(Problem::bad_request("expected `operation`, a catalog path such as `v/ops/lattice/read`"));
        };
        Ok(Self {
            operation,
            input: map.remove("input").unwrap_or_default(),
            private: map.get("private").is_some_and(|v| v == true),
            wait: map.get("wait").map(wait).transpose()?,
        })
    }
}

/// `POST run`: the operation's own output is the body.
pub(super) async fn run(State(api): State<Api>, who: Who, Json(body): Json) -> Result<Response, Problem> {
    // Proofs (`ucans`) add authority; without authentication there is nothing to add to.
    let mut order = Order::parse(body, &["operation", "input", "ucans", "private"])?;
    order.operation = meant(&api, &who, &order.operation).await?;
    let found = resolve(&api.venue.catalog, &order.operation)?;
    if order.private && found.spec.path == REQUEST {
        return Err(Problem::bad_request("a request to an agent can't be `private`: its job is always recorded"));
    }
    if let (Some(task), true) = (&who.task, is_of_task(found.spec.path)) {
        if order.input.is_null() {
            order.input = json!({});
        }
        if let Some(input) = order.input.as_object_mut().filter(|input| !input.contains_key("taskId")) {
            input.insert("taskId".into(), task.as_str().into());
        }
    }
    let output = operate(&api, &who, found.spec.path, order.input).await?;
    Ok(axum::Json(output.value).into_response())
}

/// `POST invoke`: a job record. A request to an agent is a durable job that goes on by itself;
/// any other operation runs at once and is recorded when it has ended.
pub(super) async fn invoke(
    State(api): State<Api>,
    who: Who,
    asked: Asked,
    Json(body): Json,
) -> Result<Response, Problem> {
    let mut order = Order::parse(body, &["operation", "input", "ucans", "private", "wait"])?;
    order.operation = meant(&api, &who, &order.operation).await?;
    let wait = order.wait.or(asked.wait()?).unwrap_or_default();
    if order.private {
        return Err(Problem::bad_request("a job can't be `private`: use `run`"));
    }
    let path = resolve(&api.venue.catalog, &order.operation)?.spec.path;
    if path == REQUEST {
        return request(&api, &who, order.input, wait).await;
    }
    // Before anything is said of an earlier run: that is for those who may make this one.
    permitted(&api.venue.catalog, &who.caller, (path, path), order.input.clone())?;
    let mut shown = order.input.clone();
    hide(&api.venue.catalog, path, &mut shown);
    let head = head(&api, &who, path, shown);
    if let Some(known) = jobs::get(&api.venue, who.owner(), &head.id).await? {
        return repeated(&known, &head);
    }
    let result = outcome(operate(&api, &who, path, order.input).await)?;
    let job = Job {
        status: result.status,
        updated: api.venue.now(),
        result: Some(result),
        waiting: None,
        outbound: None,
        tally: None,
        tree: None,
        head,
    };
    if write(&api, who.owner(), &job).await? == Written::Done {
        return Ok(created(StatusCode::CREATED, &job));
    }
    // Another request under the same key was faster.
    let known = jobs::get(&api.venue, who.owner(), &job.head.id).await?;
    let gone = || Problem::conflict("this `Idempotency-Key` belongs to a job that was deleted; use a new one");
    repeated(&known.ok_or_else(gone)?, &job.head)
}

async fn request(api: &Api, who: &Who, mut input: Value, wait: Duration) -> Result<Response, Problem> {
    if let Value::Object(map) = &mut input {
        // This route's own `wait` is the one that counts.
        map.insert("timeout".into(), 0.into());
    }
    let output = operate(api, who, REQUEST, input).await?;
    let id = output.value["job"].as_str().and_then(|id| JobId::new(id).ok());
    let missing = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the accepted request has no job");
    let id = id.ok_or_else(missing)?;
    let job = wait_for(api, who, &id, wait).await?.ok_or_else(missing)?;
    let status = if job.status.is_terminal() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(created(status, &job))
}

/// The head of an operation's job. Its id is derived like that of any job, from an event id that
/// no submission has: a hash of the caller's key, or a fresh one.
fn head(api: &Api, who: &Who, path: &str, input: Value) -> JobHead {
    let key = who.key.clone().unwrap_or_else(ingress::fresh_id);
    let event = EventId::of_venue(&api.venue.key, IdOf::Operation { owner: who.owner(), key: &key });
    JobHead {
        id: JobId::derive(&api.venue.key, who.owner(), &event),
        event,
        op: Some(path.to_owned()),
        agent: AgentId::new(NO_AGENT).expect("a legal id"),
        session: SessionId::new(NO_AGENT).expect("a legal id"),
        caller: Some(who.caller.name.clone()),
        input,
        created: api.venue.now(),
        parent: None,
        reply_to: None,
        redrive_of: None,
        priority: Priority::Normal,
        principal: who.caller.principal.mark().map(str::to_owned),
        request: None,
        ignored: Vec::new(),
        under: who.caller.trail(),
    }
}

/// What is recorded of a run. What was refused before it ran makes no job.
fn outcome(ran: Result<Output, OpError>) -> Result<JobResult, Problem> {
    let failed = |text: String| JobResult { error_code: None, ..JobResult::failed(ErrorCode::Internal, text) };
    match ran {
        Ok(output) => Ok(JobResult::complete(output.value)),
        Err(OpError::Failed(text) | OpError::Upstream(text) | OpError::NotFound(text) | OpError::Conflict(text)) => {
            Ok(failed(text))
        }
        Err(OpError::Timeout(text) | OpError::Limit(text)) => Ok(JobResult::failed(ErrorCode::LimitReached, text)),
        Err(error @ (OpError::Invalid(_) | OpError::Denied(_) | OpError::Fenced | OpError::Store(_))) => {
            Err(error.into())
        }
    }
}

/// The same request again, or another one: of a stranger's nothing is said, not even whether it is equal.
fn repeated(known: &Job, asked: &JobHead) -> Result<Response, Problem> {
    let what = |head: &JobHead| (head.op.clone(), head.input.clone(), head.principal.clone());
    if what(&known.head) == what(asked) {
        return Ok(created(StatusCode::OK, known));
    }
    Err(Problem::conflict(
        "this `Idempotency-Key` belongs to another request, caller or authority; use a new key for a new request",
    ))
}

/// Records an ended job, unless its id is taken.
async fn write(api: &Api, owner: &Owner, job: &Job) -> Result<Written, Problem> {
    let Job { head, status, updated, result, waiting: _, outbound: _, tally: _, tree: _ } = job;
    let put = |key: String, expect: Expect, bytes: Vec<u8>| DocWrite { key, expect, change: Change::Put(bytes.into()) };
    let encode = |value: Value| serde_json::to_vec(&value).expect("JSON values serialise");
    let writes = [
        put(keys::job_head(&head.id), Expect::Version(0), encode(json!(head))),
        put(keys::job_status(&head.id), Expect::Any, keys::encode_status(*status, *updated).into_bytes()),
        put(keys::job_result(&head.id), Expect::Any, encode(json!(result))),
        put(keys::job_list_entry(head.created, &head.id), Expect::Any, Bytes::new().into()),
    ];
    let now: Millis = api.venue.now();
    Ok(api.venue.store.write(now, owner, &writes).await?)
}

/// `GET values/{op}`: a read without a job.
pub(super) async fn values(
    State(api): State<Api>,
    who: Who,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    if !VALUES.contains(&name.as_str()) {
        return Err(Problem::not_found(format!("no `values/{name}`, expected one of {}", VALUES.join(", "))));
    }
    let found = resolve(&api.venue.catalog, &format!("v/ops/lattice/{name}"))?;
    let arguments = asked.arguments(&found.spec.input)?;
    let output = operate(&api, &who, found.spec.path, arguments).await?;
    Ok(axum::Json(output.value).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_its_operation_and_nothing_unknown() {
        let parse = |body: Value| Order::parse(body, &["operation", "input", "wait"]);
        let order = parse(json!({"operation": "lattice/read", "input": {"path": "w/x"}, "wait": "20"})).unwrap();
        assert_eq!(order.operation, "lattice/read");
        assert_eq!(order.wait, Some(Duration::from_millis(20)));
        assert_eq!(parse(json!({"operation": "x"})).unwrap().input, Value::Null);
        for (body, part) in [
            (json!([]), "expected a body"),
            (json!({"input": 1}), "expected `operation`"),
            (json!({"operation": 1}), "expected `operation`"),
            (json!({"operation": "x", "inptu": 1}), "unknown key `inptu`, did you mean `input`"),
            (json!({"operation": "x", "wait": "soon"}), "`wait`"),
        ] {
            let error = parse(body).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(error.detail.contains(part), "{}", error.detail);
        }
    }
}
