//! The names that all processes on a store share: written by the first of them, compared by the others.

use super::venue_owner;
use crate::domain::identity::{NameMismatch, VenueNames};
use crate::domain::time::Millis;
use crate::store::{DocWrite, OutsideWrite, Store, StoreError, keys};

/// What a process does with names that aren't there yet, or differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// It compares them.
    Compare,
    /// It compares them, and writes its own where there are none.
    Register,
    /// It writes its own over those of others.
    Adopt,
}

/// Compares the names of this process with the store's.
pub async fn agree(
    store: &dyn Store,
    now: Millis,
    names: &VenueNames,
    rule: NameRule,
) -> Result<Result<(), NameMismatch>, StoreError> {
    let owner = venue_owner();
    loop {
        let (found, version) = store.versioned::<VenueNames>(&owner, keys::NAMES).await?;
        let compared = found.as_ref().map_or(Ok(()), |found| found.compare(names));
        // One that has its queue in the store says nothing of a prefix, and one made so has none to compare.
        let is_written = found.is_some_and(|found| found == *names || names.bus_prefix.is_none());
        let writes = match rule {
            NameRule::Compare => false,
            NameRule::Register => compared.is_ok() && !is_written,
            NameRule::Adopt => compared.is_err() || !is_written,
        };
        if !writes {
            return Ok(compared);
        }
        if let Err(mismatch) = &compared {
            let (setting, made) = (mismatch.setting, &mismatch.made);
            tracing::warn!("`venue.adopt` is set: `{setting}` of the store is changed from \"{made}\" for good");
        }
        match store.write(now, &owner, &[DocWrite::json(keys::NAMES, names).at(version)]).await? {
            OutsideWrite::Done => return Ok(Ok(())),
            // Another process was faster: its names are read.
            OutsideWrite::Conflict(_) => {}
        }
    }
}
