//! Pauses and time limits of the demo.

use std::time::Duration;

/// Longest time for all tasks, which take some seconds.
pub(crate) const TASKS_TIME_LIMIT: Duration = Duration::from_mins(3);
/// Pause between two reads of what goes on.
pub(crate) const READ_PAUSE: Duration = Duration::from_millis(30);
/// Pause for reading a paragraph.
pub(crate) const PARAGRAPH_PAUSE: Duration = Duration::from_secs(2);
