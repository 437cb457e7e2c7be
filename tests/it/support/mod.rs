//! What several tests need.

pub mod cli;
pub mod http;
pub mod nats;
pub mod redis;
pub mod venue;
