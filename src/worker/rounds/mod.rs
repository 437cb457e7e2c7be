//! What a worker looks after beside sessions: what messages only make prompt is made certain, timers fire, what is lost is
//! put back, what is old is forgotten. In comes the time, out go wakes; it runs no turn.

pub(super) mod alarms;
pub(super) mod auditor;
pub(super) mod clocks;
pub(super) mod roll;
pub(super) mod sweep;
pub(super) mod tidy;

use std::time::Duration;

/// A store that takes longer to hear of the end of a worker learns it by its silence.
const GOODBYE: Duration = Duration::from_secs(1);
