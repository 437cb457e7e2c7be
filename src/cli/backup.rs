//! `trellis backup`: copies an embedded store while work goes on.

use super::exit::{Exit, Failure};
use super::running::RunningArgs;
use super::{CliContext, escape};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::venue::Venue;
use crate::venue::upkeep::backup;
use crate::view;
use crate::view::venue::BackupView;
use clap::Args;
use serde::Serialize;

/// Arguments of `trellis backup`.
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

/// Arguments of `v/ops/venue/backup`.
#[derive(Serialize)]
struct BackupRequest<'a> {
    name: &'a str,
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
        let request = BackupRequest { name: &name };
        let here = async |venue: &Venue| match backup::make(venue, &name).await {
            Ok(made) => Ok(view::to_json(&made)),
            Err(error) => Err(Failure::operation(&error)),
        };
        let made = self.running.server(context).call_or_run_here(&config, "v/ops/venue/backup", &request, here).await?;
        context.out.typed_value(made, |BackupView { path, records, bytes }: &BackupView| {
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
