//! Routes of jobs and of unknown outcomes.

use super::{Access, JOB, JOBS, Route, route, runs};
use crate::http::describe::answers::{Job, Outcomes, Page, Said, UnknownOutcome};
use crate::http::describe::queries::{JobsQuery, Wait};
use crate::http::jobs::Reason;
use crate::http::route::{Shape, of};
use crate::http::{jobs, sse};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("get", "/api/v1/jobs", Access::Caller, jobs::all)
            .reads()
            .says("listJobs", "Jobs, newest first.")
            .asks(of::<JobsQuery>())
            .answers(200, "A page of ids; of records with `details`.", of::<Page>())
            .fails(&[400]),
        runs("post", "/api/v1/jobs", Access::Holder("crud/read", JOBS), "v/ops/job/bulk", &[])
            .reads()
            .says("bulkJobs", "Many jobs at once, those that a filter takes: `cancel` what is open, `redrive` what failed. With `dryRun` only their number is told; else `expected` is that number, and with another one nothing is done (409). One request does `limit` jobs at most and says where it goes on (`next`, the `cursor` of the following one); of each job its own authority is asked.")
            .takes(Shape::Arguments("v/ops/job/bulk", &[], &[]))
            .answers(200, "What was done: `matched`, `done`, `already`, `denied`, `failed` (id and error), `next`, `until`.", Shape::Map)
            .fails(&[400, 409]),
        route("get", "/api/v1/jobs/{id}", Access::Caller, jobs::get)
            .says("getJob", "One job; with `wait` when it has ended, or then.")
            .asks(of::<Wait>())
            .answers(200, "The record.", of::<Job>())
            .fails(&[400, 404]),
        route("post", "/api/v1/jobs/{id}", Access::Holder("job/message", JOB), jobs::message)
            .says("tellJob", "A message to an open job of an agent, any JSON but null: its next turn reads it, as part of that job's request. One that comes after the last turn is read by nobody.")
            .takes(Shape::Something)
            .answers(202, "It is queued.", of::<Said>())
            .fails(&[404, 409]),
        route("put", "/api/v1/jobs/{id}/cancel", Access::Holder("job/cancel", JOB), jobs::cancel)
            .says("cancelJob", "Cancel a job.")
            .may_take(of::<Reason>())
            .answers(200, "The cancelled job.", of::<Job>())
            .fails(&[404, 409]),
        runs("put", "/api/v1/jobs/{id}/pause", Access::Holder("job/pause", JOB), "v/ops/job/pause", &[])
            .says("pauseJob", "Pause an open job of an agent: the running turn commits, and none begins for it until it is resumed. Its children, timers and approvals go on, and so does its deadline. Jobs of operations and of external workers can only be cancelled.")
            .answers(200, "The record.", of::<Job>())
            .fails(&[404, 409]),
        runs("put", "/api/v1/jobs/{id}/resume", Access::Holder("job/resume", JOB), "v/ops/job/resume", &[])
            .says("resumeJob", "Let a paused job go on.")
            .answers(200, "The record.", of::<Job>())
            .fails(&[404, 409]),
        runs("put", "/api/v1/jobs/{id}/redrive", Access::Holder("job/redrive", JOB), "v/ops/dead/redrive", &[])
            .says("redriveJob", "Drive a FAILED job of an agent again, whatever its code: as a new job (`redriveOf`) in the same session, with its input, priority, authority and budgets as they were, anew, and without the deadline of the request above it. Twice is once: the answer names the same job, with `duplicate`.")
            .answers(200, "`job`, the new one, `redriveOf` and `duplicate`.", Shape::Map)
            .fails(&[404, 409]),
        runs("get", "/api/v1/outcomes", Access::Caller, "v/ops/job/outcomes", &[])
            .reads()
            .says("listOutcomes", "Calls that must not be repeated and of which nobody knows whether they happened, the newest first.")
            .answers(200, "The calls.", of::<Outcomes>())
            .fails(&[400]),
        runs("put", "/api/v1/outcomes/{id}", Access::Caller, "v/ops/job/settle", &[("id", "id")])
            .says("settleOutcome", "Say whether a call of unknown outcome has happened; it counts once, and changes neither job nor turn. It needs `job/settle` on the job, or on the agent of a call without one; with `tell` also `agent/message`.")
            .takes(Shape::Arguments("v/ops/job/settle", &[("id", "id")], &[]))
            .answers(200, "The call with its settlement.", of::<UnknownOutcome>())
            .fails(&[400, 404, 409]),
        route("put", "/api/v1/jobs/{id}/delete", Access::Holder("job/delete", JOB), jobs::delete)
            .says("deleteJob", "Forget an ended job.")
            .answers(200, "The job as it was.", of::<Job>())
            .fails(&[404, 409]),
        route("get", "/api/v1/jobs/{id}/sse", Access::Caller, sse::stream)
            .says("followJob", "Events: `job-update` with the record at each change of status, `token` with live text as `{\"text\": …}`; the stream ends with the job.")
            .sends(200, "The stream.", vec![("text/event-stream", Shape::Any)])
            .fails(&[404]),
    ]
}
