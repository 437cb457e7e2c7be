//! Which builds work on this store: its format is compared at the start, and raised by the first of a newer build.

use super::{Venue, venue_owner};
use crate::domain::format::{FORMAT, FormatError, FormatFit, StoreFormat, stands};
use crate::domain::time::Millis;
use crate::store::{DocWrite, Store, StoreError, keys};
use std::time::Duration;

/// What this build can't read stays in the queue for a newer one, and comes again after so long.
pub const LEFT: Duration = Duration::from_secs(5);

/// From this age on nobody newer comes for it: what lies in the queue takes the room of others.
pub const LEFT_AT_MOST: Duration = Duration::from_hours(24);

/// Compares the store's format with this build's. With `raise` the store has this build's from then on, where that is
/// the newer one. A conflict means that another process has raised it: it is read again.
pub async fn agree(store: &dyn Store, now: Millis, raise: bool) -> Result<Result<FormatFit, FormatError>, StoreError> {
    let owner = venue_owner();
    loop {
        let (found, version) = store.versioned::<StoreFormat>(&owner, keys::FORMAT).await?;
        let fit = stands(found.as_ref(), FORMAT);
        if !raise || fit != Ok(FormatFit::Raise) {
            return Ok(fit);
        }
        let new = StoreFormat { format: FORMAT, by: env!("CARGO_PKG_VERSION").to_owned() };
        store.write(now, &owner, &[DocWrite::json(keys::FORMAT, &new).at(version)]).await?;
    }
}

impl Venue {
    /// Whether a newer build than this has worked on the store: what this one can't read may be that one's.
    pub async fn is_behind(&self) -> Result<bool, StoreError> {
        let found = self.store.get::<StoreFormat>(&venue_owner(), keys::FORMAT).await?;
        Ok(found.is_some_and(|found| found.format > FORMAT))
    }
}
