//! `jobs`: list, read, wait, cancel, delete, message.

use super::Api;
use super::extract::{JsonBody, QueryParams, RequestCaller, decode_body};
use super::problem::Problem;
use super::runs::operate;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::job::{Job, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::reader::JobVisibility;
use crate::store::StoreError;
use crate::venue::job_view;
use crate::venue::jobs::list::{self, Cursor, JobListFilter, JobPage};
use crate::venue::jobs::{self, CancelOutcome, waiting_message};
use crate::venue::upkeep::retention::{self, DeletionOutcome};
use crate::view::job::JobView;
use crate::view::job_list::JobListPage;
use crate::view::request::JobMessageRequest;
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Jobs of one page of a filtered list without `limit`.
const FILTERED_PAGE: u64 = 100;

/// Tries, 50 ms apart, of a deletion while a worker still has the job in its mailbox.
const DELETION_TRIES: u32 = 40;

/// Jobs read in one step, and number of steps, for a caller who may not read all jobs.
const VISIBLE_PAGE: usize = 100;
const VISIBLE_STEPS: usize = 20;

/// Largest page of jobs.
const PAGE: u64 = 1_000;

/// Returns a job record, with its address in `Location`.
pub(super) fn created_response(status: StatusCode, job: &Job) -> Response {
    with_location(status, &job.head.id, &JobView::from(job))
}

/// Returns an answer about a job, with the job's address in `Location`.
pub(super) fn with_location(status: StatusCode, id: &JobId, body: &impl Serialize) -> Response {
    let mut response = (status, axum::Json(body)).into_response();
    let location = HeaderValue::try_from(format!("/api/v1/jobs/{id}")).expect("hex digits are a legal header");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// Waits for the end of a job, or of the venue.
pub(super) async fn wait_for(
    api: &Api,
    who: &RequestCaller,
    id: &JobId,
    wait: Duration,
) -> Result<Option<Job>, Problem> {
    Ok(wait_while_open(api, who, id, jobs::wait(&api.venue, who.owner(), id, wait)).await?)
}

/// Waits until a job has ended or asks for something, or for the end of the venue.
pub(super) async fn wait_for_end_or_question(
    api: &Api,
    who: &RequestCaller,
    id: &JobId,
    wait: Duration,
) -> Result<Option<Job>, StoreError> {
    let waiting = jobs::wait_for_end_or_question(&api.venue, who.owner(), id, wait);
    wait_while_open(api, who, id, waiting).await
}

/// Waits for a job, but not beyond the end of the venue.
async fn wait_while_open(
    api: &Api,
    who: &RequestCaller,
    id: &JobId,
    waiting: impl Future<Output = Result<Option<Job>, StoreError>>,
) -> Result<Option<Job>, StoreError> {
    // The body has been handed on.
    who.release_memory();
    match api.closing.run_until_cancelled(waiting).await {
        Some(job) => job,
        None => jobs::read_for_people(&api.venue, who.owner(), id).await,
    }
}

pub(super) fn job_id(text: &str) -> Result<JobId, Problem> {
    JobId::new(text).map_err(Problem::bad_request)
}

pub(super) fn unknown_job(id: &JobId) -> Problem {
    Problem::not_found(format!("no job `{id}`"))
}

/// Makes the error of a job that has ended before it was cancelled.
pub(super) fn ended_before_cancellation(job: &Job) -> Problem {
    let (id, status) = (&job.head.id, job.status.as_str());
    Problem::conflict(format!("job `{id}` is {status} and can't be cancelled any more"))
}

/// Returns how much of a job the caller may see. Whether a job exists is not told to a caller who may see nothing of
/// it.
pub(super) async fn check_sight(api: &Api, who: &RequestCaller, id: &JobId) -> Result<JobVisibility, Problem> {
    let head = jobs::head(&api.venue, who.owner(), id).await?;
    let denied = who.caller.authority.permits("crud/read", ResourcePath::job(id)).err();
    let seen = head.map_or(JobVisibility::Nothing, |head| who.caller.reader().visibility(&head));
    match (seen, denied) {
        (JobVisibility::Nothing, None) => {
            Err(Problem::not_found(waiting_message::missing_reason(&api.venue, who.owner(), id).await))
        }
        (JobVisibility::Nothing, Some(denied)) => {
            Err(Problem::forbidden(denied.model_text(&format!("`GET /api/v1/jobs/{id}`"))))
        }
        (seen, _) => Ok(seen),
    }
}

async fn load_job(api: &Api, who: &RequestCaller, id: &JobId) -> Result<Job, Problem> {
    jobs::read_for_people(&api.venue, who.owner(), id).await?.ok_or_else(|| unknown_job(id))
}

/// Query parameters that make a list a filtered one.
const FILTERS: [&str; 8] = ["status", "code", "agent", "session", "since", "until", "q", "cursor"];

/// Returns at most `size` jobs of a filtered list, with the cursor of the next page.
pub(super) async fn find_filtered(
    api: &Api,
    who: &RequestCaller,
    asked: &QueryParams,
    size: usize,
) -> Result<JobPage, Problem> {
    if asked.text("offset").is_some() {
        return Err(Problem::bad_request(
            "query `offset`: a filtered list goes on with `cursor`, the `next` of a page",
        ));
    }
    let filter = parse_filter(who, asked)?;
    let bad = |text: &str| {
        Problem::bad_request(format!("query `cursor`: expected the `next` of a page of this list, got `{text}`"))
    };
    let cursor = asked.text("cursor").map(|text| Cursor::parse(text).ok_or_else(|| bad(text))).transpose()?;
    Ok(list::find(&api.venue, who.owner(), &filter, cursor.as_ref(), size).await?)
}

/// Parses the filter of a query, for what the caller may see.
pub(super) fn parse_filter(who: &RequestCaller, asked: &QueryParams) -> Result<JobListFilter, Problem> {
    Ok(JobListFilter {
        statuses: asked.statuses("status")?,
        codes: asked.codes("code")?,
        agent: asked.text("agent").map(AgentId::new).transpose().map_err(Problem::bad_request)?,
        session: asked.text("session").map(SessionId::new).transpose().map_err(Problem::bad_request)?,
        since: asked.time("since")?,
        until: asked.time("until")?,
        text: asked.text("q").map(str::to_owned),
        reader: Some(who.caller.reader()),
    })
}

/// `GET jobs` with filters: returns a page of at most `limit`, and `next`, the `cursor` of the next page.
async fn list_filtered(api: &Api, who: &RequestCaller, asked: &QueryParams) -> Result<Response, Problem> {
    let limit = asked.number("limit")?.unwrap_or(FILTERED_PAGE).clamp(1, PAGE);
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = find_filtered(api, who, asked, size).await?;
    let page = JobListPage {
        items: items(who, &found.jobs, asked.flag("details")?),
        total: None,
        offset: None,
        limit: size,
        next: found.next.as_ref().map(|next| next.as_str().into()),
        looked_back_to: Some(to_json(&found.next.as_ref().map(Cursor::accepted_at))),
    };
    Ok(axum::Json(page).into_response())
}

fn items(who: &RequestCaller, jobs: &[Job], details: bool) -> Vec<Value> {
    let reader = who.caller.reader();
    let item = |job: &Job| if details { to_json(&JobView::for_reader(job, &reader)) } else { to_json(&job.head.id) };
    jobs.iter().map(item).collect()
}

/// Returns the answer with a page of the whole list; `next` is the offset of the next page.
fn list_answer(items: Vec<Value>, total: usize, offset: usize, limit: usize, next: Option<usize>) -> Response {
    let (total, offset, next) = (Some(total), Some(offset), next.map(Value::from));
    axum::Json(JobListPage { items, total, offset, limit, next, looked_back_to: None }).into_response()
}

/// Lists the jobs of a caller who may not read all: those that it asked for or may read by name. A bounded number of
/// the newest jobs is read; `total` counts those found up to the next page.
async fn list_visible(
    api: &Api,
    who: &RequestCaller,
    offset: usize,
    limit: usize,
    details: bool,
) -> Result<Response, Problem> {
    let filter = JobListFilter { reader: Some(who.caller.reader()), ..JobListFilter::default() };
    let (mut page, mut total, mut after) = (Vec::new(), 0, None);
    for _ in 0..VISIBLE_STEPS {
        let found = list::find(&api.venue, who.owner(), &filter, after.as_ref(), VISIBLE_PAGE).await?;
        for job in items(who, &found.jobs, details) {
            if (offset..offset.saturating_add(limit)).contains(&total) {
                page.push(job);
            }
            total += 1;
        }
        after = found.next;
        // A page of records is no larger than one step, to bound its size.
        let full = total > offset.saturating_add(limit) || details && !page.is_empty();
        if after.is_none() || full {
            break;
        }
    }
    let more = after.is_some() || offset + page.len() < total;
    let next = (more && !page.is_empty()).then_some(offset + page.len());
    Ok(list_answer(page, total, offset, limit, next))
}

/// `GET jobs`: lists ids, newest first, or records with `details=true`.
pub(super) async fn list(State(api): State<Api>, who: RequestCaller, asked: QueryParams) -> Result<Response, Problem> {
    if FILTERS.iter().any(|name| asked.text(name).is_some()) {
        return list_filtered(&api, &who, &asked).await;
    }
    let offset = asked.number("offset")?.unwrap_or(0);
    let limit = asked.number("limit")?.unwrap_or(PAGE).clamp(1, PAGE);
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (offset, limit) = (size(offset), size(limit));
    let details = asked.flag("details")?;
    if who.caller.authority.permits("crud/read", ResourcePath::whole_namespace(Namespace::Jobs)).is_err() {
        return list_visible(&api, &who, offset, limit, details).await;
    }
    let (items, total, next) = if details {
        let page = jobs::list(&api.venue, who.owner(), offset, limit).await?;
        (items(&who, &page.items, true), page.total, page.next)
    } else {
        let page = jobs::list_ids(&api.venue, who.owner(), offset, limit).await?;
        (page.items.iter().map(to_json).collect(), page.total, page.next)
    };
    Ok(list_answer(items, total, offset, limit, (next < total).then_some(next)))
}

/// `GET jobs/{id}`: returns a job; with `wait`, when it has ended or the time is over.
pub(super) async fn get(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let record = load_record(&api, &who, &id, asked.wait()?.unwrap_or_default()).await?;
    Ok(axum::Json(record).into_response())
}

/// Returns the record of a job as the caller sees it, when the job has ended or the time is over.
pub(super) async fn load_record(api: &Api, who: &RequestCaller, id: &str, wait: Duration) -> Result<JobView, Problem> {
    let id = job_id(id)?;
    check_sight(api, who, &id).await?;
    let job = wait_for(api, who, &id, wait).await?.ok_or_else(|| unknown_job(&id))?;
    Ok(job_view::record_for(&api.venue, &who.caller, &job).await?)
}

/// Returns the answer with a job's record as the caller sees it.
fn record_answer(who: &RequestCaller, job: &Job) -> Response {
    axum::Json(JobView::for_reader(job, &who.caller.reader())).into_response()
}

/// Body with the reason of a request, for the record.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    #[serde(default)]
    reason: Option<String>,
}

/// `PUT jobs/{id}/cancel`, with `{"reason": …}` or no body: cancels a job.
pub(super) async fn cancel(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let reason = decode_body::<Reason>(body)?.reason;
    match jobs::cancel(&api.venue, who.owner(), &id, reason.as_deref()).await? {
        CancelOutcome::Unknown => Err(unknown_job(&id)),
        CancelOutcome::Done(job) => Ok(record_answer(&who, &job)),
        CancelOutcome::Already(job) if job.status == JobStatus::Cancelled => Ok(record_answer(&who, &job)),
        CancelOutcome::Already(job) => Err(ended_before_cancellation(&job)),
    }
}

/// `PUT jobs/{id}/delete`: forgets an ended job and returns its last record.
pub(super) async fn delete(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = load_job(&api, &who, &job_id(&id)?).await?;
    let (id, status) = (&job.head.id, job.status.as_str());
    let mut deleted = retention::delete(&api.venue, who.owner(), &job).await?;
    for _ in 0..DELETION_TRIES {
        // A client that waited for the end may be faster than the worker, which consumes the event just after.
        if deleted != DeletionOutcome::InMailbox {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        deleted = retention::delete(&api.venue, who.owner(), &job).await?;
    }
    let refused = match deleted {
        DeletionOutcome::Done => return Ok(record_answer(&who, &job)),
        DeletionOutcome::Open => format!("job `{id}` is {status}: cancel it before deleting it"),
        DeletionOutcome::Spending => {
            format!(
                "a job that job `{id}` started has not ended, or a timer that it set still fires: cancel that, or wait for it"
            )
        }
        DeletionOutcome::InMailbox => {
            format!("job `{id}` is {status}, and its worker has not let go of it yet: try again in a moment")
        }
    };
    Err(Problem::conflict(refused))
}

/// `POST jobs/{id}`: sends a message in any JSON to an open job, which reads it in its next turn.
pub(super) async fn message(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let arguments = to_json(&JobMessageRequest { id: &job_id(&id)?, message: body });
    let output = operate(&api, &who, "v/ops/job/message", arguments).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(output.value)).into_response())
}
