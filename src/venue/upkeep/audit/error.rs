//! Why an audit fails.

use crate::bus::BusError;
use crate::store::StoreError;

/// Why an audit fails.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue failed.
    #[error(transparent)]
    Bus(#[from] BusError),
}
