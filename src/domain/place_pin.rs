//! What a person has approved of a place elsewhere, a server of tools or an agent.

use crate::time::Millis;

/// What is approved of a place, as it is stored, and the change that waits for approval.
pub trait PlacePin: Sized {
    /// Settings of the place.
    type Settings;

    /// Whether it is about the place that these settings name. What was approved of another place doesn't count.
    fn is_of(&self, settings: &Self::Settings) -> bool;

    /// Returns the hash of the change that waits: an approval is of one change and of no other.
    fn change_hash(&self) -> Option<String>;

    /// Approves the change that waits.
    #[must_use]
    fn approve(self, by: &str, now: Millis) -> Self;

    /// Returns the version of the place's operations under these settings: a call that was decided on one is never made
    /// with another.
    fn version(&self, settings: &Self::Settings) -> String;
}
