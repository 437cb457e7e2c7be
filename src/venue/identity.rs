//! Names that all processes on a store share: the first process writes them, the others compare theirs.

use super::venue_owner;
use crate::domain::identity::{NameMismatch, VenueNames};
use crate::domain::time::Millis;
use crate::process::retry::AttemptFailure;
use crate::store::{DocWrite, Edit, Store, StoreError, keys};

/// Rule of a process for names that are absent or differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Names are only compared.
    Compare,
    /// Names are compared, and written if there are none.
    Register,
    /// Names of this process replace stored ones.
    Adopt,
}

/// Why the names of this process are not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NameCheckError {
    /// The store was made with another name.
    #[error(transparent)]
    Mismatch(#[from] NameMismatch),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<NameCheckError> for AttemptFailure<NameCheckError> {
    fn from(error: NameCheckError) -> Self {
        match error {
            NameCheckError::Store(error) => AttemptFailure::<StoreError>::from(error).map(NameCheckError::Store),
            mismatch @ NameCheckError::Mismatch(_) => Self::Permanent(mismatch),
        }
    }
}

/// Compares the names of this process with the store's.
pub async fn compare_names(
    store: &dyn Store,
    now: Millis,
    names: &VenueNames,
    rule: NameRule,
) -> Result<(), NameCheckError> {
    let owner = venue_owner();
    let attempt = || async {
        let (found, version) = store.get_versioned::<VenueNames>(&owner, keys::NAMES).await?;
        let compared = found.as_ref().map_or(Ok(()), |found| found.compare(names));
        // A store that holds its queue has no prefix of a bus, and there is none to compare.
        let is_written = found.is_some_and(|found| found == *names || names.bus_prefix.is_none());
        let writes = match (rule, compared) {
            (NameRule::Compare, compared) => {
                compared?;
                false
            }
            (NameRule::Register, compared) => {
                compared?;
                !is_written
            }
            (NameRule::Adopt, Ok(())) => !is_written,
            (NameRule::Adopt, Err(NameMismatch { setting, made, .. })) => {
                tracing::warn!("`venue.adopt` is set: `{setting}` of the store is changed from \"{made}\" for good");
                true
            }
        };
        let write = DocWrite::json(keys::NAMES, names).at_version(version);
        Ok(if writes { Edit::write([write], ()) } else { Edit::without_writes(()) })
    };
    store.edit(now, &owner, "document", &keys::NAMES, attempt).await
}
