//! What several tests need.

pub mod both;
pub mod certificates;
pub mod cli;
pub mod dice;
pub mod endless;
pub mod fleet;
pub mod foresight;
pub mod http;
pub mod nats;
pub mod nats_cluster;
pub mod operate;
pub mod port;
pub mod provider;
pub mod python;
pub mod raw;
pub mod redis;
pub mod redis_cluster;
pub mod redis_load;
pub mod redis_sentinel;
pub mod site;
pub mod terminal;
pub mod venue;
pub mod watched;
pub mod way;
