//! Pipelines: agents whose next step their manifest decides.

mod manifests;
mod operations;
mod restarts;
mod runs;
