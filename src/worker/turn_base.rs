//! Values that the stages of a turn share.

use crate::venue::operation::CatalogView;
use crate::venue::workspace::Workspace;

/// The workspace that a turn reads and writes, the operations that it offers, and the version of its policy.
pub(super) struct TurnBase {
    pub(super) workspace: Workspace,
    /// The operations that the turn offers, validates and calls, as they were when it began.
    pub(super) catalog: CatalogView,
    /// Version of the owner's policy when the turn began.
    pub(super) policy: u64,
}
