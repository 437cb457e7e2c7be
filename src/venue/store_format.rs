//! Format of the store: each build compares it at its start, and the first process of a newer build raises it.

use super::{Venue, venue_owner};
use crate::domain::format::{FORMAT, FormatError, FormatFit, StoreFormat, check_format};
use crate::domain::time::Millis;
use crate::process::retry::AttemptFailure;
use crate::store::{DocWrite, Store, StoreError, keys};
use std::time::Duration;

/// Pause after which a message that this build can't read is delivered again, for a newer build to take it.
pub const NEWER_MESSAGE_DELAY: Duration = Duration::from_secs(5);

/// Age from which no newer build is expected to take such a message: until then it takes room in the queue.
pub const NEWER_MESSAGE_AGE: Duration = Duration::from_hours(24);

/// Why this build can't work on the store, or why that is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FormatCheckError {
    /// The store has the format of a build that is too far from this one.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<FormatCheckError> for AttemptFailure<FormatCheckError> {
    fn from(error: FormatCheckError) -> Self {
        match error {
            FormatCheckError::Store(error) => AttemptFailure::<StoreError>::from(error).map(FormatCheckError::Store),
            format @ FormatCheckError::Format(_) => Self::Permanent(format),
        }
    }
}

/// Compares the store's format with this build's. With `raise` the store gets this build's format if that is newer. A
/// conflict means that another process has raised it, and it is read again.
pub async fn compare_format(store: &dyn Store, now: Millis, raise: bool) -> Result<FormatFit, FormatCheckError> {
    let owner = venue_owner();
    loop {
        let (found, version) = store.get_versioned::<StoreFormat>(&owner, keys::FORMAT).await?;
        let fit = check_format(found.as_ref(), FORMAT);
        if !raise || fit != Ok(FormatFit::Raise) {
            return Ok(fit?);
        }
        let new = StoreFormat { format: FORMAT, by: env!("CARGO_PKG_VERSION").to_owned() };
        store.write(now, &owner, &[DocWrite::json(keys::FORMAT, &new).at_version(version)]).await?;
    }
}

impl Venue {
    /// Whether a newer build has worked on the store: what this build can't read may be of that one.
    pub async fn is_behind(&self) -> Result<bool, StoreError> {
        let found = self.store.get::<StoreFormat>(&venue_owner(), keys::FORMAT).await?;
        Ok(found.is_some_and(|found| found.format > FORMAT))
    }
}
