//! Operations on many jobs: `job cancel`, `job pause`, `job resume` and `dead redrive` with a filter, after a
//! confirmation.

use super::client::{Client, read_view};
use super::confirm::confirm;
use super::exit::{Exit, Failure};
use super::filter::JobFilterArgs;
use super::output::{CommandOutput, note, remark};
use crate::view::job_list::{BulkRequest, BulkView};
use crate::view::to_json;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

const OPERATION: &str = "v/ops/job/bulk";

/// Action on many jobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkAction {
    /// Name of the action in a request.
    pub name: &'static str,
    /// Participle for the jobs that it was done to.
    pub done: &'static str,
}

impl BulkAction {
    pub const CANCEL: Self = Self { name: "cancel", done: "cancelled" };
    pub const PAUSE: Self = Self { name: "pause", done: "paused" };
    pub const RESUME: Self = Self { name: "resume", done: "resumed" };
    pub const REDRIVE: Self = Self { name: "redrive", done: "driven again" };
}

/// Which jobs, where no id is named.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    filter: JobFilterArgs,
    /// Don't ask whether it is meant
    #[arg(long)]
    yes: bool,
}

impl BulkArgs {
    /// Whether no filter is given.
    pub fn is_empty(&self) -> bool {
        self.filter.is_empty()
    }

    /// Checks that exactly one of an id and a filter is given.
    pub fn check(&self, named: bool) -> Result<(), Failure> {
        if named == self.is_empty() {
            return Ok(());
        }
        Err(Failure::usage("expected the id of a job, or which ones: `--agent`, `--state`, `--code`, `--since`, …"))
    }

    /// Counts the jobs, asks for confirmation, and runs the operation batch by batch.
    pub async fn run(
        &self,
        client: &Client,
        out: CommandOutput,
        action: BulkAction,
        reason: Option<String>,
    ) -> Result<Exit, Failure> {
        let BulkAction { name, done } = action;
        let filter = self.filter.request();
        let mut request = BulkRequest { filter, reason, dry_run: Some(true), ..BulkRequest::new(name) };
        let counted = client.run(OPERATION, &request, None).await?;
        let BulkView { matched: many, until, .. } = read_view(counted)?;
        if many > 0 && !self.yes {
            confirm(&format!("{many} jobs would be {done}"))?;
        }
        request.filter.until = Some(until);
        (request.dry_run, request.expected) = (None, Some(many));
        let mut sums = BulkSums::default();
        loop {
            let batch = client.run(OPERATION, &request, None).await.map_err(|error| match &request.filter.cursor {
                Some(place) => Failure { text: format!("{}; `--cursor {place}` goes on", error.text), ..error },
                None => error,
            })?;
            let batch: BulkView = read_view(batch)?;
            sums.add(&batch);
            for reason in batch.reasons.iter().flatten() {
                note(&reason.error);
            }
            let Some(next) = batch.next.as_ref().and_then(Value::as_str) else { break };
            remark(&format!("{} of {many} {done}", sums.done));
            request.filter.cursor = Some(next.to_owned());
        }
        out.value(&to_json(&sums), || {
            let left = [
                (sums.already, "had ended or were driven before"),
                (sums.denied, "are not yours to do"),
                (sums.failed, "could not be"),
            ];
            let left = left.iter().filter(|(jobs, _)| *jobs > 0).map(|(jobs, why)| format!(", {jobs} {why}"));
            format!("{} {done}{}", sums.done, left.collect::<String>())
        })?;
        sums.check(done)
    }
}

/// Numbers of jobs in all batches together.
#[derive(Debug, Default, Serialize)]
struct BulkSums {
    matched: usize,
    done: usize,
    already: usize,
    denied: usize,
    failed: usize,
}

impl BulkSums {
    fn add(&mut self, batch: &BulkView) {
        self.matched += batch.matched;
        self.done += batch.done;
        self.already += batch.already.unwrap_or(0);
        self.denied += batch.denied.unwrap_or(0);
        self.failed += batch.failed.unwrap_or(0);
    }

    /// Fails unless every job was done or needed nothing.
    fn check(&self, done: &str) -> Result<Exit, Failure> {
        match (self.failed, self.denied) {
            (0, 0) => Ok(Exit::Ok),
            (0, denied) => Err(Failure::new(
                Exit::Denied,
                format!("{denied} of {} jobs may not be {done} by this caller", self.matched),
            )),
            (failed, _) => Err(Failure::internal(format!("{failed} of {} jobs could not be {done}", self.matched))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_were_not_done_are_no_success() {
        for (failed, denied, expected) in
            [(0, 0, Ok(Exit::Ok)), (1, 0, Err(Exit::Internal)), (1, 2, Err(Exit::Internal)), (0, 2, Err(Exit::Denied))]
        {
            let sums = BulkSums { matched: 5, already: 1, failed, denied, ..BulkSums::default() };
            let exit = sums.check("cancelled").map_err(|failure| failure.exit);
            assert_eq!(exit, expected, "{failed} failed, {denied} denied");
        }
    }
}
