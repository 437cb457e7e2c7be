//! The epoch that store and queue share: by it a store that was set back is known.

use super::AuditError;
pub use crate::domain::epoch::SetBack;
use crate::domain::epoch::{Mark, compare, next};
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};

/// Records that are shown.
const SHOWN: usize = 20;

/// The next beat: what was found is kept, the store goes ahead, the queue follows. A crash in between leaves
/// the store ahead, which says nothing; where another process beats at the same time, one of them counts.
pub async fn beat(venue: &Venue) -> Result<Option<SetBack>, AuditError> {
    let Some(witness) = venue.bus.witness() else { return Ok(None) };
    let (store, version) = known(venue).await?;
    let queue = witness.mark().await?.unwrap_or_default();
    let now = venue.now();
    let found = compare(store, queue, now);
    let mark = next(store, queue, now);
    let mut writes = vec![DocWrite::json(keys::EPOCH, &mark).at(version)];
    writes.extend(found.map(|found| DocWrite::json(keys::set_back(now), &found)));
    venue.store.write(now, &venue_owner(), &writes).await?;
    witness.leave(&mark).await?;
    Ok(found)
}

/// Times at which the store was found set back, the newest first; with what hasn't been recorded yet.
pub async fn set_backs(venue: &Venue) -> Result<Vec<SetBack>, AuditError> {
    let window = Window { reverse: true, skip: 0, limit: SHOWN, values: true };
    let page = venue.store.page(&venue_owner(), keys::SET_BACKS, window).await?;
    let mut all = Vec::new();
    if let Some(witness) = venue.bus.witness() {
        let queue = witness.mark().await?.unwrap_or_default();
        all.extend(compare(known(venue).await?.0, queue, venue.now()));
    }
    for (key, doc) in &page.docs {
        all.extend(doc.decode::<SetBack>(key)?);
    }
    Ok(all)
}

async fn known(venue: &Venue) -> Result<(Mark, u64), StoreError> {
    let (mark, version) = venue.store.versioned::<Mark>(&venue_owner(), keys::EPOCH).await?;
    Ok((mark.unwrap_or_default(), version))
}
