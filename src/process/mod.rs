//! What every process has around its work: the time, patience with connections, an orderly end, and what it
//! tells of itself. Knows nothing of jobs and agents.

pub mod clock;
pub mod host;
pub mod large;
pub mod pace;
pub mod retry;
pub mod shutdown;
pub mod telemetry;
pub mod log;
