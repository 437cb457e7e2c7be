//! Sessions: lists, forks, changes, expiry, busy policies.

mod busy_policy;
mod changes;
mod expiry;
mod listing;
