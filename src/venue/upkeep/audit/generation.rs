//! The mark that store and queue share: it shows that the store, or a part of it, was set back.

use super::AuditError;
pub use crate::domain::generation::StoreSetBack;
use crate::domain::generation::{GenerationMark, find_set_back, next_mark};
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
pub async fn advance_mark(venue: &Venue) -> Result<Option<StoreSetBack>, AuditError> {
    let Some(witness) = venue.bus.witness() else { return Ok(None) };
    // The queue is read first, because it follows the store.
    let queue = witness.mark().await?.unwrap_or_default();
    let known = read_marks(venue).await?;
    let store: Vec<GenerationMark> = known.iter().map(|(mark, _)| *mark).collect();
    let now = venue.now();
    let found = find_set_back(&store, queue, now);
    let mark = next_mark(&store, queue, now);
    let leave = |(owner, (_, version)): (&Owner, &(GenerationMark, u64))| {
        let mut writes = vec![DocWrite::json(keys::EPOCH, &mark).at_version(*version)];
        let found = found.as_ref().filter(|_| *owner == venue_owner());
        writes.extend(found.map(|found| DocWrite::json(keys::set_back_record(now), found)));
        let owner = owner.clone();
        async move { venue.store.write(now, &owner, &writes).await.map(drop) }
    };
    let parts = venue.history.parts().iter().zip(&known).map(leave);
    stream::iter(parts).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    witness.write_mark(&mark).await?;
    Ok(found)
}

/// Returns the times at which the store was found set back, the newest first, with one that hasn't been recorded yet.
pub async fn set_backs(venue: &Venue) -> Result<Vec<StoreSetBack>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: SHOWN, values: true };
    let page = venue.store.page(&venue_owner(), keys::SET_BACKS, window).await?;
    let mut all = Vec::new();
    if let Some(witness) = venue.bus.witness() {
        let queue = witness.mark().await?.unwrap_or_default();
        let store: Vec<GenerationMark> = read_marks(venue).await?.into_iter().map(|(mark, _)| mark).collect();
        all.extend(find_set_back(&store, queue, venue.now()));
    }
    for (key, doc) in &page.docs {
        all.extend(doc.decode::<StoreSetBack>(key)?);
    }
    Ok(all)
}

/// Returns the mark of each part, and the version of its document.
async fn read_marks(venue: &Venue) -> Result<Vec<(GenerationMark, u64)>, StoreError> {
    let read = |owner: Owner| async move {
        let (mark, version) = venue.store.get_versioned::<GenerationMark>(&owner, keys::EPOCH).await?;
        Ok((mark.unwrap_or_default(), version))
    };
    stream::iter(venue.history.parts().to_vec()).map(read).buffered(AT_ONCE).try_collect().await
}
