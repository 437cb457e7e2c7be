//! The names that all processes on a store share: written by the first of them, compared by the others.

use super::venue_owner;
use crate::domain::identity::{NameMismatch, VenueNames};
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, Store, StoreError, keys};

/// Rule of a process for names that aren't there yet, or differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Names are compared.
    Compare,
    /// Names are compared, and written where there are none.
    Register,
    /// Names of this process replace those of others.
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
    let attempt = || async {
        let (found, version) = store.versioned::<VenueNames>(&owner, keys::NAMES).await?;
        let compared = found.as_ref().map_or(Ok(()), |found| found.compare(names));
        // One that has its queue in the store says nothing of a prefix, and one made so has none to compare.
        let is_written = found.is_some_and(|found| found == *names || names.bus_prefix.is_none());
        let (writes, answer) = match (rule, compared) {
            (NameRule::Compare, compared) => (false, compared),
            (NameRule::Register, compared) => (compared.is_ok() && !is_written, compared),
            (NameRule::Adopt, Ok(())) => (!is_written, Ok(())),
            (NameRule::Adopt, Err(NameMismatch { setting, made, .. })) => {
                tracing::warn!("`venue.adopt` is set: `{setting}` of the store is changed from \"{made}\" for good");
                (true, Ok(()))
            }
        };
        let write = DocWrite::json(keys::NAMES, names).at(version);
        Ok(if writes { Edit::write([write], answer) } else { Edit::nothing(answer) })
    };
    store.edit(now, &owner, ("document", &keys::NAMES), attempt).await
}
