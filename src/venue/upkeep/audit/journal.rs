//! The journal of what the store acknowledged, which the queue keeps. Entries are sent there; a store whose server was
//! replaced, or came back without its last seconds, is compared with it.

use super::{AuditError, losses};
use crate::domain::losses::{Loss, Losses, SafePoint};
use crate::domain::time::Millis;
use crate::store::journaled::{BATCH_EVERY, JournalComparison};
use crate::store::{DocWrite, WriteOutcome, keys};
use crate::venue::{Venue, venue_owner};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two safe points: at least so much of the journal is read again after a loss.
const SAFE_EVERY: Duration = Duration::from_secs(10);

/// Time in which living processes restore what they know.
const PUT_BACK: Duration = Duration::from_secs(5);

/// Time between two comparisons of all policies with what the queue keeps of them.
const POLICIES_EVERY: Duration = Duration::from_secs(30);

/// Sends the entries of this process to the queue, until `stop`. Now and then it puts policies in force again that somebody
/// has deleted behind the venue's back.
pub async fn flush(venue: Arc<Venue>, stop: CancellationToken) {
    let Some(journaled) = venue.history.journal() else { return };
    let mut is_told = true;
    let mut compare_at = venue.clock.steady() + POLICIES_EVERY;
    loop {
        let is_over = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = venue.clock.wait_until(venue.clock.steady() + BATCH_EVERY) => false,
        };
        match journaled.flush().await {
            Ok(()) => is_told = true,
            Err(error) => {
                if is_told {
                    tracing::warn!(%error, "the queue doesn't keep the journal of changes now; it is told later");
                }
                is_told = false;
            }
        }
        if is_over {
            return;
        }
        if venue.clock.steady() >= compare_at {
            if let Err(error) = journaled.force_policies().await {
                tracing::debug!(%error, "policies aren't compared with the queue now");
            }
            compare_at = venue.clock.steady() + POLICIES_EVERY;
        }
    }
}

/// State of one process between two looks.
#[derive(Debug, Default)]
pub(super) struct JournalWatch {
    /// When the store's generation was first seen to be another.
    seen: Option<Millis>,
    /// When losses were first there that were found at the start of the process.
    early: Option<Millis>,
    /// The safe point that was read last: while it is young and of this generation, there is nothing to do.
    safe: SafePoint,
}

impl JournalWatch {
    /// Returns losses that this process has found at its start, once living processes have sent the queue what replaces
    /// them.
    pub(super) async fn take_early_losses(&mut self, venue: &Venue) -> Result<Vec<Loss>, AuditError> {
        let Some(journaled) = venue.history.journal().filter(|journaled| journaled.has_early_losses()) else {
            return Ok(Vec::new());
        };
        let now = venue.now();
        if self.early.get_or_insert(now).plus(PUT_BACK) > now {
            return Ok(Vec::new());
        }
        self.early = None;
        Ok(journaled.confirm_early_losses().await?)
    }

    /// Compares the store with the journal if the store's generation isn't that of its last safe point, and stores what
    /// is missing for operators; `by` is the name of the process. Otherwise moves the safe point forward.
    pub(super) async fn check(&mut self, venue: &Venue, by: &str) -> Result<(), AuditError> {
        let Some(journaled) = venue.history.journal() else { return Ok(()) };
        let mut names = venue.store.history().await?;
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        let now = venue.now();
        if self.safe.covers(&names) && self.safe.at.plus(SAFE_EVERY) > now {
            self.seen = None;
            return Ok(());
        }
        let (safe, version) = venue.store.get_versioned::<SafePoint>(&venue_owner(), keys::SAFE_POINT).await?;
        self.safe = safe.unwrap_or_default();
        let safe = &self.safe;
        let mut writes =
            vec![DocWrite::json(keys::SAFE_POINT, &SafePoint { names: names.clone(), at: now }).at_version(version)];
        if safe.covers(&names) {
            self.seen = None;
            if safe.at.plus(SAFE_EVERY) <= now {
                venue.store.write(now, &venue_owner(), &writes).await?;
            }
            return Ok(());
        }
        // Living processes restore first what they know.
        if self.seen.get_or_insert(now).plus(PUT_BACK) > now {
            return Ok(());
        }
        let JournalComparison { losses, notes } = journaled.compare(safe, &names).await?;
        let all = Losses::split(now, by, losses::without_known(venue, losses).await?, notes);
        let is_serious = all.first().is_some_and(Losses::is_serious);
        if is_serious {
            let parts = all.iter().enumerate();
            writes.extend(parts.map(|(n, part)| DocWrite::json(keys::journal_losses_part(now, by, n), part)));
        }
        // Written with the safe point, so that only one of several processes reports the loss.
        let written = venue.store.write(now, &venue_owner(), &writes).await?;
        self.seen = None;
        if written == WriteOutcome::Done && is_serious {
            log_losses(&all);
        }
        Ok(())
    }
}

fn log_losses(all: &[Losses]) {
    let kinds = all.first().map(|first| join_sums(&first.kinds)).unwrap_or_default();
    tracing::error!(
        "the store has lost changes that it had acknowledged, by the journal in the queue: {kinds}; `trellis audit \
         --after-loss` lists them"
    );
    for note in all.iter().flat_map(|part| &part.notes) {
        tracing::error!("{note}");
    }
    for loss in all.iter().flat_map(|part| &part.lines) {
        tracing::warn!("{loss}");
    }
}

/// Returns sums such as `3 documents, 1 turns`.
pub(super) fn join_sums(kinds: &BTreeMap<String, u64>) -> String {
    let each = kinds.iter().map(|(kind, n)| format!("{n} {}", if kind.is_empty() { "changes" } else { kind }));
    let each: Vec<_> = each.collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(", ") }
}
