//! Settings of the servers that are changed while processes run: each wrong one is logged once, counted, and corrected
//! where that is safe.

use crate::venue::upkeep::doctor::{self, Examination};
use crate::venue::{Venue, secrets};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two checks: what breaks a guarantee is logged within a minute.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Names of wrong settings that were logged.
#[derive(Debug, Clone, Default)]
pub struct LoggedSettings {
    names: BTreeSet<String>,
    /// Whether the next check is the first: it covers less than the start did, so that a setting which it doesn't find
    /// may still be wrong.
    is_first: bool,
}

impl LoggedSettings {
    /// Makes the names from the settings that the start of the process has logged.
    pub fn after_start(found: &Examination) -> Self {
        Self { names: found.wrong_settings().into_keys().collect(), is_first: true }
    }

    /// Notes which settings are wrong. Returns what to log: settings that weren't wrong before, and names of those that
    /// are right again.
    fn note(&mut self, wrong: BTreeMap<String, String>) -> (Vec<String>, Vec<String>) {
        let is_new = |(name, _): &(&String, &String)| !self.names.contains(*name);
        let new = wrong.iter().filter(is_new).map(|(_, line)| line.clone()).collect();
        let mut right: Vec<_> = self.names.iter().filter(|name| !wrong.contains_key(*name)).cloned().collect();
        if self.is_first {
            right.clear();
        }
        *self = Self { names: wrong.into_keys().collect(), is_first: false };
        (new, right)
    }
}

/// Checks the settings until `stop`; with `mends` the queue corrects what it can.
pub async fn watch(venue: Arc<Venue>, mut told: LoggedSettings, mends: bool, stop: CancellationToken) {
    log_lost_secrets(&venue).await;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = venue.clock.wait_until(venue.clock.steady() + LOOK_EVERY) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = check_settings(&venue, &mut told, mends) => {}
        }
    }
}

/// Logs secrets that no key opens, once: a missing key can't arrive while a process runs.
async fn log_lost_secrets(venue: &Venue) {
    // A process without any key serves no secret.
    if venue.secrets.keys().is_empty() {
        return;
    }
    match secrets::find_lost(&*venue.store, venue.secrets.keys()).await {
        Ok(lost) if lost.secrets == 0 => {}
        Ok(lost) => tracing::error!("{lost}"),
        Err(error) => tracing::debug!(%error, "whether all secrets can be opened isn't known"),
    }
}

async fn check_settings(venue: &Venue, told: &mut LoggedSettings, mends: bool) {
    // The check comes before the correction, so that it is logged, too.
    let wrong = match doctor::wrong_settings(venue).await {
        Ok(wrong) => wrong,
        Err(error) => {
            return tracing::debug!(%error, "the settings of the servers aren't known; they are asked for again");
        }
    };
    venue.metrics.settings_wrong.set(i64::try_from(wrong.len()).unwrap_or(i64::MAX));
    let (new, right) = told.note(wrong);
    venue.metrics.settings_found.inc_by(new.len() as u64);
    for line in new {
        tracing::warn!("a guarantee doesn't hold any more: {line}");
    }
    for name in right {
        tracing::info!("{name} is right again");
    }
    if mends {
        venue.bus.repair_settings().await;
    }
}
