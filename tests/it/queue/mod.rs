//! The bus: NATS, embedded, and what programs see of it.

mod accounts;
mod alarms;
mod backlog;
pub mod bus_conformance;
mod bus_owner;
mod cluster;
mod completion_batches;
mod deleted_streams;
mod direct;
mod large_outputs;
mod messages;
mod partitions;
mod producer_ids;
mod python_client;
mod server;
mod signals;
mod slow_consumer;
mod stream_settings;
mod tenant_accounts;
mod undeliverable;
