//! `trellis backup`: a copy of an embedded store while it works.

use super::exit::{Exit, Failure};
use super::output::field;
use super::running::Running;
use super::{Context, role};
use crate::app::{App, Role};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use crate::upkeep::backup;
use crate::venue::failure::OpError;
use clap::Args;
use serde_json::json;
use std::sync::Arc;

/// Copies an embedded store as it stands at one moment, while work goes on.
///
/// The copy is a folder NAME under `backups` in the store's own folder, and a store like any other: take it elsewhere,
/// and start `trellis up --data FOLDER` on it. The keys of secrets and the configuration are not in it. A store that a
/// running `trellis up` holds is copied by that process, which is asked over HTTP, and so is that of `--url`. A store in
/// Redis is copied by `redis-cli --rdb`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  trellis backup before-upgrade && cp -a trellis-data/backups/before-upgrade /mnt/safe/"
)]
pub(crate) struct Backup {
    /// Name of the copy [default: the time, e.g. `20260131T120000Z`]
    name: Option<String>,
    #[command(flatten)]
    running: Running,
}

/// `20260131T120000Z`.
fn stamp(now: Millis) -> String {
    let text = now.rfc3339();
    let digits = text.split('.').next().unwrap_or_default().trim_end_matches('Z');
    format!("{}Z", digits.replace(['-', ':'], ""))
}

impl Backup {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let config = context.load(Vec::new())?.config;
        let name = self.name.unwrap_or_else(|| stamp(Clock::system().now()));
        let made = if let Some(made) = self.running.ask(&config, "v/ops/venue/backup", &json!({"name": name})).await? {
            made
        } else {
            let app = App::open(&config, Role::Doctor, Arc::new(Metrics::new())).await;
            let app = app.map_err(|e| role::failure(&e))?;
            let made = backup::make(&app.venue, &name).await;
            app.close().await;
            made.map_err(|error| failure(&error))?
        };
        let [path, records, bytes] = ["path", "records", "bytes"].map(|key| field(&made, key));
        context.out.value(&made, || format!("{path}: {records} records, {bytes} bytes"))?;
        Ok(Exit::Ok)
    }
}

/// What went wrong in this very process, which has the store.
pub(crate) fn failure(error: &OpError) -> Failure {
    let exit = match error {
        OpError::Invalid(_) | OpError::Arguments { .. } => Exit::Usage,
        OpError::NotFound(_) => Exit::NotFound,
        OpError::Conflict(_) => Exit::Conflict,
        OpError::Denied(_) => Exit::Denied,
        OpError::Store(_) => Exit::Unreachable,
        OpError::Limit(_) | OpError::Failed(_) | OpError::Upstream(_) | OpError::Timeout(_) | OpError::Fenced => {
            Exit::Internal
        }
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_backup_is_its_time() {
        assert_eq!(stamp(Millis(1_769_860_800_123)), "20260131T120000Z");
    }
}
