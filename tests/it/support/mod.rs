//! What several tests need.

pub mod nats;
pub mod redis;
pub mod venue;
