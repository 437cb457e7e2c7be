//! All integration tests, one binary.

#![allow(clippy::unwrap_used)] // Tests fail by panicking.

mod support;

mod deployment;
mod nats_bus;
mod redis_store;
mod store_conformance;
mod model_provider;
mod redis_store;
mod store_differential;
