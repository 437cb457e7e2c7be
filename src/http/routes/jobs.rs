//! Routes of jobs and of unknown outcomes.

use super::builders::{ALL_JOBS, JOB_ID, operation_route, route};
use crate::http::describe::queries::{JobsQuery, WaitQuery};
use crate::http::jobs::Reason;
use crate::http::route::{Route, RouteAccess, RouteSchema, schema_of};
use crate::http::{jobs, sse};
use crate::view::dead::RedriveView;
use crate::view::job::JobView;
use crate::view::job_list::{BulkView, JobListPage};
use crate::view::outcome::{OutcomePage, OutcomeView};
use crate::view::request::JobMessageView;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("get", "/api/v1/jobs", RouteAccess::AnyCaller, jobs::list)
            .with_value_reads()
            .with_summary("listJobs", "Jobs, newest first.")
            .with_query(schema_of::<JobsQuery>())
            .with_answer(200, "A page of ids; of records with `details`.", schema_of::<JobListPage>())
            .with_refusals(&[400]),
        operation_route("post", "/api/v1/jobs", RouteAccess::Holder("crud/read", ALL_JOBS), "v/ops/job/bulk", &[])
            .with_value_reads()
            .with_summary("bulkJobs", "Many jobs at once, those that a filter takes: `cancel` what is open, `redrive` what failed. With `dryRun` only their number is told; else `expected` is that number, and with another one nothing is done (409). One request does `limit` jobs at most and says where it goes on (`next`, the `cursor` of the following one); of each job its own authority is asked.")
            .with_body(RouteSchema::Arguments("v/ops/job/bulk", &[], &[]))
            .with_answer(200, "What was done; with `dryRun` the number of the jobs.", schema_of::<BulkView>())
            .with_refusals(&[400, 409]),
        route("get", "/api/v1/jobs/{id}", RouteAccess::AnyCaller, jobs::get)
            .with_summary("getJob", "One job; with `wait` when it has ended, or then.")
            .with_query(schema_of::<WaitQuery>())
            .with_answer(200, "The record.", schema_of::<JobView>())
            .with_refusals(&[400, 404]),
        route("post", "/api/v1/jobs/{id}", RouteAccess::Holder("job/message", JOB_ID), jobs::message)
            .with_summary("tellJob", "A message to an open job of an agent, any JSON but null: its next turn reads it, as part of that job's request. One that comes after the last turn is read by nobody.")
            .with_body(RouteSchema::NotNull)
            .with_answer(202, "It is queued.", schema_of::<JobMessageView>())
            .with_refusals(&[404, 409]),
        route("put", "/api/v1/jobs/{id}/cancel", RouteAccess::Holder("job/cancel", JOB_ID), jobs::cancel)
            .with_summary("cancelJob", "Cancel a job.")
            .with_optional_body(schema_of::<Reason>())
            .with_answer(200, "The cancelled job.", schema_of::<JobView>())
            .with_refusals(&[404, 409]),
        operation_route("put", "/api/v1/jobs/{id}/pause", RouteAccess::Holder("job/pause", JOB_ID), "v/ops/job/pause", &[])
            .with_summary("pauseJob", "Pause an open job of an agent: the running turn commits, and none begins for it until it is resumed. Its children, timers and approvals go on, and so does its deadline. Jobs of operations and of external workers can only be cancelled.")
            .with_answer(200, "The record.", schema_of::<JobView>())
            .with_refusals(&[404, 409]),
        operation_route("put", "/api/v1/jobs/{id}/resume", RouteAccess::Holder("job/resume", JOB_ID), "v/ops/job/resume", &[])
            .with_summary("resumeJob", "Let a paused job go on.")
            .with_answer(200, "The record.", schema_of::<JobView>())
            .with_refusals(&[404, 409]),
        operation_route("put", "/api/v1/jobs/{id}/redrive", RouteAccess::Holder("job/redrive", JOB_ID), "v/ops/dead/redrive", &[])
            .with_summary("redriveJob", "Drive a FAILED job of an agent again, whatever its code: as a new job (`redriveOf`) in the same session, with its input, priority, authority and budgets as they were, anew, and without the deadline of the request above it. Twice is once: the answer names the same job, with `duplicate`.")
            .with_answer(200, "The new job.", schema_of::<RedriveView>())
            .with_refusals(&[404, 409]),
        operation_route("get", "/api/v1/outcomes", RouteAccess::AnyCaller, "v/ops/job/outcomes", &[])
            .with_value_reads()
            .with_summary("listOutcomes", "Calls that must not be repeated and of which nobody knows whether they happened, the newest first.")
            .with_answer(200, "The calls.", schema_of::<OutcomePage>())
            .with_refusals(&[400]),
        operation_route("put", "/api/v1/outcomes/{id}", RouteAccess::AnyCaller, "v/ops/job/settle", &[("id", "id")])
            .with_summary("settleOutcome", "Say whether a call of unknown outcome has happened; it counts once, and changes neither job nor turn. It needs `job/settle` on the job, or on the agent of a call without one; with `tell` also `agent/message`.")
            .with_body(RouteSchema::Arguments("v/ops/job/settle", &[("id", "id")], &[]))
            .with_answer(200, "The call with its settlement.", schema_of::<OutcomeView>())
            .with_refusals(&[400, 404, 409]),
        route("put", "/api/v1/jobs/{id}/delete", RouteAccess::Holder("job/delete", JOB_ID), jobs::delete)
            .with_summary("deleteJob", "Forget an ended job.")
            .with_answer(200, "The job as it was.", schema_of::<JobView>())
            .with_refusals(&[404, 409]),
        route("get", "/api/v1/jobs/{id}/sse", RouteAccess::AnyCaller, sse::stream)
            .with_summary("followJob", "Events: `job-update` with the record at each change of status, `token` with live text as `{\"text\": …}`; the stream ends with the job.")
            .with_media_answer(200, "The stream.", vec![("text/event-stream", RouteSchema::Any)])
            .with_refusals(&[404]),
    ]
}
