//! What was acknowledged and lost with a server: found when the store's history is another, put back where that can be,
//! and kept for operators.

use super::journal::{JournalWatch, sums};
use super::{AuditError, SetBack};
use crate::domain::limits::LOSSES_KEPT;
use crate::domain::tail::{Loss, LossSettlement, Losses};
use crate::domain::time::Millis;
use crate::store::journaled::{Forced, JournaledStore};
use crate::store::tail::Compared;
use crate::store::{DocWrite, Window, keys};
use crate::venue::{Venue, venue_owner};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the store's history.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks, as the process of this name, until `stop`.
pub async fn watch(venue: Arc<Venue>, by: String, stop: CancellationToken) {
    if venue.history.tail().is_none() && venue.history.journal().is_none() {
        return;
    }
    let (mut untold, mut journal) = (Vec::new(), JournalWatch::default());
    loop {
        let looked = async {
            untold.extend(put_in_force(&venue));
            let early = journal.take_early_losses(&venue).await?;
            for loss in &early {
                tracing::warn!("{loss}");
            }
            untold.extend(early);
            look(&venue, &by, &mut untold).await?;
            journal.look(&venue, &by).await
        };
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = looked => looked,
        };
        if let Err(error) = looked {
            tracing::debug!(%error, "whether the store is another isn't known; it is asked again");
        }
        tokio::select! {
            biased;
            // What was said until now is compared once more.
            () = stop.cancelled() => return drop(look(&venue, &by, &mut untold).await),
            () = venue.clock.until(venue.clock.steady() + LOOK_EVERY) => {}
        }
    }
}

/// Records that this process has put in force since it was asked last; the log has them.
fn put_in_force(venue: &Venue) -> Vec<Loss> {
    let forced = venue.history.journal().map(JournaledStore::take_forced).unwrap_or_default();
    let loss = |Forced { record, failed }: Forced| Loss {
        owner: record.owner.clone(),
        acknowledged: record.at,
        kind: "protections".to_owned(),
        what: record.what.to_string(),
        lost: failed.map(|why| format!("it isn't in force: {why}")),
    };
    forced.into_iter().map(loss).collect()
}

/// One look. What it finds is in `untold` until it is kept.
async fn look(venue: &Venue, by: &str, untold: &mut Vec<Loss>) -> Result<(), AuditError> {
    if let Some(Compared { is_another, losses, left }) = venue.compare_history().await? {
        let (all, gone) = (losses.len(), losses.iter().filter(|loss| loss.lost.is_some()).count());
        if all > 0 {
            tracing::error!(
                "a server of the store was replaced or restarted without its last changes: {} put back, {gone} lost; \
                 `trellis audit --after-loss` lists them",
                all - gone
            );
        } else if is_another && left == 0 {
            tracing::warn!(
                "a server of the store was replaced or restarted; this process has nothing to put back, and the journal in \
                 the queue is compared next"
            );
        }
        if is_another && left > 0 {
            tracing::warn!("{left} changes can't be compared with the store yet; they are looked at again");
        }
        for loss in &losses {
            tracing::warn!("{loss}");
        }
        untold.extend(losses);
    }
    if !untold.is_empty() {
        // Another process may have told some of them, and an operator have settled that.
        let new = without_known(venue, untold.clone()).await?;
        let now = venue.now();
        let parts = if new.is_empty() { Vec::new() } else { Losses::split(now, by, new, Vec::new()) };
        for (n, part) in parts.iter().enumerate() {
            let new = DocWrite::json(keys::losses_part(now, by, n), part);
            venue.keep_newest(keys::LOSSES, LOSSES_KEPT, new).await?;
        }
        untold.clear();
    }
    Ok(())
}

/// Losses that processes and the journal have found.
#[derive(Debug, Default)]
pub(super) struct KnownLosses {
    /// Sums by kind, and the changes one by one, the newest find first, in words.
    pub lines: Vec<String>,
    /// Changes that are gone, by all finds.
    pub total: u64,
}

/// Finds of processes and of the journal, the newest first.
async fn read_finds(venue: &Venue) -> Result<Vec<Losses>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: LOSSES_KEPT, values: true };
    let page = venue.store.page(&venue_owner(), keys::LOSSES, window).await?;
    let mut finds = Vec::new();
    for (key, doc) in &page.docs {
        finds.extend(doc.decode::<Losses>(key)?);
    }
    Ok(finds)
}

/// Those that no process has told yet: the journal still has what was told of the last loss.
pub(super) async fn without_known(venue: &Venue, mut losses: Vec<Loss>) -> Result<Vec<Loss>, AuditError> {
    if losses.is_empty() {
        return Ok(losses);
    }
    let finds = read_finds(venue).await?;
    let known: HashSet<_> = finds
        .iter()
        .flat_map(|find| &find.lines)
        .filter(|loss| loss.lost.is_some())
        .map(|loss| (&loss.owner, loss.acknowledged, &loss.what))
        .collect();
    losses.retain(|loss| !known.contains(&(&loss.owner, loss.acknowledged, &loss.what)));
    Ok(losses)
}

/// Reads all finds; `limit` changes at most are named.
pub(super) async fn read_losses(venue: &Venue, limit: usize) -> Result<KnownLosses, AuditError> {
    let settled = settlement(venue).await?;
    let finds = read_finds(venue).await?;
    let mut known = KnownLosses::default();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let (mut seen, mut named) = (HashSet::new(), Vec::new());
    for find in &finds {
        let (found, by) = (find.found.rfc3339(), &find.by);
        known.lines.extend(find.notes.iter().map(|note| format!("{note} (found at {found} by `{by}`)")));
        for loss in &find.lines {
            // What one process has lost, and the journal names, too, is one loss.
            if !seen.insert((&loss.owner, loss.acknowledged, &loss.what)) {
                continue;
            }
            if loss.lost.is_some() {
                *kinds.entry(loss.kind.clone()).or_default() += 1;
                known.total += 1;
            }
            named.push(format!("{loss} (found at {found} by `{by}`)"));
        }
    }
    if known.total > 0 {
        known.lines.insert(0, format!("{} lost in all: {}", known.total, sums(&kinds)));
    }
    if named.len() > limit {
        let more = named.len() - limit;
        named.truncate(limit);
        named.push(format!(
            "{more} more of {} are not shown; the documents `{}` of `{}` and the log have all",
            limit + more,
            keys::LOSSES,
            venue_owner()
        ));
    }
    known.lines.append(&mut named);
    if let Some(LossSettlement { at, by }) = settled.filter(|_| !finds.is_empty()) {
        known.lines.push(format!("settled at {} by `{by}`", at.rfc3339()));
    }
    Ok(known)
}

/// The last settlement of an operator.
async fn settlement(venue: &Venue) -> Result<Option<LossSettlement>, AuditError> {
    Ok(venue.store.get(&venue_owner(), keys::SETTLED).await?)
}

/// Whether something was found lost since the last settlement, or the store was set back, as [`super::set_backs`] says.
pub async fn is_unsettled(venue: &Venue, set_backs: &[SetBack]) -> Result<bool, AuditError> {
    let settled = settlement(venue).await?;
    let is_new = |found: Millis| settled.as_ref().is_none_or(|settled| settled.at < found);
    if set_backs.iter().any(|set_back| is_new(set_back.found)) {
        return Ok(true);
    }
    Ok(read_finds(venue).await?.iter().any(|find| find.is_serious() && is_new(find.found)))
}

/// Notes that an operator has dealt with everything that was found until now. What was found stays readable.
pub async fn settle(venue: &Venue, by: &str) -> Result<LossSettlement, AuditError> {
    let settlement = LossSettlement { at: venue.now(), by: by.to_owned() };
    let write = DocWrite::json(keys::SETTLED, &settlement);
    venue.store.write(settlement.at, &venue_owner(), &[write]).await?;
    Ok(settlement)
}
