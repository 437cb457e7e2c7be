//! Changes that were acknowledged and then lost with a server: they are found when the store's generation is another,
//! restored where that is possible, and kept for operators.

use super::journal::{JournalWatch, join_sums};
use super::{AuditError, StoreSetBack};
use crate::domain::limits::LOSSES_KEPT;
use crate::domain::losses::{Loss, LossSettlement, Losses};
use crate::domain::time::Millis;
use crate::store::ack_log::AckLogReport;
use crate::store::journaled::{ForcedRecord, JournaledStore, has_again};
use crate::store::{DocWrite, Store, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};
use futures::{StreamExt, stream};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two checks of the store's generation.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Lost changes that an audit looks for in the store at most, the newest finds first.
const LOOKED_FOR: usize = 10_000;

/// Changes that are looked for concurrently.
const AT_ONCE: usize = 32;

/// Checks the generation until `stop`; `by` is the name of the process.
pub async fn watch(venue: Arc<Venue>, by: String, stop: CancellationToken) {
    if venue.history.tail().is_none() && venue.history.journal().is_none() {
        return;
    }
    let (mut untold, mut journal) = (Vec::new(), JournalWatch::default());
    loop {
        let looked = async {
            untold.extend(take_forced_losses(&venue));
            let early = journal.take_early_losses(&venue).await?;
            for loss in &early {
                tracing::warn!("{loss}");
            }
            untold.extend(early);
            check_generation(&venue, &by, &mut untold).await?;
            journal.check(&venue, &by).await
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
            // The changes up to now are compared once more.
            () = stop.cancelled() => return drop(check_generation(&venue, &by, &mut untold).await),
            () = venue.clock.wait_until(venue.clock.steady() + LOOK_EVERY) => {}
        }
    }
}

/// Returns records that this process has put in force since the last call; they are also in the log.
fn take_forced_losses(venue: &Venue) -> Vec<Loss> {
    let forced = venue.history.journal().map(JournaledStore::take_forced).unwrap_or_default();
    let loss = |ForcedRecord { record, failed }: ForcedRecord| Loss {
        owner: record.owner.clone(),
        acknowledged: record.at,
        kind: "protections".to_owned(),
        what: record.what.to_string(),
        lost: failed.map(|why| format!("it isn't in force: {why}")),
        change: None,
    };
    forced.into_iter().map(loss).collect()
}

/// Makes one check. Losses are in `untold` until they are stored.
async fn check_generation(venue: &Venue, by: &str, untold: &mut Vec<Loss>) -> Result<(), AuditError> {
    if let Some(AckLogReport { is_another, losses, left }) = venue.compare_history().await? {
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
        // Another process may have stored some of them, and an operator may have settled those.
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
    /// Sums by kind, then the changes one by one, the newest find first, as texts.
    pub lines: Vec<String>,
    /// Number of changes of all finds that are missing now.
    pub total: u64,
    /// Whether any find has told of a loss, even if the change is there again.
    pub is_any: bool,
}

/// Returns the finds of processes and of the journal, the newest first.
async fn read_finds(venue: &Venue) -> Result<Vec<Losses>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: LOSSES_KEPT, values: true };
    let page = venue.store.page(&venue_owner(), keys::LOSSES, window).await?;
    let mut finds = Vec::new();
    for (key, doc) in &page.docs {
        finds.extend(doc.decode::<Losses>(key)?);
    }
    Ok(finds)
}

/// Returns the losses that no process has stored yet: the journal still contains those of the last loss.
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

/// Marks the lost changes that a later find has put back, or that the store has again.
async fn mark_restored(store: &dyn Store, finds: &mut [Losses]) -> Result<(), StoreError> {
    let mut restored = HashSet::new();
    for loss in finds.iter_mut().flat_map(|find| &mut find.lines) {
        let name = (loss.owner.clone(), loss.what.clone());
        if loss.lost.is_none() {
            restored.insert(name);
        } else if restored.contains(&name) {
            loss.lost = None;
        }
    }
    let lost = finds.iter_mut().flat_map(|find| &mut find.lines).filter(|loss| loss.lost.is_some());
    let lost: Vec<&mut Loss> = lost.take(LOOKED_FOR).collect();
    let looks: Vec<_> = lost.iter().map(|loss| is_restored(store, loss)).collect();
    let looks: Vec<Result<bool, StoreError>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    for (loss, look) in lost.into_iter().zip(looks) {
        if look? {
            loss.lost = None;
        }
    }
    Ok(())
}

/// Whether the store has a lost change again; one of which it has a damaged record stays lost.
async fn is_restored(store: &dyn Store, loss: &Loss) -> Result<bool, StoreError> {
    let Some(change) = &loss.change else { return Ok(false) };
    match has_again(store, &loss.owner, change).await {
        Err(error) if error.is_transient() => Err(error),
        look => Ok(look.unwrap_or_default()),
    }
}

/// Reads all finds, and names at most `limit` changes.
pub(super) async fn read_losses(venue: &Venue, limit: usize) -> Result<KnownLosses, AuditError> {
    let settled = read_settlement(venue).await?;
    let mut finds = read_finds(venue).await?;
    let is_any = finds.iter().flat_map(|find| &find.lines).any(|loss| loss.lost.is_some());
    mark_restored(&*venue.store, &mut finds).await?;
    let mut known = KnownLosses { is_any, ..KnownLosses::default() };
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let (mut seen, mut named) = (HashSet::new(), Vec::new());
    for find in &finds {
        let (found, by) = (find.found.rfc3339(), &find.by);
        known.lines.extend(find.notes.iter().map(|note| format!("{note} (found at {found} by `{by}`)")));
        for loss in &find.lines {
            // A loss that both a process and the journal have found is one loss.
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
        known.lines.insert(0, format!("{} lost in all: {}", known.total, join_sums(&kinds)));
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

/// Returns the last settlement by an operator.
pub async fn read_settlement(venue: &Venue) -> Result<Option<LossSettlement>, AuditError> {
    Ok(venue.store.get(&venue_owner(), keys::SETTLED).await?)
}

/// Whether losses were found since the last settlement, or the store was set back, by [`super::set_backs`].
pub async fn is_unsettled(venue: &Venue, set_backs: &[StoreSetBack]) -> Result<bool, AuditError> {
    let settled = read_settlement(venue).await?;
    let is_new = |found: Millis| settled.as_ref().is_none_or(|settled| settled.at < found);
    if set_backs.iter().any(|set_back| is_new(set_back.found)) {
        return Ok(true);
    }
    Ok(read_finds(venue).await?.iter().any(|find| find.is_serious() && is_new(find.found)))
}

/// Records that an operator has settled everything that was found until now. The finds stay readable.
pub async fn settle(venue: &Venue, by: &str) -> Result<LossSettlement, AuditError> {
    let settlement = LossSettlement { at: venue.now(), by: by.to_owned() };
    let write = DocWrite::json(keys::SETTLED, &settlement);
    venue.store.write(settlement.at, &venue_owner(), &[write]).await?;
    Ok(settlement)
}
