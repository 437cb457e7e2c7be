//! What a worker looks after beside sessions: what messages only make prompt is made certain, timers fire, what is lost is
//! put back, what is old is forgotten. In comes the time, out go wakes; it runs no turn.

pub(super) mod alarms;
pub(super) mod auditor;
pub(super) mod roll;
pub(super) mod sweep;
pub(super) mod tidy;
