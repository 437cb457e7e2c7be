//! Pipelines: agents whose next step their manifest decides.

mod manifests;
mod restarts;
mod runs;
