//! The mark that store and queue share: it shows that the store, or a part of it, was set back.

use super::AuditError;
pub use crate::domain::epoch::SetBack;
use crate::domain::epoch::{Mark, compare, next};
use crate::domain::ids::Owner;
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};
use futures::{StreamExt, TryStreamExt, stream};

/// Records that are read.
const SHOWN: usize = 20;
/// Marks that are read or written at a time.
const AT_ONCE: usize = 32;

/// Advances the mark: a set-back that was found is recorded, the store gets the next mark, then the queue. After a
/// crash in between the store is ahead, which means nothing. If another process advances it at the same time, one of
/// them counts.
pub async fn beat(venue: &Venue) -> Result<Option<SetBack>, AuditError> {
    let Some(witness) = venue.bus.witness() else { return Ok(None) };
    // The queue is read first, because it follows the store.
    let queue = witness.mark().await?.unwrap_or_default();
    let known = known(venue).await?;
    let store: Vec<Mark> = known.iter().map(|(mark, _)| *mark).collect();
    let now = venue.now();
    let found = compare(&store, queue, now);
    let mark = next(&store, queue, now);
    let leave = |(owner, (_, version)): (&Owner, &(Mark, u64))| {
        let mut writes = vec![DocWrite::json(keys::EPOCH, &mark).at(*version)];
        let found = found.as_ref().filter(|_| *owner == venue_owner());
        writes.extend(found.map(|found| DocWrite::json(keys::set_back(now), found)));
        let owner = owner.clone();
        async move { venue.store.write(now, &owner, &writes).await.map(drop) }
    };
    let parts = venue.history.parts().iter().zip(&known).map(leave);
    stream::iter(parts).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    witness.leave(&mark).await?;
    Ok(found)
}

/// Returns the times at which the store was found set back, the newest first, with one that hasn't been recorded yet.
pub async fn set_backs(venue: &Venue) -> Result<Vec<SetBack>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: SHOWN, values: true };
    let page = venue.store.page(&venue_owner(), keys::SET_BACKS, window).await?;
    let mut all = Vec::new();
    if let Some(witness) = venue.bus.witness() {
        let queue = witness.mark().await?.unwrap_or_default();
        let store: Vec<Mark> = known(venue).await?.into_iter().map(|(mark, _)| mark).collect();
        all.extend(compare(&store, queue, venue.now()));
    }
    for (key, doc) in &page.docs {
        all.extend(doc.decode::<SetBack>(key)?);
    }
    Ok(all)
}

/// Returns the mark of each part, and the version of its document.
async fn known(venue: &Venue) -> Result<Vec<(Mark, u64)>, StoreError> {
    let read = |owner: Owner| async move {
        let (mark, version) = venue.store.versioned::<Mark>(&owner, keys::EPOCH).await?;
        Ok((mark.unwrap_or_default(), version))
    };
    stream::iter(venue.history.parts().to_vec()).map(read).buffered(AT_ONCE).try_collect().await
}
