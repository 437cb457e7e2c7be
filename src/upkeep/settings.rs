//! Settings of the servers that somebody changes while processes run: told once, counted, put right where that is safe.

use crate::upkeep::doctor::{self, Examination};
use crate::venue::{Venue, secrets};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks: what breaks a guarantee is told within a minute.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Names of settings that were found wrong and told.
#[derive(Debug, Clone, Default)]
pub struct ToldSettings {
    names: BTreeSet<String>,
    /// The next look is the first: it looks at less than the start did, and what it doesn't find may be wrong still.
    is_first: bool,
}

impl ToldSettings {
    /// Settings that the start of the process has told already.
    pub fn after_start(found: &Examination) -> Self {
        Self { names: found.wrong().into_keys().collect(), is_first: true }
    }

    /// Notes what is wrong now. Returns what to say: settings that weren't wrong before, and names of those that are
    /// right again.
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

/// Looks until `stop`; with `mends` it has the queue put right what can be.
pub async fn watch(venue: Arc<Venue>, mut told: ToldSettings, mends: bool, stop: CancellationToken) {
    tell_lost_secrets(&venue).await;
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

/// Once: a key that is missing doesn't come while a process runs.
async fn tell_lost_secrets(venue: &Venue) {
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

async fn look(venue: &Venue, told: &mut ToldSettings, mends: bool) {
    // What is looked at first is told although it is put right then.
    let wrong = match doctor::wrong(venue).await {
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
        venue.bus.mend().await;
    }
}
