//! Staged shutdown.
