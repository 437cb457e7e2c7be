//! What several tests need.

pub mod both;
pub mod cli;
pub mod dice;
pub mod endless;
pub mod fleet;
pub mod foresight;
pub mod http;
pub mod nats;
pub mod operate;
pub mod port;
pub mod provider;
pub mod python;
pub mod raw;
pub mod redis;
pub mod redis_cluster;
pub mod site;
pub mod terminal;
pub mod venue;
pub mod watched;
