//! Periodic tasks of a worker: they do what lost messages would have done, fire timers, repair lost changes, and forget
//! what retention is over for. They publish wakes and run no turn.

pub(super) mod alarms;
pub(super) mod auditor;
pub(super) mod clocks;
pub(super) mod registration;
pub(super) mod sweep;
pub(super) mod retention;

use std::time::Duration;

/// Time that a stopping worker gives the store to remove it; after that its entries expire.
const DEREGISTRATION_TIME: Duration = Duration::from_secs(1);
