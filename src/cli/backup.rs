//! `trellis backup`: copies an embedded store while work goes on.

use super::exit::{Exit, Failure};
use super::running::RunningArgs;
use super::{CliContext, escape};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::upkeep::backup;
use crate::venue::Venue;
use crate::view;
use crate::view::venue::BackupView;
use clap::Args;
use serde_json::json;

/// Copies an embedded store as it stands at one moment, while work goes on.
///
/// The copy is a folder NAME under `backups` in the store's own folder, and a store like any other: take it elsewhere,
/// and start `trellis up --data FOLDER` on it. The keys of secrets and the configuration are not in it. A store that a
/// running `trellis up` holds is copied by that process, which is asked over HTTP, and so is that of `--url`. A store in
/// Redis is copied by `redis-cli --rdb`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  trellis backup before-upgrade && cp -a trellis-data/backups/before-upgrade /mnt/safe/\n  trellis backup nightly --data /srv/trellis-data"
)]
pub(crate) struct BackupArgs {
    /// Name of the copy [default: the time, e.g. `20260131T120000Z`]
    name: Option<String>,
    #[command(flatten)]
    running: RunningArgs,
}

/// Formats a time like `20260131T120000Z`.
fn time_name(now: Millis) -> String {
    let text = now.rfc3339();
    let digits = text.split('.').next().unwrap_or_default().trim_end_matches('Z');
    format!("{}Z", digits.replace(['-', ':'], ""))
}

impl BackupArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let config = self.running.load(context)?;
        let name = self.name.unwrap_or_else(|| time_name(Clock::system().now()));
        let input = json!({"name": name});
        let here = async |venue: &Venue| match backup::make(venue, &name).await {
            Ok(made) => Ok(view::to_json(&made)),
            Err(error) => Err(Failure::operation(&error)),
        };
        let made = self.running.server(context).call_or_run_here(&config, "v/ops/venue/backup", &input, here).await?;
        context.out.typed_value(&made, |BackupView { path, records, bytes }: &BackupView| {
            format!("{}: {records} records, {bytes} bytes", escape::escape_data(&path.display().to_string()))
        })?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_backup_is_its_time() {
        assert_eq!(time_name(Millis(1_769_860_800_123)), "20260131T120000Z");
    }
}
