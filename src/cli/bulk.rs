//! Operations on many jobs: `job cancel`, `job pause`, `job resume` and `dead redrive` with a filter, after a
//! confirmation.

use super::client::Client;
use super::confirm::confirm;
use super::exit::{Exit, Failure};
use super::filter::JobFilterArgs;
use super::output::{CommandOutput, note, remark};
use clap::Args;
use serde_json::{Value, json};

const OPERATION: &str = "v/ops/job/bulk";

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
        (action, words): (&str, &str),
        more: Value,
    ) -> Result<Exit, Failure> {
        let mut asked = self.filter.arguments();
        asked["action"] = action.into();
        if let (Some(asked), Value::Object(more)) = (asked.as_object_mut(), more) {
            asked.extend(more);
        }
        let mut trial = asked.clone();
        trial["dryRun"] = true.into();
        let counted = client.run(OPERATION, &trial, None).await?;
        let many = counted["matched"].as_u64().unwrap_or(0);
        if many > 0 && !self.yes {
            confirm(&format!("{many} jobs would be {words}"))?;
        }
        asked["until"] = counted["until"].clone();
        asked["expected"] = many.into();
        let mut sums = json!({"matched": 0, "done": 0, "already": 0, "denied": 0, "failed": 0});
        loop {
            let batch = client.run(OPERATION, &asked, None).await.map_err(|error| match asked["cursor"].as_str() {
                Some(place) => Failure { text: format!("{}; `--cursor {place}` goes on", error.text), ..error },
                None => error,
            })?;
            if let Some(sums) = sums.as_object_mut() {
                for (key, sum) in sums {
                    *sum = (sum.as_u64().unwrap_or(0) + batch[key].as_u64().unwrap_or(0)).into();
                }
            }
            for reason in batch["reasons"].as_array().into_iter().flatten() {
                note(reason["error"].as_str().unwrap_or_default());
            }
            let Some(next) = batch["next"].as_str() else { break };
            remark(&format!("{} of {many} {words}", sums["done"]));
            asked["cursor"] = next.into();
        }
        out.value(&sums, || {
            let left = [
                ("already", "had ended or were driven before"),
                ("denied", "are not yours to do"),
                ("failed", "could not be"),
            ];
            let left =
                left.iter().filter(|(key, _)| sums[*key] != 0).map(|(key, why)| format!(", {} {why}", sums[*key]));
            format!("{} {words}{}", sums["done"], left.collect::<String>())
        })?;
        Ok(Exit::Ok)
    }
}
