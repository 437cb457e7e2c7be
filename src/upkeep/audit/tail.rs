//! What was acknowledged and lost with a server: found when the store's history is another, put back where that can be,
//! and kept for operators.

use super::AuditError;
use crate::domain::limits::LOSSES_KEPT;
use crate::domain::tail::{Loss, Losses};
use crate::store::tail::Compared;
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the store's history.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks, as the process of this name, until `stop`.
pub async fn watch(venue: Arc<Venue>, by: String, stop: CancellationToken) {
    if venue.history.tail().is_none() {
        return;
    }
    let mut untold = Vec::new();
    loop {
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = look(&venue, &by, &mut untold) => looked,
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

/// One look. What it finds is in `untold` until it is kept.
async fn look(venue: &Venue, by: &str, untold: &mut Vec<Loss>) -> Result<(), StoreError> {
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
                "a server of the store was replaced or restarted; nothing that this process knows of is lost"
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
        let losses = Losses::of(venue.now(), by, untold.clone());
        let new = DocWrite::json(keys::losses(losses.found, by), &losses);
        venue.keep_newest(keys::LOSSES, LOSSES_KEPT, new).await?;
        untold.clear();
    }
    Ok(())
}

/// What processes have found, the newest first, in words: `limit` lines at most.
pub(super) async fn lines(venue: &Venue, limit: usize) -> Result<Vec<String>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: LOSSES_KEPT, values: true };
    let page = venue.store.page(&venue_owner(), keys::LOSSES, window).await?;
    let mut lines = Vec::new();
    for (key, doc) in &page.docs {
        let Some(Losses { found, by, total, lines: some }) = doc.decode::<Losses>(key)? else { continue };
        lines.extend(some.iter().map(|loss| format!("{loss} (found at {} by `{by}`)", found.rfc3339())));
        if total > some.len() as u64 {
            lines.push(format!(
                "`{by}` found {} more at {}; its log has them",
                total - some.len() as u64,
                found.rfc3339()
            ));
        }
        if lines.len() >= limit {
            break;
        }
    }
    lines.truncate(limit);
    Ok(lines)
}
