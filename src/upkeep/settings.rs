//! Settings of the servers that somebody changes while processes run: told once, counted, put right where that is safe.

use crate::upkeep::doctor::{self, Examination};
use crate::venue::Venue;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks: what breaks a guarantee is told within a minute.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Names of settings that were found wrong and told.
#[derive(Debug, Clone, Default)]
pub struct ToldSettings(BTreeSet<String>);

impl ToldSettings {
    /// Notes what is wrong now, in the metrics, too. Returns what to say: settings that weren't wrong before, and names
    /// of those that are right again.
    fn note(&mut self, venue: &Venue, found: &Examination) -> (Vec<String>, Vec<String>) {
        let wrong = found.wrong();
        let new: Vec<_> =
            wrong.iter().filter(|(name, _)| !self.0.contains(**name)).map(|(_, line)| line.clone()).collect();
        let right = self.0.iter().filter(|name| !wrong.contains_key(name.as_str())).cloned().collect();
        venue.metrics.settings_wrong.set(i64::try_from(wrong.len()).unwrap_or(i64::MAX));
        venue.metrics.settings_found.inc_by(new.len() as u64);
        self.0 = wrong.keys().map(|name| (*name).to_owned()).collect();
        (new, right)
    }

    /// As after a first look whose findings were said.
    pub fn told(venue: &Venue, found: &Examination) -> Self {
        let mut told = Self::default();
        told.note(venue, found);
        told
    }
}

/// Looks until `stop`; with `mends` it has the queue put right what can be.
pub async fn watch(venue: Arc<Venue>, mut told: ToldSettings, mends: bool, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = venue.clock.until(venue.clock.steady() + LOOK_EVERY) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look(&venue, &mut told, mends) => {}
        }
    }
}

async fn look(venue: &Venue, told: &mut ToldSettings, mends: bool) {
    // What is looked at first is told although it is put right then.
    let found = match doctor::examine(venue).await {
        Ok(found) => found,
        Err(error) => {
            return tracing::debug!(%error, "the settings of the servers aren't known; they are asked for again");
        }
    };
    let (new, right) = told.note(venue, &found);
    for line in new {
        tracing::warn!("a guarantee doesn't hold any more: {line}");
    }
    for name in right {
        tracing::info!("{name} is right again");
    }
    if mends {
        venue.bus.mend().await;
    }
}
