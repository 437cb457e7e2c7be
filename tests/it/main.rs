//! All integration tests, one binary.

#![allow(clippy::unwrap_used)] // Tests fail by panicking.

mod support;

mod approvals;
mod auth;
mod authority;
mod bench_sessions;
mod budgets;
mod bus_conformance;
mod busy;
mod chaos;
mod children;
mod cli_demo;
mod cli_errors;
mod cli_fleet;
mod cli_life;
mod cli_up;
mod context;
mod crash_points;
mod day;
mod deployment;
mod embedded_store;
mod examples;
mod failures;
mod fuzz;
mod goals;
mod http_api;
mod http_client;
mod http_jobs;
mod job_list;
mod ledger;
mod lifecycle;
mod model_provider;
mod nats_accounts;
mod nats_bus;
mod nats_client;
mod operations;
mod outage;
mod own_renewal;
mod queue;
mod redis_store;
mod resources;
mod resume;
mod retention;
mod scopes;
mod secrets;
mod seed_pages;
mod sessions;
mod store_conformance;
mod store_differential;
mod tidy;
mod timers;
mod values;
mod worker;
mod workspace;
