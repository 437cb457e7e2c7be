//! What every process needs around its work: the time, retries of connections, an orderly shutdown, logs and metrics.
//! Knows nothing of jobs and agents.

pub mod clock;
pub mod host;
pub mod large;
pub mod pace;
pub mod retry;
pub mod shutdown;
pub mod telemetry;
pub mod tracer;
pub mod log;
