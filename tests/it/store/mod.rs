//! The store: conformance, both backends, loss, retention, backups.

mod backup;
pub mod conformance;
mod contended_documents;
mod differential;
mod embedded;
mod fill_level;
mod lost_acks;
mod lost_tail;
mod redis;
mod redis_cluster;
mod redis_sentinel;
pub mod retention;
mod retention_of_parts;
mod rollback_detection;
mod settings_watch;
