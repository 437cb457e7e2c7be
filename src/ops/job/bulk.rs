//! `v/ops/job/bulk`: many jobs at once.

use super::batch::{self, BATCH, BatchAction, JobBatch, NamedJobs};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::reader::JobReader;
use crate::domain::time::Millis;
use crate::venue::jobs::list::{Cursor, JobListFilter};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation};
use crate::view::job_list::BulkView;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, IntoDeserializer};

/// Cancel, pause or resume the open jobs, or drive the failed ones again, that a filter takes or `only` names. Of a filter
/// first ask with `dryRun` how many there are, then say that number as `expected`; `next` is the `cursor` of the following
/// batch.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BulkJobs {
    action: BatchAction,
    /// these jobs, in place of a filter
    #[schemars(length(min = 1, max = BATCH))]
    only: Option<Vec<JobId>>,
    #[schemars(with = "Option<Vec<String>>")]
    status: Option<Vec<AnyCase<JobStatus>>>,
    #[schemars(with = "Option<Vec<String>>")]
    code: Option<Vec<AnyCase<ErrorCode>>>,
    agent: Option<AgentId>,
    session: Option<SessionId>,
    #[schemars(with = "Option<u64>")]
    since: Option<Millis>,
    #[schemars(with = "Option<u64>")]
    until: Option<Millis>,
    q: Option<String>,
    /// say how many there are, and change nothing
    #[serde(default)]
    dry_run: bool,
    /// how many there are; with another number nothing is done
    expected: Option<usize>,
    /// the `next` of the batch before
    #[schemars(with = "Option<String>")]
    cursor: Option<Cursor>,
    #[schemars(range(min = 1, max = BATCH))]
    limit: Option<usize>,
    /// of a cancellation, for the record
    reason: Option<String>,
}

/// A name that may be written in any case.
struct AnyCase<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AnyCase<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?.to_ascii_uppercase();
        T::deserialize(name.into_deserializer()).map(Self)
    }
}

fn invalid(key: &str, why: impl std::fmt::Display) -> OpError {
    OpError::Invalid(format!("`{key}`: {why}"))
}

impl BulkJobs {
    fn filter(&self, reader: JobReader) -> Result<JobListFilter, OpError> {
        let filter = JobListFilter {
            statuses: self.status.iter().flatten().map(|AnyCase(status)| *status).collect(),
            codes: self.code.iter().flatten().map(|AnyCase(code)| *code).collect(),
            agent: self.agent.clone(),
            session: self.session.clone(),
            since: self.since,
            until: self.until,
            text: self.q.clone(),
            reader: Some(reader),
        };
        self.action.narrow_filter(filter).map_err(|status| {
            let to = match self.action {
                BatchAction::Cancel => "only open jobs are cancelled",
                BatchAction::Redrive => "only FAILED ones are driven again",
                BatchAction::Pause => "only open jobs that aren't PAUSED are paused",
                BatchAction::Resume => "only PAUSED ones are resumed",
            };
            invalid("status", format!("{} doesn't fit: {to}", status.as_str()))
        })
    }
}

impl BulkJobs {
    /// Whether no part of a filter is given.
    const fn has_no_filter(&self) -> bool {
        self.status.is_none()
            && self.code.is_none()
            && self.agent.is_none()
            && self.session.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.q.is_none()
            && self.cursor.is_none()
            && self.expected.is_none()
    }

    async fn run_named(&self, call: &Invocation<'_>, ids: &[JobId]) -> Result<OpOutput, OpError> {
        if !self.has_no_filter() {
            return Err(invalid("only", "it names the jobs: a filter, `cursor` and `expected` don't go with it"));
        }
        if ids.is_empty() || ids.len() > BATCH {
            return Err(invalid("only", format!("expected 1 to {BATCH} jobs, got {}", ids.len())));
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let (venue, caller) = (call.venue, call.caller);
        let filter = JobListFilter { reader: Some(caller.reader()), ..JobListFilter::default() };
        let jobs = NamedJobs::read(venue, &caller.owner, self.action, &ids, &filter).await?;
        let until = venue.now();
        if self.dry_run {
            let matched = jobs.count();
            return Ok(OpOutput::of(&BulkView { matched, until, dry_run: Some(true), ..BulkView::default() }));
        }
        let done = batch::run_named(venue, caller, self.action, self.reason.as_deref(), jobs).await?;
        Ok(OpOutput::of(&done.to_view(until)))
    }
}

impl Operation for BulkJobs {
    const PATH: &'static str = "v/ops/job/bulk";
    const EFFECT: Effect = Effect::Idempotent;

    /// The ability of the action is checked for each job.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Jobs))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        if let Some(ids) = &self.only {
            return self.run_named(call, ids).await;
        }
        let mut filter = self.filter(call.caller.reader())?;
        // Jobs that arrive while it runs are left alone.
        let until = *filter.until.get_or_insert_with(|| venue.now());
        if self.dry_run {
            let matched = batch::count_jobs(venue, owner, self.action, &filter, usize::MAX - 1).await?;
            return Ok(OpOutput::of(&BulkView { matched, until, dry_run: Some(true), ..BulkView::default() }));
        }
        match (&self.cursor, self.expected) {
            (Some(_), _) => {}
            (None, None) => {
                return Err(invalid("expected", "ask with `dryRun` how many jobs these are, and say that number here"));
            }
            (None, Some(expected)) => {
                let many = batch::count_jobs(venue, owner, self.action, &filter, expected).await?;
                if many != expected {
                    let many = if many > expected { "more".to_owned() } else { many.to_string() };
                    return Err(OpError::Conflict(format!(
                        "`expected`: {expected} jobs, but there are {many}: nothing was done; ask with `dryRun` again"
                    )));
                }
            }
        }
        let asked = JobBatch {
            action: self.action,
            filter: &filter,
            after: self.cursor.as_ref(),
            limit: self.limit.unwrap_or(BATCH),
            reason: self.reason.as_deref(),
        };
        let done = batch::run_batch(venue, call.caller, &asked).await?;
        Ok(OpOutput::of(&done.to_view(until)))
    }
}
