//! What several tests need.

pub mod redis;
