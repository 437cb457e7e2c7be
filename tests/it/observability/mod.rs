//! What operators see of a fleet: metrics, their rules and dashboard, and workers as services of NATS.

mod metrics;
mod nats_service;
mod traces;
