//! All integration tests, one binary.

#![allow(clippy::unwrap_used)] // Tests fail by panicking.

mod support;

mod a2a;
mod a2a_client;
mod agents;
mod api;
mod authority;
mod cli;
mod console;
mod context;
mod declared_tools;
mod deployment;
mod guide;
mod jobs;
mod mcp;
mod mcp_client;
mod models;
mod money;
mod notifications;
mod observability;
mod pipelines;
mod queue;
mod recovery;
mod sessions;
mod store;
mod tidy;
mod workers;
