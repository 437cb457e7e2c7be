//! Messages whose subject means nothing: what the queue took and nobody can get is kept to be seen.

use crate::domain::dead::Stray;
use crate::domain::ids::Owner;
use crate::domain::limits::STRAYS_KEPT;
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};

/// Keeps one, and the newest of those before it. They are the venue's own: whoever publishes under the
/// name of an owner that isn't there makes none.
///
/// After it: it is counted, once, however often it is delivered.
pub async fn keep(venue: &Venue, stray: &Stray, sequence: u64) -> Result<(), StoreError> {
    let new = DocWrite::json(keys::stray(stray.received, sequence), stray);
    venue.keep_newest(keys::STRAYS, STRAYS_KEPT, new).await
}

/// The newest of an owner, or of all, and how many there are.
pub async fn list(venue: &Venue, of: Option<&Owner>, limit: usize) -> Result<(Vec<Stray>, usize), StoreError> {
    let window = Window { reverse: true, skip: 0, limit: STRAYS_KEPT, values: true };
    let page = venue.store.page(&venue_owner(), keys::STRAYS, window).await?;
    let mut strays = Vec::with_capacity(page.docs.len());
    for (key, doc) in &page.docs {
        strays.extend(doc.decode::<Stray>(key)?);
    }
    strays.retain(|stray| of.is_none() || stray.owner.as_ref() == of);
    let total = strays.len();
    strays.truncate(limit);
    Ok((strays, total))
}
