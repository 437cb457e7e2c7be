//! Limits of places elsewhere, servers of tools and agents, whose offers a process publishes as they are approved.

use std::time::Duration;

/// Pause before a place is asked again what it offers after it has failed.
pub const PLACE_RETRY: Duration = Duration::from_secs(30);

/// Time for which a process keeps the operations of a place that nobody uses: longer than any turn.
pub const PLACE_PUBLISHED: Duration = Duration::from_hours(4);

/// Age at which a process reads what is approved of a place from the store again.
pub const PLACE_PIN_AGE: Duration = Duration::from_secs(2);

/// Time for which a place isn't asked again although it says that it has changed: it may say so all the time.
pub const PLACE_CHANGE_PAUSE: Duration = Duration::from_secs(2);
