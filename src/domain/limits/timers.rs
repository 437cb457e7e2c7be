//! Limits of timers.

use std::time::Duration;

/// Timers of one agent that will still fire: an agent that sets one in every turn is stopped here.
pub const TIMERS_PER_AGENT: usize = 100;

/// Bytes of a timer's request, its authority and values included: each fire writes them again.
pub const TIMER_BYTES: usize = 128 * 1024;

/// Bytes of a timer's name.
pub const TIMER_NAME_BYTES: usize = 128;

/// Shortest time between two fires of a timer, and shortest time to the first fire of one that a turn sets: each fire
/// costs a turn, which may set the next timer.
pub const TIMER_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Farthest time of a timer: ten years. A later time is a mistake of units.
pub const TIMER_FARTHEST: Duration = Duration::from_hours(24 * 3_653);

/// Planned times of one downtime that a timer catches up on: a day of quarters of an hour.
pub const TIMER_CATCH_UP: usize = 100;

/// Delay up to which a timer counts as on time: a sweep on a busy machine takes as long, a restart takes longer.
pub const TIMER_LATE: Duration = Duration::from_secs(10);

/// Delay up to which a timer counts as on time after missed times: two sweeps, because nothing else distinguishes it
/// from them.
pub const TIMER_PROMPT: Duration = Duration::from_secs(2);

/// Time in the past that a timer may still be set to, and that it is retried at a full mailbox: a model may think as
/// long.
pub const TIMER_GRACE: Duration = Duration::from_mins(1);

/// Time that a finished timer is listed, and blocks a turn that would set it again.
pub const TIMER_KEPT: Duration = Duration::from_hours(24);

/// First and longest pause before a timer is sent to a full mailbox again.
pub const TIMER_BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
